"""Puts the recorded calls in the place of the public ones, and watches tensors and kernels."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

from pyshmem.check.record import collective_calls as collectives
from pyshmem.check.record import host_calls as host
from pyshmem.check.record.host_calls import whole
from pyshmem.check.record.recording import recorder
from pyshmem.diagnosis.host_calls import CALLS, OTHER
from pyshmem.host.launching import tuning
from pyshmem.transport.teams.meeting import Meeting

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


_FAMILIES: dict[str, Any] = {
    "put": host.put,
    "p": host.p,
    "get": host.get,
    "g": host.g,
    "blocks": host.blocks,
    "put_signal": host.put_signal,
    "signal_update": host.signal_update,
    "signal_fetch": host.signal_fetch,
    "atomic": host.atomic,
    "wait": host.wait,
    "lock": host.lock,
    "fence": host.fence,
    "quiet": host.quiet,
    "pe_quiet": host.pe_quiet,
    "on_stream": host.on_stream,
    "barrier": collectives.barrier,
    "collective": collectives.collective,
    "allocation": collectives.allocation,
    "free": collectives.free,
    "init": partial(collectives.init, begin=_begin),
    "finalize": collectives.finalize,
}


def install(package: ModuleType) -> None:
    """Record the calls of ``pyshmem``, from its init on."""
    spaces = vars(package)
    for name in package.__all__:
        if family := CALLS.get(name, OTHER).family:
            setattr(package, name, _FAMILIES[family](name, spaces[name]))
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
