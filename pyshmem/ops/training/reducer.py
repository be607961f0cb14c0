"""Data-parallel training: gradients are reduced in buckets while backward makes more of them.

Bytes that a PE sends: 2 (n - 1) / n times those of the gradients. Idea: DistributedDataParallel (Li et al., arXiv
2006.15704); the copy engine in place of a collective's programs, so that backward keeps its multiprocessors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, get_args

import torch

import pyshmem as shmem
from pyshmem.base.errors import ArgumentError, HeapExhaustedError, NotInitializedError, ShmemError, refuse
from pyshmem.base.job import job
from pyshmem.host.teams import TEAM_WORLD, Team, member
from pyshmem.memory.arguments import is_int, require_init
from pyshmem.memory.heap import default
from pyshmem.ops.agreement import require_alike, require_near, require_no_capture
from pyshmem.ops.checks import schedule_of
from pyshmem.ops.streams import Side
from pyshmem.ops.training.buckets import NAME, Bucket, Named, cut, length_of, require_same_model, texts_of, trained
from pyshmem.ops.training.outermost import Outermost
from pyshmem.ops.training.schedules import SCHEDULES, Schedule, slot_bytes, words_of
from pyshmem.ops.training.used import Used
from pyshmem.ops.training.watch import Watch
from pyshmem.ops.training.weights import Weights
from pyshmem.ops.workspace import Wanted, Workspace

MIB = 1 << 20
Buffers = Literal["once", "forward"]
BUFFERS = get_args(Buffers)


class GradientReducer:
    """Reduces the gradients of ``model`` over the PEs while ``backward`` runs; when it returns, each .grad is their average.

    model: a torch.nn.Module on the default heap's device, the same on all PEs. Its parameters and buffers become PE 0's.
    team: None is TEAM_WORLD.  bucket_bytes: gradients that are reduced at once.  average: False gives the sums.
    schedule: "auto", or for all buckets "copy_engine" or "reduce_on_stream". CPU memory: within backward, on the host.
    buffers: "once", or "forward": all PEs get PE 0's before each forward pass in training mode, outside of no_sync.
    check_every: backwards after which weights that differ between PEs are an error; 0: never.
    Buckets have parameters in the reverse of their order, and are reduced in this order: later ones wait for earlier ones.
    A parameter that this backward brings no gradient counts as what its .grad has, or zeros; a .grad that is None on all PEs
    stays None. .grad are views of buckets.
    Order: collective over team: made, closed, and as many backwards outside of no_sync on all PEs. All get the same bits.
    Errors: ArgumentError, DtypeError, HeapExhaustedError, UnreachableError, NotInitializedError.
    Spec: none.
    """

    def __init__(
        self, model: torch.nn.Module, team: Team | None = None, bucket_bytes: int = 25 * MIB, average: bool = True,
        schedule: Schedule = "auto", *, buffers: Buffers = "once", check_every: int = 1000,
    ) -> None:  # fmt: skip
        require_init(NAME)
        group = TEAM_WORLD if team is None else member(NAME, team)
        options = {"average": average, "schedule": schedule, "buffers": buffers, "check_every": check_every}
        parameters = _agreed(group, model, bucket_bytes, options)
        self._team = _twin(group)
        held = cut(parameters, bucket_bytes)
        self._space, self._generation = Workspace(NAME, group, _wanted(held, group.size)), job.generation
        divisor, parts = (group.size, 1) if average else (1, group.size)
        self._buckets = [Bucket(each, self._space[f"bucket {i}"], parts) for i, each in enumerate(held)]
        slots = [self._space["slots 0"], self._space["slots 1"]]
        make = SCHEDULES[_chosen(schedule, group)]
        self._steps = [
            make(self._team, each.flat, divisor, slots, self._space[f"words {i}"])
            for i, each in enumerate(self._buckets)
        ]
        self._side, self._streams = Side(), set[Any]()
        self._synced, self._warm, self._next = True, False, 0
        self._backward = Outermost(self._begin, self._end)
        self._used = Used(self._team, self._space["used"], self._space["used anywhere"])
        bounds = self._space["least"], self._space["most"]
        self._weights = Weights(self._team, parameters, check_every, self._space["here"], bounds)
        self._broadcast(*model.parameters(), *model.buffers())
        for bucket, step in zip(self._buckets, self._steps, strict=True):  # compiles; a capture cannot
            step(bucket.flat)
        self._used.exchange(self._buckets)
        shmem.barrier_on_stream(self._team)
        self._adders: list[tuple[Any, Any]] = []  # of gradients to .grad, which torch keeps only while there is a graph
        self._stream: Any = False
        self._follow()
        self._sends = buffers == "forward"
        self._hooks: list[Any] = [model.register_forward_pre_hook(Watch(model, parameters, self._before))]
        self._hooks += [self._hook(bucket, each) for bucket in self._buckets for _, each in bucket.parameters]

    @property
    def buckets(self) -> tuple[tuple[str, ...], ...]:
        """Return the names of the parameters in each bucket, in the order in which buckets are reduced."""
        return tuple(bucket.names for bucket in self._buckets)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let backward only add up gradients on this PE, until one outside of this context reduces the sums."""
        before, self._synced = self._synced, False
        try:
            yield
        finally:
            self._synced = before

    def close(self) -> None:
        """End the reductions and free the buckets. A .grad that is a view of one becomes None. Collective over the team."""
        for hook in (*self._hooks, *(handle for _, handle in self._adders)):
            hook.remove()
        for bucket in self._buckets:
            bucket.detach()
        self._hooks, self._adders, self._buckets, self._steps = [], [], [], []
        if self._generation == job.generation and self._team:
            self._space.close()
            self._team.destroy()

    def _hook(self, bucket: Bucket, parameter: torch.Tensor) -> Any:
        return parameter.register_post_accumulate_grad_hook(partial(self._arrive, bucket))

    def _follow(self) -> None:
        """Let backward say when it adds a gradient, on the current stream.

        torch adds on the stream where the node of the sum was made, and refuses that if another one captures a graph.
        """
        stream = torch.cuda.current_stream() if default().streams else None
        if stream == self._stream:
            return
        self._stream = stream
        while self._adders:
            self._adders.pop()[1].remove()
        for bucket in self._buckets:
            for place, (_, parameter) in enumerate(bucket.parameters):
                function: Any = parameter.view_as(parameter).grad_fn
                adder = function.next_functions[0][0]
                self._adders.append((adder, adder.register_prehook(partial(bucket.divide, place))))

    def _before(self, model: torch.nn.Module) -> None:
        """Before a forward pass that makes a graph. In a graph of compilers there are no streams, and nothing is sent."""
        if torch.compiler.is_compiling():
            if self._sends:
                wants = "'once', or a reducer of torch.compile(model)"
                refuse(ArgumentError, NAME, "buffers", "'forward' in a model that is compiled", wants)
            return
        self._follow()
        if self._sends and self._synced and model.training:
            self._broadcast(*model.buffers())

    def _broadcast(self, *arrays: torch.Tensor) -> None:
        """Let all PEs have PE 0's."""
        with torch.no_grad():
            for array in arrays:
                if array.numel():
                    row = array.detach().contiguous()
                    shmem.broadcast(row, row, 0, team=self._team)
                    if row.data_ptr() != array.data_ptr():
                        array.copy_(row)

    def _arrive(self, bucket: Bucket, parameter: torch.Tensor) -> None:
        """A parameter's gradient of this backward is there."""
        if not self._synced:
            return
        if self._generation != job.generation:
            refuse(NotInitializedError, NAME, "model", "a backward after finalize", "close() before it")
        self._backward.enter()
        if bucket.begun:
            name = next(name for name, each in bucket.parameters if each is parameter)
            wants = "a reducer that is made anew when a model begins to use reentrant checkpoints"
            refuse(ArgumentError, NAME, f"model, {name}", "a second gradient in one backward", wants)
        if default().streams:
            self._streams.add(torch.cuda.current_stream())
        bucket.missing -= 1
        early = self._warm and not self._backward.within
        while early and self._next < len(self._buckets) and not self._buckets[self._next].missing:
            self._reduce_next()

    def _begin(self) -> None:
        """Begin the reductions of a backward: after the first one, and if none has run others, while it makes more."""
        self._next = 0
        for bucket in self._buckets:
            bucket.missing, bucket.begun = len(bucket.parameters), False

    def _reduce_next(self) -> None:
        bucket, step = self._buckets[self._next], self._steps[self._next]
        bucket.begun = True
        self._next += 1
        with self._side.after(*self._streams), torch.no_grad():
            step(bucket.collect(self._side))
        self._streams.clear()

    def _end(self) -> None:
        """Reduce what is left, and let the current stream wait for all."""
        while self._next < len(self._buckets):
            self._reduce_next()
        with self._side.after():
            self._used.exchange(self._buckets)
            shmem.barrier_on_stream(self._team)  # the last chunks of all PEs have come
        self._side.join()
        self._used.settle(self._buckets)
        self._weights.check()
        self._warm = True
        self._begin()


