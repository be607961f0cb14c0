"""Locks, and messages between programs of kernels: what one agent hands over to the next."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from pyshmem.check.analyse.agents import Agent
from pyshmem.check.analyse.clocks import Message


class Handovers:
    """The part of the analysis that follows them."""

    def __init__(self) -> None:
        self.now: dict[int, Agent] = {}  # the agent that acts on each PE
        self.locks: dict[int, Message] = {}
        self.messages: dict[Any, list[Message]] = defaultdict(list)
        self.held: dict[tuple[int, int], int] = {}

    def on_sent(self, event: tuple[Any, ...]) -> None:
        """A message to a PE, from a program of the kernel to the same one there."""
        _, _, pe, _, target, program = event
        self.messages[pe, target, program].append(self.now[pe].release(-1, all_stores=True))

    def on_received(self, event: tuple[Any, ...]) -> None:
        _, _, pe, _, source, program = event
        if self.messages[source, pe, program]:
            self.now[pe].acquire(self.messages[source, pe, program].pop(0))

    def on_lock(self, event: tuple[Any, ...]) -> None:
        """A lock has been acquired."""
        _, _, pe, site, start = event
        self.held[pe, start] = site
        if start in self.locks:
            self.now[pe].acquire(self.locks[start])

    def on_unlock(self, event: tuple[Any, ...]) -> None:
        _, _, pe, _, start = event
        agent = self.now[pe]
        agent.quiet(0)
        self.held.pop((pe, start), None)
        self.locks[start] = agent.release(-1, all_stores=True)
