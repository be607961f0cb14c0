"""Remote memory access in kernels. Spec: OpenSHMEM 1.6, 9.6. load and store are the forms for tiles of Triton."""

from __future__ import annotations

import triton.language as tl

from pyshmem.device import arch, transport
from pyshmem.device.arch import jit
from pyshmem.device.templates import documented

PUT = """Copy ``source[:nelems]`` to ``dest`` on ``pe``. All threads of the program make the call together.{returns}

ctx: a device context.  pe, nelems: ints; pe counts in ctx's team.
dest: one symmetric pointer, given as this PE's address.  source: one pointer to dest's dtype, in any memory.
Order: {visible}.
{refused}
Spec: OpenSHMEM 1.6, 9.6 SHMEM_{NAME}.
"""
GET = """Copy ``source[:nelems]`` on ``pe`` to ``dest`` here. All threads of the program make the call together.{returns}

ctx: a device context.  pe, nelems: ints; pe counts in ctx's team.
dest: one pointer to source's dtype, in any memory.  source: one symmetric pointer, given as this PE's address.
Order: the data was loaded after what an earlier wait, test, fence or quiet of this program has ordered, and no other.
{refused}
Spec: OpenSHMEM 1.6, 9.6 SHMEM_{NAME}.
"""
STRIDED_PUT = """Copy {what} on ``pe``. All threads of the program make the call together; source is free on return.

ctx: a device context.  pe, {counts}: ints; pe counts in ctx's team.
dest: one symmetric pointer, given as this PE's address.  source: one pointer to dest's dtype, in any memory.
dst, sst: ints, the elements from one start to the next in dest and in source: 1 or more, dst not below bsize.
Order: {visible}.
{refused}
Spec: OpenSHMEM 1.6, 9.6 SHMEM_{NAME}.
"""
STRIDED_GET = """Copy {what}. All threads of the program make the call together; dest holds the data on return.

ctx: a device context.  pe, {counts}: ints; pe counts in ctx's team.
dest: one pointer to source's dtype, in any memory.  source: one symmetric pointer, given as this PE's address.
dst, sst: ints, the elements from one start to the next in dest and in source: 1 or more, dst not below bsize.
Order: the data was loaded after what an earlier wait, test, fence or quiet of this program has ordered, and no other.
{refused}
Spec: OpenSHMEM 1.6, 9.6 SHMEM_{NAME}.
"""


@jit
def load(ctx, pointers, pe, mask=None, other=None):
    """Load the elements at ``pointers`` on ``pe``, as tl.load does from local memory.

    ctx: a device context.  pe: counts in its team; a scalar, or a block that broadcasts against the pointers.
    pointers: symmetric, one or a block, given as this PE's addresses, to any dtype.  mask, other: those of tl.load.
    Order: a plain load; waits, tests, fence and quiet order it.
    Errors: DtypeError and ArgumentError for operands of a wrong type. Interpreted kernels also raise OutOfRangeError for
        a PE and NotSymmetricError for a masked-in address outside live memory.
    Spec: none; the tile form of SHMEM_GET.
    """
    return load_for(ctx, "load", pointers, pe, mask, other)


@jit
def load_for(ctx, routine: tl.constexpr, pointers, pe, mask, other):
    """load, in the name of ``routine``."""
    arch.check(ctx, routine, "pointers", pointers, pe, mask)
    event = arch.begin_call(ctx, routine, pe, pointers)
    found = transport.load(ctx, pointers, pe, mask, other)
    arch.end_event(ctx, event)
    return found


@jit
def store(ctx, pointers, value, pe, mask=None):
    """Store ``value`` at ``pointers`` on ``pe``, as tl.store does to local memory.

    ctx: a device context.  pe: counts in its team; a scalar, or a block that broadcasts against the pointers.
    pointers: symmetric, one or a block, given as this PE's addresses, to any dtype.  mask: that of tl.store.
    value: a scalar or a block: integers for integer elements, any numbers for floating ones.
    Order: the data is visible on pe after a later fence or quiet and then a flag, after put_signal, or after barrier_all.
    Errors: DtypeError and ArgumentError for operands of a wrong type. Interpreted kernels also raise OutOfRangeError for
        a PE and NotSymmetricError for a masked-in address outside live memory.
    Spec: none; the tile form of SHMEM_PUT.
    """
    store_for(ctx, "store", pointers, value, pe, mask)


@jit
def store_for(ctx, routine: tl.constexpr, pointers, value, pe, mask):
    """store, in the name of ``routine``."""
    arch.check(ctx, routine, "pointers", pointers, pe, mask)
    event = arch.begin_call(ctx, routine, pe, pointers)
    transport.store(ctx, routine, pointers, value, pe, mask)
    arch.end_event(ctx, event)


@documented(PUT, returns="\nOn return source is free.")
@jit
def put(ctx, dest, source, nelems, pe):
    event = start_put(ctx, "put", dest, source, nelems, pe)
    arch.join(ctx)  # source is free for every thread
    arch.end_event(ctx, event)


@documented(GET, returns="\nOn return dest holds the data.")
@jit
def get(ctx, dest, source, nelems, pe):
    event = start_get(ctx, "get", dest, source, nelems, pe)
    arch.join(ctx)  # dest is whole for every thread
    arch.end_event(ctx, event)


@documented(PUT, returns="\nsource must not change before a later quiet.")
@jit
def put_nbi(ctx, dest, source, nelems, pe):
    arch.end_event(ctx, start_put(ctx, "put_nbi", dest, source, nelems, pe))


