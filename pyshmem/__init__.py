"""pyshmem: OpenSHMEM 1.6 for Python and Triton. ``import pyshmem as shmem``.

The names are the specification's without the prefix; each lives in pyshmem.host, one module per chapter. Kernels import
pyshmem.device. What many calls take:

pe: an int, counted in ctx's team, in the world where there is no ctx. As all numbers, a tensor or array of one element too.
ctx: a Ctx: its team counts the PEs, its fence and quiet cover the call. None: CTX_DEFAULT.
team: a Team that this PE is in. None: TEAM_WORLD.
device: "cuda" or "cpu", in whose memory. None: the default heap's.
"""

# ruff: noqa: E402
from typing import Any

from pyshmem.runtime import interpreter as _interpreter
from pyshmem.runtime import requirements as _requirements

_requirements.check()
_requirements.check_built()
_interpreter.choose()
if _interpreter.active():
    _requirements.check_interpreter()

from pyshmem.host.amo import (
    atomic_add,
    atomic_and,
    atomic_compare_swap,
    atomic_fetch,
    atomic_fetch_add,
    atomic_fetch_and,
    atomic_fetch_inc,
    atomic_fetch_or,
    atomic_fetch_xor,
    atomic_inc,
    atomic_or,
    atomic_set,
    atomic_swap,
    atomic_xor,
)
from pyshmem.host.amo_nbi import (
    atomic_compare_swap_nbi,
    atomic_fetch_add_nbi,
    atomic_fetch_and_nbi,
    atomic_fetch_inc_nbi,
    atomic_fetch_nbi,
    atomic_fetch_or_nbi,
    atomic_fetch_xor_nbi,
    atomic_swap_nbi,
)
from pyshmem.host.arrays import (
    arange,
    array,
    as_symmetric,
    empty,
    empty_like,
    full,
    full_like,
    linspace,
    ones,
    ones_like,
    rand,
    randint,
    randn,
    zeros,
    zeros_like,
)
from pyshmem.host.collectives import (
    alltoall,
    alltoalls,
    and_reduce,
    broadcast,
    collect,
    fcollect,
    max_reduce,
    min_reduce,
    or_reduce,
    prod_reduce,
    reduce,
    sum_exscan,
    sum_inscan,
    sum_reduce,
    xor_reduce,
)
from pyshmem.host.contexts import CTX, CTX_DEFAULT, CTX_INVALID, SESSION, Ctx, pcontrol
from pyshmem.host.init import (
    THREAD,
    finalize,
    global_exit,
    info_get_name,
    info_get_version,
    init,
    init_thread,
    query_initialized,
    query_thread,
)
from pyshmem.host.locks import Lock, clear_lock, set_lock, test_lock
from pyshmem.host.memory import (
    addr_accessible,
    align,
    calloc,
    free,
    is_symmetric,
    malloc,
    malloc_with_hints,
    pe_accessible,
    ptr,
    realloc,
    team_ptr,
)
from pyshmem.host.on_stream import (
    alltoall_on_stream,
    barrier_on_stream,
    broadcast_on_stream,
    fcollect_on_stream,
    reduce_on_stream,
)
from pyshmem.host.ordering import barrier_all, fence, pe_quiet, quiet, sync, sync_all
from pyshmem.host.partitioned import PartitionedTensor, partitioned
from pyshmem.host.query import my_pe, n_pes
from pyshmem.host.rma import g, get, get_nbi, iget, iput, p, put, put_nbi
from pyshmem.host.signal import (
    SIGNAL,
    put_signal,
    put_signal_nbi,
    signal_add,
    signal_fetch,
    signal_set,
    signal_wait_until,
)
from pyshmem.host.strided import ibget, ibput
from pyshmem.host.teams import TEAM_INVALID, TEAM_SHARED, TEAM_WORLD, Team, TeamConfig
from pyshmem.host.wait import (
    CMP,
    test,
    test_all,
    test_any,
    test_some,
    wait_until,
    wait_until_all,
    wait_until_any,
    wait_until_some,
)
from pyshmem.host.wait_vector import (
    test_all_vector,
    test_any_vector,
    test_some_vector,
    wait_until_all_vector,
    wait_until_any_vector,
    wait_until_some_vector,
)
from pyshmem.runtime.errors import (
    ArgumentError,
    DtypeError,
    HeapExhaustedError,
    LaunchError,
    NotInitializedError,
    NotSymmetricError,
    OutOfRangeError,
    ShmemError,
    UnreachableError,
    WaitTimeoutError,
)
from pyshmem.version import __version__


def device_context(team: Team | None = None, device: str | None = None, scratch: Any = None) -> Any:
    """What kernels take as their first argument: the description of a team and a heap.

    scratch: a symmetric array of zeros that this team's tile collectives exchange through from now on, and nobody else;
    the larger, the fewer turns a large tile takes. None: the team's part of PYSHMEM_SCRATCH.
    Local: no PE waits for another. The same object for the same arguments.

    Valid until the last finalize.  Errors: NotInitializedError, ArgumentError, LaunchError where kernels cannot run.
    """
    from pyshmem.host.device_context import device_context as make  # imports triton, which host programs do not need

    return make(team, device, scratch)


