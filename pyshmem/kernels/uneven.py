"""The kernel of alltoallv_on_stream, whose block sizes only the GPU knows. Each PE reads the rows that are sent to it."""

from __future__ import annotations

from functools import cache

import triton
import triton.language as tl

from pyshmem.device import arch, transport
from pyshmem.device.collectives.scratch import (
    LENGTHS,
    STARTS,
    after,
    begin,
    end,
    exchange,
    program,
    programs,
    slot_of,
    words_of,
)
from pyshmem.device.context import DeviceContext, my_pe, n_pes
from pyshmem.kernels.bound_kernels import Bound, bind
from pyshmem.kernels.compiled import CachedKernel
from pyshmem.kernels.method_tables import first, tables
from pyshmem.kernels.on_stream import BITS, array_at, at_most

NUMBERS = ["target", "source", "counts", "starts", "received", "room", "length", "width"]


@triton.jit(do_not_specialize=NUMBERS)
def swap_rows(
    ctx,
    target: tl.int64,
    source: tl.int64,
    counts: tl.int64,
    starts: tl.int64,
    received: tl.int64,
    room: tl.int64,
    length: tl.int64,
    width: tl.int64,
    TYPE: tl.constexpr,
):
    """Tell all PEs how many rows they get and where those begin here; then read what comes, which all others do too.

    counts, starts, received: addresses of an int64 for each member; starts may be 0.  room, length: the rows of target and
    source.  width: elements of TYPE in a row.
    """
    slot = slot_of(ctx, "alltoallv_on_stream")
    turn = begin(slot)
    pe = arch.arange(ctx.members)
    inside = pe < n_pes(ctx)
    asked = tl.maximum(tl.load(array_at(counts, tl.int64) + pe, mask=inside, other=0), 0)
    opens = tl.cumsum(asked, axis=0) - asked
    if starts != 0:
        opens = tl.load(array_at(starts, tl.int64) + pe, mask=inside, other=0)
    sent = tl.where(opens >= 0, tl.maximum(tl.minimum(asked, length - opens), 0), 0)
    lengths, begins = words_of(ctx, slot, LENGTHS), words_of(ctx, slot, STARTS)
    transport.store_number(ctx, lengths + 8 * my_pe(ctx), sent, pe, inside)
    transport.store_number(ctx, begins + 8 * my_pe(ctx), opens, pe, inside)
    exchange(ctx, "alltoallv_on_stream", slot, turn)
    came = tl.load(array_at(lengths, tl.int64) + pe, mask=inside, other=0)
    begun = tl.load(array_at(begins, tl.int64) + pe, mask=inside, other=0)
    placed = tl.cumsum(came, axis=0) - came
    if program() == 0:
        tl.store(array_at(received, tl.int64) + pe, came, mask=inside)
    fitting = tl.maximum(tl.minimum(came, room - placed), 0)
    of = my_pe(ctx)
    for _ in range(n_pes(ctx)):
        of = after(ctx, of)
        rows, row, place = only(pe == of, fitting), only(pe == of, begun), only(pe == of, placed)
        share, skipped = share_of(rows * width)
        dest = array_at(target, TYPE) + (place * width + skipped)
        transport.get(ctx, dest, array_at(source, TYPE) + (row * width + skipped), share, of)
    exchange(ctx, "alltoallv_on_stream", slot, turn + 1)
    end(ctx, slot, turn + 1)


@triton.jit
def only(chosen, values):
    """Return the one value that is chosen."""
    return tl.sum(tl.where(chosen, values, 0), axis=0)


@triton.jit
def share_of(count):
    """Return (elements, first element) of the calling program's part of ``count``, which keeps the alignment."""
    each = (count + 16 * programs() - 1) // (16 * programs()) * 16
    skipped = tl.minimum(each * program(), count)
    return tl.minimum(each, count - skipped), skipped


_cached = cache(CachedKernel)


def plan(context: DeviceContext, itemsize: int, nbytes: int) -> Bound:
    """Plan a call. itemsize: the bytes of an element.  nbytes: the target's, for each member, equal on all PEs."""
    row = first(tables().copies, nbytes)
    loaded = _cached(swap_rows).find(context, *(0 for _ in NUMBERS), BITS[itemsize], num_warps=row.warps)
    return bind(loaded, (at_most(row.size, context),), (context,), len(NUMBERS))
