"""pyshmemrun -i: a prompt whose statements run on all PEs. Run as a module, by every PE of the job.

PE 0 reads statements and sends them to the others by MPI. Each PE runs them in a namespace of its own, with ``shmem``,
``me`` and ``n_pes`` in it. An error or Ctrl-C ends the statement, not the session. PEs on the host of pyshmemrun all
write into its pipe, so that a prompt follows what the statement before it has printed.

With --cells, which notebook.py uses, the input is a line of JSON for each cell, errors go to standard output too, and END
follows what all PEs print.
"""

from __future__ import annotations

import ast
import codeop
import json
import linecache
import os
import sys
import time
import traceback
from pathlib import Path
from typing import IO, Any

import pyshmem as shmem
from pyshmem.diagnosis import tracebacks

from .output import NAMES
from .pe import prefix

SOON, PAUSE = 0.0001, 0.01  # seconds between the first looks for a message, and later: a PE at the prompt takes no core
STRAY = 0.05  # seconds for errors, and for lines from other hosts, which come through processes of their own
TAG = 7
# the file of a statement, by its number: in tracebacks, and where Triton reads the source of kernels
PROMPT = "<prompt {}>"
END = "\x1e\n"  # a character that programs do not print


class Labelled:
    """A text file whose lines begin with the PE. A line is written when it is whole, or by flush."""

    def __init__(self, file: IO[str], label: str) -> None:
        self._file, self._label, self._fresh, self._held = file, label, True, ""
        self.used = False

    def write(self, text: str) -> int:
        self.used = True
        for line in text.splitlines(keepends=True):
            self._held += line
            if line.endswith("\n"):
                self.flush()
        return len(text)

    def flush(self) -> None:
        line, self._held = self._label * (self._fresh and bool(self._held)) + self._held, ""
        if line:
            self._fresh = line.endswith("\n")  # before the write, as Ctrl-C may interrupt it
            self._file.write(line)
        self._file.flush()

    def end_line(self) -> None:
        """End a line that a statement has left open, by the write that shows the rest of it: other PEs write too."""
        if self._held or not self._fresh:
            self.write("\n")
        self.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def main() -> None:
    """Run the session of this PE."""
    from mpi4py import MPI

    shmem.init()
    comm, me, n_pes = MPI.COMM_WORLD.Dup(), shmem.my_pe(), shmem.n_pes()
    names = {"__name__": "__main__", "shmem": shmem, "me": me, "n_pes": n_pes}
    straight = comm.allreduce(_write_straight(), MPI.MIN)
    terminal, cells = sys.stdout, "--cells" in sys.argv[1:]
    outputs = sys.stdout, sys.stderr = [Labelled(file, f"[{me}] ") for file in (sys.stdout, sys.stderr)]
    if cells:
        sys.stderr = sys.stdout  # one file keeps the order of what a cell prints
    if me == 0:
        how = "cells run on all of them" if cells else "lines run on all of them; Ctrl-D ends"
        print(f"pyshmem on {n_pes} PEs: {how}; shmem, me and n_pes are defined", file=terminal)
        print(end=END * cells, file=terminal, flush=True)
    statement = 0
    while True:
        taken = False
        try:
            if me == 0:
                source = _read_cell() if cells else _read(terminal, PROMPT.format(statement + 1))
                statement, taken = statement + 1, True
                _send(comm, (statement, source), range(1, n_pes))
            else:
                statement, source = _receive(comm, 0)
            if source is None:
                return
            run(source, names, PROMPT.format(statement))
            for file in outputs:
                file.end_line()
            stray = not straight or (sys.stderr.used and not cells)
            sys.stderr.used = False
            _meet(comm, me, n_pes, statement, stray)
        except KeyboardInterrupt:
            if me == 0:
                print("KeyboardInterrupt", file=terminal)
        if cells and taken:
            print(end=END, file=terminal, flush=True)


def run(source: str, names: dict[str, Any], file: str) -> None:
    """Run one statement, or all of a cell, and print its error. The value of the last expression is printed."""
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    try:
        *before, last = ast.parse(source, file).body or [ast.Pass(lineno=1, col_offset=0)]
        exec(compile(ast.Module(before, []), file, "exec"), names)
        exec(compile(ast.Interactive([last]), file, "single"), names)
    except SystemExit:
        print("Ctrl-D ends the session", file=sys.stderr)
    except BaseException as error:  # noqa: BLE001 - whatever a statement raises, the next one runs
        trace = error.__traceback__ and error.__traceback__.tb_next  # without this function
        if isinstance(error, SyntaxError) and error.filename == file:
            trace = None  # of ast.parse
        sys.stderr.write(tracebacks.told(error.with_traceback(trace)))


def _read(terminal: IO[str], file: str) -> str | None:
    """The next complete statement, or None at the end of the input. A statement that is wrong is printed and left out."""
    lines: list[str] = []
    while True:
        print("... " if lines else ">>> ", end="", file=terminal, flush=True)
        line = sys.stdin.readline()
        if not line:
            return None
        lines.append(line.rstrip("\n"))
        try:
            if codeop.compile_command("\n".join(lines), file, "single") is not None:
                return "\n".join(lines) + "\n"
        except (SyntaxError, ValueError, OverflowError) as error:
            terminal.write("".join(traceback.format_exception_only(type(error), error)))
            lines = []


def _read_cell() -> str | None:
    line = sys.stdin.readline()
    return str(json.loads(line)) if line else None


def _send(comm: Any, message: Any, pes: range) -> None:
    for request in [comm.isend(message, dest=pe, tag=TAG) for pe in pes]:
        while not request.Test():
            time.sleep(PAUSE)


def _receive(comm: Any, pe: int) -> Any:
    pause = SOON
    while not comm.iprobe(source=pe, tag=TAG):
        time.sleep(pause)
        pause = min(2 * pause, PAUSE)
    return comm.recv(source=pe, tag=TAG)


def _meet(comm: Any, me: int, n_pes: int, statement: int, stray: bool) -> None:
    """PE 0 waits until all have run the statement, so that the prompt follows what they print.

    stray: whether some of it comes another way than PE 0's output.
    """
    if me:
        comm.send((statement, stray), dest=0, tag=TAG)
        return
    for pe in range(1, n_pes):
        ended = 0
        while ended < statement:  # other messages are of statements whose end Ctrl-C did not let PE 0 wait for
            ended, other = _receive(comm, pe)
            stray |= other
    if stray:
        time.sleep(STRAY)


def _write_straight() -> bool:
    """Write into the FIFOs of pyshmemrun without a process between. Return whether it is on this host."""
    folder = Path(os.environ.get("PYSHMEM_JOB_DIR", ""))
    here = folder.is_dir() and folder.name.startswith(prefix())
    for number, name in NAMES.items() if here else ():
        fifo = os.open(folder / name, os.O_WRONLY)
        os.dup2(fifo, number)
        os.close(fifo)
    return here


if __name__ == "__main__":
    main()
