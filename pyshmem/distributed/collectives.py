"""What the collectives of torch.distributed do, on a team and on tensors as they come.

A tensor that is symmetric is used where it is; others pass through staging memory, of pyshmem.host.collectives or, on
streams, of lanes. All calls are collective over the team. Tensors are detached, of any strides; ``root`` counts in the team.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed import ReduceOp

import pyshmem as shmem
from pyshmem.distributed import lanes
from pyshmem.distributed.lanes import Lane
from pyshmem.distributed.messages import RECV, SEND, Line, Message, is_plain, mailbox, plain
from pyshmem.host.teams import Team
from pyshmem.runtime.arguments import require_one_dtype
from pyshmem.runtime.errors import ArgumentError, OutOfRangeError, refuse

_TYPES = ReduceOp.RedOpType
_OPS = {
    _TYPES.SUM: "sum",
    _TYPES.AVG: "sum",
    _TYPES.PREMUL_SUM: "sum",
    _TYPES.PRODUCT: "prod",
    _TYPES.MIN: "min",
    _TYPES.MAX: "max",
    _TYPES.BAND: "and",
    _TYPES.BOR: "or",
    _TYPES.BXOR: "xor",
}
_OF_BITS = {"sum": "max", "prod": "min"}  # of bools, which are kept as the bytes 0 and 1


class Place(NamedTuple):
    """Where a call takes place: the team, the line of messages within calls, and the lane of tensors in GPU memory."""

    team: Team
    line: Line
    lane: Lane | None = None


def reduced(place: Place, routine: str, source: Tensor, op: Any, target: Tensor | None = None) -> Tensor:
    """Return what ``op`` makes of all members' ``source``; in ``target`` if it is given, which may be source.

    A target as large as a block gets this member's block.
    """
    kind, factor = _kind(op)
    name, bits = _OPS[kind], source.dtype is torch.bool
    if bits and kind in (_TYPES.AVG, _TYPES.PREMUL_SUM):
        refuse(ArgumentError, routine, "op", f"{kind.name} of bools", "SUM, PRODUCT, MIN, MAX, BAND, BOR or BXOR")
    given = plain(source if factor is None else source * factor)
    result = target if target is not None and is_plain(target) else _like(given if target is None else target)
    words = [each.view(torch.uint8) if bits else each for each in (result, given)]
    op_of = _OF_BITS.get(name, name) if bits else name
    if target is not None and target.numel() != source.numel() and place.lane is not None:
        lanes.reduce_scatter(place.lane, place.team, *words, op_of)
    else:
        lanes.reduce(place.lane, place.team, *words, op_of)
    if kind == _TYPES.AVG:
        divide(result, place.team.size)
    if target is not None and result is not target:
        target.copy_(result)
    return result


def _kind(op: Any) -> tuple[Any, float | Tensor | None]:
    """Return the type of torch's operator, and the factor of PREMUL_SUM."""
    state = op.__getstate__() if isinstance(op, ReduceOp) else op
    kind, factor = state if isinstance(state, tuple) else (state, None)
    return _TYPES(int(kind)), factor


