"""Flags between the members of a team where kernels are interpreted: the host's atomics and waits."""

from __future__ import annotations

from typing import Any

from pyshmem.device.arch.interpreter.refusing import refuse_call, refuse_wait
from pyshmem.device.arch.interpreter.values import decoded, decoded_distance, number
from pyshmem.runtime import _native
from pyshmem.runtime.comparisons import GE
from pyshmem.runtime.errors import OutOfRangeError, listed
from pyshmem.runtime.job import job


def synchronise(ctx: Any, routine: str) -> None:
    """The barrier of ctx's team, after all that this PE has stored. Errors: WaitTimeoutError."""
    _native.fence()
    me, members = decoded(number(ctx.me)), decoded(number(ctx.n_pes))
    team = number(ctx.sync_area), decoded_distance(number(ctx.stride)), me, members
    try:
        _native.sync(team, job.timeout, job.spins)
    except TimeoutError:
        absent = listed(_native.absent(team, job.timeout, job.spins))
        refuse_wait(routine, "ctx", f"no word from {absent} of its team", "all of them to call it")


def tell_all(ctx: Any, address: Any, value: Any) -> None:
    """Store ``value`` as this PE's word of the array of int64 at ``address`` on every member, after everything before."""
    me = decoded(number(ctx.me))
    for pe in range(decoded(number(ctx.n_pes))):
        _native.set_int64(number(address) + 8 * me + (pe - me) * decoded_distance(number(ctx.stride)), number(value))


def await_all(ctx: Any, routine: str, address: Any, value: Any) -> None:
    """Wait as an acquire until each member's word of the array here has come to ``value``. Errors: WaitTimeoutError."""
    for pe in range(decoded(number(ctx.n_pes))):
        await_word(routine, pe, number(address) + 8 * pe, number(value))


def tell_member(ctx: Any, address: Any, value: Any, pe: Any) -> None:
    """tell_all to one member."""
    me = decoded(number(ctx.me))
    _native.set_int64(
        number(address) + 8 * me + (number(pe) - me) * decoded_distance(number(ctx.stride)), number(value)
    )


def await_member(ctx: Any, routine: str, address: Any, value: Any, pe: Any) -> None:
    """await_all for the word of one member. Errors: WaitTimeoutError."""
    await_word(routine, number(pe), number(address) + 8 * number(pe), number(value))


def check_slot(ctx: Any, routine: str, program: Any) -> Any:
    """The program's number, -1 for calls by one program. Errors: OutOfRangeError where it has no slot."""
    programs = decoded(number(ctx.slots)) - 1
    if number(program) >= programs:
        most = max(programs, 0)
        wants = f"at most {most}: PYSHMEM_SCRATCH or device_context(scratch=) makes room for more"
        refuse_call(OutOfRangeError, routine, "grid", f"program {max(number(program), 0)}, so more programs", wants)
    return program


def await_word(routine: str, member: int, address: int, value: int) -> int:
    """Wait until a member's word here has reached ``value``; the value seen. Errors: WaitTimeoutError."""
    try:
        return int(_native.wait_int64(address, GE, value, job.timeout, job.spins))
    except TimeoutError:
        refuse_wait(routine, "ctx", f"no word from PE {member} of its team", "all of them to call it")
