"""What reaches the user of what PEs print: all of it, at once, in whole lines, and what failed comes last."""

import os
import pty
import re

import pytest
from jobs import warm
from launching import PYSHMEMRUN
from pyshmem.launch.run import output
from surroundings import until

LENGTH = 100_000  # more than a pipe holds


def test_lines_of_pes_do_not_mix_however_they_are_written(start, launcher, program):
    """In pieces, which are written one by one, and longer than what a pipe takes at a time."""
    prog = program(f"""
for turn in range(20):
    for piece in range(50):
        sys.stdout.write(str(me))
    sys.stdout.write("\\n")
    print(str(me) * {LENGTH})
""")
    job = start(*PYSHMEMRUN, "-n", 3, *launcher, "--label", prog)
    assert (job.wait(), job.errors) == (0, "")
    wanted = [line for pe in "012" for line in (f"[{pe}] " + 50 * pe, f"[{pe}] " + LENGTH * pe) for turn in range(20)]
    assert sorted(job.output.splitlines()) == sorted(wanted)


def test_label_puts_the_pe_before_each_line_of_output_and_errors(start, launcher, program):
    prog = program("print('out'); print('err', file=sys.stderr); print('\\nrest', end='')")
    job = start(*PYSHMEMRUN, "-n", 11, *launcher, "-l", prog)
    assert job.wait() == 0
    lines = sorted(f"[{pe:2}] {text}" for pe in range(11) for text in ("out", "", "rest"))
    assert sorted(job.output.removesuffix("\n").split("\n")) == lines
    assert sorted(job.errors.splitlines()) == [f"[{pe:2}] err" for pe in range(11)]


def test_output_arrives_while_the_program_runs(start, launcher, program):
    job = start(*PYSHMEMRUN, "-n", 2, *launcher, program("print('begun\\n', end=''); wait_for('enough')"))
    assert until(lambda: job.output == "begun\n" * 2), job.output
    (job.folder / "enough").touch()
    assert job.wait() == 0


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGSEGV)", "os._exit(3)", "1 / 0"])
def test_output_before_a_failure_is_not_lost_and_the_failure_is_named_last(start, launcher, program, end):
    """Neither the launcher's banner nor the output of other PEs comes after it.

    What the other PE has printed has been shown before: the launcher may kill what passes it on at the failure.
    """
    prog = program(f"""
import pyshmem
pyshmem.init(heap_size="1m")
if me:
    print("of the other\\n", end="")
    wait_for("never")
wait_for("shown")
print("last words", end="")
{end}
""")
    job = start(*PYSHMEMRUN, "-n", 2, *launcher, *warm(), prog)
    assert until(lambda: job.output == "of the other\n"), job.output
    (job.folder / "shown").touch()
    assert job.wait() != 0
    assert job.output == "of the other\nlast words"
    assert re.match("PE 0: (killed by signal 11|exited with status 3|ZeroDivisionError)", job.errors.splitlines()[-1])


def test_output_before_a_time_out_is_not_lost(start, launcher, program):
    """The first time after which both have printed: a machine may be slow."""
    prog = program("print('a line\\nthe beginning of one', end=''); spin()")
    for seconds in (5, 15, 30):
        job = start(*PYSHMEMRUN, "-n", 2, *launcher, "--timeout", seconds, prog)
        assert job.wait() == 124
        if job.output.count("a line\n") == 2:
            break
    assert job.output.count("a line\n") == job.output.count("the beginning of one") == 2


def test_the_user_may_have_output_buffered(start, idle_launcher, program):
    prog = program("print('lost'); os._exit(0)")
    job = start(*PYSHMEMRUN, "-n", 1, *idle_launcher, "python", prog, env={"PYTHONUNBUFFERED": ""})
    assert (job.wait(), job.output) == (0, "")


def test_pe_0_can_ask_a_question_at_a_terminal(start, launcher, program):
    """The end of the line is what the user types."""
    master, slave = pty.openpty()
    prog = program("note('answer', input('name? ')) if me == 0 else None")
    job = start(*PYSHMEMRUN, "-n", 2, *launcher, prog, stdin=slave, start_new_session=True)
    assert until(lambda: "name? " in job.output)
    os.write(master, b"me\n")
    assert job.wait() == 0
    assert (job.folder / "answer").read_text() == "me"
    os.close(master)
    os.close(slave)


