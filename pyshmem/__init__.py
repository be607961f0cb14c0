"""pyshmem: OpenSHMEM 1.6 for Python and Triton. ``import pyshmem as shmem``.

The names are the specification's without the prefix ``shmem_``. The calls are defined in pyshmem.host, in one module per
chapter. Kernels import pyshmem.device. Arguments that many calls share:

pe: an int, counted in the team of ctx, or in TEAM_WORLD if a call has no ctx. Every number may also be a tensor or array of
    one element.
ctx: a context. Its team numbers the PEs, and its fence and quiet cover the call. None is CTX_DEFAULT.
team: a team of this PE. None is TEAM_WORLD.
device: "cuda" or "cpu", the heap to use. None is the default heap.
"""

# ruff: noqa: E402
import sys as _sys
from importlib import import_module as _import_module
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING, Any

from pyshmem.runtime import interpreter as _interpreter
from pyshmem.runtime import requirements as _requirements

_requirements.check_alone()
_requirements.check()
_requirements.check_built()
_interpreter.choose()
if _interpreter.active():
    _requirements.check_interpreter()

from pyshmem import check as check
from pyshmem.host.addresses import c_address, from_address, heap_bases, peer_addresses
from pyshmem.host.allocation import (
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
from pyshmem.host.amo import (
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
    atomic_fetch_nbi,
    atomic_fetch_or,
    atomic_fetch_or_nbi,
    atomic_fetch_xor,
    atomic_fetch_xor_nbi,
    atomic_inc,
    atomic_or,
    atomic_set,
    atomic_swap,
    atomic_swap_nbi,
    atomic_xor,
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
from pyshmem.host.grids import Grid as _Grid
from pyshmem.host.grids import grid as _make_grid
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
from pyshmem.host.on_stream import (
    alltoall_on_stream,
    barrier_on_stream,
    broadcast_on_stream,
    fcollect_on_stream,
    reduce_on_stream,
    reduce_scatter_on_stream,
    sum_exscan_on_stream,
    sum_inscan_on_stream,
)
from pyshmem.host.ordering import barrier_all, fence, pe_quiet, quiet, sync, sync_all
from pyshmem.host.partitioned import PartitionedTensor, from_dtensor, partitioned
from pyshmem.host.pool import pool
from pyshmem.host.query import my_pe, n_pes
from pyshmem.host.registration import register, unregister
from pyshmem.host.rma import g, get, get_nbi, ibget, ibput, iget, iput, p, put, put_nbi
from pyshmem.host.signal import (
    SIGNAL,
    put_signal,
    put_signal_nbi,
    signal_add,
    signal_fetch,
    signal_set,
    signal_wait_until,
)
from pyshmem.host.signals_on_stream import (
    put_on_stream,
    put_signal_on_stream,
    quiet_on_stream,
    signal_on_stream,
    signal_wait_until_on_stream,
)
from pyshmem.host.teams import TEAM_INVALID, TEAM_SHARED, TEAM_WORLD, Team, TeamConfig
from pyshmem.host.uneven_on_stream import alltoallv_on_stream
from pyshmem.host.wait import (
    CMP,
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
from pyshmem.runtime import ranges as _ranges
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
from pyshmem.runtime.exits import install as _install_exits
from pyshmem.runtime.tracebacks import install as _install
from pyshmem.timelines import recording as _recording
from pyshmem.version import __version__

if TYPE_CHECKING:
    from pyshmem.runtime.heap import Device

_install()
_install_exits()
CMP_EQ, CMP_NE, CMP_GT, CMP_GE, CMP_LT, CMP_LE = CMP.EQ, CMP.NE, CMP.GT, CMP.GE, CMP.LT, CMP.LE  # as in kernels
SIGNAL_SET, SIGNAL_ADD = SIGNAL.SET, SIGNAL.ADD


def device_context(team: Team | None = None, device: "Device | None" = None, scratch: Any = None) -> Any:
    """Return the first argument of kernels, which describes a team and a heap. Local.

    team, device: None is TEAM_WORLD; the heap "cuda" or "cpu", None is the default heap.
    scratch: a symmetric array of zeros through which this team's tile collectives exchange data from now on; nothing else
        may use it. A larger array needs fewer turns for a large tile; one without room for a program's counters is
        refused. None means the team's share of PYSHMEM_SCRATCH.
    Returns: the same object for the same arguments; it is valid until the last finalize.
    Errors: NotInitializedError, ArgumentError, LaunchError if kernels cannot run.
    """
    from pyshmem.host.device_context import device_context as make  # imports triton, which host programs do not need

    return make(team, device, scratch)


def launch(
    kernel: Any, grid: Any, *args: Any, team: Team | None = None, cooperative: bool = False, **options: Any
) -> int:
    """Launch ``kernel`` on every PE of ``team`` after all of them have compiled it, so that kernels may wait for each other.

    kernel: of triton.jit or shmem.jit; gets device_context(team) and ``args``. A parameter named epoch that has no value
        gets the number returned; with Triton's do_not_specialize=["epoch"] it is not compiled for each number.
    grid: one to three ints, each PE's own; a function of the arguments by name that returns them; or shmem.grid(...).
    options: other arguments by name, and the compiler's, as num_warps=8.  team: None is the grid's, or TEAM_WORLD.
    cooperative: raise an error if the programs of the grid cannot all run at once, which dev.barrier_all_grid needs, or if
        PEs share a GPU without taking turns.
    Returns: the number of earlier launches of the team. The kernel may still run.
    Order: collective over team, a sync without quiet: earlier puts may not have arrived when a kernel starts on another PE.
    Errors: ArgumentError, LaunchError, NotInitializedError, WaitTimeoutError.
    """
    from pyshmem.host.launch import launch as start  # imports triton

    epoch: int = start(kernel, grid, args, team, cooperative, options)
    return epoch


def grid(programs: Any, partition: PartitionedTensor | None = None) -> _Grid:
    """Return a grid of programs for all PEs: ``kernel[shmem.grid(...)](...)`` launches on all, as shmem.launch does. Local.

    programs: an int or up to three, of all PEs together; or a function of the kernel's arguments by name that returns them.
    partition: each program makes one tile of this tensor, axis i of the grid along dimension i, and is run by the PE that
        owns the tile: there dev.my_tile says which. Tiles divide the blocks of the distribution; axes beyond the
        tensor's dimensions are run whole by each PE. None: every PE runs all programs.
    Errors: ArgumentError; the launch refuses programs that are no tiles of the tensor.
    """
    return _make_grid(programs, partition)


def jit(function: Any = None, **options: Any) -> Any:
    """Make a kernel, or a function that kernels call, which names no context: ``dev.put(dest, source, n, pe)``.

    Calls of pyshmem.device without a context, and calls of other functions of shmem.jit, get that of the launch:
    TEAM_WORLD's, ``kernel.on(team)[grid](...)``'s, or that of shmem.launch. ``ctx=a.ctx`` or a first argument ``a.ctx``
    names another one. A function with a parameter ``ctx`` is compiled as it is.
    kernel[grid](...): a launch on this PE, as of triton.jit, for a plain grid; on all PEs for one of shmem.grid.
    options: those of triton.jit.
    Errors: ArgumentError, of a launch also device_context's and launch's.
    """
    if function is None:
        return lambda given: jit(given, **options)
    from pyshmem.host.jit import jit as make  # imports triton

    return make(function, lambda *args, **named: launch(*args, **named), options)


if not TYPE_CHECKING:  # type checkers would allow any name

    def __getattr__(name: str) -> Any:
        hint = "; the names of C are in pyshmem.shmem" if name.lower().startswith("shmem_") else ""
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}{hint}", name=name, obj=_sys.modules[__name__]
        )


trace = _recording.trace
_recording.install()
for _each, _prefix in ((_sys.modules[__name__], ""), (Team, "Team."), (Ctx, "Ctx."), (Lock, "Lock.")):
    _ranges.put_into(_each, f"shmem.{_prefix}")

# Written out: type checkers do not evaluate it. A test compares it with what is imported above.
__all__ = [
    "CMP",
    "CMP_EQ",
    "CMP_GE",
    "CMP_GT",
    "CMP_LE",
    "CMP_LT",
    "CMP_NE",
    "CTX",
    "CTX_DEFAULT",
    "CTX_INVALID",
    "SESSION",
    "SIGNAL",
    "SIGNAL_ADD",
    "SIGNAL_SET",
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
    "alltoallv_on_stream",
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
    "c_address",
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
    "from_address",
    "from_dtensor",
    "full",
    "full_like",
    "g",
    "get",
    "get_nbi",
    "global_exit",
    "grid",
    "heap_bases",
    "ibget",
    "ibput",
    "iget",
    "info_get_name",
    "info_get_version",
    "init",
    "init_thread",
    "iput",
    "is_symmetric",
    "jit",
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
    "peer_addresses",
    "pool",
    "prod_reduce",
    "ptr",
    "put",
    "put_nbi",
    "put_on_stream",
    "put_signal",
    "put_signal_nbi",
    "put_signal_on_stream",
    "query_initialized",
    "query_thread",
    "quiet",
    "quiet_on_stream",
    "rand",
    "randint",
    "randn",
    "realloc",
    "reduce",
    "reduce_on_stream",
    "reduce_scatter_on_stream",
    "register",
    "set_lock",
    "signal_add",
    "signal_fetch",
    "signal_on_stream",
    "signal_set",
    "signal_wait_until",
    "signal_wait_until_on_stream",
    "sum_exscan",
    "sum_exscan_on_stream",
    "sum_inscan",
    "sum_inscan_on_stream",
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
    "trace",
    "unregister",
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


class _Package(_ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        """Python sets each submodule that a program imports; pyshmem.launch, of pyshmemrun, leaves shmem.launch as it is."""
        if not (name in __all__ and isinstance(value, _ModuleType)):
            super().__setattr__(name, value)


_sys.modules[__name__].__class__ = _Package
if check.active:
    from pyshmem.check.install import install as _install_checker

    _install_checker(_sys.modules[__name__])
if check.scheduled:
    from pyshmem.check.schedules import install as _install_schedules

    _install_schedules(_sys.modules[__name__])


def load_ipython_extension(shell: Any) -> None:
    """Add %pyshmem and %%pes to IPython, for %load_ext pyshmem."""
    _import_module("pyshmem.launch.notebook").register(shell)
