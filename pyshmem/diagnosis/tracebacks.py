"""Prints errors of pyshmem, and interrupts, with the frames of the program. Frames of pyshmem and Triton are folded, except
with SHMEM_DEBUG.

Other exceptions are printed as usual: they may be faults of pyshmem. Each traceback is one write, so that those of several
PEs do not mix.
"""

from __future__ import annotations

import importlib.util
import inspect
import io
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any

from pyshmem.base import environment
from pyshmem.base.errors import ShmemError
from pyshmem.base.job import job

OURS = Path(__file__).parents[1]
# as Triton's interpreter and its compiler say it of a call in a kernel
_TOO_FEW = re.compile(r"""TypeError\(["'](?:[\w.<>]*?(\w+)\(\) )?missing (?:a|\d+) required""")


def install() -> None:
    """Print uncaught errors of pyshmem so. The hook that was installed before prints all other exceptions."""
    previous = sys.excepthook
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _in_one_write(threading.excepthook)

    def usual(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        previous(kind, error, trace)
        if hint := _lacks_context(error):
            sys.stderr.write(hint)

    shown = _in_one_write(usual) if previous is sys.__excepthook__ else usual

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if is_folded(error):
            sys.stderr.write(folded(error))
        else:
            shown(kind, error, trace)

    sys.excepthook = hook


def _in_one_write(hook: Callable[..., object]) -> Callable[..., None]:
    """``hook``, which writes to sys.stderr line by line, such that all of it is one write."""

    def print_whole(*caught: object) -> None:
        printed = io.StringIO()
        try:
            with redirect_stderr(printed):
                hook(*caught)
        finally:
            sys.stderr.write(printed.getvalue())

    return print_whole


def origin(error: BaseException | None) -> BaseException | None:
    """Return the exception that the interpreter of kernels has replaced by its own, or else ``error``."""
    if error is not None and type(error).__name__ == "InterpreterError":  # Triton's, which host programs do not import
        return error.__cause__ or error
    return error


def is_folded(error: BaseException) -> bool:
    return isinstance(origin(error), (ShmemError, KeyboardInterrupt)) and not environment.read("SHMEM_DEBUG")


def told(error: BaseException) -> str:
    """Return the traceback as it is printed where nobody catches the error."""
    return folded(error) if is_folded(error) else "".join(traceback.format_exception(error)) + _lacks_context(error)


def _lacks_context(error: BaseException) -> str:
    """Return a line for a call in a kernel that has too few arguments, most often because ctx was forgotten; else ""."""
    found = _TOO_FEW.search(str(error)) if type(error).__name__ in ("InterpreterError", "CompilationError") else None
    if not found:
        return ""
    called = getattr(getattr(error, "node", None), "func", None)  # of the compiler, whose message has no name
    name = found[1] or getattr(called, "attr", getattr(called, "id", ""))
    function = getattr(sys.modules.get("pyshmem.device"), name, None)
    parameters = list(inspect.signature(getattr(function, "fn", function)).parameters) if function else []
    if parameters[:1] != ["ctx"]:
        return ""
    wants = f"dev.{name}({', '.join(parameters)}), whose ctx is what shmem.device_context() returns"
    return f"{name}: PE {job.my_pe}: ctx: got a call with too few arguments; expected {wants}\n"


def folded(error: BaseException) -> str:
    """Return the traceback of ``error`` and of its cause, with each run of our frames in one line."""
    report = traceback.TracebackException.from_exception(error)
    each: traceback.TracebackException | None = report
    while each is not None:
        each.stack = _Folded(each.stack)
        each.__context__ = None  # handled inside of pyshmem
        each = each.__cause__
    return "".join(report.format())


def fold(stack: traceback.StackSummary) -> list[str]:
    """Return the lines of a stack, with each run of our frames in one, except with SHMEM_DEBUG."""
    return stack.format() if environment.read("SHMEM_DEBUG") else _Folded(stack).format()


def is_ours(filename: str) -> bool:
    """Return whether a source file is of pyshmem or Triton."""
    return filename.startswith(_folders())


def _folders() -> tuple[str, ...]:
    triton = importlib.util.find_spec("triton")
    found = [OURS, *(Path(folder) for folder in (triton and triton.submodule_search_locations) or ())]
    return tuple(f"{folder}{os.sep}" for folder in found)


class _Folded(traceback.StackSummary):
    def format(self, **options: Any) -> list[str]:
        lines = []
        for ours, frames in groupby(self, lambda frame: is_ours(frame.filename)):
            run = traceback.StackSummary.from_list(list(frames))
            note = f"  [{len(run)} of pyshmem's own calls; SHMEM_DEBUG=1 shows them]\n"
            lines += [note] if ours else run.format(**options)
        return lines
