"""Which call is missing between two accesses, in one sentence."""

from __future__ import annotations

from typing import Any

from pyshmem.check.analyse.agents import TOGETHER
from pyshmem.check.analyse.clocks import Message
from pyshmem.check.analyse.shadow import Op


def missing(old: Op, new: Op, sites: list[Any]) -> tuple[str, str]:
    """(what happened, what would order it)."""
    if old.agent is new.agent or _ancestor(old, new):
        return _own(old, new, sites)
    if together := _together(old, new):
        return _overwritten(together, new if together is old else old, sites)
    doubt = next((each for each in new.agent.doubts if _told(each.all, old)), None)
    if doubt is not None and not new.agent.knows(old.stream, old.number):
        return _title(old, new), _doubted(*(sites[site] for site in doubt.sites))
    learnt = new.agent.learnt.get(old.agent.own.id)
    title = _title(old, new)
    synced = new.agent.knows(old.agent.own.id, old.issued)
    if synced and _is_late(old):
        by = (
            f" the signal at {sites[learnt[0]]} that {sites[learnt[1]]} waits for" if learnt else " the synchronization"
        )
        call = "quiet" if old.target < 0 or not learnt else "fence"
        return title, f"{call}() is missing after {sites[old.site]} and before{by}: it does not cover this operation."
    if old.agent.end and new.agent.knows(*old.agent.end):
        return title, f"quiet() is missing after the kernel of {sites[old.site]}: a sync does not wait for kernels."
    if old.agent.pe == new.agent.pe:
        return title, "Programs of a kernel run in any order: one of them must signal the other, or use two kernels."
    what = "has written" if old.kind != "read" else "has read"
    return title, (
        f"Nothing orders them: a barrier_all(), or a signal that PE {old.agent.pe} sends after it {what} "
        f"and that PE {new.agent.pe} waits for, is missing between {sites[old.site]} and {sites[new.site]}."
    )


def _together(old: Op, new: Op) -> Op | None:
    """The one of the two that a collective has written into the target of another PE."""
    for op in (new, old):
        line = op.agent.remote.get((TOGETHER, op.target))
        if line is not None and line.id == op.stream:
            return op
    return None


def _overwritten(write: Op, other: Op, sites: list[Any]) -> tuple[str, str]:
    """A collective writes where a PE has not finished with its target."""
    if other.agent.pe != write.target:
        title = _title(write, other)
        return (
            title,
            f"Nothing orders them: a barrier_all() is missing between {sites[other.site]} and {sites[write.site]}.",
        )
    cure = (
        f"{write.name} writes into the targets of all PEs as soon as one PE calls it: a barrier_all() or a sync of the team "
        f"is missing between {sites[other.site]} and the next call at {sites[write.site]}"
    )
    if other.kind == "write":
        return "a collective writes into a target that its PE still writes", f"{cure}."
    second = "; a second target does not help, as the root may be calls ahead" if write.name == "broadcast" else ""
    return (
        "a collective writes into a target that its PE still reads",
        f"{cure}{second or ', or a second target in turn'}.",
    )


def _told(message: Message, op: Op) -> bool:
    return op.number <= message.upto.get(op.stream, 0) or op.number in message.single.get(op.stream, ())


def _doubted(signal: Any, other: Any, wait: Any) -> str:
    """A wait that another signal may end before the one that covers the data."""
    two = f"Two signals of {signal}" if signal == other else f"The signals of {signal} and {other}"
    return (
        f"{two} may arrive in either order, so that {wait} may go on before the one that covers these data: give each "
        "a word of its own, or call fence() between them."
    )


def _ancestor(old: Op, new: Op) -> bool:
    return bool(old.agent.pe == new.agent.pe and new.agent.knows(old.agent.own.id, old.issued))


def _is_late(op: Op) -> bool:
    """Whether the operation may take effect after its agent has gone on."""
    return bool(op.stream != op.agent.own.id)


def _own(old: Op, new: Op, sites: list[Any]) -> tuple[str, str]:
    between = f"between {sites[old.site]} and {sites[new.site]}"
    if old.target < 0 and old.kind == "read":
        return "source reused before it is sent", f"quiet() is missing {between}: until then {old.name} may read it."
    if old.target < 0:
        return "result used before it has arrived", f"quiet() is missing {between}: until then {old.name} may write it."
    if new.target >= 0:
        return "writes in any order", f"fence() is missing {between}: they may be delivered in the other order."
    return _title(old, new), f"quiet() is missing {between}: until then {old.name} may not have been delivered."


def _title(old: Op, new: Op) -> str:
    kinds = {old.kind, new.kind}
    if kinds & {"atomic", "fetch"} and kinds & {"write", "read"}:
        return "atomic and plain accesses race"
    if kinds == {"write"}:
        return "two writes race"
    return "a read and a write race"
