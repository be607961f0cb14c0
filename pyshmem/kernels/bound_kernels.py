"""Kernels that are compiled once and launched from C, with all arguments bound but the operands of a call."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch

from pyshmem.base import interpreter
from pyshmem.diagnosis.event_ring import ring
from pyshmem.kernels.compiled import CachedKernel, Loaded, early_launcher, like, on_grid, packed, refuse_launch
from pyshmem.kernels.signature import require_addresses, require_compiled_for, require_words, words_of
from pyshmem.memory.heap import heaps, views
from pyshmem.native._native import kernel_key, launch_prepared

# what finds the variants of a kernel, without the compiler if one like it has been found before
_kept = cache(CachedKernel)


class Bound(NamedTuple):
    """A compiled kernel on a grid. _native.launch_pair reads the first three fields.

    prepared: the kernel, its grid and the words of its first parameters.  last: the words of its last parameters; those of
    a call lie between.  word: tells the call of all members, see team/streamed.h.  held: the kernel, and what the words are
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

    def ending(self, first: int, *numbers: int) -> Bound:
        """Bind the arguments from number ``first`` on as well, which follow the words of a call. Errors: LaunchError."""
        loaded, fixed, _ = self.held
        first += len(fixed)
        require_compiled_for(loaded.compiled.name, loaded.parameters[first : first + len(numbers)], numbers)
        return self._replace(last=(*numbers, *self.last))

    def renumbered(self, numbers: tuple[Any, ...], grid: tuple[int, ...] | None) -> Bound | None:
        """Bind these in place of the last fixed arguments; return None if Triton may have another kernel for them."""
        loaded, fixed, scratch = self.held
        first = len(fixed) - len(numbers)
        own, chosen = fixed[first:], (False,) * len(numbers)
        same = kernel_key(views, (), chosen, own) == kernel_key(views, (), chosen, numbers)
        if not same or (grid and scratch is not None):
            return None
        words = packed(words_of(numbers, loaded.plan[first : len(fixed)]))
        prepared = self.prepared[: len(self.prepared) - len(words)] + words
        prepared = on_grid(prepared, grid) if grid else prepared
        return self._replace(prepared=prepared, held=(loaded, (*fixed[:first], *numbers), scratch))


def require_launched(routine: str, code: int) -> None:
    """Errors: LaunchError if the driver returned an error code."""
    if code:
        refuse_launch(routine, "its kernel", code)


def bind(loaded: Loaded, grid: tuple[int, ...], fixed: tuple[Any, ...], words: int = 0, early: bool = False) -> Bound:
    """Bind the first arguments, ``fixed``. Each call passes ``words`` words behind them, of 64 bits; see also ``ending``.

    early: the kernel may begin before its predecessor has ended, and waits for it itself.
    Errors: LaunchError, if the kernel is not compiled for these arguments, or has a word of a call in its code.
    """
    name, first = loaded.compiled.name, len(fixed)
    require_compiled_for(name, loaded.parameters[:first], fixed)
    require_words(name, loaded.parameters[first : first + words])
    held = words_of(fixed, loaded.plan[:first])
    scratch = (
        torch.empty(math.prod(grid) * loaded.scratch, dtype=torch.uint8, device="cuda") if loaded.scratch else None
    )
    last = () if scratch is None else (scratch.data_ptr(),)
    return Bound(loaded.prepared(*grid, words=tuple(held), early=early), last, held=(loaded, fixed, scratch))


class _Form(NamedTuple):
    """A kernel that has been compiled: the fields are those of Prepared."""

    plainly: Any
    bound: Bound | None = None
    kinds: Any = ()
    compiled: Any = None


