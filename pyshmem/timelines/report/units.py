"""Numbers as people read them, with a unit of a size that suits them, and as options have them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pyshmem.base import parsers

_PREFIXES = ("", "k", "M", "G", "T", "P")


def short(number: float, unit: str = "") -> str:
    """Return such as "12.3 M", or with a unit "12.3 MB/s"; whole numbers below 1000."""
    for prefix in _PREFIXES:
        if number < 999.5 or prefix == _PREFIXES[-1]:
            return f"{number:.0f} {unit}".rstrip() if not prefix else f"{number:.3g} {prefix}{unit}"
        number /= 1000
    raise AssertionError


def positive(text: str) -> float:
    """Read an option that is above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"got {text}; expected a number above 0")
    return value


def whole(text: str) -> int:
    """Read an option that is a whole number, 1 or more."""
    try:
        return parsers.positive(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"got {parsers.shown(text)}; expected {error}") from None


def require_order(parser: argparse.ArgumentParser, window: Sequence[float]) -> None:
    """Refuse --window if it ends before it begins."""
    begin, end = window
    if not begin < end:
        parser.error(f"--window: got {begin:g} {end:g}; expected FROM before TO")
