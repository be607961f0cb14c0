"""Python's side of the C library: it describes the job to the library, and does for it what is rare.

A job of C programs alone may do without, see native/shmem/alone.h. Otherwise
the library calls the functions in _CALLS by their names, from any thread; ctypes takes the GIL. An error ends the job with
its message, as in C programs nobody would handle an exception.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

import pyshmem
from pyshmem.base import activity, environment, errors, layout
from pyshmem.base.comparisons import SIGNS
from pyshmem.base.errors import ArgumentError, LaunchError, ShmemError, refuse
from pyshmem.base.job import job
from pyshmem.c_names import management
from pyshmem.c_names.constants import NUM_CONTEXTS
from pyshmem.c_names.handles import shmem_team_config_t
from pyshmem.capi import on_gpu
from pyshmem.capi.on_gpu import text
from pyshmem.diagnosis import exits, host_timeouts, mismatched_calls
from pyshmem.host import init as host_init
from pyshmem.host.teams import TEAM_SHARED, TEAM_WORLD, Team
from pyshmem.memory.areas import pool
from pyshmem.memory.cpu_heap import cpu
from pyshmem.memory.heap import Device, heaps
from pyshmem.native import _native
from pyshmem.start import how_started
from pyshmem.transport.teams.operators import LOOPS
from pyshmem.version import __version__

GPU_HINT = 1 << 16  # PYSHMEM_HINT_GPU of shmemx.h
# what a call of team/interface.h returns
_TIMED_OUT, _INTERRUPTED, _NO_MEMORY, _MIXED = layout.numbers(
    "CALL_TIMED_OUT", "CALL_INTERRUPTED", "CALL_NO_MEMORY", "CALL_MIXED"
)
_LOST, _DIFFERENT, _UNLIKE, _BROKEN = layout.numbers("CALL_LOST", "CALL_DIFFERENT", "CALL_UNLIKE", "CALL_BROKEN")
_MOST_STATICS, _MOST_TEAMS = 16, 1000


def _structure(name: str, **fields: Any) -> Any:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


_i, _u = ctypes.c_int64, ctypes.c_uint64
_Static = _structure("_Static", start=_u, bytes=_u, away=_u)
_Team = _structure("_Team", handle=_u, native=_u, me=_i, start=_i, stride=_i, size=_i, contexts=_i)
_State = _structure(  # state_t of shmem/state.h
    "_State",
    **dict.fromkeys(("calls", "activity", "base", "bytes", "checked", "away"), _u),
    **dict.fromkeys(("gpu_base", "gpu_bytes", "gpu_first", "gpu_span"), _u),
    **dict.fromkeys(("my_pe", "n_pes", "spans", "check", "debug", "embedded", "level", "process"), _i),
    **dict.fromkeys(("timeout", "notice"), ctypes.c_double),
    **dict.fromkeys(("watch", "spins"), _u),
    n_statics=_u,
    statics=_Static * _MOST_STATICS,
    teams=_Team * _MOST_TEAMS,
)
_Rare = ctypes.CFUNCTYPE(_i, ctypes.c_char_p, ctypes.POINTER(_i))
_Bridge = _structure("_Bridge", version=ctypes.c_char_p, bytes=_u, state=ctypes.POINTER(_State), rare=_Rare)

_state: Any = None  # the library's, once it is open
_rare: Any = None  # kept: the library calls it


def open(address: int) -> None:
    """Connect the library whose ``bridge`` is at ``address``. Errors: LaunchError if it is of another version."""
    global _state, _rare
    bridge = _Bridge.from_address(address)
    version = (bridge.version or b"").decode()
    if version != __version__ or bridge.bytes != ctypes.sizeof(_State):
        got = (
            f"libpyshmem of pyshmem {version}, and the package of {__version__} in {os.path.dirname(pyshmem.__file__)}"
        )
        _end(LaunchError(f"shmem_init: PE ?: version: got {got}; expected both of one version: compile with its oshcc"))
    _state, _rare = bridge.state.contents, _Rare(_call)
    bridge.rare = _rare
    how_started.announced = bool(_state.embedded)
    host_init.listeners.append(_tell)
    if job.inits:
        _tell(True)


def _tell(begins: bool) -> None:
    """Describe the job that begins, or that the job ends."""
    if not begins:
        _state.calls = _state.checked = _state.bytes = _state.n_pes = _state.gpu_span = 0
        for row in _state.teams:
            _forget(row)
        return
    _state.base, _state.bytes, _state.away = cpu.base, cpu.size, cpu.table
    _state.gpu_base, _state.gpu_bytes, _state.gpu_first, _state.gpu_span = on_gpu.ranges()
    _state.my_pe, _state.n_pes, _state.spans = job.my_pe, job.n_pes, bool(cpu.far_deltas)
    _state.check, _state.debug, _state.level = environment.read("PYSHMEM_CHECK"), job.debug, job.thread_level
    _state.process = os.getpid()
    _state.timeout, _state.notice, _state.spins = job.timeout, host_timeouts.notice_seconds(), job.spins
    _state.checked = 0 if job.debug else cpu.size
    for index, team in enumerate((TEAM_WORLD, TEAM_SHARED)):
        _describe(team)
        _state.teams[index].handle = index + 1
    ctypes.c_uint64.from_address(_state.activity).value = activity.own.address
    if job.debug:
        activity.own.watch()  # a time-out asks where the PEs are
    _state.calls = _native.library_calls()  # last: it says that there is a job


def _describe(team: Team) -> int:
    """Describe a team to the library, and return its number; -1 if this PE is not in it."""
    if not team:
        return -1
    row = _state.teams[team.area_index]
    row.native = _native.library_team(team.meeting.wires, job.timeout, job.spins, _state.watch)
    row.me, row.start, row.stride, row.size = team.me, team.start, team.stride, team.size
    row.contexts = team.config.num_contexts
    return int(team.area_index)


def _forget(row: Any) -> None:
    if row.native:
        _native.library_team_end(row.native)
    row.handle = row.native = 0


def _call(name: bytes, arguments: Any) -> int:
    """Call a function of _CALLS, which may replace the arguments. An exception ends the job."""
    try:
        return int(_CALLS[name.decode()](arguments) or 0)
    except BaseException as error:  # noqa: BLE001
        _end(error)


def _end(error: BaseException) -> NoReturn:
    """End the job with the message of an error of pyshmem, or with the traceback of any other one.

    A process that the PE has forked ends alone.
    """
    if isinstance(error, ShmemError):
        print(error, file=sys.stderr, flush=True)
    elif not isinstance(error, SystemExit):
        sys.excepthook(type(error), error, error.__traceback__)
    if not job.inits or os.getpid() != _state.process:
        os._exit(1)
    exits.abort(130 if isinstance(error, KeyboardInterrupt) else 1)


def _team(index: int) -> Team:
    return (TEAM_WORLD, TEAM_SHARED)[index] if index < 2 else pool.teams[index]


# ---- setup ----


def _init(a: Any) -> int:
    if not job.inits:
        job.statics = a[1]
    return int(pyshmem.init_thread(a[0]))


def _statics(a: Any) -> int:
    """The address of the block in the heap for the static data, whose segments the library has listed."""
    place = int(cpu.statics)
    for part in _state.statics[: _state.n_statics]:
        cpu.aliases.append((part.start, part.bytes, place - part.start))
        place += part.bytes
    return int(cpu.statics)


def _exit(a: Any) -> None:
    """The program ends: do what Python would do at its end."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()