class Prepared:
    """``kernel`` on a grid, bound to its first arguments, ``fixed``, and to its last ones, ``constants``.

    Calls pass its operands between them: arrays, or the fields of one NamedTuple, which is one parameter of the kernel.
    Numbers are bound, since Triton puts some of them into the code, and a launch then passes no word for them.
    Device contexts among ``fixed`` record events while a timeline does, whenever they were made.
    """

    __slots__ = ("__weakref__", "_form", "_forms", "_parts", "bound", "compiled", "kinds", "plainly")

    def __init__(
        self, kernel: Any, grid: Any, fixed: tuple[Any, ...], operands: Sequence[Any],
        constants: Mapping[str, Any], early: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        """Compile the kernel for operands like these. constants: in the order of the kernel's parameters.

        grid: an int, or up to three; or a function that gives it for what Triton has compiled, None where it interprets.
        early: as in bind.  options: those of the compiler, as num_warps.
        """
        sample = like(operands if isinstance(operands, tuple) else tuple(operands))  # without the operands' memory
        self._parts = kernel, grid, fixed, sample, constants, early, options
        _require_constants(kernel, len(fixed) + len(_arguments(sample)), constants)
        self._forms: dict[int, _Form] = {}  # by the address of the ring of events
        self._use(_form(*self._parts[:3], operands, constants, early, options))
        self._record(fixed)

    def _record(self, fixed: tuple[Any, ...]) -> None:
        if any(hasattr(each, "recording") for each in fixed):
            ring.holders.add(self)

    def with_numbers(self, *numbers: Any, grid: Any = None) -> Prepared:
        """Return the same kernel with other numbers, ints and tuples of them, in place of the last of ``fixed``.

        grid: another one, as a tuple; None means the same. Triton compiles it anew if it must for these numbers.
        """
        kernel, own, fixed, sample, constants, early, options = self._parts
        fixed = (*fixed[: len(fixed) - len(numbers)], *numbers)
        bound = self.bound and self.bound.renumbered(numbers, grid)
        if not bound:
            return Prepared(kernel, grid or own, fixed, sample, constants, early, **options)
        made: Prepared = object.__new__(Prepared)
        made._parts, made._forms = (kernel, grid or own, fixed, sample, constants, early, options), {}
        made._use(_Form(self.plainly, bound, self.kinds, self.compiled))
        made._record(fixed)
        return made

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
            self._use(found or _form(*self._parts))
        else:
            self.bound, self.plainly = None, self._rebound

    def _rebound(self, stream: int | None, *given: Any) -> None:
        self._use(_form(*self._parts))
        if stream is None:
            self(*given)
        else:
            enqueue("ops", [self], stream, *given)

    def __call__(self, *arrays: torch.Tensor) -> None:
        """Enqueue the kernel with these arrays on torch's current stream. Errors: LaunchError."""
        self.at([each.data_ptr() for each in arrays], arrays)

    def at(self, addresses: Sequence[int], arrays: tuple[torch.Tensor, ...]) -> None:
        """Do what a call does. addresses: those of the arrays."""
        bound = self.bound
        if bound is None:
            self.plainly(None, *arrays)
            return
        code = launch_prepared(bound.prepared, heaps["cuda"].near.use_stream(), *addresses, *bound.last)
        if code:
            require_launched("ops", code)


def _form(
    kernel: Any, grid: Any, fixed: tuple[Any, ...], operands: Any, constants: Mapping[str, Any], early: bool,
    options: Mapping[str, Any],
) -> _Form:  # fmt: skip
    """Compile a kernel for device contexts as they are now, and bind it. Arguments as for Prepared."""
    own, arguments = tuple([_of_now(each) for each in fixed]), _arguments(operands)
    bundle = None if arguments is operands else type(operands)
    last = tuple(constants.values())
    if interpreter.active():
        counts = _counts(grid, None)
        return _Form(lambda stream, *given: kernel[counts](*own, *_bundled(bundle, given), *last))
    loaded = _kept(kernel).find(*own, *arguments, *last, **options)
    counts = _counts(grid, loaded.compiled)

    def plainly(stream: int | None, *given: Any) -> None:
        stream = heaps["cuda"].near.use_stream() if stream is None else stream
        loaded(counts, stream, (*own, *_bundled(bundle, given), *last))

    if loaded.plan is None:
        return _Form(plainly, compiled=loaded.compiled)
    behind = slice(len(own), len(own) + len(arguments))
    if bundle or not any(isinstance(each, tuple) for each in arguments):
        require_addresses(loaded.compiled.name, loaded.parameters[behind])
    return _Form(plainly, bind(loaded, counts, own, early=early), loaded.plan[behind], loaded.compiled)


def _counts(grid: Any, compiled: Any) -> tuple[int, ...]:
    found = grid(compiled) if callable(grid) else grid
    return found if isinstance(found, tuple) else (found,)


def _of_now(argument: Any) -> Any:
    """Return a device context with the ring of events if that is open, and else with none; any other argument as it is."""
    return argument.recording(ring.address, ring.room) if hasattr(argument, "recording") else argument


def _arguments(operands: Any) -> tuple[Any, ...]:
    """Return the arguments that these operands are: one, if they are a NamedTuple."""
    return (operands,) if hasattr(operands, "_fields") else operands


def _bundled(bundle: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments for these operands: one, if they are the fields of a NamedTuple."""
    return (bundle(*given),) if bundle else given


def enqueue(routine: str, kernels: Sequence[Prepared], stream: int, operands: tuple[Any, ...]) -> None:
    """Enqueue kernels one after the other, whose only operand is this NamedTuple. Errors: LaunchError."""
    words: list[int] = []
    kinds: Any = None
    for each in kernels:
        bound = each.bound
        if bound is None:
            each.plainly(stream, operands)
            continue
        if kinds != each.kinds:  # these kernels have the same numbers in their code, mostly
            kinds = each.kinds
            words = words_of(operands, kinds[0])
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
