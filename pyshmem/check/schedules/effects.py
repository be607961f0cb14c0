"""What an agent's calls have still to do under --check=schedules. It happens at any time, in the order of fences."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

_PAUSE = 0.1  # seconds, at most, between two effects that quiet delivers
_PAUSES = 2.0  # all pauses of a PE
STORES = -1  # in place of a context: a program's own stores. Below it: what the programs of kernels have left for quiet
_EMPTY = (0, 0)


class Effect(NamedTuple):
    """``epoch``: how many fences came before it."""

    ctx: int
    pe: int
    epoch: int
    apply: Callable[[], Any]
    then: Callable[[], Any] | None = None  # what may follow it at some time: the signal of put_signal
    span: tuple[int, int] = _EMPTY  # the first address and the end of a store


class Schedule:
    """What an agent's calls have still to do: those of this PE's host, or of a program of a kernel."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.pending: list[Effect] = []
        self.fences: dict[int, int] = {}
        self.lock = threading.RLock()
        self.left = _PAUSES

    def add(self, effect: Effect) -> None:
        with self.lock:
            self.pending.append(effect._replace(epoch=self.fences.get(effect.ctx, 0)))
        self.step()

    def step(self) -> None:
        """At any time, some effects take place."""
        while self.pending and self.chance.random() < 0.4:
            self._deliver(lambda effect: True)

    def fence(self, ctx: int, own: int) -> None:
        """Later stores of this PE itself are at once: what it has put into its own memory comes before them."""
        with self.lock:
            self.fences[ctx] = self.fences.get(ctx, 0) + 1
        self.deliver(lambda effect: effect.ctx == STORES or (effect.ctx, effect.pe) == (ctx, own))
        self.step()

    def deliver(self, which: Callable[[Effect], bool], pauses: bool = False) -> None:
        """Deliver all of these. pauses: in between, other PEs may see what has arrived so far."""
        while self._deliver(which):
            pause = min(self.left, _PAUSE * self.chance.random()) if pauses else 0.0
            self.left -= pause
            time.sleep(pause)

    def settle(self, pauses: bool = False) -> None:
        self.deliver(lambda effect: True, pauses)

    def deliver_one(self) -> bool:
        """Whether there was any."""
        return self._deliver(lambda effect: True)

    def before(self, ctx: int = 0, pe: int | None = None) -> None:
        """What fences have ordered before an operation that is at once; pe: where it is, None for anywhere."""
        now = self.fences.get(ctx, 0)
        self.deliver(lambda effect: effect.ctx == ctx and effect.epoch < now and pe in (None, effect.pe))

    def _deliver(self, which: Callable[[Effect], bool]) -> bool:
        """Deliver one of these effects, or one that comes before it. Whether there was any."""
        with self.lock:
            wanted = [effect for effect in self.pending if which(effect)]
            if not wanted:
                return False
            lines = {(effect.ctx, effect.pe) for effect in wanted}
            first = {line: min(e.epoch for e in self.pending if (e.ctx, e.pe) == line) for line in lines}
            able = [e for e in self.pending if first.get((e.ctx, e.pe)) == e.epoch]
            effect = self.chance.choice(able)
            effect.apply()
            at = next(index for index, each in enumerate(self.pending) if each is effect)
            self.pending[at : at + 1] = [effect._replace(apply=effect.then, then=None)] if effect.then else []
            return True
