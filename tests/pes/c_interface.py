"""The specification's C interface as the tests know it, beside the package's own table."""

import pathlib
import re
from typing import NamedTuple

import numpy as np

TEXT = pathlib.Path(__file__).with_name("openshmem-1.6.txt")

NUMPY = {
    "float": "f4", "double": "f8", "longdouble": np.longdouble, "char": "i1", "schar": "i1", "short": "i2", "int": "i4",
    "long": "i8", "longlong": "i8", "uchar": "u1", "ushort": "u2", "uint": "u4", "ulong": "u8", "ulonglong": "u8",
    "int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8", "uint8": "u1", "uint16": "u2", "uint32": "u4",
    "uint64": "u8", "size": "u8", "ptrdiff": "i8", "complexd": "c16", "complexf": "c8",
    "8": "u1", "16": "u2", "32": "u4", "64": "u8", "128": "c16", "mem": "u1",
}  # fmt: skip


class Line(NamedTuple):
    """A line of the text: one prototype, and the types or sizes it unfolds over."""

    state: str
    prototype: str
    keys: tuple

    @property
    def name(self):
        return re.search(r"(\w|<|>)+(?=\(|$)", self.prototype)[0]

    @property
    def names(self):
        """(C name, type or size, "" for neither)."""
        if not self.keys:
            lone = re.search(r"(32|64|(?<!sh)mem)", self.name)
            return [(self.name, lone[0] if lone else "")]
        return [(re.sub("<.*>", key, self.name), key) for key in self.keys]

    @property
    def parameters(self):
        inside = self.prototype.split("(")[1].rstrip(")")
        return [] if inside == "void" else [each.split(" ")[-1].lstrip("*") for each in inside.split(", ")]


def read(*states):
    """The lines of these states, with those that the words after a state stand for."""
    lines = [line.split("|") for line in TEXT.read_text().splitlines() if not line.startswith("#")]
    every = [
        Line(*each) for line in lines for each in _forms(*map(str.strip, line[:2]), tuple("".join(line[2:]).split()))
    ]
    return [line for line in every if line.state in states]


def _forms(words, prototype, keys):
    """(state, prototype, keys) of a line, and of its forms with a context and without a type."""
    state, *forms = words.split()
    generic = [("generic", prototype.replace("<TYPENAME>_", ""), ())] if "generic" in forms else []
    yield from [(state, prototype, keys), *generic]
    if "old" in forms:
        yield state, f"_{prototype}", keys
    if "ctx" in forms:
        name = prototype.replace("shmem_", "shmem_ctx_", 1)
        for each, text, types in [(state, name, keys), *generic]:
            yield each, text.replace("(void)", "()").replace("(", "(shmem_ctx_t ctx, ", 1).replace(", )", ")"), types


def unfolded(*states):
    return {name for line in read(*states) for name, _ in line.names}
