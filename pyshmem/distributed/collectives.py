"""What the collectives of torch.distributed do, on a team and on tensors as they come.

A tensor that is symmetric is used where it is; others pass through staging memory, of pyshmem.host.collectives or, on
streams, of lanes. All calls are collective over the team. Tensors are detached, of any strides; ``root`` counts in the team.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed import ReduceOp

import pyshmem as shmem
from pyshmem.base.errors import ArgumentError, DtypeError, OutOfRangeError, refuse
from pyshmem.distributed import lanes
from pyshmem.distributed.differences import GroupMeeting, kind_of
from pyshmem.distributed.lanes import Lane
from pyshmem.distributed.messages import RECV, SEND, Line, Message, is_plain, mailbox, plain
from pyshmem.host.teams import Team
from pyshmem.memory.arguments import require_one_dtype

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
# The types in which averages are made, so that the sum is neither rounded nor out of range before it is divided. In GPU
# memory a sum of bfloat16 has float32's range, and stays what it is: gradients are such sums.
_WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
_BLOCK_NOTE = 128
_WIDE |= dict.fromkeys((torch.uint8, torch.int8, torch.int16, torch.int32), torch.int64)


class Place(NamedTuple):
    """Where a call takes place: the team, the line of messages within calls, and the lane of tensors in GPU memory."""

    team: Team
    line: Line
    lane: Lane | None = None

    @property
    def meeting(self) -> GroupMeeting:
        return self.team.meeting  # type: ignore[no-any-return]

    def is_host(self, tensor: Tensor) -> bool:
        """Return whether a call with this tensor is one of the host, and goes on no stream."""
        return self.lane is None or not self.lane.takes(tensor)


def reduced(place: Place, source: Tensor, op: Any, target: Tensor | None = None) -> Tensor:
    """Return what ``op`` makes of all members' ``source``; in ``target`` if it is given, which may be source.

    A target as large as a block gets this member's block. The call has been described to the meeting.
    """
    kind, factor = kind_of(op)
    routine = place.meeting.said[0]
    name, bits, average = _OPS[kind], source.dtype is torch.bool, kind == _TYPES.AVG
    if bits and kind in (_TYPES.AVG, _TYPES.PREMUL_SUM):
        refuse(ArgumentError, routine, "op", f"{kind.name} of bools", "SUM, PRODUCT, MIN, MAX, BAND, BOR or BXOR")
    if place.is_host(source) and (average or factor is not None or routine != "all_reduce"):
        place.meeting.compare()
    if average and (wide := wide_for(source.dtype, place.is_host(source))):
        return _averaged(place, source.to(wide), source.dtype, target)
    given = plain(source if factor is None else source * factor)
    result = target if target is not None and is_plain(target) else _like(given if target is None else target)
    words = [each.view(torch.uint8) if bits else each for each in (result, given)]
    _reduce(place, *words, _OF_BITS.get(name, name) if bits else name)
    if average:
        divide(result, place.team.size)
    if target is not None and result is not target:
        target.copy_(result)
    return result


def wide_for(dtype: torch.dtype, host: bool) -> torch.dtype | None:
    """Return the type in which an average of this one is made, or None for its own."""
    return None if dtype is torch.bfloat16 and not host else _WIDE.get(dtype)


def _averaged(place: Place, given: Tensor, dtype: torch.dtype, target: Tensor | None) -> Tensor:
    """Average ``given``, a copy in a wider type, which is rounded once.

    Floats are multiplied by a power of two, which is exact, so that sums stay in the range of the averages.
    """
    parts = place.team.size
    scale = 1 << (parts - 1).bit_length() if given.is_floating_point() else 1
    given = plain(given).div_(scale) if scale > 1 else plain(given)
    result = _like(given) if target is None or target.numel() == given.numel() else given.new_empty(target.numel())
    _reduce(place, result, given, "sum")
    divide(result, parts / scale if scale > 1 else parts)
    if target is None:
        return result.to(dtype)
    target.copy_(result.view(target.shape))
    return target


def _reduce(place: Place, target: Tensor, source: Tensor, op: str) -> None:
    """A target as large as a block gets this member's block."""
    if target.numel() != source.numel() and place.lane is not None:
        lanes.reduce_scatter(place.lane, place.team, target, source, op)
    else:
        lanes.reduce(place.lane, place.team, target, source, op)


