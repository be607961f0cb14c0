"""Puts the recorded calls in the place of the public ones, and watches tensors and kernels."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

from pyshmem.check.record import collective_calls as collectives
from pyshmem.check.record import host_calls as host
from pyshmem.check.record.host_calls import whole
from pyshmem.check.record.recording import recorder
from pyshmem.host.launching import tuning
from pyshmem.transport.teams.meeting import Meeting

_COLLECTIVES = ("broadcast", "collect", "fcollect", "alltoall", "alltoalls", "reduce")
_ALLOCATIONS = ("empty", "zeros", "ones", "full", "array", "as_symmetric", "arange", "linspace", "rand", "randn", "randint",
                "empty_like", "zeros_like", "ones_like", "full_like", "malloc", "calloc", "align", "malloc_with_hints",
                "realloc", "pool", "register", "unregister")  # fmt: skip
_CALLS: dict[str, Any] = {
    **dict.fromkeys(("put", "put_nbi"), host.put),
    **dict.fromkeys(("get", "get_nbi"), host.get),
    **dict.fromkeys(("iput", "iget", "ibput", "ibget"), host.blocks),
    **dict.fromkeys(("put_signal", "put_signal_nbi"), host.put_signal),
    **dict.fromkeys(("signal_set", "signal_add"), host.signal_update),
    **dict.fromkeys(("set_lock", "test_lock", "clear_lock"), host.lock),
    **dict.fromkeys(("barrier_all", "sync_all", "sync", "barrier_on_stream"), collectives.barrier),
    **dict.fromkeys(_ALLOCATIONS, collectives.allocation),
    "fence": host.fence,
    "quiet": host.quiet,
    "pe_quiet": host.pe_quiet,
    "p": host.p,
    "g": host.g,
    "signal_fetch": host.signal_fetch,
    "free": collectives.free,
    "finalize": collectives.finalize,
}


def _made_for(name: str) -> Any:
    """What records a public function; None if it accesses no memory."""
    if name in _CALLS:
        return _CALLS[name]
    if name.startswith("atomic_"):
        return host.atomic
    if name.startswith(("wait_until", "test")) or name == "signal_wait_until":
        return host.wait
    plain = name.removesuffix("_on_stream")
    if plain in ("put", "put_signal", "signal", "signal_wait_until", "quiet"):
        return host.on_stream
    if plain in _COLLECTIVES or plain.endswith(("_reduce", "_inscan", "_exscan", "reduce_scatter", "alltoallv")):
        return collectives.collective
    return None


def install(package: ModuleType) -> None:
    """Record the calls of ``pyshmem``, from its init on."""
    spaces = vars(package)
    for name in package.__all__:
        if (made := _made_for(name)) is not None:
            setattr(package, name, made(name, spaces[name]))
    for name in ("init", "init_thread"):
        setattr(package, name, collectives.init(name, spaces[name], _begin))
    for name in ("sync", "split_strided", "split_2d"):
        _replace(package.Team, name, collectives.method("sync", "Team"))
    for name in ("scatter", "gather", "load"):
        _replace(package.PartitionedTensor, name, collectives.method("barrier", "PartitionedTensor"))
    _replace(package.PartitionedTensor, "redistribute", collectives.redistributed)
    _replace(package.PartitionedTensor, "free", collectives.freed_parts)
    for name, made in (("fence", host.fence), ("quiet", host.quiet)):
        _replace(package.Ctx, name, made)
    _replace(package.Ctx, "destroy", lambda _, call: host.quiet("quiet", call))
    for name in ("__init__", "destroy"):
        _replace(package.Lock, name, collectives.lock_life)
    calls = package.set_lock, package.test_lock, package.clear_lock
    for name in ("acquire", "release", "__enter__", "__exit__"):
        _replace(package.Lock, name, lambda name, call: collectives.lock_use(name, call, *calls))
    package.partitioned = _partitioned(package.partitioned)  # type: ignore[attr-defined]
    _replace(Meeting, "sync", collectives.met)
    _replace(tuning, "_meet", collectives.barrier)


def _replace(owner: Any, name: str, made: Any) -> None:
    setattr(owner, name, made(name, getattr(owner, name)))


def _partitioned(call: Any) -> Any:
    def recorded(*arguments: Any, **options: Any) -> Any:
        if recorder.idle:
            return call(*arguments, **options)
        found = whole("barrier", "partitioned", partial(call, *arguments, **options))
        collectives.allocated("zeros", getattr(found, "_shard", None))
        return found

    return recorded


_watch: list[Any] = []


def _begin() -> None:
    """After the first init: watch the program's own accesses."""
    from pyshmem.check.record.arrays import install as watch_arrays
    from pyshmem.check.record.results import install as watch_results
    from pyshmem.check.record.tensors import Watch, watch_lists

    if not _watch:
        watch_lists()
        watch_arrays()
        watch_results()
        _watch.append(Watch())  # type: ignore[no-untyped-call]
        _watch[0].__enter__()
    from pyshmem.base import interpreter

    if interpreter.active():
        from pyshmem.check.record.kernels import install as watch_kernels

        watch_kernels()
