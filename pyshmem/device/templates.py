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


def documented(template: str, **words: str) -> Callable[[Any], Any]:
    """Give a device function, compiled or interpreted, the docstring ``template`` with these words in it."""
    whole = template.format(refused=REFUSED, visible=VISIBLE, overdue=OVERDUE, **words).strip()
    parts = re.sub(r"\n {4}", " ", whole).splitlines()
    text = "\n".join(textwrap.fill(each, 120, subsequent_indent="    ", break_long_words=False) for each in parts)

    def describe(routine: Any) -> Any:
        routine.__doc__ = text
        if hasattr(routine, "fn"):  # of triton.jit
            routine.fn.__doc__ = text
        return routine

    return describe