def _like(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def divide(tensor: Tensor, number: float) -> None:
    rounding = None if tensor.is_floating_point() or tensor.is_complex() else "trunc"
    tensor.div_(number, rounding_mode=rounding)


def barrier(place: Place) -> None:
    place.meeting.say("barrier")
    place.meeting.compare()


def coalesced(place: Place, call: Callable[..., None], rows: Sequence[tuple[Any, ...]]) -> None:
    """Perform ``call`` with each row of arguments."""
    if len(rows) > 1 and place.is_host(rows[0][0] if isinstance(rows[0][0], Tensor) else rows[0][1]):
        place.meeting.say(f"{call.__name__}, coalesced", sizes=[len(rows)])
        place.meeting.compare()
    for row in rows:
        call(place, *row)


def all_reduce(place: Place, tensor: Tensor, op: Any) -> None:
    place.meeting.say("all_reduce", tensor, op)
    reduced(place, tensor, op, tensor)


def reduce(place: Place, tensor: Tensor, root: int, op: Any) -> None:
    place.meeting.say("reduce", tensor, op, root)
    result = reduced(place, tensor, op)
    if place.team.me == root:
        tensor.copy_(result)


def broadcast(place: Place, tensor: Tensor, root: int) -> None:
    place.meeting.say("broadcast", tensor, None, root)
    if place.is_host(tensor):
        place.meeting.compare()
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
    place.meeting.say("all_gather_single", source)
    memory = target if is_plain(target) else _like(target)
    lanes.fcollect(place.lane, team, memory, plain(source))
    if memory is not target:
        target.copy_(memory)


def all_gather(place: Place, targets: Sequence[Tensor], source: Tensor) -> None:
    """targets: one for each member, perhaps of different sizes."""
    _require_members(place, "all_gather", "tensor_list", targets)
    sizes = [each.numel() for each in targets]
    _require_size("all_gather", "tensor", source, sizes[place.team.me], "this process's tensor of tensor_list")
    memory, even = source.new_empty(sum(sizes)), len(set(sizes)) == 1
    place.meeting.say("all_gather", source if even else None, None, None, sizes)
    if even:
        lanes.fcollect(place.lane, place.team, memory, plain(source))
    else:
        place.meeting.compare()
        shmem.collect(memory, plain(source), team=place.team)
    _spread(memory, targets)


def reduce_scatter_single(place: Place, target: Tensor, source: Tensor, op: Any) -> None:
    team, count = place.team, target.numel()
    if count * team.size != source.numel():
        wants = f"{team.size} times the {count} elements of output"
        refuse(OutOfRangeError, "reduce_scatter_single", "input", f"{source.numel()} elements", wants)
    require_one_dtype("reduce_scatter_single", ("output", "input"), target.dtype, source.dtype)
    place.meeting.say("reduce_scatter_single", source, op)
    if count and not place.is_host(source):
        reduced(place, source, op, target)
        return
    result = reduced(place, source, op).view(-1)
    target.copy_(result[team.me * count :][:count].view(target.shape))


def reduce_scatter(place: Place, target: Tensor, sources: Sequence[Tensor], op: Any) -> None:
    """sources: one for each member, perhaps of different sizes."""
    _require_members(place, "reduce_scatter", "input_list", sources)
    own = sources[place.team.me].numel()
    _require_size("reduce_scatter", "output", target, own, "this process's tensor of input_list")
    whole = _joined(sources)
    place.meeting.say("reduce_scatter", whole, op, None, [each.numel() for each in sources])
    result = reduced(place, whole, op)
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
    place.meeting.say("all_to_all_single", target.new_empty(0))
    uneven = bytes([bool(received or sent)])
    if b"\1" in place.meeting.share("all_to_all_single", uneven):
        memory = plain(target)
        exchange(place, memory.split(blocks[0]), plain(source).split(blocks[1]))
    else:
        _require_size("all_to_all_single", "output", target, source.numel(), "input, as there are no split sizes")
        place.meeting.say("all_to_all_single", source)
        memory = target if is_plain(target) else _like(target)
        lanes.alltoall(place.lane, place.team, memory, plain(source))
    if memory is not target:
        target.copy_(memory)


def all_to_all(place: Place, targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    for argument, tensors in (("output_tensor_list", targets), ("input_tensor_list", sources)):
        _require_members(place, "all_to_all", argument, tensors)
    place.meeting.say("all_to_all", targets[0].new_empty(0))
    exchange(place, targets, sources)


def gather(place: Place, targets: Sequence[Tensor], source: Tensor, root: int) -> None:
    """targets: on the root one for each member, elsewhere none."""
    n, at_root = place.team.size, place.team.me == root
    if at_root:
        _require_members(place, "gather", "gather_list", targets)
    place.meeting.say("gather", source.new_empty(0), None, root)
    exchange(place, targets if at_root else [None] * n, [source if i == root else None for i in range(n)])


def scatter(place: Place, target: Tensor, sources: Sequence[Tensor], root: int) -> None:
    """sources: on the root one for each member, elsewhere none."""
    n, at_root = place.team.size, place.team.me == root
    if at_root:
        _require_members(place, "scatter", "scatter_list", sources)
    place.meeting.say("scatter", target.new_empty(0), None, root)
    exchange(place, [target if i == root else None for i in range(n)], sources if at_root else [None] * n)


def exchange(place: Place, targets: Sequence[Tensor | None], sources: Sequence[Tensor | None]) -> None:
    """Send source j to member j, and receive target j from it, where there are such.

    Errors: OutOfRangeError, DtypeError, on all members, if one of them gets another block than it has a target for.
    """
    place.meeting.compare()
    team, receives, sends, wrong = place.team, [], [], b""
    for pe, target in enumerate(targets):
        if target is not None and pe != team.me:
            receives.append(mailbox.post(Message(RECV, target, place.line, world(team, pe))))
    for pe, source in enumerate(sources):
        if source is not None and pe != team.me:
            sends.append(mailbox.post(Message(SEND, source, place.line, world(team, pe))))
    own, mine = targets[team.me], sources[team.me]
    if own is not None and mine is not None:
        wrong = _block_text(own.numel(), mine.numel(), world(team, team.me))
        if not wrong:
            own.copy_(mine.view(own.shape))
    for message in (*sends, *receives):
        try:
            message.wait()
        except (OutOfRangeError, DtypeError):
            text = _block_text(message.tensor.numel(), message.sent // message.tensor.itemsize, message.pe)
            wrong = wrong or text or b"of another type than is sent to it"
    told = place.meeting.share(place.meeting.said[0], wrong.ljust(_BLOCK_NOTE))
    problems = [f"PE {pe} {each.decode().rstrip()}" for pe, each in zip(team.pes, told, strict=True) if each.strip()]
    if problems:
        refuse(OutOfRangeError, place.meeting.said[0], "block", problems[0], "as many elements as the other PE sends")


def _block_text(room: int, sent: int, pe: int) -> bytes:
    """Say of a block of another size what it is; nothing of others."""
    return b"" if room == sent else f"with room for {room} elements where PE {pe} sends {sent}".encode()


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
