"""pyshmem inside Triton kernels: ``import pyshmem.device as dev``. The host's names, the device context first.

A call is made by the whole program at once. Where there is no GPU, importing pyshmem chooses Triton's interpreter. A process
then runs one kernel at a time: launches from two threads disturb each other, in Triton itself.

ctx: what shmem.device_context() returns: a team, and the heap that symmetric pointers are of.
pe: an int, counted in ctx's team; it may be known at run time only.
"""

# ruff: noqa: E402
from types import ModuleType as _ModuleType

from pyshmem.base import interpreter as _interpreter

_interpreter.prepare()

from pyshmem.device.amo import (
    atomic_add,
    atomic_and,
    atomic_compare_swap,
    atomic_compare_swap_nbi,
    atomic_fetch,
    atomic_fetch_add,
    atomic_fetch_add_nbi,
    atomic_fetch_and,
    atomic_fetch_and_nbi,
    atomic_fetch_inc,
    atomic_fetch_inc_nbi,
    atomic_fetch_max,
    atomic_fetch_min,
    atomic_fetch_nbi,
    atomic_fetch_or,
    atomic_fetch_or_nbi,
    atomic_fetch_xor,
    atomic_fetch_xor_nbi,
    atomic_inc,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_set,
    atomic_swap,
    atomic_swap_nbi,
    atomic_xor,
)
from pyshmem.device.collectives.arrays import (
    alltoall,
    alltoall_grid,
    alltoalls,
    alltoalls_grid,
    broadcast_grid,
    collect,
    collect_grid,
    fcollect,
    fcollect_grid,
)
from pyshmem.device.collectives.messages import broadcast, recv, send, sendrecv
from pyshmem.device.collectives.reductions import (
    and_reduce,
    and_reduce_grid,
    max_reduce,
    max_reduce_grid,
    min_reduce,
    min_reduce_grid,
    or_reduce,
    or_reduce_grid,
    prod_reduce,
    prod_reduce_grid,
    sum_exscan,
    sum_exscan_grid,
    sum_inscan,
    sum_inscan_grid,
    sum_reduce,
    sum_reduce_grid,
    xor_reduce,
    xor_reduce_grid,
)
from pyshmem.device.collectives.tiles import all_gather, all_reduce, all_to_all, reduce_scatter, scan
from pyshmem.device.context import DeviceContext, my_pe, n_pes, ptr, translate_pe
from pyshmem.device.ordering import barrier_all, barrier_all_grid, fence, pe_quiet, quiet, sync_all
from pyshmem.device.own_tiles import my_tile
from pyshmem.device.partitioned import (
    MeshPartition,
    Partition,
    atomic_add_at,
    global_index,
    load_at,
    load_tile,
    local_index,
    locate,
    my_place,
    n_local,
    owner,
    store_at,
    store_tile,
)
from pyshmem.device.rma import g, get, get_nbi, ibget, ibput, iget, iput, load, p, put, put_nbi, store
from pyshmem.device.signal import (
    SIGNAL_ADD,
    SIGNAL_SET,
    put_signal,
    put_signal_nbi,
    signal_add,
    signal_fetch,
    signal_set,
    signal_wait_until,
)
from pyshmem.device.spans import trace_begin, trace_end
from pyshmem.device.wait import (
    CMP_EQ,
    CMP_GE,
    CMP_GT,
    CMP_LE,
    CMP_LT,
    CMP_NE,
    test,
    test_all,
    test_all_vector,
    test_any,
    test_any_vector,
    test_some,
    test_some_vector,
    wait_until,
    wait_until_all,
    wait_until_all_vector,
    wait_until_any,
    wait_until_any_vector,
    wait_until_some,
    wait_until_some_vector,
)

__all__ = sorted(
    name for name, value in globals().items() if not name.startswith("_") and not isinstance(value, _ModuleType)
)
