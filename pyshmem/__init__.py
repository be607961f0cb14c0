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

from pyshmem.base import interpreter as _interpreter
from pyshmem.start import requirements as _requirements

_requirements.check_alone()
_requirements.check()
_requirements.check_built()
_interpreter.choose()
if _interpreter.active():
    _requirements.check_interpreter()

from pyshmem import check as check
from pyshmem.base.errors import *
from pyshmem.diagnosis import ranges as _ranges
from pyshmem.diagnosis.exits import install as _install_exits
from pyshmem.diagnosis.tracebacks import install as _install
from pyshmem.host.addresses import *
from pyshmem.host.allocation import *
from pyshmem.host.amo import *
from pyshmem.host.arrays import *
from pyshmem.host.collectives import *
from pyshmem.host.contexts import *
from pyshmem.host.init import *
from pyshmem.host.launching.grids import Grid as _Grid
from pyshmem.host.launching.grids import grid as _make_grid
from pyshmem.host.locks import *
from pyshmem.host.ordering import *
from pyshmem.host.partitioned import *
from pyshmem.host.pool import *
from pyshmem.host.query import *
from pyshmem.host.registration import *
from pyshmem.host.rma import *
from pyshmem.host.signal import *
from pyshmem.host.streams.collectives import *
from pyshmem.host.streams.signals import *
from pyshmem.host.streams.uneven import *
from pyshmem.host.teams import *
from pyshmem.host.uneven import *
from pyshmem.host.wait import *
from pyshmem.timelines import recording as _recording
from pyshmem.version import __version__

if TYPE_CHECKING:
    from pyshmem.memory.heap import Device

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
    kernel: Any,
    grid: Any,
    *args: Any,
    team: Team | None = None,
    cooperative: bool = False,
    **options: Any,
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
    from pyshmem.host.launching.launch import launch as start  # imports triton

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
    from pyshmem.host.launching.jit import jit as make  # imports triton

    return make(function, lambda *args, **named: launch(*args, **named), options)


if not TYPE_CHECKING:  # type checkers would allow any name

    def __getattr__(name: str) -> Any:
        hint = "; the names of C are in pyshmem.shmem" if name.lower().startswith("shmem_") else ""
        for prefix, kind in (("team_", Team), ("ctx_", Ctx)):
            method = name.removeprefix(prefix)
            if method != name and method[:1] != "_" and hasattr(kind, method):
                hint = f"; it is {kind.__name__}.{method}"
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}{hint}", name=name, obj=_sys.modules[__name__]
        )


trace = _recording.trace
_recording.install()
for _each, _prefix in ((_sys.modules[__name__], ""), (Team, "Team."), (Ctx, "Ctx."), (Lock, "Lock.")):
    _ranges.put_into(_each, f"shmem.{_prefix}")

_public = {name for name, value in globals().items() if name[0] != "_" and not isinstance(value, _ModuleType)}
__all__ = sorted(_public - {"Any", "TYPE_CHECKING"} | {"__version__"})


class _Package(_ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        """Python sets each submodule that a program imports; pyshmem.launch, of pyshmemrun, leaves shmem.launch as it is."""
        if not (name in __all__ and isinstance(value, _ModuleType)):
            super().__setattr__(name, value)


_sys.modules[__name__].__class__ = _Package
if check.active:
    from pyshmem.check.record.install import install as _install_checker

    _install_checker(_sys.modules[__name__])
if check.scheduled:
    from pyshmem.check.schedules.host import install as _install_schedules

    _install_schedules(_sys.modules[__name__])


def load_ipython_extension(shell: Any) -> None:
    """Add %pyshmem and %%pes to IPython, for %load_ext pyshmem."""
    _import_module("pyshmem.launch.notebook").register(shell)
