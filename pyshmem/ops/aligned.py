"""Kernels for arrays at any address: a plan serves them all, and only the PE that has a new alignment compiles again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any

import torch

from pyshmem.kernels.bound_kernels import Prepared
from pyshmem.kernels.compiled import small_ones
from pyshmem.ops.agreement import require_no_capture


class Aligned:
    """A bound_kernels.Prepared for each form of arrays, by their addresses and, on AMD's GPUs, sizes.

    The first call of a form compiles it.
    Arrays keep their types from call to call.
    """

    __slots__ = ("_forms", "_made", "_root", "_usual", "numbers")

    def __init__(
        self, routine: str, kernel: Any, grid: int, fixed: tuple[Any, ...], constants: Mapping[str, Any],
        bundle: Any = None, early: bool = False, numbers: tuple[Any, ...] = (), **options: Any,
    ) -> None:  # fmt: skip
        """fixed, constants, early, options: as in Prepared.  bundle: the NamedTuple of the arrays, if they are one.

        numbers: parameters between fixed and the arrays, ints or tuples of them, which with_numbers replaces.
        """

        def made(arrays: tuple[torch.Tensor, ...]) -> Prepared:
            require_no_capture(routine)
            operands = bundle(*arrays) if bundle else arrays
            return Prepared(kernel, grid, (*fixed, *numbers), operands, constants, early, **options)

        self._made, self._root, self.numbers = made, self, numbers
        self._forms: dict[tuple[bool, ...], Prepared] = {}  # by whether each array is at a multiple of 16, and small
        self._usual: Prepared | None = None  # where addresses alone decide, for arrays that are all at such places

    def with_numbers(self, *numbers: Any, grid: tuple[int, ...] | None = None) -> Aligned:
        """Return the same kernels with other numbers. grid: another one, as in Prepared; None: the same."""
        made, root = object.__new__(Aligned), self._root
        made._made = lambda arrays: root._form_of(arrays).with_numbers(*numbers, grid=grid)
        made._forms, made._usual, made._root, made.numbers = {}, None, root, numbers
        return made

    def __call__(self, *arrays: torch.Tensor) -> None:
        """Enqueue the kernel with these arrays. Errors: ArgumentError for a new form in a capture; LaunchError."""
        self.at([each.data_ptr() for each in arrays], arrays)

    def at(self, addresses: Sequence[int], arrays: tuple[torch.Tensor, ...]) -> None:
        """Do what a call does. addresses: those of the arrays."""
        form = self._usual
        if form is None or not are_aligned(addresses):
            form = self._form_of(arrays)
            if are_aligned(addresses) and not small_ones(arrays):
                self._usual = form
        form.at(addresses, arrays)

    def _form_of(self, arrays: tuple[torch.Tensor, ...]) -> Prepared:
        """Return the kernel for arrays like these."""
        places = *[is_aligned(each) for each in arrays], *small_ones(arrays)
        form = self._forms.get(places)
        if form is None:
            form = self._forms[places] = self._made(arrays)
        return form


class ByPlaces:
    """Kernels by what they are compiled for of arrays, whose addresses and sizes change: those that a plan chooses from."""

    def __init__(self, prepare: Callable[..., Any]) -> None:
        """prepare: compiles the kernel for arrays like these, and returns it."""
        self._prepare = prepare
        self._made: dict[tuple[bool, ...], Any] = {}

    def of(self, *arrays: torch.Tensor) -> Any:
        """Return the kernel for arrays like these: at multiples of 16 or not and, on AMD's GPUs, in 2 GiB or not."""
        places = *[each.data_ptr() & 15 == 0 for each in arrays], *small_ones(arrays)
        found = self._made.get(places)
        if found is None:
            found = self._made[places] = self._prepare(*arrays)
        return found


def are_aligned(addresses: Sequence[int]) -> bool:
    """Return whether all of them are multiples of 16."""
    return reduce(or_, addresses) & 15 == 0


def is_aligned(array: torch.Tensor) -> bool:
    """Return whether an array is at a multiple of 16 bytes, for which kernels are compiled."""
    return array.data_ptr() & 15 == 0
