"""Flags between the members of a team in interpreted kernels, by the host's atomics and waits."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Any, NoReturn

from pyshmem.base import layout
from pyshmem.base.comparisons import GE
from pyshmem.base.errors import OutOfRangeError, listed
from pyshmem.base.job import job
from pyshmem.device.arch.interpreter.copies import store_word
from pyshmem.device.arch.interpreter.ordering import quiet
from pyshmem.device.arch.interpreter.refusing import in_kernel, refuse_call
from pyshmem.device.arch.interpreter.translation import away
from pyshmem.device.arch.interpreter.values import decoded, number
from pyshmem.diagnosis import broken_teams, mismatched_calls
from pyshmem.diagnosis.host_timeouts import refuse_timeout
from pyshmem.memory import areas
from pyshmem.native import _native

BROKEN = layout.number("BROKEN")
_LOOK = 0.1  # seconds between two looks whether a member has left a call


def synchronise(ctx: Any, routine: str) -> None:
    """Wait at a barrier of ctx's team, after all stores of this PE. Errors: WaitTimeoutError."""
    quiet(ctx)
    team = areas.wires[number(ctx.sync_area)], job.timeout, job.spins
    missing = partial(_native.absent, *team)  # pyshmem.diagnosis.host_timeouts calls it too
    name = in_kernel(routine)
    try:
        left = _native.sync(*team, mismatched_calls.name_barrier(f"kernel {routine}"))
        if left == BROKEN or (left and mismatched_calls.refuse(team[0], "its team", name, None)):
            broken_teams.refuse_broken(team[0], "its team", name)
    except TimeoutError:
        _refuse_absent(ctx, routine, missing())
    except BaseException as error:
        broken_teams.leave_by(team[0], name, error)
        raise


def tell_all(ctx: Any, address: Any, value: Any) -> None:
    """Store ``value`` as this PE's word in the array of int64 at ``address`` on every member, after all earlier stores."""
    me = decoded(number(ctx.me))
    for pe in range(decoded(number(ctx.n_pes))):
        store_word(number(address) + 8 * me + away(ctx, pe), number(value))


def await_all(ctx: Any, routine: str, address: Any, value: Any) -> None:
    """Wait until every member's word on this PE has reached ``value``, with acquire order. Errors: WaitTimeoutError."""
    for pe in range(decoded(number(ctx.n_pes))):
        await_word(ctx, routine, pe, number(address) + 8 * pe, number(value))


def tell_member(ctx: Any, address: Any, value: Any, pe: Any) -> None:
    """Store this PE's word on one member, as tell_all does on every member."""
    me = decoded(number(ctx.me))
    store_word(number(address) + 8 * me + away(ctx, number(pe)), number(value))


def await_member(ctx: Any, routine: str, address: Any, value: Any, pe: Any) -> None:
    """Wait for the word of one member, as await_all does for every member. Errors: WaitTimeoutError."""
    await_word(ctx, routine, number(pe), number(address) + 8 * number(pe), number(value))


def check_slot(ctx: Any, routine: str, program: Any) -> Any:
    """Return the program's number, or -1 for calls by one program. Errors: OutOfRangeError if it has no scratch slot."""
    programs = decoded(number(ctx.slots)) - 1
    if number(program) >= programs:
        most = max(programs, 0)
        wants = f"at most {most} programs: set PYSHMEM_SCRATCH or device_context(scratch=) for more"
        refuse_call(OutOfRangeError, routine, "grid", f"program {max(number(program), 0)}", wants)
    return program


def await_word(ctx: Any, routine: str, member: int, address: int, value: int) -> int:
    """Wait until a member's word on this PE has reached ``value``, and return the value seen. Errors: WaitTimeoutError."""
    wires, name = areas.wires[number(ctx.sync_area)], in_kernel(routine)
    until = time.monotonic() + (job.timeout or math.inf)
    try:
        while True:
            if broken_teams.is_broken(wires):
                broken_teams.refuse_broken(wires, "its team", name)
            left = until - time.monotonic()
            try:
                return int(_native.wait_int64(address, GE, value, max(min(left, _LOOK), 1e-9), job.spins))
            except TimeoutError:
                if left <= _LOOK:
                    _refuse_absent(ctx, routine, [member])
    except BaseException as error:
        broken_teams.leave_by(wires, name, error)
        raise


def _refuse_absent(ctx: Any, routine: str, pes: list[int]) -> NoReturn:
    """Report the PEs of ctx's team that have not come. Errors: WaitTimeoutError."""
    broken_teams.leave(areas.wires[number(ctx.sync_area)], in_kernel(routine), f"a time-out in {job.timeout:g} s")
    start, step = decoded(number(ctx.start)), decoded(number(ctx.step))
    got, world = f"no call from {listed(pes)} of its team", [start + pe * step for pe in pes]
    refuse_timeout(in_kernel(routine), "ctx", got, "all of them to call it", world)