def _agreed(team: Team, model: Any, bucket_bytes: Any, options: Mapping[str, Any]) -> list[Any]:
    """Check the arguments on all PEs. Return the parameters to reduce."""
    error: ShmemError | None = None
    parameters: list[Any] = []
    try:
        require_no_capture(NAME)
        require_near(NAME, team)
        parameters = trained(model)
        if not is_int(bucket_bytes) or bucket_bytes < 1:
            refuse(ArgumentError, NAME, "bucket_bytes", repr(bucket_bytes), "a number of bytes, 1 or more")
        if not isinstance(options["average"], bool):
            refuse(ArgumentError, NAME, "average", repr(options["average"]), "True or False")
        schedule_of(NAME, options["schedule"], "auto", SCHEDULES, team)
        if options["buffers"] not in BUFFERS:
            refuse(ArgumentError, NAME, "buffers", repr(options["buffers"]), " or ".join(BUFFERS))
        every = options["check_every"]
        if not is_int(every) or every < 0:
            refuse(ArgumentError, NAME, "check_every", repr(every), "a number of backwards, or 0")
    except ShmemError as problem:
        error = problem
    text = str(error) if error else f"bucket_bytes {bucket_bytes}, {', '.join(f'{k} {v}' for k, v in options.items())}"
    require_alike(NAME, team, "arguments", text, "the same arguments on all PEs of the team", error)
    require_same_model(team, texts_of(model))
    return parameters


