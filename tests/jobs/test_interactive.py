"""pyshmemrun -i: lines run on all PEs, errors and Ctrl-C end the line alone."""

import io
import os
import pty
import re
import select
import time

import pytest
from jobs import python
from launching import PYSHMEMRUN

from pyshmem.launch.run.interactive import Labelled

LINES = """x = shmem.zeros(1)
shmem.p(x, 10 + me, (me + 1) % n_pes)
shmem.barrier_all()
x.item()
if me == 1: 1 / 0

shmem.sum_reduce(x, x, 2)
1 +* 2
for i in range(2):
    print("turn", i)

import triton, pyshmem.device as dev
@triton.jit
def to_next(ctx, x):
    dev.p(ctx, x, 20.0 + dev.my_pe(ctx), (dev.my_pe(ctx) + 1) % dev.n_pes(ctx))

to_next[(1,)](shmem.device_context(), x)
shmem.barrier_all()
x.item()
"""


PRINTED = """import time; slept = set(); sleep = time.sleep; time.sleep = lambda s: slept.add(s) or sleep(s)
{}print(max(slept, default=0) > 0.01)
""".format("print('a', end=' '); print('line', me, flush=True); print('open', me, end='')\n" * 8)


def test_lines_run_on_all_pes_and_a_prompt_follows_what_all_have_printed_and_errors_do_not_end_the_session(
    start, tmp_path
):
    (tmp_path / "lines").write_text(PRINTED + LINES)
    with open(tmp_path / "lines") as lines:
        job = start(*PYSHMEMRUN, "-n", 2, "-i", stdin=lines)
    assert job.wait() == 0, job.errors
    shown = [sorted(each.splitlines()) for each in job.output.split(">>> ")[2:11]]
    texts = [f"[{pe}] {what} {pe}" for pe in range(2) for what in ("a line", "open")]
    assert shown == [texts] * 8 + [["[0] False", "[1] False"]]  # a prompt waits no longer than for all PEs
    rest = ">>> ".join(job.output.split(">>> ")[11:])
    said = [line for line in re.sub(r"(>>> |\.\.\. )", "", rest).splitlines() if line.startswith("[")]
    printed = [["11.0", "turn 0", "turn 1", "21.0"], ["10.0", "turn 0", "turn 1", "20.0"]]
    assert sorted(said) == sorted(f"[{pe}] {line}" for pe in range(2) for line in printed[pe])
    assert "[1] ZeroDivisionError: division by zero" in job.errors and "[0] ZeroDivisionError" not in job.errors
    assert '[1]   File "<prompt 15>", line 1, in <module>\n[1]     if me == 1: 1 / 0\n' in job.errors
    assert all(f"[{pe}] pyshmem.OutOfRangeError: sum_reduce: PE {pe}: size" in job.errors for pe in range(2))
    assert "SyntaxError" in job.output


class Interrupted(io.StringIO):
    """A file in whose write Ctrl-C arrives, after the line."""

    def write(self, text):
        super().write(text)
        raise KeyboardInterrupt


def test_the_line_after_an_interrupted_one_has_its_label():
    file = Interrupted()
    labelled = Labelled(file, "[1] ")
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            labelled.write("soon\n")
    assert file.getvalue() == "[1] soon\n[1] soon\n"


class Writes(list):
    """A file that shows what is written by one call."""

    write = list.append

    def flush(self):
        pass


def test_an_open_line_and_its_end_are_one_write_so_that_no_other_pe_writes_between():
    file = Writes()
    labelled = Labelled(file, "[1] ")
    labelled.write("open")
    labelled.end_line()
    labelled.end_line()
    assert file == ["[1] open\n"]


def read_until(terminal, *texts, seconds=60):
    """Reads what the terminal shows, up to the last of these texts, in whatever order they come."""
    seen, end = b"", time.monotonic() + seconds
    while any(seen.count(text) < texts.count(text) for text in texts):
        assert select.select([terminal], [], [], max(end - time.monotonic(), 0))[0], seen.decode()
        seen += os.read(terminal, 1)


def test_ctrl_c_ends_the_line_on_all_pes_and_not_the_session():
    child, terminal = pty.fork()
    if not child:
        os.execv(PYSHMEMRUN[0], [*PYSHMEMRUN, "-n", "2", "-i"])
    read_until(terminal, b">>> ")
    os.write(terminal, b"x = shmem.zeros(1, dtype=shmem.arange(1).dtype)\n")
    read_until(terminal, b">>> ")
    for _ in range(2):
        os.write(terminal, b"print('soon'); shmem.wait_until(x, '==', 5)\n")
        read_until(terminal, b"[0] soon", b"[1] soon")
        os.write(terminal, b"\x03")
        read_until(terminal, b">>> ", b"[0] KeyboardInterrupt", b"[1] KeyboardInterrupt")
    os.write(terminal, b"print(x.item() + 7)\n")
    read_until(terminal, b"[0] 7", b"[1] 7")
    os.write(terminal, b"\x04")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


CELLS = """
import builtins, os, signal
from types import SimpleNamespace
from pyshmem import load_ipython_extension

magics, printed, soon = {}, builtins.print, []
load_ipython_extension(SimpleNamespace(register_magic_function=lambda run, kind, name: magics.update({kind + name: run})))
control, cell = magics["linepyshmem"], magics["cellpes"]

def interrupting(*words, **options):
    printed(*words, **options)
    soon.extend(word for word in words if str(word).endswith(" soon\\n"))  # not the lines of tracebacks that show the cell
    if len(soon) == 2:
        soon.clear()
        os.kill(os.getpid(), signal.SIGINT)

cell("", "1")
control("")
control("-n 2")
cell("", "x, word = shmem.zeros(1), shmem.arange(1)\\nshmem.p(x, 10 + me, (me + 1) % n_pes)\\nshmem.barrier_all()\\nx.item()")
cell("", "if me == 1: 1 / 0\\nprint('open', end='')")
cell("", "1 +* 2")
builtins.print = interrupting
cell("", "print('soon'); shmem.wait_until(word, '==', 5)")
builtins.print = printed
cell("", "print('still', me)")
control("off")
cell("", "1")
control("-n 1")
cell("", "import os; os._exit(3)")
"""


def test_cells_of_a_notebook_run_on_all_pes_and_errors_and_interrupts_end_the_cell_alone(tmp_path):
    status, out, err = python(CELLS, tmp_path=tmp_path, fresh=True)
    assert status == 0, err
    lines = out.splitlines()
    assert lines.count("pyshmem on 2 PEs: cells run on all of them; shmem, me and n_pes are defined") == 1
    assert {
        "[0] 11.0",
        "[1] 10.0",
        "[0] open",
        "[1] ZeroDivisionError: division by zero",
        "[0] still 0",
        "[1] still 1",
    } <= {*lines}
    assert [lines.count(f"[{pe}] SyntaxError: invalid syntax") for pe in range(2)] == [1, 1]
    assert any(line.endswith("KeyboardInterrupt") for line in lines)  # each PE's own line: the test of Ctrl-C, above
    assert err.count("no PEs: %pyshmem -n 4") == 2 and err.endswith("the PEs have ended with status 3\n")


def test_ipython_loads_the_extension(tmp_path):
    pytest.importorskip("IPython")
    program = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "pyshmem")
print([name in shell.magics_manager.magics[kind] for kind, name in (("line", "pyshmem"), ("cell", "pes"))])
"""
    assert python(program, tmp_path=tmp_path, fresh=True)[:2] == (0, "[True, True]\n")
