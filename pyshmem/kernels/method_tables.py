"""Which kernel a collective on a stream takes, by its size: tables that `pyshmem tune` measures and writes.

At init all PEs read the file that PYSHMEM_TUNING names; without it the one in the user's cache folder for the GPU's
architecture, and else the package's own, such as method_sizes/sm_90.json. on_stream chooses by them. Kernels of PEs
that meet must be of one table, so a difference is refused. In CPU memory the sizes are FLAT and PAYLOAD of
pyshmem/native/team/team.h.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import torch

from pyshmem.base.agreement import gather
from pyshmem.base.bootstrap import Comm
from pyshmem.base.environment import read
from pyshmem.base.errors import ArgumentError, refuse

FORMAT = "pyshmem collectives 1"
SHIPPED = Path(__file__).parent / "method_sizes"
MORE = 1 << 62  # bytes: a row for all sizes
WORDS, SENT, HALVES, APART = "words", "sent", "halves", "apart"
KINDS = (WORDS, SENT, HALVES, APART)
COPY = "copy"


class Row(NamedTuple):
    """A kernel for up to ``most`` bytes. The first row that a call can take is the one it takes.

    kind: of reductions. WORDS: tiles of words that are their own flags. SENT: each PE sends all to the
    others' scratch memory and combines everything itself. HALVES, APART: each combines its share for all; APART loads it
    all before it sends any. Of copies, COPY: engine="auto" takes copy engines; else "".
    size: the words of a tile, the bytes of a program's block if SENT, else the programs.
    """

    most: int
    kind: str
    size: int
    warps: int


class Tables(NamedTuple):
    """pairs: reductions of two PEs.  teams: of other teams.  copies: collectives that only move data, by bytes to a PE."""

    pairs: tuple[Row, ...]
    teams: tuple[Row, ...]
    copies: tuple[Row, ...]


_active: list[Tables] = []


def open_tables(comm: Comm) -> None:
    """Read the tables on all PEs. Errors: ArgumentError, on all PEs, for a file that is no table, or another on some PE."""
    arch = architecture()
    texts = gather(comm, lambda: _file(arch).read_text())
    for pe, text in enumerate(texts):
        if text != texts[0]:
            refuse(ArgumentError, "init", "PYSHMEM_TUNING", f"another file on PE {pe} than on PE 0", "one for all PEs")
    path = _file(arch)
    found = parse(texts[0], str(path))
    borrowed = arch.startswith("gfx") and path.parent == SHIPPED and path.stem != arch
    use(without_engines(found) if borrowed else found)


def without_engines(found: Tables) -> Tables:
    """Return tables in which engine="auto" takes no copy engine: for AMD GPUs, whose copies nobody has measured."""
    return found._replace(copies=tuple(row._replace(kind="") for row in found.copies))


def use(found: Tables) -> None:
    """Make these the tables in use, for calls that are planned from now on. All PEs use the same."""
    _active[:] = [found]


def tables() -> Tables:
    """Return the tables in use."""
    if not _active:
        use(parse(_shipped("").read_text(), ""))
    return _active[0]


def first(rows: Iterable[Row], nbytes: int) -> Row:
    """Return the row for ``nbytes``."""
    return next(row for row in rows if nbytes <= row.most)


def parse(text: str, path: str) -> Tables:
    """Errors: ArgumentError for a text that write has not made."""
    try:
        content = json.loads(text)
        found = Tables(*(tuple(_row(*each) for each in content[name]) for name in Tables._fields))
        if content["format"] != FORMAT or any(not rows or rows[-1].most != MORE for rows in found):
            raise ValueError
        if any(row.kind not in (HALVES, APART) for rows in found[:2] for row in rows[-1:]):
            raise ValueError
        if any(row.kind not in KINDS for rows in found[:2] for row in rows) or any(
            row.kind not in ("", COPY) for row in found.copies
        ):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        refuse(ArgumentError, "init", "PYSHMEM_TUNING", f"{path}, another file", f"one of {FORMAT!r}, by pyshmem tune")
    return found


def write(path: str | Path, machine: str, found: Tables) -> None:
    """Write a file that open_tables reads. machine: what the times were measured on."""
    rows = {
        name: [[None if row.most == MORE else row.most, *row[1:]] for row in each]
        for name, each in found._asdict().items()
    }
    lines = [f'"{name}": [\n  ' + ",\n  ".join(map(json.dumps, each)) + "\n ]" for name, each in rows.items()]
    head = [f'"format": {json.dumps(FORMAT)}', f'"machine": {json.dumps(machine)}']
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("{\n " + ",\n ".join(head + lines) + "\n}\n")


def cache_file(arch: str, content: str = "collectives") -> Path:
    """Return the file of an architecture in the user's cache folder. content: what it has."""
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder) / "pyshmem" / f"{content}_{arch}.json"


def _file(arch: str) -> Path:
    named = read("PYSHMEM_TUNING")
    if named:
        if not Path(named).is_file():
            refuse(ArgumentError, "init", "PYSHMEM_TUNING", f"{named}, no file", "a file that pyshmem tune wrote")
        return Path(named)
    own = cache_file(arch)
    return own if own.is_file() else _shipped(arch)


def _shipped(arch: str) -> Path:
    """The package's file for an architecture; that of sm_90 serves those that were not measured."""
    own = SHIPPED / f"{arch}.json"
    return own if own.is_file() else SHIPPED / "sm_90.json"


def _row(most: int | None, kind: str, size: int, warps: int) -> Row:
    if not all(type(each) is int and each > 0 for each in (size, warps)):
        raise ValueError(kind)
    return Row(MORE if most is None else int(most), kind, size, warps)


def architecture() -> str:
    """Return the name that files have for this PE's GPU: sm_90, gfx942."""
    if torch.version.hip:
        return str(torch.cuda.get_device_properties().gcnArchName).split(":")[0]
    return "sm_{}{}".format(*torch.cuda.get_device_capability())
