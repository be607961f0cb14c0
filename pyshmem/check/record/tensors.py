"""Accesses of the program itself to symmetric tensors: torch's operators say what they read and write."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pyshmem.check.record.host_calls import value_at
from pyshmem.check.record.recording import Range, recorder
from pyshmem.check.record.results import look
from pyshmem.check.trace import now

_MOST = 4096  # ranges of one access; of more, the whole from first to last
# operators that read no data of their arguments
_BLIND = (
    "empty", "new_", "zeros_like", "ones_like", "full_like", "rand", "set_", "resize", "is_", "sym_", "prim", "lift",
)  # fmt: skip

# operators that access chosen elements of their first argument; where what they store stands among the arguments
_CHOSEN: dict[str, int | None] = {
    **dict.fromkeys(("index", "index_select", "gather", "take", "masked_select")),
    "index_put_": 2, "index_fill_": 3, "index_copy_": 3, "scatter_": 3, "masked_fill_": 2,
}  # fmt: skip
_NUMBERS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
NUMBERED = 1 << 20  # elements of such an array, at most; all of a larger one count as accessed


class Plan(NamedTuple):
    """What an operator does. arguments: (place, name, whether it is written) of tensors; none if it accesses no memory."""

    name: str
    arguments: tuple[tuple[int, str, bool], ...]
    waits: bool = False  # whether the program gets numbers that are computed


_PLANS: dict[Any, Plan] = {}


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records reads and writes of memory that is watched, while no call of the library runs."""

    supports_higher_order_operators = True

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Whether torch.compile may compile while the mode is on."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        plan = _PLANS.get(func)
        if plan is None:
            plan = _PLANS[func] = _plan(func)
        if recorder.idle or types:  # a subclass's operator calls those of plain tensors
            return func(*args, **kwargs)
        look(plan.name, args)
        if plan.waits:
            recorder.drained()
        if not plan.arguments:
            return func(*args, **kwargs)
        reads, writes, address = _accesses(func, plan, args, kwargs)
        time = now()
        found = func(*args, **kwargs)
        if reads:
            recorder.write(time, "acc", plan.name, "r", reads, None)
        if writes:
            nbytes = writes[0][2] - writes[0][1]
            value = value_at(address, nbytes) if len(writes) == 1 and len(writes[0]) == 3 and nbytes <= 8 else None
            recorder.write(time, "acc", plan.name, "w", writes, value)
        return found


def watch_lists() -> None:
    """tolist reads memory without an operator of torch. What a program gets in CPU memory, it has waited for."""
    plain = torch.Tensor.tolist

    def tolist(self: torch.Tensor) -> Any:
        if not recorder.idle and self.device.type == "cpu" and self.numel() and recorder.is_seen(self.data_ptr()):
            recorder.write(now(), "acc", "tolist", "r", ranges_of(self), None)
        recorder.drained()
        return plain(self)

    torch.Tensor.tolist = tolist  # type: ignore[method-assign, assignment]
    torch.Tensor.cpu = _drained(torch.Tensor.cpu)  # type: ignore[method-assign]