def _like(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def divide(tensor: Tensor, number: int) -> None:
    rounding = None if tensor.is_floating_point() or tensor.is_complex() else "trunc"
    tensor.div_(number, rounding_mode=rounding)


def all_reduce(place: Place, tensor: Tensor, op: Any) -> None:
    reduced(place, "all_reduce", tensor, op, tensor)


def reduce(place: Place, tensor: Tensor, root: int, op: Any) -> None:
    result = reduced(place, "reduce", tensor, op)
    if place.team.me == root:
        tensor.copy_(result)


def broadcast(place: Place, tensor: Tensor, root: int) -> None:
    memory = plain(tensor)
    lanes.broadcast(place.lane, place.team, memory, root)
    if memory is not tensor and place.team.me != root:
        tensor.copy_(memory)


def all_gather_single(place: Place, target: Tensor, source: Tensor) -> None:
    team = place.team
    if target.numel() != source.numel() * team.size:
        wants = f"{team.size} times the {source.numel()} elements of input"
        refuse(OutOfRangeError, "all_gather_single", "output", f"{target.numel()} elements", wants)
    require_one_dtype("all_gather_single", ("output", "input"), target.dtype, source.dtype)
    memory = target if is_plain(target) else _like(target)
    lanes.fcollect(place.lane, team, memory, plain(source))
    if memory is not target:
        target.copy_(memory)


def all_gather(place: Place, targets: Sequence[Tensor], source: Tensor) -> None:
    """targets: one for each member, perhaps of different sizes."""
    _require_members(place, "all_gather", "tensor_list", targets)
    sizes = [each.numel() for each in targets]
    _require_size("all_gather", "tensor", source, sizes[place.team.me], "this process's tensor of tensor_list")
    memory = source.new_empty(sum(sizes))
    if len(set(sizes)) == 1:
        lanes.fcollect(place.lane, place.team, memory, plain(source))
    else:
        shmem.collect(memory, plain(source), team=place.team)
    _spread(memory, targets)


def reduce_scatter_single(place: Place, target: Tensor, source: Tensor, op: Any) -> None:
    team, count = place.team, target.numel()
    if count * team.size != source.numel():
        wants = f"{team.size} times the {count} elements of output"
        refuse(OutOfRangeError, "reduce_scatter_single", "input", f"{source.numel()} elements", wants)
    require_one_dtype("reduce_scatter_single", ("output", "input"), target.dtype, source.dtype)
    if count and place.lane is not None and place.lane.takes(source):
        reduced(place, "reduce_scatter_single", source, op, target)
        return
    result = reduced(place, "reduce_scatter_single", source, op).view(-1)
    target.copy_(result[team.me * count :][:count].view(target.shape))


def reduce_scatter(place: Place, target: Tensor, sources: Sequence[Tensor], op: Any) -> None:
    """sources: one for each member, perhaps of different sizes."""
    _require_members(place, "reduce_scatter", "input_list", sources)
    own = sources[place.team.me].numel()
    _require_size("reduce_scatter", "output", target, own, "this process's tensor of input_list")
    result = reduced(place, "reduce_scatter", _joined(sources), op)
    begin = sum(each.numel() for each in sources[: place.team.me])
    target.copy_(result[begin:][:own].view(target.shape))


def all_to_all_single(
    place: Place, target: Tensor, source: Tensor, received: Sequence[int], sent: Sequence[int]
) -> None:
    """received, sent: the rows from and to each member; none are equal shares."""
    blocks = []
    for argument, tensor, rows in (("output", target, received), ("input", source, sent)):
        shares = list(rows) or [len(tensor) // place.team.size] * place.team.size
        if sum(shares) != len(tensor) or len(shares) != place.team.size:
            wants = f"{place.team.size} split sizes with this sum" if rows else f"a multiple of {place.team.size}"
            refuse(OutOfRangeError, "all_to_all_single", argument, f"{len(tensor)} rows and {list(rows)}", wants)
        blocks.append(shares)
    uneven = b"\1" if received or sent else b"\0"
    if b"\1" in place.team.meeting.share("all_to_all_single", uneven):
        memory = plain(target)
        exchange(place, memory.split(blocks[0]), plain(source).split(blocks[1]))
    else:
        _require_size("all_to_all_single", "output", target, source.numel(), "input, as there are no split sizes")
        memory = target if is_plain(target) else _like(target)
        lanes.alltoall(place.lane, place.team, memory, plain(source))
    if memory is not target:
        target.copy_(memory)


def all_to_all(place: Place, targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    for argument, tensors in (("output_tensor_list", targets), ("input_tensor_list", sources)):
        _require_members(place, "all_to_all", argument, tensors)
    exchange(place, targets, sources)


def gather(place: Place, targets: Sequence[Tensor], source: Tensor, root: int) -> None:
    """targets: on the root one for each member, elsewhere none."""
    n, at_root = place.team.size, place.team.me == root
    if at_root:
        _require_members(place, "gather", "gather_list", targets)
    exchange(place, targets if at_root else [None] * n, [source if i == root else None for i in range(n)])


def scatter(place: Place, target: Tensor, sources: Sequence[Tensor], root: int) -> None:
    """sources: on the root one for each member, elsewhere none."""
    n, at_root = place.team.size, place.team.me == root
    if at_root:
        _require_members(place, "scatter", "scatter_list", sources)
    exchange(place, [target if i == root else None for i in range(n)], sources if at_root else [None] * n)


def exchange(place: Place, targets: Sequence[Tensor | None], sources: Sequence[Tensor | None]) -> None:
    """Send source j to member j, and receive target j from it, where there are such."""
    team, messages = place.team, []
    for pe, target in enumerate(targets):
        if target is not None and pe != team.me:
            messages.append(mailbox.post(Message(RECV, target, place.line, world(team, pe))))
    for pe, source in enumerate(sources):
        if source is not None and pe != team.me:
            messages.append(mailbox.post(Message(SEND, source, place.line, world(team, pe))))
    own, mine = targets[team.me], sources[team.me]
    if own is not None and mine is not None:
        own.copy_(mine.view(own.shape))
    for message in messages:
        message.wait()


def world(team: Team, pe: int) -> int:
    return team._world_pe("process group", pe)


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([each.reshape(-1) for each in tensors])


def _spread(memory: Tensor, targets: Sequence[Tensor]) -> None:
    """Copy the elements of ``memory`` to targets, which follow each other in it."""
    ends = accumulate((each.numel() for each in targets), initial=0)
    for (begin, end), target in zip(pairwise(ends), targets, strict=True):
        target.copy_(memory[begin:end].view(target.shape))


def _require_members(place: Place, routine: str, argument: str, tensors: Sequence[Tensor]) -> None:
    if len(tensors) != place.team.size:
        wants = f"{place.team.size}, one for each process of the group"
        refuse(ArgumentError, routine, argument, f"{len(tensors)} tensors", wants)


def _require_size(routine: str, argument: str, tensor: Tensor, count: int, whose: str) -> None:
    if tensor.numel() != count:
        refuse(OutOfRangeError, routine, argument, f"{tensor.numel()} elements", f"the {count} of {whose}")
