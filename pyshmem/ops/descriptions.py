"""Descriptions of the arrays of a call, by which its plan is found: what all PEs know alike, and what is this PE's alone."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import torch

import pyshmem as shmem
from pyshmem.memory.heap import views
from pyshmem.native._native import layout


def shared(*arrays: Any) -> tuple[Any, ...]:
    """Return what PEs know alike of tensors: shapes and types. Layouts and addresses are private. Others by their types."""
    return tuple([(each.shape, each.dtype) if isinstance(each, torch.Tensor) else type(each) for each in arrays])


def described(*arrays: Any) -> Any:
    """Return what is equal for tensors of equal types, devices, shapes, strides and alignments.

    The first of them are alike in whether they are symmetric, too.
    """
    return layout(views, *arrays) or (*map(_described, arrays), shmem.is_symmetric(arrays[0]))


def all_but(*words: int) -> Callable[[bytes], tuple[bytes, ...]]:
    """Return a function of what described returns: all of it but these words, of 8 bytes, in their order.

    A word stands for None. A tensor has two for its kind and its device, then its length and stride in each dimension.
    """
    starts, ends = (0, *[8 * word + 8 for word in words]), (*[8 * word for word in words], None)
    return itemgetter(*map(slice, starts, ends))


def symmetric(array: Any) -> bool:
    """Do what shmem.is_symmetric does, in less time for plain tensors."""
    found = layout(views, array) if isinstance(array, torch.Tensor) and array.numel() else None
    return bool(found[0] & 2) if found else shmem.is_symmetric(array)


def _described(array: Any) -> Any:
    """Describe one object. Only subclasses of tensors, such as parameters, come here."""
    if not isinstance(array, torch.Tensor):
        return type(array)
    return array.shape, array.stride(), array.dtype, array.device, array.data_ptr() % 16 == 0


def typed(options: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return options with their types: 4.0 and True are equal to 4 and 1, but checks may refuse them."""
    return *options, *map(type, options)
