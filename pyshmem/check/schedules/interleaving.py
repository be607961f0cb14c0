"""Programs of an interpreted kernel in turns, as --check=schedules runs them: each takes a few steps, then another goes on.

The programs are threads of which one runs at a time. Whoever is next is drawn by the schedule's seed.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from math import inf, prod
from types import FunctionType
from typing import Any

from triton.runtime.interpreter import interpreter_builder

from pyshmem.check.schedules.effects import STORES, Effect, Schedule

WINDOW = 6  # programs that are under way at a time
_LEAVES = 0.3  # how probable it is that another program goes on after a step
_PAUSE = 1e-4  # seconds, where all programs wait for other PEs


class _Over(BaseException):
    """Ends the thread of a program after an error in another one."""


class Program:
    """One program of a kernel. What it has under way is in ``schedule``."""

    def __init__(self, grid: Grid, index: Any) -> None:
        self.grid, self.index = grid, index
        self.schedule = Schedule(grid.host.chance)
        self.joined: list[Callable[[], Any]] | None = None  # in a put_signal, its copy
        self.lazy = False  # in a call that may read its source until quiet
        self.waits = False
        self.turn = threading.Semaphore(0)
        self.ended: Future[None] = Future()

    def step(self) -> None:
        """Between two accesses, another program may go on."""
        self.schedule.step()
        if self.schedule.chance.random() < _LEAVES:
            self.pause()

    def pause(self) -> None:
        """Let the grid choose who goes on."""
        self.grid.turn.release()
        self.turn.acquire()
        if self.grid.over:
            raise _Over

    def until(self, holds: Callable[[], bool], seconds: float = inf) -> None:
        """Let the others go on until something holds, or the seconds have passed."""
        limit = time.monotonic() + seconds
        while not holds() and time.monotonic() < limit:
            self.waits = True
            self.pause()
        self.waits = False

    def in_turn(self) -> None:
        """What programs do together with other PEs, they do in the order of their numbers, as in the interpreter."""
        self.until(lambda: self.grid.live[0] is self)

    # ---- what comes late ----

    def send(self, pe: int, apply: Callable[[], Any], then: Callable[[], Any] | None = None) -> None:
        self.schedule.add(Effect(0, pe, 0, apply, then))
        self.step()

    def store(self, pe: int, apply: Callable[[], Any], span: tuple[int, int]) -> None:
        self.schedule.add(Effect(STORES, pe, 0, apply, None, span))
        self.step()

    def arrive(self, start: int, end: int) -> None:
        """The program itself sees its stores, and in their order."""
        self.schedule.deliver(lambda effect: effect.ctx == STORES and effect.span[0] < end and start < effect.span[1])

    def release(self, pes: tuple[int, int]) -> None:
        """What it has stored, and sent to these PEs, arrives."""
        self.schedule.deliver(lambda effect: effect.ctx == STORES or effect.pe in pes)

    def end(self) -> None:
        """Its stores are complete when the kernel has ended; what it has sent is so after a quiet of the host."""
        host, left = self.grid.host, self.grid.left
        with host.lock:
            line = min((STORES, *(effect.ctx for effect in host.pending))) - 1
            for effect in self.schedule.pending:
                (left if effect.ctx == STORES else host).pending.append(effect._replace(ctx=line))


class Grid:
    """The programs of one launch."""

    def __init__(self, host: Schedule) -> None:
        self.host, self.left = host, Schedule(host.chance)  # left: stores of programs that have ended
        self.live: list[Program] = []
        self.current: Program | None = None
        self.turn = threading.Semaphore(0)
        self.over = False
        self.begun = 0
        self.threads = ThreadPoolExecutor(WINDOW)

    def stand_in(self, kernel: Callable[..., Any]) -> Callable[..., Any]:
        """What the interpreter calls for each program in place of the kernel: it reads globals and signature."""

        def stand_in(**arguments: Any) -> None:
            self.begin(kernel, arguments)

        made: Any = FunctionType(stand_in.__code__, kernel.__globals__, kernel.__name__, None, stand_in.__closure__)
        made.__signature__ = inspect.signature(kernel)
        return made  # type: ignore[no-any-return]

    def begin(self, kernel: Callable[..., Any], arguments: dict[str, Any]) -> None:
        """Start a program; after the last, let all of them come to their ends."""
        program = Program(self, interpreter_builder.grid_idx)
        self.live.append(program)
        program.ended = self.threads.submit(self._run, program, kernel, arguments)
        self.begun += 1
        most = WINDOW - 1 if self.begun < prod(interpreter_builder.grid_dim) else 0
        while len(self.live) > most:
            self._go_on()
        if not self.live:
            self.left.settle()

    def _run(self, program: Program, kernel: Callable[..., Any], arguments: dict[str, Any]) -> None:
        try:
            program.turn.acquire()
            if not self.over:
                kernel(**arguments)
                program.end()
        finally:
            self.live.remove(program)
            self.turn.release()

    def _go_on(self) -> None:
        """Give one program its turn. If all of them wait, let something arrive that this PE holds back."""
        if all(program.waits for program in self.live):
            schedules = [each for each in (self.host, self.left, *(p.schedule for p in self.live)) if each.pending]
            if not (schedules and self.host.chance.choice(schedules).deliver_one()):
                time.sleep(_PAUSE)
        self.host.step()
        self.left.step()
        self.current = program = self.host.chance.choice(self.live)
        interpreter_builder.grid_idx = program.index
        program.turn.release()
        self.turn.acquire()
        self.current = None
        if program not in self.live:
            program.ended.result()  # or its error

    def end(self) -> None:
        """After an error, there are others to end."""
        self.over = True
        for program in list(self.live):
            program.turn.release()
        self.threads.shutdown()
