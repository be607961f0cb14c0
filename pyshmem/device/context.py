"""The device context: a team and a heap as one kernel argument, and queries that need no communication."""

from __future__ import annotations

from typing import NamedTuple

import triton.language as tl

from pyshmem.device import arch, transport
from pyshmem.device.arch import decoded, jit


class DeviceContext(NamedTuple):
    """A team and a heap, as scalars that a kernel takes as one argument. Made by shmem.device_context.

    One compiled kernel serves all teams whose ``members`` are equal, on all PEs: every other field is an address of whole
    cache lines, equal in the whole job, a multiple of 16 of 32 bits, or encoded by pyshmem.device.arch.fields, so that
    Triton reads no PE's or team's number, size, start, step or scratch as a special one.
    """

    me: int  # this PE's number in the team, encoded
    n_pes: int  # encoded
    stride: int  # bytes from one member's heap to the next one's, 0 where a table holds them, an encoded distance
    sync_area: int  # address of the team's barrier area here
    generation: int  # which init it belongs to, encoded
    base: int  # address of this PE's heap
    table: int  # address of a table by world PE: bytes from this PE's heap to that one's
    start: int  # the world PE that is the team's first, encoded
    step: int  # from one member's world PE to the next one's, encoded
    record: int  # address of the record that a wait over its limit fills, 0 for none
    limit: int  # of a wait, in nanoseconds, 0 for none
    scratch: int  # address of what collectives exchange through, a slot for each program: see collectives.scratch
    slot: int  # bytes of a slot, a multiple of 64
    slots: int  # how many there are, with the one for calls by one program, encoded
    piece: int  # bytes that a slot takes of one member at a time, a multiple of 16
    ring: int  # address of the words by which kernels request operations of far PEs, a constant 0 if reach is DIRECT
    trace: int  # address of the ring of events, a constant 0 if there is none
    where: tl.constexpr  # the index in TARGETS: what kernels are compiled for
    by_table: tl.constexpr  # whether peers are found by the table, not by the stride
    reach: tl.constexpr  # how members are reached: DIRECT, all by mapped memory; FAR, those of other nodes by requests
    events: tl.constexpr  # how many events the ring holds, 0 without one: then nothing of tracing is compiled
    members: tl.constexpr  # n_pes, or the next power of two: blocks of one entry a PE have so many

    def __hash__(self) -> int:
        """By identity: there is one object per team and heap, and hashing the fields costs as much as a launch."""
        return id(self)

    def recording(self, address: int, room: int) -> DeviceContext:
        """Return the context with the ring of ``room`` events at ``address``; with none if they are 0."""
        return self._replace(trace=address or tl.constexpr(0), events=tl.constexpr(room))


@jit
def my_pe(ctx):
    """Return this PE's number in the team of ``ctx``, a device context. Spec: OpenSHMEM 1.6, 9.1 SHMEM_MY_PE."""
    arch.check_context(ctx, "my_pe")
    return decoded(ctx.me)


@jit
def n_pes(ctx):
    """Return the number of PEs in the team of ``ctx``, a device context. Spec: OpenSHMEM 1.6, 9.1 SHMEM_N_PES."""
    arch.check_context(ctx, "n_pes")
    return decoded(ctx.n_pes)


@jit
def translate_pe(ctx, pe, dest_ctx):
    """Return the number in dest_ctx's team of PE ``pe`` of ctx's team, or -1 if it is not a member.

    ctx, dest_ctx: device contexts.  pe: a scalar or a block.  Spec: OpenSHMEM 1.6, 9.4 SHMEM_TEAM_TRANSLATE_PE.
    """
    arch.check_context(ctx, "translate_pe")
    arch.check_context(dest_ctx, "translate_pe", "dest_ctx")
    step = decoded(dest_ctx.step)
    away = decoded(ctx.start) + pe * decoded(ctx.step) - decoded(dest_ctx.start)
    there = away // tl.where(step == 0, 1, step)  # 0 in a team of one
    known = (pe >= 0) & (pe < n_pes(ctx)) & (there >= 0) & (there < n_pes(dest_ctx)) & (there * step == away)
    return tl.where(known, there, -1)


@jit
def ptr(ctx, pointers, pe):
    """Return pointers to the same elements on ``pe``, for plain tl.load and tl.store.

    ctx: a device context.  pe: counts in its team; a scalar, or a block that broadcasts against the pointers.
    pointers: symmetric, one or a block, given as this PE's addresses, to any dtype.
    Order: accesses through the result are plain ones; waits, tests, fence and quiet order them.
    Errors: DtypeError and ArgumentError for operands of a wrong type. Interpreted kernels also raise OutOfRangeError for
        a PE and NotSymmetricError for a masked-in address outside live memory.
    Spec: OpenSHMEM 1.6, 9.1 SHMEM_PTR.
    """
    arch.check(ctx, "ptr", "pointers", pointers, pe)
    return transport.ptr(ctx, pointers, pe)