def test_a_reader_that_goes_away_ends_the_job(start, idle_launcher, program, tmp_path):
    command = [
        *map(str, (*PYSHMEMRUN, "-n", 2, *idle_launcher, "python", program("while True: print('more\\n', end='')")))
    ]
    reading, writing = os.pipe()
    job = start(*command, stdout=writing)
    os.close(writing)
    assert os.read(reading, 5) == b"more\n"
    os.close(reading)
    assert job.wait() != 0


def test_equal_failures_keep_their_order(tmp_path):

    for stamp, (name, text) in enumerate({"failed-2": "5 2\nPE 2: exited with status 5\n", "reported-0": "1\nPE 0: ValueError: x\n",
                                          "failed-0": "1 0\nPE 0: exited with status 1\n"}.items()):  # fmt: skip
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, (stamp, stamp))
    assert output.told(tmp_path) == ["PE 2: exited with status 5", "PE 0: ValueError: x"]


def test_a_pe_that_fails_for_the_loss_of_another_is_named_after_all_others(tmp_path):
    for stamp, (name, text) in enumerate({"reported-0": "1\nPE 0: lost PE 3 on b, whose connection has ended\n",
                                          "failed-3": "137 3\nPE 3 on b: killed by signal 9 (SIGKILL)\n"}.items()):  # fmt: skip
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, (stamp, stamp))
    ends = output.failures(tmp_path)
    assert [(end.pe, end.status) for end in ends] == [(3, 137), (0, 1)]


def test_a_report_that_a_pe_was_killed_before_it_had_written_is_none(tmp_path):
    (tmp_path / "reported-1").touch()
    (tmp_path / "failed-0").write_text("3 0\nPE 0: exited with status 3\n")
    assert output.told(tmp_path) == ["PE 0: exited with status 3"]


def test_pes_that_failed_alike_share_a_line_that_counts_them(tmp_path):
    texts = [
        "ValueError: bad",
        "exited with status 3",
        "ValueError: bad",
        "ValueError: bad",
        "ValueError: bad",
        "ValueError: worse",
    ]
    for pe, text in enumerate(texts):
        (tmp_path / f"failed-{pe}").write_text(f"1 0\nPE {pe}{' on far' * (pe == 3)}: {text}\n")
        os.utime(tmp_path / f"failed-{pe}", (pe, pe))
    assert output.told(tmp_path) == [
        "PE 0: ValueError: bad (also PEs 2 to 4; 4 PEs)", "PE 1: exited with status 3", "PE 5: ValueError: worse"
    ]  # fmt: skip


HYDRA = b"""
===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 22671 RUNNING AT vm
=   EXIT CODE: 9
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
===================================================================================
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)
This typically refers to a problem with your application.
Please see the FAQ page for debugging suggestions
"""


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
@pytest.mark.parametrize("here", [True, False], ids=["all PEs here", "some elsewhere"])
def test_the_launchers_banner_is_kept_for_the_end_where_no_pe_writes_through_the_launcher(here, size, tmp_path):
    """Lines of a program on another host come the same way, and are passed on whatever they look like."""
    said = output.Output(tmp_path, 2)
    for pe in range(2 if here else 1):
        (tmp_path / f"pe-{pe}").touch()
    text = b"mpiexec: says something\n" + HYDRA + b"without an end"
    take = said.apart(2, bytes)
    passed = b"".join(take(text[i : i + size]) for i in range(0, len(text), size)) + take(b"")
    said.finish()
    assert passed == (b"mpiexec: says something\nwithout an end" if here else text)
    assert said.banner == (HYDRA if here else b"")


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_what_pes_of_other_hosts_tell_is_taken_out_of_the_launchers_output(size, tmp_path):
    """In pieces of any size, after a label, between other lines; a line that only looks alike is passed on."""
    said = output.Output(tmp_path, 4)
    name = tmp_path.name.encode()
    text = b"".join((
        b"before\n" + name + b" 3 on far\n[2] " + name + b" 2 on far\n" + name + b" is a folder\n",
        name[:5] + b"\n\0" + name + b" 3 failed 7 PE 3 on far: exited with status 7\n",
        name + b" 3 failed 1 PE 3 on far: later\nwithout an end",
    ))  # fmt: skip
    take = output._Filter(tmp_path.name, said._note)
    passed = b"".join(take(text[i : i + size]) for i in range(0, len(text), size)) + take(b"")
    said.finish()
    assert passed.replace(b"[2] ", b"") == b"before\n" + name + b" is a folder\n" + name[:5] + b"\nwithout an end"
    assert said.unheard == {2: "far"} and said.away == 2
    assert [(end.pe, end.status, end.text) for end in output.failures(tmp_path)] == [
        (3, 7, "PE 3 on far: exited with status 7")
    ]
