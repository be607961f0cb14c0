"""Kernels that are compiled once and launched from C, with all arguments bound but the operands of a call."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import torch

from pyshmem.runtime import interpreter
from pyshmem.runtime._native import launch_prepared
from pyshmem.runtime.event_ring import ring
from pyshmem.runtime.gpu.launch import (
    INTEGER,
    CachedKernel,
    Loaded,
    early_launcher,
    like,
    on_grid,
    refuse_launch,
    words_of,
)
from pyshmem.runtime.heap import heaps

# what finds the variants of a kernel, without the compiler if one like it has been found before
_kept = cache(CachedKernel)


class Bound(NamedTuple):
    """A compiled kernel on a grid. _native.launch_pair reads the first three fields.

    prepared: the kernel, its grid and the words of its first parameters.  last: the words of its last parameters; those of
    a call lie between.  word: tells the call of all members, see _streamed.h.  held: the kernel, and what the words are
    addresses of.
    """

    prepared: bytes
    last: tuple[int, ...] = ()
    word: int = 0
    held: Any = None

    def launch(self, routine: str, stream: int, *words: int) -> None:
        """Enqueue the kernel with the words of a call. Errors: LaunchError."""
        code = launch_prepared(self.prepared, stream, *words, *self.last)
        if code:
            require_launched(routine, code)


def require_launched(routine: str, code: int) -> None:
    """Errors: LaunchError if the driver returned an error code."""
    if code:
        refuse_launch(routine, "its kernel", code)


def bind(
    loaded: Loaded, grid: tuple[int, ...], fixed: tuple[Any, ...], last: tuple[int, ...] = (), early: bool = False
) -> Bound:
    """Bind the first arguments, ``fixed``, and the words of the last ones.

    early: the kernel may begin before its predecessor has ended, and waits for it itself.
    """
    words = words_of(fixed, loaded.plan[: len(fixed)])
    scratch = (
        torch.empty(math.prod(grid) * loaded.scratch, dtype=torch.uint8, device="cuda") if loaded.scratch else None
    )
    if scratch is not None:
        last = (*last, scratch.data_ptr())
    return Bound(loaded.prepared(*grid, words=tuple(words), early=early), last, held=(loaded, fixed, scratch))


class _Form(NamedTuple):
    """A kernel that has been compiled: the fields are those of Prepared."""

    plainly: Any
    bound: Bound | None = None
    kinds: Any = ()
    compiled: Any = None


class Prepared:
    """``kernel`` on a grid, bound to all arguments but its operands, which follow ``fixed``; constants follow them.

    Operands are what differs from call to call: arrays, and numbers for which no kernel of its own is compiled.
    Any argument may be a NamedTuple. Operands that are one are one parameter of the kernel, and a call takes its fields.
    Device contexts among ``fixed`` record events while a timeline does, whenever they were made.
    """

    __slots__ = ("__weakref__", "_bundle", "_form", "_forms", "bound", "compiled", "kinds", "plainly")

    def __init__(
        self, kernel: Any, grid: Any, fixed: tuple[Any, ...], operands: Sequence[Any],
        constants: Mapping[str, Any], early: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        """Compile the kernel for operands like these. constants: in the order of the kernel's parameters.

        grid: an int, or up to three; or a function that gives it for what Triton has compiled, None where it interprets.
        early: as in bind.  options: those of the compiler, as num_warps.
        """
        bundle = type(operands) if hasattr(operands, "_fields") else None
        arguments = (operands,) if bundle else tuple(operands)
        _require_constants(kernel, len(fixed) + len(arguments), constants)

        def form(arguments: tuple[Any, ...]) -> _Form:
            own = tuple([_of_now(each) for each in fixed])
            if interpreter.active():
                counts = _counts(grid, None)
                return _Form(
                    lambda stream, own_grid, *given: kernel[own_grid or counts](
                        *own, *_bundled(bundle, given), *constants.values()
                    )
                )
            loaded = _kept(kernel).find(*own, *arguments, *constants.values(), **options)
            counts = _counts(grid, loaded.compiled)
            plainly = lambda stream, own_grid, *given: loaded(  # noqa: E731
                own_grid or counts, stream, (*own, *_bundled(bundle, given), *constants.values())
            )
            if loaded.plan is None:
                return _Form(plainly, compiled=loaded.compiled)
            kinds = loaded.plan[len(own) : len(own) + len(arguments)]
            return _Form(plainly, bind(loaded, counts, own, early=early), kinds, loaded.compiled)

        self._bundle = bundle
        self._forms: dict[int, _Form] = {}  # by the address of the ring of events
        self._use(form(arguments))
        if any(hasattr(each, "recording") for each in fixed):
            self._form = partial(form, tuple(map(like, arguments)))  # without the operands' memory
            ring.holders.add(self)

    def _use(self, form: _Form) -> None:
        self._forms[ring.address] = form
        self.plainly: Any = form.plainly
        self.bound, self.kinds = form.bound, form.kinds
        self.compiled = form.compiled  # what Triton has made of it; None: it is interpreted

    def rebind(self) -> None:
        """Use the kernel that records events if the ring is open, and else the one that does not.

        The first is compiled here, before anything is recorded; the second, if there is none yet, by the next call.
        """
        found = self._forms.get(ring.address)
        if found or ring.is_open:
            self._use(found or self._form())
        else:
            self.bound, self.plainly = None, self._rebound

    def _rebound(self, stream: int | None, grid: tuple[int, ...] | None, *given: Any) -> None:
        self._use(self._form())
        if stream is not None:
            enqueue("ops", [self], stream, *given)
        else:
            words = words_of(_bundled(self._bundle, given), self.kinds) if self.bound else ()
            self.at(words, given, grid)

    def __call__(self, *given: Any, grid: tuple[int, ...] | None = None) -> None:
        """Enqueue the kernel with these tensors and ints on torch's current stream.

        grid: another one, of three numbers, for a kernel that takes no scratch memory of Triton's for each program.
        Errors: LaunchError.
        """
        self.at([each if type(each) is int else each.data_ptr() for each in given], given, grid)

    def at(self, words: Sequence[int], given: tuple[Any, ...], grid: tuple[int, ...] | None = None) -> None:
        """Do what a call does. words: the addresses of the tensors, and the words of the numbers."""
        bound = self.bound
        if bound is None:
            self.plainly(None, grid, *given)
            return
        prepared = bound.prepared if grid is None else on_grid(bound.prepared, grid)
        code = launch_prepared(prepared, heaps["cuda"].near.use_stream(), *words, *bound.last)
        if code:
            require_launched("ops", code)

    def words_of(self, *numbers: Any) -> list[int]:
        """Return the words of the first operands, which are numbers or tuples of them; none if there is no driver."""
        words: list[int] = []
        for number, kind in zip(numbers, self.kinds, strict=False):
            if kind == INTEGER:
                words.append(number)
            elif type(kind) is tuple and kind.count(INTEGER) == len(kind):  # the kernel takes each of its fields
                words += number
            else:
                words += words_of((number,), (kind,))
        return words


class Numbered:
    """A Prepared with the first of its operands, which are numbers or tuples of them."""

    __slots__ = ("_kernel", "_numbers", "_words")

    def __init__(self, kernel: Prepared, *numbers: Any) -> None:
        self._kernel, self._numbers, self._words = kernel, numbers, kernel.words_of(*numbers)

    def __call__(self, *arrays: torch.Tensor) -> None:
        """Enqueue the kernel with these tensors behind the numbers. Errors: LaunchError."""
        self._kernel.at([*self._words, *[each.data_ptr() for each in arrays]], (*self._numbers, *arrays))


def _counts(grid: Any, compiled: Any) -> tuple[int, ...]:
    found = grid(compiled) if callable(grid) else grid
    return found if isinstance(found, tuple) else (found,)


def _of_now(argument: Any) -> Any:
    """Return a device context with the ring of events if that is open, and else with none; any other argument as it is."""
    return argument.recording(ring.address, ring.room) if hasattr(argument, "recording") else argument


def _bundled(bundle: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments for these operands: one, if they are the fields of a NamedTuple."""
    return (bundle(*given),) if bundle else given


