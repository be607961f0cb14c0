"""Tests do not depend on how they were started: this runs before all other code of the tests, and before pyshmem."""

import gc
import os
import signal

from surroundings import SETTINGS, forget

# A job in the background of a shell ignores some of these, and nohup others; the programs of tests would inherit that.
DISPOSITIONS = dict.fromkeys(
    (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD), signal.SIG_DFL
)
for number, action in {**DISPOSITIONS, signal.SIGINT: signal.default_int_handler}.items():
    signal.signal(number, action)
signal.pthread_sigmask(signal.SIG_SETMASK, ())
try:
    os.fstat(0)
except OSError:
    # closed: the next file that a test opens would be the standard input of its programs
    os.open(os.devnull, os.O_RDONLY)
forget(*SETTINGS)
os.environ["PYSHMEM_CONFIG"] = ""  # no defaults of the site


def pytest_collection_finish():
    """Python's collections during tests do not look at what is imported by now: torch alone would take a third of their time."""
    gc.collect()
    gc.freeze()
