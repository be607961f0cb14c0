"""pe.py, which starts the program of one PE, by itself: without pyshmemrun and without a launcher."""

import os
import signal
import subprocess
import sys
import time

from pyshmem.launch.run import pe
from surroundings import SECONDS

LATE = """
import os, sys, time
sys.path.append(sys.argv.pop(1))
import pe
write = pe.write

def late(path, text):
    time.sleep(0.5)
    write(path, text)

pe.write = late
sys.exit(pe.main(sys.argv[1:]))
"""


STOPPED = """
import os, signal, sys
sys.path.append(sys.argv[1])
import pe
numbers = (signal.SIGUSR1, signal.SIGUSR2)
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
signals = pe.open_signals(numbers)
print("begins", flush=True)
print(pe.next_signal(signals, 1.0), flush=True)
print(pe.next_signal(signals, 60.0) == (signal.SIGUSR2, os.getppid()))
"""


def test_a_pe_that_is_stopped_and_goes_on_gets_no_signal_but_those_that_are_sent():
    """Stopped for longer than the process before it waits for signals at a time."""
    words = [sys.executable, "-I", "-S", "-c", STOPPED, os.path.dirname(pe.__file__)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begins\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.2)
        process.send_signal(signal.SIGCONT)
        assert process.stdout.readline() == "(0, 0)\n"
        process.send_signal(signal.SIGUSR2)
        assert process.communicate(timeout=SECONDS)[0] == "True\n"


def test_pyshmemrun_can_forward_signals_to_a_pe_as_soon_as_its_program_runs(tmp_path):
    """By the file with the process that passes them on, which is written late here."""
    folder = tmp_path / f"{pe.prefix()}0"
    folder.mkdir()
    program = ["-S", "-c", "import os; print(os.path.exists(os.environ['PYSHMEM_JOB_DIR'] + '/pe-0'))"]
    before = [sys.executable, "-I", "-S", "-c", LATE, os.path.dirname(pe.__file__)]
    environment = {**os.environ, "PMI_RANK": "0", "PYSHMEM_JOB_DIR": str(folder)}
    done = subprocess.run(
        [*before, "PMI_RANK", sys.executable, *program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
