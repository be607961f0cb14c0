"""Accesses of the program itself to symmetric tensors: torch's operators say what they read and write."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pyshmem.check.host_calls import value_at
from pyshmem.check.recording import Range, recorder
from pyshmem.check.trace import now

_MOST = 4096  # ranges of one access; of more, the whole from first to last
# operators that read no data of their arguments
_BLIND = (
    "empty",
    "new_",
    "zeros_like",
    "ones_like",
    "full_like",
    "rand",
    "set_",
    "resize",
    "is_",
    "sym_",
    "prim",
    "lift",
)


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records reads and writes of memory that is watched, while no call of the library runs."""

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Whether torch.compile may compile while the mode is on."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if recorder.idle:
            return func(*args, **kwargs)
        reads, writes = _accesses(func, args, kwargs)
        time = now()
        found = func(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::")
        if reads:
            recorder.write(time, "acc", name, "r", reads, None)
        if writes:
            start, end = writes[0][1:3]
            value = (
                value_at(_address(args, kwargs), end - start)
                if len(writes) == 1 and len(writes[0]) == 3 and end - start <= 8
                else None
            )
            recorder.write(time, "acc", name, "w", writes, value)
        return found


def watch_lists() -> None:
    """tolist reads memory without an operator of torch."""
    plain = torch.Tensor.tolist

    def tolist(self: torch.Tensor) -> Any:
        if not recorder.idle and self.device.type == "cpu" and self.numel() and recorder.is_seen(self.data_ptr()):
            recorder.write(now(), "acc", "tolist", "r", ranges_of(self), None)
        return plain(self)

    torch.Tensor.tolist = tolist  # type: ignore[method-assign, assignment]


def _address(args: Any, kwargs: Any) -> int:
    """Where an operator that writes one small range has written it: its first tensor, or out."""
    out = kwargs.get("out")
    tensor = out if isinstance(out, torch.Tensor) else next(each for each in args if isinstance(each, torch.Tensor))
    return int(tensor.data_ptr())


def _accesses(func: Any, args: Any, kwargs: Any) -> tuple[list[Any], list[Any]]:
    schema = func._schema
    name = schema.name.removeprefix("aten::")
    views = any(each.alias_info is not None and not each.alias_info.is_write for each in schema.returns)
    if views or name.startswith(_BLIND) or (name == "copy_" and args[0].data_ptr() == args[1].data_ptr()):
        return [], []
    reads: list[Any] = []
    writes: list[Any] = []
    for index, argument in enumerate(schema.arguments):
        value = args[index] if index < len(args) else kwargs.get(argument.name)
        into = writes if argument.alias_info is not None and argument.alias_info.is_write else reads
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu" and tensor.layout is torch.strided:
                address = tensor.data_ptr()
                if address and recorder.is_seen(address):
                    into += ranges_of(tensor)
    return reads, writes


def ranges_of(tensor: torch.Tensor) -> list[Range]:
    """The bytes of a tensor, of any strides, as ranges."""
    item, address = tensor.element_size(), tensor.data_ptr()
    if not tensor.numel():
        return []
    if tensor.is_contiguous():
        return [recorder.at(address, tensor.numel() * item)]
    dims = sorted(((s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1 and s), reverse=True)
    length = item
    while dims and dims[-1][0] * item == length:
        length *= dims.pop()[1]
    step, rows = dims.pop() if dims else (0, 1)
    starts = [0]
    for stride, count in dims:
        starts = [start + i * stride * item for start in starts for i in range(count)]
        if len(starts) > _MOST:
            last = sum(s * (n - 1) for s, n in zip(tensor.stride(), tensor.shape, strict=True))
            return [recorder.at(address, (last + 1) * item)]
    return [recorder.strided(address + start, length, step * item, rows) for start in starts]