def enqueue(routine: str, kernels: Sequence[Prepared], stream: int, operands: tuple[Any, ...]) -> None:
    """Enqueue kernels one after the other, whose only operand is this NamedTuple. Errors: LaunchError."""
    words: list[int] = []
    for each in kernels:
        bound = each.bound
        if bound is None:
            each.plainly(stream, None, operands)
            continue
        words = words or words_of(operands, each.kinds[0])
        code = launch_prepared(bound.prepared, stream, *words, *bound.last)
        if code:
            require_launched(routine, code)


def may_be_early() -> bool:
    """Return whether a kernel may begin before its predecessor has ended, and wait for it itself."""
    return not interpreter.active() and bool(early_launcher())


@cache
def _notes(function: Any) -> dict[str, Any]:
    return inspect.get_annotations(function)


def _require_constants(kernel: Any, bound: int, constants: Mapping[str, Any]) -> None:
    """Refuse what the interpreter takes and a launch leaves out. None is a constant of any kernel. Errors: TypeError."""
    notes = _notes(kernel.fn)
    wanted = kernel.arg_names[bound : bound + len(constants)]
    if list(constants) != wanted or not all(
        constants[name] is None or "constexpr" in str(notes.get(name)) for name in wanted
    ):
        raise TypeError(
            f"{kernel.__name__}: constants {list(constants)} in place of {wanted}, which must be tl.constexpr"
        )