# ---- memory ----


def _allocate(routine: str, nbytes: int, make: Callable[[], Any]) -> int:
    """The address of the array that ``make`` returns; 0, C's NULL, if the heap has no room."""
    try:
        array = make()
    except errors.HeapExhaustedError:
        return 0
    return int(array.data_ptr())


def _device(hints: int = 0) -> Device:
    """The heap of an allocation. Without a GPU heap it is the CPU heap, on which kernels run then."""
    wanted = hints & GPU_HINT or environment.read("PYSHMEM_HEAP") == "cuda"
    return "cuda" if wanted and "cuda" in heaps else "cpu"


def _malloc(a: Any) -> int:
    return _allocate("shmem_malloc", a[0], lambda: pyshmem.malloc(a[0], device=_device(a[1])))


def _calloc(a: Any) -> int:
    return _allocate("shmem_calloc", a[0], lambda: pyshmem.calloc(1, a[0], device=_device()))


def _align(a: Any) -> int:
    """The alignment is a power of two; a smaller one than that of a pointer is accepted."""
    power = max(a[1], ctypes.sizeof(ctypes.c_void_p))
    return _allocate("shmem_align", a[0], lambda: pyshmem.align(power, a[0], device=_device()))


def _realloc(a: Any) -> int:
    if not a[0]:
        return _allocate("shmem_realloc", a[1], lambda: pyshmem.malloc(a[1], device=_device()))
    found = management.realloc(a[0], a[1])
    return 0 if found is None else int(found.data_ptr())


def _is_live(a: Any) -> bool:
    return any(heap.allocator.covers(a[0] - heap.base, a[1]) for heap in heaps.values())


# ---- teams ----


def _split_strided(a: Any) -> int:
    """Arguments: the parent, start, stride, size, num_contexts. The new team replaces the first."""
    parent, start, stride, size, contexts = a[:5]
    config = shmem_team_config_t(contexts)
    failed, team = management.team_split_strided(_team(parent), start, stride, size, config, NUM_CONTEXTS)
    a[0] = _describe(team)
    return failed


