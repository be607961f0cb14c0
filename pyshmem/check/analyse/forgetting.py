"""Bounds the memory of the checker: forgets accesses that all agents know, and joins those that none can tell apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pyshmem.check.analyse.agents import Agent, Stream
from pyshmem.check.analyse.memory import Memory
from pyshmem.check.analyse.shadow import Op
from pyshmem.check.analyse.words import Word


def forget(agents: list[Agent], memory: Memory, words: Iterable[Word], under_way: set[Op], doubted: set[int]) -> None:
    """Forget what all agents know. If memory is full, also join the accesses that no agent can tell apart.

    agents: all that may still act.  under_way: operations that have not returned.  doubted: streams of waits and of what
    ended them, which later changes are compared with.
    """

    def known(op: Op) -> bool:
        return op not in under_way and all(agent.knows(op.stream, op.number) for agent in agents)

    for word in words:
        word.forget(known)
    if not memory.is_full():
        return
    lines = {line.id: line for agent in agents for line in agent.lines()}
    memory.sweep(known, _standing(lines))
    ops = {op for cell in memory.cells() for op in cell.accesses()} | under_way
    ops |= {change.op for word in words for change in word.changes}
    live = lines.keys() | {stream for op in ops for stream in (op.stream, op.agent.own.id)} | doubted
    for agent in agents:
        agent.forget(live)
    streams = agents[0].streams
    streams.ended = {stream: end for stream, end in streams.ended.items() if stream in live}


def _standing(lines: dict[int, Stream]) -> Callable[[Op], Op]:
    """Return a function that gives for an operation the one that stands for it.

    It is of the same stream, line of the program and kind. Both came after the last release and before a fence, and quiet
    has completed both or neither.
    """
    found: dict[Any, Op] = {}

    def stands(op: Op) -> Op:
        line = lines.get(op.stream)
        if line is None or op.message is not None or not line.told < op.number <= line.fenced:
            return op
        quieted = op.number <= op.agent.know.upto.get(op.stream, 0)
        one = found.setdefault((op.stream, op.site, op.kind, op.name, op.width, quieted), op)
        if op.number > one.number:
            one.number, one.issued = op.number, op.issued
        return one

    return stands
