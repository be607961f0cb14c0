"""Says for which PEs the others wait where no PE can say it: in MPI's init and finalize, and before a PE has started.

PEs tell their phases, see pyshmem.diagnosis.exits.tell and Phases in pe.py.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from signal import Signals
from typing import NamedTuple

from pyshmem.base.errors import grouped, listed

from .pe import BEAT, WAITING

EVERY = 1.0  # seconds between two looks
MOST = 2.0  # seconds that count between two looks: this process may have been stopped for hours
STALE = 2.5 * BEAT  # seconds after which it is not known that a PE still waits
STARTING = 20.0  # seconds that a PE has at least until it calls init: one may start much later than another
MARGIN = 2.0  # seconds that a PE has to end by its own time-out


class Place(NamedTuple):
    """How far a PE is. phase: of exits.tell; "-": it has told none; "ended"."""

    inits: int = 0
    phase: str = "-"
    stopped: int = 0  # the signal
    fresh: bool = True  # told not long ago

    @property
    def waits(self) -> bool:
        return self.fresh and self.phase in WAITING and not self.stopped


class Standstill(NamedTuple):
    """Who has waited and where, for how long in ``{}``; what is said of PEs behind; whether it cannot go on by itself.

    starting: whether the PEs behind may still be on their way to init.
    """

    text: str
    behind: dict[int, str]
    certain: bool
    starting: bool = False


class Progress:
    """Looks at the PEs of a job. away: what PEs on other hosts have told, with the time of time.monotonic."""

    def __init__(
        self, directory: Path, pes: int, away: Mapping[int, tuple[str, float]], notice: float, limit: float
    ) -> None:
        """notice, limit: seconds without progress until a line says for whom the others wait, and until the job is ended."""
        self._directory, self._pes, self._away = directory, pes, away
        self._notice, self._limit = notice, limit
        self._seen: list[tuple[int, str] | None] = []
        self._last = time.monotonic()
        self._waited = self._certain = 0.0
        self._said = False

    def look(self) -> tuple[str, bool]:
        """Return what there is to say now, "" for nothing, and whether it ends the job. To be called often."""
        passed = time.monotonic() - self._last
        if self._pes == 1 or passed < EVERY:
            return "", False
        self._last += passed
        places = [self._place(pe) for pe in range(self._pes)]
        seen = [place and place[:2] for place in places]
        if seen != self._seen:
            self._seen, self._waited, self._certain, self._said = seen, 0.0, 0.0, False
        found = standstill(places)
        if found is None:
            return "", False
        self._waited += min(passed, MOST)
        self._certain = self._certain + min(passed, MOST) if found.certain else 0.0
        limit = max(self._limit, STARTING) if found.starting else self._limit
        if self._limit and self._certain >= limit + MARGIN:
            return (
                f"ended the job: {_said(found, limit)}; PYSHMEM_WAIT_TIMEOUT sets the seconds, 0 for no limit",
                True,
            )
        if self._notice and self._waited >= self._notice and not self._said:
            self._said = True
            return f"{_said(found, self._notice)}; PYSHMEM_WAIT_NOTICE sets the seconds, 0 for never", False
        return "", False

    def stopped(self) -> list[str]:
        """What is said of PEs that were stopped when the job ended: others may have waited for them."""
        places = {pe: self._place(pe) for pe in range(self._pes)}
        return _grouped({pe: _stop(place) for pe, place in places.items() if place and place.stopped})

    def _place(self, pe: int) -> Place | None:
        """How far a PE is; None if it has not started."""
        if pe in self._away:
            text, told = self._away[pe]
            return _read(text, time.monotonic() - told)
        file = self._directory / f"phase-{pe}"
        with suppress(FileNotFoundError):
            place = _read(file.read_text(), time.time() - os.stat(file).st_mtime)
            ended = (self._directory / f"ended-{pe}").exists()
            return place._replace(phase="ended", stopped=0) if ended else place
        return None


def _read(text: str, age: float) -> Place:
    words = text.partition("\n")[0].split()
    inits, phase, stopped = words if len(words) == 3 else ("0", "-", "0")  # it is written for the first time
    return Place(int(inits), phase, int(stopped), age < STALE)


def left_early(directory: Path, pe: int) -> bool:
    """Whether a PE on this machine has ended after finalize, past all that finalises MPI."""
    file = directory / f"phase-{pe}"
    return (directory / f"ended-{pe}").exists() and _read(file.read_text(), 0.0).phase == "finalized"


def standstill(places: Sequence[Place | None]) -> Standstill | None:
    """Return for whom PEs wait that have told that they do, or that have ended. None: for nobody, as far as is known."""
    waiting = [pe for pe, place in enumerate(places) if place and place.waits]
    inits = max((place.inits for place in places if place and place.waits and place.phase == "init"), default=0)
    if inits:
        return _in_init(places, inits)
    others = {
        pe: place for pe, place in enumerate(places) if pe not in waiting and not (place and place.phase == "ended")
    }
    stopped = {pe: _stop(place) for pe, place in others.items() if place and place.stopped and place.fresh}
    absent = [pe for pe, place in others.items() if place is None]
    still = len(others) == len(stopped) + len(absent)  # nobody computes
    if waiting or (still and stopped and len(others) < len(places)):
        said = stopped or {pe: "runs on" if place else "has not started" for pe, place in others.items()}
        said = said or dict.fromkeys(waiting, "does not come out of MPI_Finalize")
        return Standstill(f"{_have(waiting)} waited {{}} at the end" if waiting else "no progress for {}", said, still)
    if absent and len(absent) < len(places):
        return Standstill("no progress for {}", dict.fromkeys(absent, "has not started"), True)
    if stopped and len(stopped) < len(others):
        return Standstill("no progress for {}", stopped, False)
    return None


def _in_init(places: Sequence[Place | None], inits: int) -> Standstill:
    """PEs wait in this call of init, of which MPI knows no limit."""
    inside = [pe for pe, place in enumerate(places) if place and place.phase == "init" and place.inits == inits]
    behind = {pe: _behind(place) for pe, place in enumerate(places) if not place or place.inits < inits or pe in inside}
    stopped = {pe: said for pe, said in behind.items() if (place := places[pe]) and place.stopped}
    missing = {pe: said for pe, said in behind.items() if pe not in inside}
    waiting = [pe for pe in inside if pe not in stopped]
    said, starting = stopped or missing or behind, bool(missing) and not stopped
    return Standstill(f"{_have(waiting)} waited {{}} in init", said, True, starting)


def _behind(place: Place | None) -> str:
    if place is None:
        return "has not started"
    if place.stopped:
        return _stop(place)
    return {"init": "does not come out of it", "ended": "has ended without it"}.get(place.phase, "has not called it")


def _stop(place: Place) -> str:
    name = Signals(place.stopped).name
    return f"is stopped by {name} in init" if place.phase == "init" else f"is stopped by {name}"


def _have(pes: list[int]) -> str:
    return f"{listed(pes)} {'have' if len(pes) > 1 else 'has'}"


def _said(found: Standstill, seconds: float) -> str:
    return "; ".join([found.text.format(f"{seconds:g} s"), *_grouped(found.behind)])


def _grouped(said: dict[int, str]) -> list[str]:
    return [f"{listed(pes)} {_plural(text) if len(pes) > 1 else text}" for text, pes in grouped(said).items()]


def _plural(said: str) -> str:
    verb, _, rest = said.partition(" ")
    return " ".join(filter(None, ({"is": "are", "has": "have", "does": "do", "runs": "run"}.get(verb, verb), rest)))
