"""Records the operators of torch as calls, with what they read and write, if PYSHMEM_TRACE_TORCH asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from pyshmem.native._native import recorded
from pyshmem.timelines.calls import NO_ARGUMENTS
from pyshmem.timelines.events import NONE, TORCH

# operators that access no memory of tensors, beside those that return views
_BLIND = ("empty", "new_empty", "resize", "set_", "is_", "sym_", "prim", "lift", "_local_scalar", "detach")
# operators that access chosen elements of their first argument: it does not count
_CHOSEN = (
    "index",
    "gather",
    "take",
    "masked_",
    "scatter",
    "embedding",
    "_index_put",
    "select_scatter",
    "slice_scatter",
)

# operators in place that do not read what they write
_OVERWRITING = ("copy_", "zero_", "fill_", "uniform_", "normal_", "random_", "bernoulli_", "exponential_")


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the operators of plain tensors of a thread while it is on."""

    supports_higher_order_operators = True

    def __init__(self, number_of: Callable[[str], int]) -> None:
        """number_of: the number of a name in events."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._number_of = number_of
        self._calls: dict[Any, Callable[..., Any]] = {}

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Whether torch.compile may compile while the mode is on."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = self._calls.get(func)
        if call is None:
            call = self._calls[func] = self._recorded(func)
        return call(*args, **(kwargs or {}))

    def _recorded(self, func: Any) -> Callable[..., Any]:
        """Return the recorded form of an operator; the operator itself if it accesses no memory."""
        schema = getattr(func, "_schema", None)
        if schema is None:  # an operator of functions, which calls those of tensors
            return func  # type: ignore[no-any-return]
        space, _, name = schema.name.partition("::")
        views = any(each.alias_info is not None and not each.alias_info.is_write for each in schema.returns)
        if views or name.startswith(_BLIND) or space == "pyshmem":  # whose operators are recorded as those of ops.torch
            return func  # type: ignore[no-any-return]
        read, written = [], []
        for place, each in enumerate(schema.arguments):
            if "Tensor" in str(each.type) and not (place == 0 and name.startswith(_CHOSEN)):
                is_written = each.alias_info is not None and each.alias_info.is_write
                if is_written:
                    written.append((place, each.name))
                if not is_written or (name.endswith("_") and name not in _OVERWRITING):
                    read.append((place, each.name))
        label = TORCH + name
        accesses = tuple(read), tuple(written), True, 0
        return recorded(label, func, self._number_of(label), NONE, *NO_ARGUMENTS, {}, accesses)
