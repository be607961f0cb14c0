"""Collective calls of the host API, recorded: barriers, collectives, allocations, teams; and the life of a job."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, partial, wraps
from typing import Any

import torch

from pyshmem.base.environment import read
from pyshmem.base.errors import ShmemError, WaitTimeoutError
from pyshmem.base.job import job
from pyshmem.check.record.host_calls import integer, team_key, whole
from pyshmem.check.record.recording import apart, hidden, recorder
from pyshmem.check.trace import now
from pyshmem.memory.arguments import describe
from pyshmem.memory.cpu_heap import cpu

Call = Callable[..., Any]


def barrier(name: str, call: Call) -> Call:
    """barrier_all, sync_all, sync; and what else is a meeting of a team."""
    way = "barrier" if name.startswith("barrier") else "sync"

    @wraps(call)
    def recorded(*arguments: Any, **options: Any) -> Any:
        if recorder.idle:
            return call(*arguments, **options)
        key = key_of((*arguments, *options.values())[0]) if arguments or options else None
        return whole(way, name, partial(call, *arguments, **options) if key else call, key)

    return recorded


def met(name: str, call: Call) -> Call:
    """Meeting.sync, where no recorded call makes it: shmem.launch has one, after all that it has prepared."""

    @wraps(call)
    def recorded(self: Any, routine: str, *given: Any) -> None:
        if recorder.idle:
            call(self, routine, *given)
        else:
            stride = self.pes[-1] - self.pes[-2] if self.size > 1 else 1
            whole(
                "sync",
                routine,
                partial(call, self, routine, *given),
                (self.pes[0], stride, self.size, self.area_index, name),
            )

    return recorded


def key_of(team: Any) -> tuple[int, ...]:
    return team_key(team) if getattr(team, "size", 0) else team_key(None)


_AT_ONCE = {"broadcast": "from_root", **dict.fromkeys(("fcollect", "alltoall", "alltoalls"), "from_all")}


def collective(name: str, call: Call) -> Call:
    """A collective that moves data.

    In those of _AT_ONCE a member writes into the targets of others before it has heard from them. Reductions, scans, collect
    and the calls on streams meet first.
    """
    names = tuple(inspect.signature(call).parameters)
    way = _AT_ONCE.get(name, "root" if "broadcast" in name else "scan" if "scan" in name else "all")

    @wraps(call)
    def recorded(*arguments: Any, **options: Any) -> Any:
        if recorder.idle:
            return call(*arguments, **options)
        time = now()
        given = dict(zip(names, arguments, strict=False)) | options
        try:
            found = apart(call, *arguments, **options)
        except ShmemError as error:
            if _have_met(error):
                recorder.write(time, "met", team_key(given.get("team")), name, None, "root", -1, [], now(), [])
            raise
        end = now()
        key = team_key(given.get("team"))
        reads, writes, detail = _sides(name, given, key)
        root = key[0] + integer(given["root"]) * key[1] if "root" in way else -1
        if root not in (-1, job.my_pe):
            reads = []
        recorder.write(time, "met", key, name, detail, way, root, reads, end, writes)
        return found

    return recorded


def _have_met(error: ShmemError) -> bool:
    """Whether the team has refused the call: others may have made it."""
    frame = error.__traceback__
    while frame is not None and not frame.tb_frame.f_globals["__name__"].startswith("pyshmem.transport.teams."):
        frame = frame.tb_next
    return frame is not None and not isinstance(error, WaitTimeoutError)


def _sides(name: str, given: dict[str, Any], key: tuple[int, ...]) -> tuple[list[Any], list[Any], tuple[Any, ...]]:
    """What a member has read and written, and what all members must have given alike.

    Where every member writes at once, what it has written is its own block, which has the same place in all targets.
    """
    members, me = key[2], (job.my_pe - key[0]) // key[1]
    if name == "alltoalls":
        return _strided_sides(given, members, me)
    source, target, size = given["source"], given["target"], given.get("size")
    address, nbytes, item, dtype = _operand(source)
    to_address, to_nbytes, *_ = _operand(target)
    uneven = name in ("collect", "alltoallv") or "v_on_stream" in name
    if "alltoall" in name or "reduce_scatter" in name:
        count = None if size is None else integer(size) * members
        wrote = count if "alltoall" in name else size
    else:
        count = size
        wrote = None if size is None else integer(size) * (members if "collect" in name else 1)
    if uneven:
        read = nbytes if size is None else integer(size) * item
        wrote_to = 0
    else:
        read = nbytes if count is None else min(integer(count) * item, nbytes)
        wrote_to = to_nbytes if wrote is None else min(integer(wrote) * item, to_nbytes)
        if size is None and "collect" not in name and "scatter" not in name:
            wrote_to = min(to_nbytes, nbytes)
    wrote_at = recorder.at(to_address, wrote_to)
    if _AT_ONCE.get(name) == "from_all" and wrote_at[0] >= 0:
        block = read if name == "fcollect" else read // (members * item) * item
        wrote_at = recorder.at(to_address + me * block, block)
    root = integer(given["root"]) if "root" in given else -1
    detail = (_text(dtype), -1 if size is None or uneven else integer(size), root, _text(given.get("op", "")))
    return [recorder.at(address, read)], [wrote_at], detail


def _strided_sides(given: dict[str, Any], members: int, me: int) -> tuple[list[Any], list[Any], tuple[Any, ...]]:
    """Return what alltoalls reads and writes: not the elements between those that it copies."""
    (address, nbytes, item, dtype), (to_address, *_) = _operand(given["source"]), _operand(given["target"])
    tst, sst = integer(given.get("tst", 1)), integer(given.get("sst", 1))
    size = None if given.get("size") is None else integer(given["size"])
    count = -(-(nbytes // item) // sst) // members if size is None else size
    whole = ((address, sst, members * count), (to_address, tst, members * count))
    reads, writes = ([recorder.strided(start, item, step * item, n)] if n else [] for start, step, n in whole)
    if writes and writes[0][0] >= 0:
        writes = [recorder.strided(to_address + me * count * tst * item, item, tst * item, count)]
    return reads, writes, (_text(dtype), -1 if size is None else size, -1, "")


def _operand(array: Any) -> tuple[int, int, int, Any]:
    """(address, bytes, bytes of an element, dtype of torch) of an array that a call has accepted."""
    if type(array) is torch.Tensor:
        return array.data_ptr(), array.nbytes, array.itemsize, array.dtype
    own = describe("check", "array", array)
    return own.address, own.nelems * own.itemsize, own.itemsize, own.dtype


_text = cache(str)  # of dtypes and operators


# ---- memory ----

_FILLS = {"zeros": 0, "zeros_like": 0, "calloc": 0, "ones": None}


def allocation(name: str, call: Call) -> Call:
    @wraps(call)
    def recorded(*arguments: Any, **options: Any) -> Any:
        if recorder.idle:
            return call(*arguments, **options)
        time, given = now(), (*arguments, *options.values(), None)[0]
        found = apart(call, *arguments, **options)
        if _has_met(name, given, found):
            recorder.quiet()
            recorder.write(time, "met", team_key(None), name, (), "barrier", -1, [], now(), [])
            if name == "realloc" and not _is_empty(given):
                _forget(given)
            allocated(name, getattr(found, "added", found))
        return found

    return recorded


def _has_met(name: str, given: Any, found: Any) -> bool:
    """Whether a call was collective: what takes no memory is local, and so is as_symmetric of a symmetric array."""
    if name == "realloc":
        return not (_is_empty(given) and _is_empty(found))
    return name == "unregister" or (found is not given and not _is_empty(found))


def _is_empty(array: Any) -> bool:
    return array is None or (isinstance(array, torch.Tensor) and not array.numel())


def allocated(name: str, array: Any) -> None:
    if isinstance(array, torch.Tensor) and array.numel() and array.device.type == "cpu":
        space, start, end = recorder.array(array)
        if space >= 0:
            block = cpu.allocator.nearest(start)  # the array may be less than its allocation
            start, end = block if block is not None and start < cpu.size else (start, end)
            recorder.write(now(), "alloc", start, end, _FILLS.get(name), name)


def _forget(array: Any) -> None:
    if not _is_empty(array):  # an empty shard has no memory
        recorder.write(now(), "free", recorder.array(array)[1])


def free(name: str, call: Call) -> Call:
    @wraps(call)
    def recorded(array: Any) -> Any:
        if recorder.idle or _is_empty(array):
            return call(array)
        found = whole("barrier", name, partial(call, array))
        _forget(array)
        return found

    return recorded


def method(way: str, owner: str) -> Callable[[str, Call], Call]:
    """A collective method: of a team, or of all."""

    def made(name: str, call: Call) -> Call:
        @wraps(call)
        def recorded(self: Any, *arguments: Any, **options: Any) -> Any:
            if recorder.idle:
                return call(self, *arguments, **options)
            key = key_of(self if owner == "Team" else getattr(self, "team", None))
            return whole(way, f"{owner}.{name}", partial(call, self, *arguments, **options), key)

        return recorded

    return made


def redistributed(name: str, call: Call) -> Call:
    """PartitionedTensor.redistribute, which allocates unless it is given a tensor to write into."""

    @wraps(call)
    def recorded(self: Any, layout: Any = None, out: Any = None, **how: Any) -> Any:
        if recorder.idle:
            return call(self, layout, out, **how)
        key = None if out is None else key_of(self.team)
        found = whole("barrier", f"PartitionedTensor.{name}", partial(call, self, layout, out, **how), key)
        if out is None:
            allocated("zeros", getattr(found, "_shard", None))
        return found

    return recorded


def freed_parts(name: str, call: Call) -> Call:
    @wraps(call)
    def recorded(self: Any) -> None:
        if recorder.idle:
            call(self)
        else:
            whole("barrier", f"PartitionedTensor.{name}", partial(call, self))
            _forget(self._shard)

    return recorded


def lock_life(name: str, call: Call) -> Call:
    """Lock() allocates its word, destroy frees it."""

    @wraps(call)
    def recorded(self: Any) -> Any:
        if recorder.idle or getattr(self, "_destroyed", False):
            return call(self)
        found = whole("barrier", f"Lock.{name}", partial(call, self))
        if name == "__init__":
            allocated("zeros", self.word)
        else:
            _forget(self.word)
        return found

    return recorded


def lock_use(name: str, call: Call, set_lock: Call, test_lock: Call, clear_lock: Call) -> Call:
    """The methods of Lock, through the recorded functions."""
    del call

    def acquire(self: Any, blocking: bool = True) -> bool:
        if not blocking:
            return not test_lock(self.word)
        set_lock(self.word)
        return True

    def enter(self: Any) -> Any:
        set_lock(self.word)
        return self

    uses: dict[str, Call] = {
        "acquire": acquire,
        "__enter__": enter,
        "release": lambda self: clear_lock(self.word),
        "__exit__": lambda self, *exception: clear_lock(self.word),
    }
    return uses[name]


# ---- the life of a job ----


def init(name: str, call: Call, begin: Callable[[], None]) -> Call:
    @wraps(call)
    def recorded(*arguments: Any, **options: Any) -> Any:
        found = hidden(call, *arguments, **options)
        if job.inits == 1 and len(cpu.deltas):
            recorder.start(str(read("PYSHMEM_RACE_TRACES")))
            begin()
        return found

    return recorded


def finalize(name: str, call: Call) -> Call:
    @wraps(call)
    def recorded() -> Any:
        if recorder.idle or job.inits > 1:
            return hidden(call)
        return whole("barrier", name, call)

    return recorded
