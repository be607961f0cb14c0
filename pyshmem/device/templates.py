"""Docstrings of families of device functions: one text a family, which ``documented`` completes for each function."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from typing import Any

REFUSED = """Errors: DtypeError and ArgumentError for operands of a wrong type. Interpreted kernels also raise
    OutOfRangeError for a PE or a count and NotSymmetricError for an address outside live memory."""
VISIBLE = "the data is visible on pe after a later fence or quiet and a flag, after put_signal, or after barrier_all"
OVERDUE = "WaitTimeoutError, raised by the next host call, for a wait longer than PYSHMEM_WAIT_TIMEOUT"


ONE = "One program of each PE calls it at a time."
GRID = """All programs of grids of one size call it: a barrier_all_grid before
    it orders other programs' stores to source, and one after it their loads of dest."""


def documented(template: str, what: str = "", **words: str | tuple[str, str]) -> Callable[[Any], Any]:
    """Give device functions, compiled or interpreted, the docstring ``template`` with these words in it.

    {NAME} in it is the function's name in the specification. Of a pair of words the first is for the plain form, the second
    for the form with _grid or _vector.
    """

    def describe(routine: Any) -> Any:
        variant = routine.__name__.endswith(("_grid", "_vector"))
        chosen = {name: word if isinstance(word, str) else word[variant] for name, word in words.items()}
        whole = template.format(what=what, refused=REFUSED, visible=VISIBLE, overdue=OVERDUE, NAME="{NAME}", **chosen)
        whole = whole.strip().replace("{NAME}", re.sub("_(grid|array)$", "", routine.__name__).upper())
        parts = re.sub(r"\n {4}", " ", whole).splitlines()
        text = "\n".join(textwrap.fill(each, 120, subsequent_indent="    ", break_long_words=False) for each in parts)
        routine.__doc__ = text
        if hasattr(routine, "fn"):  # of triton.jit
            routine.fn.__doc__ = text
        return routine

    return describe
