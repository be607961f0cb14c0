"""Numbers and structures that Python shares with the C code, which has the only table of them: native/python/layout.c."""

from __future__ import annotations

import struct

from pyshmem.native._native import FIELDS, NUMBERS


def number(name: str) -> int:
    """Return the value of C's name, of an enum or a constant."""
    return NUMBERS[name]


def numbers(*names: str) -> tuple[int, ...]:
    """Return the values of several names."""
    return tuple(map(number, names))


def place(structure: str, field: str = "") -> int:
    """Return where a field begins, in bytes; without a name, the size of the structure."""
    return next(offset for owner, name, offset, _, _ in FIELDS if (owner, name) == (structure, field))


def fields(structure: str) -> list[tuple[str, str]]:
    """Return names and codes of the fields of a structure that has no gaps and no arrays."""
    return [(name, code) for owner, name, _, count, code in FIELDS if owner == structure and count]


def format_of(structure: str, *without: str) -> struct.Struct:
    """Return a reader of all fields of a structure, but for those that are named, in the order of their places."""
    text, at = "<", 0
    for owner, name, offset, count, code in FIELDS:
        if owner != structure or name in without:
            continue
        text += f"{offset - at}x" * (offset > at) + f"{count}{code}" * (count > 0)
        at = offset + count * struct.calcsize(f"={code}")
    return struct.Struct(text)
