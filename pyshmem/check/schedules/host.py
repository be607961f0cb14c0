"""Other executions that the memory model allows: what calls do to PEs takes effect late, and in any order between fences.

``pyshmemrun --check=schedules --seed N`` runs a program so. One PE alone repeats itself exactly under the same seed; between
PEs the choices are the same, and their times are not.
"""

from __future__ import annotations

import atexit
import inspect
import random
import threading
from collections.abc import Callable
from functools import partial, wraps
from types import ModuleType
from typing import Any

from pyshmem.base import interpreter
from pyshmem.base.environment import read
from pyshmem.base.job import job
from pyshmem.check.schedules.effects import STORES, Effect, Schedule
from pyshmem.diagnosis.host_calls import ASKS, AT_ONCE, BLOCKS, CALLS, LATE, ORDERS, HostCall
from pyshmem.host.contexts import CTX_DEFAULT
from pyshmem.host.rma import put
from pyshmem.host.signal import SIGNAL, signal_add, signal_set
from pyshmem.transport.teams.meeting import Meeting

Call = Callable[..., Any]
_PATIENCE = 0.05  # seconds that a blocking call may last while effects are held back


def install(package: ModuleType) -> None:
    """Hold back the calls of ``pyshmem``, from its init on."""
    seed, schedule = str(read("PYSHMEM_SCHEDULE")), Schedule(random.Random())
    spaces = vars(package)

    def begin(call: Call, *arguments: Any, **options: Any) -> Any:
        found = call(*arguments, **options)
        if job.inits == 1:
            schedule.chance.seed(f"{seed} {job.my_pe}")
            if interpreter.active():
                from pyshmem.check.schedules.kernels import install as schedule_kernels

                schedule_kernels(schedule)
            atexit.register(schedule.settle, True)  # before the library's own exit
        return found

    for name in package.__all__:
        if inspect.isfunction(call := spaces[name]):
            row = CALLS[name]
            made = partial(begin, call) if row.family == "init" else _made_for(name, row, call, schedule)
            setattr(package, name, wraps(call)(made))
    for name in ("fence", "quiet", "destroy"):
        call = getattr(package.Ctx, name)
        setattr(package.Ctx, name, _order(name, call, schedule, inspect.signature(call)))
    for owner, blocking, names in (
        (package.Team, True, ("sync",)),
        (package.Lock, True, ("acquire", "__enter__")),
        (package.Lock, False, ("release", "__exit__")),
        (package.PartitionedTensor, False, ("scatter", "gather")),
    ):
        for name in names:
            setattr(owner, name, (_blocking if blocking else _settled)(getattr(owner, name), schedule))
    for name in ("share", "sync"):  # in which calls that are not public wait for other PEs
        setattr(Meeting, name, _blocking(getattr(Meeting, name), schedule))


def _made_for(name: str, row: HostCall, call: Call, schedule: Schedule) -> Call:
    signature = inspect.signature(call)
    if row.family == "put_signal":
        return _put_signal(name, schedule, signature)
    if row.timing == LATE:
        return _late(name, call, schedule, signature)
    if row.timing == AT_ONCE:
        return _at_once(call, schedule, signature)
    if row.timing == ORDERS:
        return _order(name, call, schedule, signature)
    if row.timing == BLOCKS:
        return _blocking(call, schedule)
    return call if row.timing == ASKS else _settled(call, schedule)


def _context(ctx: Any) -> int:
    return 0 if ctx is None or ctx is CTX_DEFAULT else id(ctx)


def _line(given: dict[str, Any]) -> tuple[int, int]:
    """Context and PE of a call."""
    ctx, pe = given.get("ctx"), given.get("pe", job.my_pe)
    return _context(ctx), int(pe) if ctx is None else int(ctx.team._world_pe("check", int(pe)))


def _held(given: dict[str, Any]) -> None:
    """The source of a blocking call is free when it returns."""
    source: Any = given.get("source")
    if hasattr(source, "clone"):
        given["source"] = source.clone()
    elif hasattr(source, "copy"):
        given["source"] = source.copy()


def _late(name: str, call: Call, schedule: Schedule, signature: inspect.Signature) -> Call:
    def delayed(*arguments: Any, **options: Any) -> None:
        given = signature.bind(*arguments, **options).arguments
        if not name.endswith("_nbi"):
            _held(given)
        schedule.add(Effect(*_line(given), 0, partial(call, **given)))

    return delayed


def _put_signal(name: str, schedule: Schedule, signature: inspect.Signature) -> Call:
    def delayed(*arguments: Any, **options: Any) -> None:
        given = signature.bind(*arguments, **options).arguments
        if not name.endswith("_nbi"):
            _held(given)
        data = {key: given[key] for key in ("target", "source", "pe", "size", "ctx") if key in given}
        update = signal_add if int(given["sigop"]) == SIGNAL.ADD else signal_set
        signal = partial(update, given["signal"], given["value"], given["pe"], given.get("ctx"))
        schedule.add(Effect(*_line(given), 0, partial(put, **data), signal))

    return delayed


def _at_once(call: Call, schedule: Schedule, signature: inspect.Signature) -> Call:
    """What fences have ordered before it comes first."""

    def immediate(*arguments: Any, **options: Any) -> Any:
        ctx, pe = _line(signature.bind(*arguments, **options).arguments)
        schedule.before(ctx, pe)
        schedule.step()
        return call(*arguments, **options)

    return immediate


def _order(name: str, call: Call, schedule: Schedule, signature: inspect.Signature) -> Call:
    def ordered(*arguments: Any, **options: Any) -> Any:
        given = signature.bind(*arguments, **options).arguments
        ctx = _context(given.get("ctx", given.get("self")))
        if name == "fence":
            schedule.fence(ctx, job.my_pe)
        else:
            schedule.deliver(lambda effect: effect.ctx == ctx or (ctx == 0 and effect.ctx < STORES), True)
        return call(*arguments, **options)

    return ordered


def _blocking(call: Call, schedule: Schedule) -> Call:
    """What is held back comes in the end, also while this PE waits."""

    def waiting(*arguments: Any, **options: Any) -> Any:
        schedule.step()
        if not schedule.pending:
            return call(*arguments, **options)
        late = threading.Timer(_PATIENCE, schedule.settle, (True,))
        late.start()
        try:
            return call(*arguments, **options)
        finally:
            late.cancel()

    return waiting


def _settled(call: Call, schedule: Schedule) -> Call:
    """A call before which everything takes effect: barriers and allocations complete it, the others may."""

    def settled(*arguments: Any, **options: Any) -> Any:
        schedule.settle(True)
        return call(*arguments, **options)

    return settled