def launch(
    kernel: Any, grid: Any, *args: Any, team: Team | None = None, cooperative: bool = False, **options: Any
) -> int:
    """Start ``kernel`` on every PE of ``team`` once all of them have compiled it: kernels may wait for each other at once.

    kernel: of triton.jit; device_context(team) is passed first, then ``args``. A parameter called epoch gets the number
    that is returned, where nobody gives it a value; Triton's do_not_specialize=["epoch"] keeps it from being compiled anew.
    grid: an int or up to three, each PE its own.  options: other arguments by name, then the compiler's, num_warps=8.
    cooperative: refuse a grid whose programs cannot all run at once, which dev.barrier_all_grid needs.
    Returns: how many launches of the team came before.  Order: collective over the team; the kernel may still run on return.
    A meeting without quiet, as sync: what a PE has put before may not have arrived when another's kernel begins.
    Errors: ArgumentError, LaunchError, NotInitializedError, WaitTimeoutError.
    """
    from pyshmem.kernels.collective_launch import launch as start  # imports triton

    epoch: int = start(kernel, grid, args, team, cooperative, options)
    return epoch


# Written out: type checkers do not evaluate it. A test compares it with what is imported above.
__all__ = [
    "CMP",
    "CTX",
    "CTX_DEFAULT",
    "CTX_INVALID",
    "SESSION",
    "SIGNAL",
    "TEAM_INVALID",
    "TEAM_SHARED",
    "TEAM_WORLD",
    "THREAD",
    "ArgumentError",
    "Ctx",
    "DtypeError",
    "HeapExhaustedError",
    "LaunchError",
    "Lock",
    "NotInitializedError",
    "NotSymmetricError",
    "OutOfRangeError",
    "PartitionedTensor",
    "ShmemError",
    "Team",
    "TeamConfig",
    "UnreachableError",
    "WaitTimeoutError",
    "__version__",
    "addr_accessible",
    "align",
    "alltoall",
    "alltoall_on_stream",
    "alltoalls",
    "and_reduce",
    "arange",
    "array",
    "as_symmetric",
    "atomic_add",
    "atomic_and",
    "atomic_compare_swap",
    "atomic_compare_swap_nbi",
    "atomic_fetch",
    "atomic_fetch_add",
    "atomic_fetch_add_nbi",
    "atomic_fetch_and",
    "atomic_fetch_and_nbi",
    "atomic_fetch_inc",
    "atomic_fetch_inc_nbi",
    "atomic_fetch_nbi",
    "atomic_fetch_or",
    "atomic_fetch_or_nbi",
    "atomic_fetch_xor",
    "atomic_fetch_xor_nbi",
    "atomic_inc",
    "atomic_or",
    "atomic_set",
    "atomic_swap",
    "atomic_swap_nbi",
    "atomic_xor",
    "barrier_all",
    "barrier_on_stream",
    "broadcast",
    "broadcast_on_stream",
    "calloc",
    "clear_lock",
    "collect",
    "device_context",
    "empty",
    "empty_like",
    "fcollect",
    "fcollect_on_stream",
    "fence",
    "finalize",
    "free",
    "full",
    "full_like",
    "g",
    "get",
    "get_nbi",
    "global_exit",
    "ibget",
    "ibput",
    "iget",
    "info_get_name",
    "info_get_version",
    "init",
    "init_thread",
    "iput",
    "is_symmetric",
    "launch",
    "linspace",
    "malloc",
    "malloc_with_hints",
    "max_reduce",
    "min_reduce",
    "my_pe",
    "n_pes",
    "ones",
    "ones_like",
    "or_reduce",
    "p",
    "partitioned",
    "pcontrol",
    "pe_accessible",
    "pe_quiet",
    "prod_reduce",
    "ptr",
    "put",
    "put_nbi",
    "put_signal",
    "put_signal_nbi",
    "query_initialized",
    "query_thread",
    "quiet",
    "rand",
    "randint",
    "randn",
    "realloc",
    "reduce",
    "reduce_on_stream",
    "set_lock",
    "signal_add",
    "signal_fetch",
    "signal_set",
    "signal_wait_until",
    "sum_exscan",
    "sum_inscan",
    "sum_reduce",
    "sync",
    "sync_all",
    "team_ptr",
    "test",
    "test_all",
    "test_all_vector",
    "test_any",
    "test_any_vector",
    "test_lock",
    "test_some",
    "test_some_vector",
    "wait_until",
    "wait_until_all",
    "wait_until_all_vector",
    "wait_until_any",
    "wait_until_any_vector",
    "wait_until_some",
    "wait_until_some_vector",
    "xor_reduce",
    "zeros",
    "zeros_like",
]
