"""The process group: a method for each call that torch makes of one, under the names of torch 2.13 and those before it.

torch calls most of them from C++ too, as DDP and functional collectives do. A call that the program waits for is
performed at once; others by a thread of the group, in order: they overlap with the program and hold up no other group.
Calls on tensors in GPU memory go on streams.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from pyshmem.distributed import collectives
from pyshmem.distributed.collectives import Place
from pyshmem.distributed.dispatch import dispatched, goes_past, untraced
from pyshmem.distributed.lanes import arena, enqueue
from pyshmem.distributed.members import form, start
from pyshmem.distributed.messages import ANY, RECV, SEND, Line, Message, mailbox
from pyshmem.distributed.profiles import profiler, recorded
from pyshmem.distributed.works import DONE, Calls, Streams, Worker
from pyshmem.host.pool import pool_of
from pyshmem.host.teams import member
from pyshmem.memory.areas import pool
from pyshmem.memory.heap import heaps

Tensors = list[torch.Tensor]
_SUM, _AVG = dist.ReduceOp.SUM, dist.ReduceOp.AVG


def _bare(tensors: Tensors) -> Tensors:
    return [each.detach() for each in tensors]


def _tensors(given: Sequence[Any]) -> Tensors:
    """The tensors among arguments, and those in lists of them."""
    some = (each if isinstance(each, list) else [each] for each in given)
    return [each for one in some for each in one if isinstance(each, torch.Tensor)]


class Group(dist.ProcessGroup):
    """A process group whose processes are PEs. It is the group for tensors in CPU memory and in GPU memory."""

    group_name = group_desc = ""  # which torch sets
    supports_splitting = supports_coalescing = supports_time_estimate = False  # what torch asks backends

    @classmethod
    def create(cls, options: Any, backend_options: Any) -> Group:
        """Make the group that torch describes. Collective over its processes."""
        group = cls(options.store, options.group_rank, options.group_size)
        start(group)
        group.join(str(options.group_id), options.global_ranks_in_group)
        return group

    def __init__(self, store: Any, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self.shadow = dist.ProcessGroup(store, rank, size)  # by which calls pass through torch's dispatcher
        self._store = store
        self._worker, self._calls = Worker(), Calls()

    def join(self, name: str, ranks: Sequence[int]) -> None:
        """Form the team. Collective over the processes of the group. ranks: as form has them."""
        self.team, lane = form(name, self._store, self.rank(), self.size(), ranks)
        self._streams = None if lane is None else Streams(lane.memory.device)
        self._line = self.team.number  # and one more is the line of messages within collectives
        self._place = Place(self.team, Line(self._line + 1, 0), lane)

    def get_group_store(self) -> Any:
        return self._store

    def getBackendName(self) -> str:
        return "pyshmem"

    name = _get_backend_name = getBackendName

    def _set_group_name(self, name: str) -> None:
        self.group_name = name
        self.shadow._set_group_name(name)

    def _set_group_desc(self, text: str) -> None:
        self.group_desc = text

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device(kind) for kind in heaps]

    def _get_backend(self, device: torch.device) -> Group:
        return self

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        return pool_of(device) is not None

    def allocate_tensor(self, size: int, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Make a tensor in the pool, for FSDP2's buffers."""
        with pool_of(device) or nullcontext():
            return torch.empty(size, dtype=dtype, device=device)

    def shutdown(self) -> None:
        """End the group, for destroy_process_group."""
        self._worker.close()
        self._streams = None
        mailbox.leave(self._line, self._line + 1)
        if self.team:
            arena.give_back(self._place.lane)
            pool.give_back(self.team)

    abort = shutdown

    def _at_once(self, routine: str, detail: Any, target: torch.Tensor, source: torch.Tensor, opts: Any) -> bool:
        """Enqueue a call that the program waits for, on the stream of the last one, where its tensors are; return whether
        it is done.

        detail: the engine of a move; None for a reduction, whose operator opts has: the sum and the average are taken.
        """
        calls = self._streams
        if calls is None or self._calls.ended or profiler._is_profiler_enabled:
            return False
        if getattr(opts, "asyncOp", True) or not (calls.may_go_on() and goes_past(target, source)):
            return False
        average = False
        if detail is None:
            op = opts.reduceOp
            average = not op == _SUM  # noqa: SIM201  torch's != takes longer
            if (average and op != _AVG) or target.dtype is torch.bool:
                return False
            if average and collectives.wide_for(target.dtype, False):
                return False
            detail = "sum"
        if not enqueue(self._place.lane, routine, detail, target, source):
            return False
        if average:
            collectives.divide(target.detach(), self.team.size)
        calls.went_on()
        return True

    def _perform(self, call: Callable[..., None], results: Tensors, opts: Any, *arguments: Any) -> Any:
        used = [*results, *_tensors(arguments)]
        return self._all(call.__name__, results, opts, lambda: call(self._place, *arguments), used)

    def _all(
        self, routine: str, results: Tensors, opts: Any, call: Callable[[], None], used: Sequence[torch.Tensor] = ()
    ) -> Any:
        """used: the tensors of the call, which tell whether it belongs on a stream."""
        member(routine, self.team)
        guarded = partial(self._calls.perform, routine, call)
        at_once = not getattr(opts, "asyncOp", True)
        if profiler._is_profiler_enabled:
            start = partial(self._start, routine, results, guarded, used, at_once)
            return recorded(routine, self.team.size, used, start, at_once)
        return self._start(routine, results, guarded, used, at_once)

    def _start(
        self, routine: str, results: Tensors, call: Callable[[], None], used: Sequence[torch.Tensor], at_once: bool
    ) -> Any:
        if self._streams is not None and any(each.is_cuda for each in used):
            return self._streams.perform(call, results, used, at_once)
        return self._worker.perform(routine, call, results, at_once)

    def _each(self, call: Callable[..., None], results: Tensors, opts: Any, rows: list[tuple[Any, ...]]) -> Any:
        """The coalesced form of a call: ``call`` with each row of arguments."""

        used = [each for row in rows for each in _tensors(row)]
        calls = partial(collectives.coalesced, self._place, call, rows)
        return self._all(call.__name__, results, opts, calls, used)

    @untraced
    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
        if len(tensors) == 1 and self._at_once("reduce", None, tensors[0], tensors[0], opts):
            return DONE
        return self._allreduce(tensors, opts)

    @dispatched("allreduce")
    def _allreduce(self, tensors: Tensors, opts: Any) -> Any:
        return self.allreduce_coalesced(tensors, opts)

    @dispatched("allreduce_coalesced")
    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Any:
        op = getattr(opts, "reduceOp", _SUM)
        return self._each(collectives.all_reduce, tensors, opts, [(each, op) for each in _bare(tensors)])

    @dispatched("reduce")
    def reduce(self, tensors: Tensors, opts: Any) -> Any:
        (tensor,) = _bare(tensors)
        return self._perform(collectives.reduce, tensors, opts, tensor, opts.rootRank, opts.reduceOp)

    @dispatched("broadcast")
    def broadcast(self, tensors: Tensors, opts: Any) -> Any:
        (tensor,) = _bare(tensors)
        return self._perform(collectives.broadcast, tensors, opts, tensor, opts.rootRank)

    @dispatched("allgather")
    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        (given,), (targets,) = _bare(inputs), map(_bare, outputs)
        return self._perform(collectives.all_gather, outputs[0], opts, targets, given)

    @dispatched("allgather_coalesced")
    def allgather_coalesced(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        """outputs: for each member the tensors that it has in inputs."""
        targets = [list(each) for each in zip(*map(_bare, outputs), strict=True)]
        rows = list(zip(targets, _bare(inputs), strict=True))
        return self._each(collectives.all_gather, [each for some in outputs for each in some], opts, rows)

    @untraced
    def all_gather_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Any:
        fits = output.numel() == given.numel() * self.team.size
        if fits and self._at_once("fcollect", "auto", output, given, opts):
            return DONE
        return self._all_gather_single(output, given, opts)

    @dispatched("_allgather_base")
    def _all_gather_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any) -> Any:
        return self.all_gather_single_coalesced([output], [given], opts)

    @dispatched("allgather_into_tensor_coalesced")
    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        rows = list(zip(_bare(outputs), _bare(inputs), strict=True))
        return self._each(collectives.all_gather_single, outputs, opts, rows)

    @dispatched("reduce_scatter")
    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any = None) -> Any:
        (target,), (sources,) = _bare(outputs), map(_bare, inputs)
        op = getattr(opts, "reduceOp", _SUM)
        return self._perform(collectives.reduce_scatter, outputs, opts, target, sources, op)

    @untraced
    def reduce_scatter_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Any:
        fits = output.numel() * self.team.size == given.numel()
        if fits and self._at_once("reduce_scatter", None, output, given, opts):
            return DONE
        return self._reduce_scatter_single(output, given, opts)

    @dispatched("_reduce_scatter_base")
    def _reduce_scatter_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any) -> Any:
        return self.reduce_scatter_single_coalesced([output], [given], opts)

    @dispatched("reduce_scatter_tensor_coalesced")
    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        op = getattr(opts, "reduceOp", _SUM)
        rows = [(*pair, op) for pair in zip(_bare(outputs), _bare(inputs), strict=True)]
        return self._each(collectives.reduce_scatter_single, outputs, opts, rows)

    @dispatched("alltoall_base")
    def all_to_all_single(
        self, output: torch.Tensor, given: torch.Tensor, received: list[int], sent: list[int], opts: Any = None
    ) -> Any:
        sides = output.detach(), given.detach(), received, sent
        return self._perform(collectives.all_to_all_single, [output], opts, *sides)

    @dispatched("alltoall")
    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        return self._perform(collectives.all_to_all, outputs, opts, _bare(outputs), _bare(inputs))

    @dispatched("gather")
    def gather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Any:
        (given,), results = _bare(inputs), [each for some in outputs for each in some]
        return self._perform(collectives.gather, results, opts, _bare(results), given, opts.rootRank)

    @dispatched("scatter")
    def scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Any:
        (target,), sources = _bare(outputs), [each for some in inputs for each in _bare(some)]
        return self._perform(collectives.scatter, outputs, opts, target, sources, opts.rootRank)

    @untraced
    def barrier(self, opts: Any = None) -> Any:
        if self._streams is not None:
            torch.cuda.current_stream().synchronize()
        return self._all("barrier", [], opts, partial(collectives.barrier, self._place))

    @untraced
    def send(self, tensors: Tensors, rank: int, tag: int) -> Any:
        return self._message(SEND, tensors, collectives.world(self.team, rank), tag)

    @untraced
    def recv(self, tensors: Tensors, rank: int, tag: int) -> Any:
        return self._message(RECV, tensors, collectives.world(self.team, rank), tag)

    @untraced
    def recv_anysource(self, tensors: Tensors, tag: int) -> Any:
        return self._message(RECV, tensors, ANY, tag)

    def _message(self, routine: str, tensors: Tensors, pe: int, tag: int) -> Any:
        member(routine, self.team)
        (tensor,) = _bare(tensors)
        start = partial(self._post, routine, tensor, Line(self._line, tag), pe)
        return recorded(routine, self.team.size, [tensor], start, False) if profiler._is_profiler_enabled else start()

    def _post(self, routine: str, tensor: torch.Tensor, line: Line, pe: int) -> Message:
        return mailbox.post(Message(routine, tensor, line, pe, self.team.pes))

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single