def _wanted(held: Sequence[Sequence[Named]], n: int) -> Wanted:
    """Return the symmetric memory for buckets of parameters, on ``n`` PEs."""
    lengths, dtypes = [length_of(each) for each in held], [each[0][1].dtype for each in held]
    sizes = [(length, dtype.itemsize, n) for length, dtype in zip(lengths, dtypes, strict=True)]
    most, count = max(slot_bytes(*each) for each in sizes), sum(map(len, held))
    wanted: Wanted = {f"bucket {i}": ((lengths[i],), dtype) for i, dtype in enumerate(dtypes)}
    wanted |= {f"words {i}": ((words_of(*each),), torch.uint64) for i, each in enumerate(sizes)}
    wanted |= {f"slots {turn}": ((most,), torch.uint8) for turn in range(2)}
    wanted |= dict.fromkeys(("used", "used anywhere"), ((count,), torch.int32))
    return wanted | dict.fromkeys(("here", "least", "most"), ((count,), torch.int64))


def _chosen(schedule: Schedule, team: Team) -> str:
    if schedule != "auto":
        return schedule
    return "copy_engine" if default().streams and team.size > 1 else "reduce_on_stream"


def _twin(team: Team) -> Team:
    """Return a team of the same PEs, so that calls on other streams that use ``team`` do not meet those of the reducer."""
    found = team.split_strided(0, 1, team.size)
    if not found:
        wants = "a free one of PYSHMEM_MAX_TEAMS teams: a reducer has its own"
        refuse(HeapExhaustedError, NAME, "team", "no free team", wants)
    return found
