"""What was found: each pair of lines once, with both agents, the bytes, and the call that is missing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from linecache import getline
from pathlib import Path
from typing import Any, NamedTuple

from pyshmem.check.analyse.missing_call import missing
from pyshmem.check.analyse.shadow import Op

SIGNS = ("==", "!=", ">", ">=", "<", "<=")
_QUIETED = re.compile(r"#\s*check: ignore\b[,:;]?\s*(.*)")
OPERATORS = re.compile(r"/pyshmem/(ops|irregular)/")
_NAMED = re.compile(r"\s*([\w.]+(?:\s*,\s*[\w.]+)*)\s*(?::[^=]+)?=(?!=)")


class Site(NamedTuple):
    """A line of the user's program."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}" if self.line else "an unknown line"

    @property
    def text(self) -> str:
        return getline(self.file, self.line).strip()


class Place(NamedTuple):
    """Bytes of a PE's heap, inside an allocation if ``allocated`` is the number of its line; or of private memory."""

    space: int
    start: int
    end: int
    offset: int
    call: str
    allocated: int


@dataclass
class Finding:
    kind: str
    title: str
    where: str
    lines: list[str]
    sites: list[Site]
    cure: str
    reason: str = ""  # why it is suppressed
    inside: bool = False  # all its lines are pyshmem's own operators'

    def as_json(self) -> dict[str, Any]:
        sites = [{"file": site.file, "line": site.line, "function": site.function} for site in self.sites]
        return {"kind": self.kind, "title": self.title, "where": self.where, "sites": sites, "missing": self.cure,
                "suppressed": self.reason, "inside_pyshmem": self.inside}  # fmt: skip


class Findings:
    """The findings of a job."""

    def __init__(self) -> None:
        self.sites = [Site("", 0, "")]
        self._numbers: dict[Site, int] = {}
        self._found: dict[Any, Finding] = {}

    def __iter__(self) -> Any:
        return iter(self._found.values())

    def site(self, file: str, line: int, function: str) -> int:
        site = Site(file, line, function)
        if site not in self._numbers:
            self._numbers[site] = len(self.sites)
            self.sites.append(site)
        return self._numbers[site]

    def _add(self, key: Any, kind: str, title: str, where: str, ops: Iterable[tuple[str, int]], cure: str) -> None:
        if key in self._found:
            return
        sites, lines = [], []
        for text, number in ops:
            site = self.sites[number]
            sites.append(site)
            lines.append(f"{text} at {site}{f' in {site.function}' if site.function[:1] != '<' else ''}: {site.text}")
        found = Finding(kind, title, where, lines, sites, cure)
        for site in sites:
            ignored = _QUIETED.search(getline(site.file, site.line)) if site.file else None
            if ignored:
                found.reason = found.reason or ignored[1].strip()
                if not ignored[1].strip():
                    found.cure += " (The comment check: ignore gives no reason, so that it has no effect.)"
        found.inside = bool(sites) and all(OPERATORS.search(site.file) for site in sites)
        self._found[key] = found

    def race(self, old: Op, new: Op, place: Place) -> None:
        key = ("race", *sorted((old.site, new.site)))
        if key in self._found:
            return
        title, cure = missing(old, new, self.sites)
        self._add(key, "race", title, self._bytes(place), ((_who(old), old.site), (_who(new), new.site)), cure)

    def alone(self, kind: str, op: Op, place: Place) -> None:
        title, cure = _ALONE[kind]
        self._add((kind, op.site), kind, title, self._bytes(place), ((_who(op), op.site),), cure)

    def mismatch(self, first: tuple[Any, ...], first_pe: int, other: tuple[Any, ...], other_pe: int) -> None:
        ops = [(f"PE {pe}: {call[1]}{call[2]}", call[0]) for pe, call in ((first_pe, first), (other_pe, other))]
        cure = "All PEs of a team call the same collectives in the same order, with the same sizes, root and operator."
        self._add(("mismatch", first[0], other[0]), "mismatch", "collective calls do not match", "", ops, cure)

    def held(self, pe: int, site: int) -> None:
        self._add(
            ("held", site), "lock", "lock never released", "", ((f"PE {pe}: acquired", site),), "Call clear_lock."
        )

    def waits(self, agent: Any, site: int, what: tuple[Any, ...], words: Any) -> None:
        name, rows = what
        start, size, _, code, value = rows[0]
        changes = len(words[agent.pe, start].changes) if (agent.pe, start) in words else 0
        wrote = f"{changes} operations wrote it" if changes else "no operation wrote it"
        where = f"PE {agent.pe}, heap offset {start}, {size} bytes: {wrote}"
        title = f"wait that never ended: the word never became {SIGNS[code]} {value}"
        self._add(("wait", site), "wait", title, where, ((f"{agent.label}: {name}", site),), _NOBODY)

    def _bytes(self, place: Place) -> str:
        if place.space < 0:
            return f"private memory of PE {-1 - place.space}, {place.end - place.start} bytes"
        site = self.sites[place.allocated]
        named = _NAMED.match(getline(site.file, site.line)) if site.file else None
        array = named[1] if named else "an array"
        of = f" of {array}, allocated at {site} ({place.call})" if place.allocated else ""
        return f"PE {place.space}: bytes {place.start} to {place.end}{of or ' of the heap'}"


_NOBODY = (
    "The call that writes the word is missing, has another PE or another word as its target, or writes another value."
)
_ALONE = {
    "freed": ("access to memory that is not allocated", "Call free only after all accesses to the array are complete."),
    "across": ("access to more than one allocation", "The call names more elements than its array has."),
    "stale": (
        "result used after a later call has overwritten it",
        "Copy it before the next call but one, or call the operator without reuse=True.",
    ),
    "overlap": ("source and target overlap", "Source and target of a copy must be the same memory or not overlap."),
}  # fmt: skip


def _who(op: Op) -> str:
    to = f" to PE {op.target}" if op.target >= 0 else ""
    return f"{op.agent.label}: {op.name}{to} ({_KINDS[op.kind]})"


_KINDS = {"read": "reads", "write": "writes", "atomic": "updates atomically", "fetch": "reads atomically"}
