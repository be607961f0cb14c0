"""Routines with a body of their own: setup, queries, memory, teams, contexts, ordering, locks.

A scalar, handle or struct that C returns through a pointer is returned here, after the status if there is one.
"""

from __future__ import annotations

from typing import Any

import torch

import pyshmem
from pyshmem.base.errors import ArgumentError, HeapExhaustedError, NotSymmetricError, OutOfRangeError, refuse
from pyshmem.c_names import active_sets
from pyshmem.c_names.addresses import cells, exactly, word
from pyshmem.c_names.constants import NUM_CONTEXTS
from pyshmem.c_names.deprecation import warn_once
from pyshmem.c_names.handles import shmem_ctx_session_config_t, shmem_team_config_t
from pyshmem.c_names.types import TYPES
from pyshmem.host.contexts import Ctx
from pyshmem.host.teams import Team
from pyshmem.memory.arguments import as_dtype, count_of, name_of

_LONG, _BYTES = TYPES["long"], TYPES["mem"]
Address = Any  # a tensor, an array, a ctypes object or pointer, or an int; None is NULL


def init() -> None:
    pyshmem.init()


def start_pes(npes: int, /) -> None:
    """Initialise if not yet done; npes is ignored."""
    if not pyshmem.query_initialized():
        pyshmem.init()


def init_thread(requested: int, /) -> tuple[int, int]:
    """Returns (0, provided)."""
    return 0, pyshmem.init_thread(requested)


def query_thread() -> int:
    """Returns provided."""
    return pyshmem.query_thread()


def finalize() -> None:
    pyshmem.finalize()


def global_exit(status: int, /) -> None:
    pyshmem.global_exit(status)


def query_initialized() -> int:
    """Returns 1 or 0."""
    return int(pyshmem.query_initialized())


def my_pe() -> int:
    return pyshmem.my_pe()


def n_pes() -> int:
    return pyshmem.n_pes()


def pe_accessible(pe: int, /) -> int:
    """Returns 1 or 0."""
    return int(pyshmem.pe_accessible(pe))


def addr_accessible(addr: Address, pe: int, /) -> int:
    """Returns 1 or 0."""
    if addr is None:
        return 0
    try:
        return int(pyshmem.addr_accessible(cells("shmem_addr_accessible", "addr", addr, _BYTES, 1), pe))
    except OutOfRangeError:  # an int that points into a heap's free memory
        return 0


def ptr(dest: Address, pe: int, /) -> Any:
    """Returns a tensor for a tensor and an int for an int; None if the memory cannot be reached."""
    return _pointer("shmem_ptr", dest, lambda target: pyshmem.ptr(target, pe))


def team_ptr(team: Team, dest: Address, pe: int, /) -> Any:
    """Returns as shmem_ptr does; pe counts in the team."""
    return _pointer("shmem_team_ptr", dest, lambda target: pyshmem.team_ptr(target, pe, team))


def _pointer(routine: str, dest: Address, find: Any) -> Any:
    if isinstance(dest, torch.Tensor):
        return find(dest)
    found = find(cells(routine, "dest", dest, _BYTES, 1))
    return None if found is None else found.data_ptr()


def info_get_version() -> tuple[int, int]:
    """Returns (major, minor)."""
    return pyshmem.info_get_version()


def info_get_name() -> str:
    return pyshmem.info_get_name()


def malloc(size: int, /, dtype: Any = torch.uint8) -> torch.Tensor | None:
    """Returns a tensor of size bytes (whole elements); None for size 0, without a barrier, or if the heap is full."""
    return _allocated("shmem_malloc", dtype, size, pyshmem.malloc, size, dtype)


def malloc_with_hints(size: int, hints: int, /, dtype: Any = torch.uint8) -> torch.Tensor | None:
    """Returns as shmem_malloc does; hints: SHMEM_MALLOC_ATOMICS_REMOTE, SHMEM_MALLOC_SIGNAL_REMOTE."""
    return _allocated("shmem_malloc_with_hints", dtype, size, pyshmem.malloc_with_hints, size, hints, dtype)


def calloc(count: int, size: int, /, dtype: Any = torch.uint8) -> torch.Tensor | None:
    """Returns as shmem_malloc does, with count times size bytes set to zero."""
    total = count_of("shmem_calloc", "count", count) * count_of("shmem_calloc", "size", size)
    return _allocated("shmem_calloc", dtype, total, pyshmem.calloc, count, size, dtype)