@documented(GET, returns="\ndest holds the data after a later quiet.")
@jit
def get_nbi(ctx, dest, source, nelems, pe):
    arch.end_event(ctx, start_get(ctx, "get_nbi", dest, source, nelems, pe))


@jit
def start_put(ctx, routine: tl.constexpr, dest, source, nelems, pe):
    """put_nbi, in the name of ``routine``: a thread may still load from source when another one has the event."""
    arch.check_one(ctx, routine, "dest", dest, pe, nelems)
    arch.check_local(routine, "source", source, dest.dtype.element_ty, nelems)
    event = arch.begin_call(ctx, routine, pe, source, nelems)
    transport.put(ctx, dest, source, nelems, pe)
    return event


@jit
def start_get(ctx, routine: tl.constexpr, dest, source, nelems, pe):
    """get_nbi, in the name of ``routine``: a thread may still store to dest when another one has the event."""
    arch.check_one(ctx, routine, "source", source, pe, nelems)
    arch.check_local(routine, "dest", dest, source.dtype.element_ty, nelems)
    event = arch.begin_call(ctx, routine, pe, source, nelems)
    transport.get(ctx, dest, source, nelems, pe)
    return event


@jit
def p(ctx, dest, value, pe):
    """Write ``value`` to ``dest`` on ``pe`` by a single store.

    ctx: a device context.  pe: an int, counts in its team.
    dest: one symmetric pointer, given as this PE's address, to any dtype.  value: a scalar that the element can hold.
    Order: the value is visible on pe after a later fence or quiet and then a flag, after put_signal, or after barrier_all.
    Errors: DtypeError and ArgumentError for operands of a wrong type. Interpreted kernels also raise OutOfRangeError for
        a PE and NotSymmetricError for a masked-in address outside live memory.
    Spec: OpenSHMEM 1.6, 9.6 SHMEM_P.
    """
    arch.check_one(ctx, "p", "dest", dest, pe)
    fitting = arch.fit("p", "value", value, dest)
    event = arch.begin_write(ctx, "p", "set", dest, fitting, pe, dest, 1)
    transport.write(ctx, dest, fitting, pe)
    arch.end_event(ctx, event)


@jit
def g(ctx, source, pe):
    """Return the element at ``source`` on ``pe`` as it is in memory now, in a loop too.

    ctx: a device context.  pe: an int, counts in its team.
    source: one symmetric pointer, given as this PE's address, to any dtype.
    Order: a plain load; waits, tests, fence and quiet order it.
    Errors: DtypeError and ArgumentError for operands of a wrong type. Interpreted kernels also raise OutOfRangeError for
        a PE and NotSymmetricError for a masked-in address outside live memory.
    Spec: OpenSHMEM 1.6, 9.6 SHMEM_G.
    """
    arch.check_one(ctx, "g", "source", source, pe)
    event = arch.begin_call(ctx, "g", pe, source)
    found = transport.read(ctx, source, pe)  # what is there now, in a loop too
    arch.end_event(ctx, event)
    return found


@documented(STRIDED_PUT, "``source[i * sst]`` to ``dest[i * dst]`` for i below nelems", counts="nelems")
@jit
def iput(ctx, dest, source, dst, sst, nelems, pe):
    put_blocks(ctx, "iput", dest, source, dst, sst, 1, nelems, pe)


@documented(STRIDED_GET, "``source[i * sst]`` on ``pe`` to ``dest[i * dst]`` here for i below nelems", counts="nelems")
@jit
def iget(ctx, dest, source, dst, sst, nelems, pe):
    get_blocks(ctx, "iget", dest, source, dst, sst, 1, nelems, pe)


@documented(STRIDED_PUT, "nblocks blocks of bsize elements of ``source`` to ``dest``", counts="bsize, nblocks")
@jit
def ibput(ctx, dest, source, dst, sst, bsize, nblocks, pe):
    put_blocks(ctx, "ibput", dest, source, dst, sst, bsize, nblocks, pe)


@documented(
    STRIDED_GET, "nblocks blocks of bsize elements of ``source`` on ``pe`` to ``dest`` here", counts="bsize, nblocks"
)
@jit
def ibget(ctx, dest, source, dst, sst, bsize, nblocks, pe):
    get_blocks(ctx, "ibget", dest, source, dst, sst, bsize, nblocks, pe)


@jit
def put_blocks(ctx, routine: tl.constexpr, dest, source, dst, sst, bsize, nblocks, pe):
    """ibput, in the name of ``routine``."""
    arch.check_blocks(ctx, routine, "dest", dest, pe, dst, sst, bsize, nblocks)
    arch.check_local(routine, "source", source, dest.dtype.element_ty, bsize, sst, nblocks)
    event = arch.begin_call(ctx, routine, pe, source, bsize * nblocks)
    transport.put_blocks(ctx, dest, source, dst, sst, bsize, nblocks, pe)
    arch.join(ctx)  # source is free for every thread
    arch.end_event(ctx, event)


@jit
def get_blocks(ctx, routine: tl.constexpr, dest, source, dst, sst, bsize, nblocks, pe):
    """ibget, in the name of ``routine``."""
    arch.check_blocks(ctx, routine, "source", source, pe, dst, sst, bsize, nblocks)
    arch.check_local(routine, "dest", dest, source.dtype.element_ty, bsize, dst, nblocks)
    event = arch.begin_call(ctx, routine, pe, source, bsize * nblocks)
    transport.get_blocks(ctx, dest, source, dst, sst, bsize, nblocks, pe)
    arch.join(ctx)  # dest is whole for every thread
    arch.end_event(ctx, event)