def _split_2d(a: Any) -> int:
    """Arguments: the parent, xrange, num_contexts of both. The new teams replace the first two."""
    parent, xrange, *contexts = a[:4]
    x, y = (shmem_team_config_t(each) for each in contexts)
    failed, xteam, yteam = management.team_split_2d(_team(parent), xrange, x, NUM_CONTEXTS, y, NUM_CONTEXTS)
    a[0], a[1] = _describe(xteam), _describe(yteam)
    return failed


def _destroy_team(a: Any) -> None:
    _team(a[0]).destroy()
    _forget(_state.teams[a[0]])


def _compare(a: Any) -> None:
    """In debug mode, compare a call: routine, team, elements, the number of their type in base/combine.h or -1."""
    detail = f"of {a[2]} elements of type {a[3]}" if a[3] >= 0 else ""
    _team(a[1]).meeting.compare(text(a[0]), detail)  # type: ignore[attr-defined]


# ---- errors ----


def _refuse(a: Any) -> NoReturn:
    kind, routine, argument, got, wants = map(text, a[:5])
    refuse(getattr(errors, kind), routine, argument, got, wants)


def _failed(a: Any) -> None:
    """A call of team/interface.h has failed: routine, what it returned, the team."""
    routine = text(a[0])
    if a[1] == _LOST:
        _native.library_lost(routine)
    if a[1] == _NO_MEMORY:
        raise MemoryError(routine)
    if a[1] == _MIXED:
        wants = "symmetric memory on all PEs, as C passes it"
        refuse(ArgumentError, routine, "dest", "private memory from Python on another PE", wants)
    meeting = _team(a[2]).meeting
    if a[1] == _DIFFERENT:
        meeting.refuse_difference(routine)
    if a[1] == _BROKEN:
        meeting.refuse_broken(routine)
    meeting.refuse_timeout(routine)


def _differ(a: Any) -> NoReturn:
    """The members' calls differ: routine, team, number of the call, type, elements, stride, what it has returned, root."""
    routine, meeting = text(a[0]), _team(a[1]).meeting
    if a[2] == mismatched_calls.CODES["share"]:
        meeting.refuse_difference(routine)
    dtype = (*LOOPS, np.dtype("longdouble"))[a[3]]
    call = mismatched_calls.Call(a[2], dtype, a[4], place=a[5], root=a[7])
    if a[6] == _UNLIKE:
        mismatched_calls.refuse_unlike(meeting.name, routine, call)
    meeting.refuse_difference(routine, call)


def _timed_out(a: Any) -> NoReturn:
    """A wait has timed out: routine, argument, address, comparison, value, value seen, whether any of several would do."""
    routine, argument = text(a[0]), text(a[1])
    _, _, where, code, value, seen, many = a[:7]
    got = "none" if many else f"{seen} at {_place(where)}"
    host_timeouts.refuse_timeout(routine, argument, got, f"a value {SIGNS[code]} {value}")


def _place(where: int) -> str:
    """Name the place of a symmetric address: in a heap, or in static data."""
    for heap in heaps.values():
        if 0 <= where - heap.base < heap.size:
            return heap.place(where - heap.base)
    return f"{where:#x} in static data"


def _lock_timed_out(a: Any) -> NoReturn:
    host_timeouts.refuse_timeout(
        text(a[0]), "lock", f"ticket {a[1]}, and still {a[2]} is served", "its owner's clear_lock"
    )


_CALLS: dict[str, Callable[[Any], Any]] = {
    "init": _init,
    "is_last_finalize": lambda a: job.inits == 1,
    "finalize": lambda a: pyshmem.finalize(),
    "global_exit": lambda a: pyshmem.global_exit(a[0]),
    "end": _exit,
    "handle_signals": lambda a: None,  # Python runs the handlers of signals before it returns
    "statics_address": _statics,
    "malloc": _malloc,
    "calloc": _calloc,
    "align": _align,
    "realloc": _realloc,
    "free": lambda a: management.free(a[0]),
    "is_live": _is_live,
    "split_strided": _split_strided,
    "split_2d": _split_2d,
    "destroy_team": _destroy_team,
    "compare": _compare,
    "differ": _differ,
    "refuse": _refuse,
    "failed": _failed,
    "tell_of_wait": lambda a: host_timeouts.tell_of_wait(f"is in {text(a[0])}"),
    "timed_out": _timed_out,
    "lock_timed_out": _lock_timed_out,
    "collective": lambda a: on_gpu.collective(text(a[0]), _team(a[1]), a[2], a[3], a[5 : 5 + a[4]]),
    **on_gpu.CALLS,
}