def _drained(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def waited(*arguments: Any, **options: Any) -> Any:
        recorder.drained()
        return call(*arguments, **options)

    return waited


def _plan(func: Any) -> Plan:
    if not hasattr(func, "_schema"):  # an operator of functions, which calls those of tensors
        return Plan(str(func), ())
    schema = func._schema
    name = schema.name.removeprefix("aten::")
    views = any(each.alias_info is not None and not each.alias_info.is_write for each in schema.returns)
    if views or name.startswith(_BLIND):
        return Plan(name, ())
    written = [each.alias_info is not None and each.alias_info.is_write for each in schema.arguments]
    rows = ((i, each.name, w) for i, (each, w) in enumerate(zip(schema.arguments, written, strict=True)))
    waits = not _NUMBERS.isdisjoint(func.tags)
    return Plan(name, tuple(row for row in rows if "Tensor" in str(schema.arguments[row[0]].type)), waits)


def _accesses(func: Any, plan: Plan, args: Any, kwargs: Any) -> tuple[list[Range], list[Range], int]:
    """(what is read, what is written, the address of that)."""
    if plan.name in _CHOSEN and _is_chosen(args, _CHOSEN[plan.name]):
        return _chosen(func, args, kwargs, _CHOSEN[plan.name])
    reads: list[Range] = []
    writes: list[Range] = []
    if plan.name == "copy_" and _is_seen(args[0]) and args[0].data_ptr() == args[1].data_ptr():
        return reads, writes, 0
    address = 0
    for index, name, is_written in plan.arguments:
        value = args[index] if index < len(args) else kwargs.get(name)
        into = writes if is_written else reads
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(tensor, torch.Tensor) and _is_seen(tensor):
                into += ranges_of(tensor)
                address = tensor.data_ptr() if is_written else address
    return reads, writes, address


def _is_chosen(args: Any, value: int | None) -> bool:
    """Whether it can be told which elements are accessed: scatter_ that reduces has a further argument."""
    array = args[0]
    small = _is_seen(array) and array.numel() and _last(array) < NUMBERED
    return bool(small) and (value is None or value < len(args) < 5)


def _chosen(func: Any, args: Any, kwargs: Any, value: int | None) -> tuple[list[Range], list[Range], int]:
    """What an operator accesses whose arguments choose elements: the operator itself finds their numbers."""
    array = args[0]
    numbers = torch.arange(_last(array) + 1).as_strided(array.shape, array.stride())
    if value is None:
        numbers = func.overloadpacket(
            numbers, *args[1:], **{name: each for name, each in kwargs.items() if name != "out"}
        )
    else:
        marks = torch.zeros(array.shape, dtype=torch.bool)
        stored = args[value]
        func(marks, *args[1:value], torch.ones_like(stored, dtype=torch.bool) if torch.is_tensor(stored) else True)
        numbers = numbers[marks]
    places = array.data_ptr() + array.element_size() * numbers.numpy().reshape(-1)
    chosen = recorder.each(places, array.element_size()) if places.size else []
    further = [each for given in args[1:] for each in (given if isinstance(given, (list, tuple)) else (given,))]
    reads = [span for each in further if torch.is_tensor(each) and _is_seen(each) for span in ranges_of(each)]
    if value is None:
        out = kwargs.get("out")
        written = ranges_of(out) if out is not None and _is_seen(out) else []
        return reads + chosen, written, out.data_ptr() if written else 0
    return reads, chosen, int(places[0]) if places.size else 0


def _last(array: torch.Tensor) -> int:
    """The place of the last element behind the first, in elements."""
    return sum(step * (count - 1) for step, count in zip(array.stride(), array.shape, strict=True))


def _is_seen(tensor: torch.Tensor) -> bool:
    if not tensor.is_cpu or tensor.layout is not torch.strided or torch._is_functional_tensor(tensor):
        return False
    return recorder.is_seen(tensor.data_ptr())


def ranges_of(tensor: torch.Tensor) -> list[Range]:
    """The bytes of a tensor, of any strides, as ranges."""
    if not tensor.numel():
        return []
    if tensor.is_contiguous():
        return [recorder.at(tensor.data_ptr(), tensor.nbytes)]
    item = tensor.element_size()
    steps = ((step * item, count) for step, count in zip(tensor.stride(), tensor.shape, strict=True))
    return ranges(tensor.data_ptr(), item, list(steps))


def ranges(address: int, item: int, steps: list[tuple[int, int]]) -> list[Range]:
    """The bytes of an array with elements of ``item`` bytes. steps: of each dimension distance in bytes and extent."""
    dims = sorted(((step, n) for step, n in steps if n > 1 and step), reverse=True)
    length = item
    while dims and dims[-1][0] == length:
        length *= dims.pop()[1]
    step, rows = dims.pop() if dims else (0, 1)
    starts = [address]
    for stride, count in dims:
        starts = [start + i * stride for start in starts for i in range(count)]
        if len(starts) > _MOST:
            return [recorder.at(address, sum(each * (n - 1) for each, n in steps) + item)]
    return [recorder.strided(start, length, step, rows) for start in starts]