def align(alignment: int, size: int, /, dtype: Any = torch.uint8) -> torch.Tensor | None:
    """Returns as shmem_malloc does, at a multiple of alignment."""
    return _allocated("shmem_align", dtype, size, pyshmem.align, alignment, size, dtype)


def realloc(ptr: Address, size: int, /) -> torch.Tensor | None:
    """Returns a tensor of size bytes with ptr's element type. None for size 0, or if the heap is full."""
    old = _allocation("shmem_realloc", ptr)
    return _allocated("shmem_realloc", torch.uint8 if old is None else old.dtype, size, pyshmem.realloc, old, size)


def free(ptr: Address, /) -> None:
    pyshmem.free(_allocation("shmem_free", ptr))


def _allocated(routine: str, dtype: Any, nbytes: int, make: Any, *arguments: Any) -> torch.Tensor | None:
    """The result of ``make``, None for C's NULL. Errors: those of make, ArgumentError for a fraction of an element."""
    kind = as_dtype(routine, dtype)
    if count_of(routine, "size", nbytes) % kind.itemsize:
        wants = f"a multiple of {kind.itemsize}, the bytes of an element of {name_of(kind)}"
        refuse(ArgumentError, routine, "size", f"{nbytes} bytes", wants)
    try:
        array: torch.Tensor = make(*arguments)
    except HeapExhaustedError:
        return None
    return array if array.numel() else None


def _allocation(routine: str, ptr: Address) -> Any:
    """The allocation as the Python API accepts it: an int becomes a tensor.

    Errors: those of cells, NotSymmetricError for an address at which nothing is allocated, or no longer.
    """
    if ptr is None or isinstance(ptr, torch.Tensor):
        return ptr
    found = cells(routine, "ptr", ptr, _BYTES, None)
    if isinstance(ptr, int) and ptr and not len(found):
        got = f"the address {ptr:#x}, at which no symmetric memory is allocated"
        wants = "an address that an allocation returned and that has not been freed"
        refuse(NotSymmetricError, routine, "ptr", got, wants)
    return found


def team_my_pe(team: Team, /) -> int:
    return team.my_pe()


def team_n_pes(team: Team, /) -> int:
    return team.n_pes()


def team_translate_pe(src_team: Team, src_pe: int, dest_team: Team, /) -> int:
    return src_team.translate_pe(src_pe, dest_team)


def team_get_config(team: Team, config_mask: int, /) -> tuple[int, shmem_team_config_t]:
    """Returns (0, config), or (1, config) for SHMEM_TEAM_INVALID. Fields outside the mask have their defaults."""
    if not team:
        return 1, shmem_team_config_t()
    return 0, shmem_team_config_t(team.get_config().num_contexts if config_mask & NUM_CONTEXTS else 0)


def team_split_strided(
    parent_team: Team, start: int, stride: int, size: int, config: shmem_team_config_t | None, config_mask: int, /
) -> tuple[int, Team]:
    """Returns (0, new_team), with SHMEM_TEAM_INVALID on PEs outside the team; (1, SHMEM_TEAM_INVALID) on failure."""
    if not parent_team:
        return 1, pyshmem.TEAM_INVALID
    try:
        team = parent_team.split_strided(start, stride, size, _options(config, config_mask))
    except (ArgumentError, OutOfRangeError):
        return 1, pyshmem.TEAM_INVALID
    full = not team and team is not pyshmem.TEAM_INVALID  # PEs outside the team get this object
    return int(full), team


def team_split_2d(
    parent_team: Team,
    xrange: int,
    xaxis_config: shmem_team_config_t | None,
    xaxis_mask: int,
    yaxis_config: shmem_team_config_t | None,
    yaxis_mask: int,
    /,
) -> tuple[int, Team, Team]:
    """Returns (0, xaxis_team, yaxis_team), or (1, SHMEM_TEAM_INVALID, SHMEM_TEAM_INVALID)."""
    if not parent_team:
        return 1, pyshmem.TEAM_INVALID, pyshmem.TEAM_INVALID
    try:
        configs = _options(xaxis_config, xaxis_mask), _options(yaxis_config, yaxis_mask)
        x, y = parent_team.split_2d(xrange, xconfig=configs[0], yconfig=configs[1])
    except (ArgumentError, OutOfRangeError):
        return 1, pyshmem.TEAM_INVALID, pyshmem.TEAM_INVALID
    return int(not (x and y)), x, y


def _options(config: shmem_team_config_t | None, mask: int) -> dict[str, int]:
    return {"num_contexts": config.num_contexts} if config is not None and mask & NUM_CONTEXTS else {}


def team_destroy(team: Team, /) -> None:
    team.destroy()


def team_sync(team: Team, /) -> int:
    pyshmem.sync(team)
    return 0


def ctx_create(options: int, /) -> tuple[int, Ctx]:
    """Returns (0, ctx), or (1, SHMEM_CTX_INVALID)."""
    return _context(Ctx.create(options))


def team_create_ctx(team: Team, options: int, /) -> tuple[int, Ctx]:
    """Returns (0, ctx), or (1, SHMEM_CTX_INVALID)."""
    return _context(team.create_ctx(options)) if team else (1, pyshmem.CTX_INVALID)


def _context(ctx: Ctx) -> tuple[int, Ctx]:
    return (0, ctx) if ctx else (1, pyshmem.CTX_INVALID)


def ctx_destroy(ctx: Ctx, /) -> None:
    if ctx:
        ctx.destroy()


def ctx_get_team(ctx: Ctx, /) -> tuple[int, Team]:
    """Returns (0, team), or (1, SHMEM_TEAM_INVALID) for SHMEM_CTX_INVALID."""
    return (0, ctx.get_team()) if ctx else (1, pyshmem.TEAM_INVALID)


def ctx_session_start(ctx: Ctx, options: int, config: shmem_ctx_session_config_t | None, config_mask: int, /) -> None:
    ctx.session_start(options)


def ctx_session_stop(ctx: Ctx, /) -> None:
    ctx.session_stop()


def fence() -> None:
    pyshmem.fence()


def ctx_fence(ctx: Ctx, /) -> None:
    pyshmem.fence(ctx)


def quiet() -> None:
    pyshmem.quiet()


def ctx_quiet(ctx: Ctx, /) -> None:
    pyshmem.quiet(ctx)


def pe_quiet(target_pes: Address, npes: int, /) -> None:
    """target_pes: an array of npes ints."""
    pyshmem.pe_quiet(_pes("shmem_pe_quiet", target_pes, npes))


def ctx_pe_quiet(ctx: Ctx, target_pes: Address, npes: int, /) -> None:
    """target_pes: an array of npes ints."""
    pyshmem.pe_quiet(_pes("shmem_ctx_pe_quiet", target_pes, npes), ctx)


def _pes(routine: str, where: Address, npes: int) -> list[int]:
    if isinstance(where, (list, tuple)):
        return list(where[: count_of(routine, "npes", npes)])
    return exactly(routine, "target_pes", where, TYPES["int"], npes).tolist()  # type: ignore[no-any-return]


def barrier_all() -> None:
    pyshmem.barrier_all()


def sync_all() -> None:
    pyshmem.sync_all()


def barrier(PE_start: int, logPE_stride: int, PE_size: int, pSync: Address, /) -> None:
    active_sets.barrier("shmem_barrier", PE_start, logPE_stride, PE_size, pSync)


def sync(team_or_PE_start: Any, /, *active_set: Any) -> int | None:
    """shmem_sync(team) returns 0. Deprecated: shmem_sync(PE_start, logPE_stride, PE_size, pSync)."""
    if isinstance(team_or_PE_start, Team):
        return team_sync(team_or_PE_start)
    warn_once("shmem_sync of an active set", "1.5", "shmem_team_sync")
    active_sets.sync("shmem_sync", team_or_PE_start, *active_set)
    return None


def set_lock(lock: Address, /) -> None:
    pyshmem.set_lock(word("shmem_set_lock", "lock", lock, _LONG))


def clear_lock(lock: Address, /) -> None:
    pyshmem.clear_lock(word("shmem_clear_lock", "lock", lock, _LONG))


def test_lock(lock: Address, /) -> int:
    """Returns 0 if the lock was acquired, 1 if another PE holds it."""
    return int(pyshmem.test_lock(word("shmem_test_lock", "lock", lock, _LONG)))


def pcontrol(level: int, /, *rest: Any) -> None:
    pyshmem.pcontrol(level)
