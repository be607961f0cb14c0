"""The kernels behind the host's atomics and looks on GPU heaps, on a peer's word."""

import operator

import pyshmem as shmem
import pytest
import torch
from pyshmem.kernels import host_atomics
from pyshmem.memory.cpu_heap import cpu
from support import guarded, name_of, neighbours, untouched

RESULTS = {
    "set": lambda old, value: value, "fetch": lambda old, value: old, "swap": lambda old, value: value,
    "add": operator.add, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
}  # fmt: skip


def atomic(op, dtype, word, value, cond=0):
    """The host's atomic on the right neighbour's word; what was there."""
    _, _, right = neighbours()
    form, kind = host_atomics.TYPES[dtype]
    old = torch.zeros(1, dtype=dtype)
    bits = (host_atomics._as_bits(form, each) for each in (value, cond))
    address = word.data_ptr() + cpu.deltas[right]
    tail = (op, kind, "relaxed")
    host_atomics.operate[(1,)](shmem.device_context(), address, *bits, old.data_ptr(), *tail, num_warps=1)
    shmem.barrier_all()
    return old.item()


@pytest.mark.parametrize("dtype", host_atomics.TYPES, ids=name_of)
@pytest.mark.parametrize("op", RESULTS)
def test_a_host_atomic_does_what_its_operator_says_and_returns_what_was_there(op, dtype):
    if op in ("and", "or", "xor") and dtype.is_floating_point:
        return
    left, me, right = neighbours()
    word, whole = guarded(1, dtype)
    word.fill_(1000 + me)
    shmem.barrier_all()
    assert atomic(op, dtype, word, 29 + me) == 1000 + right
    assert word.item() == RESULTS[op](1000 + me, 29 + left)
    assert untouched(whole[1:])


@pytest.mark.parametrize("dtype", host_atomics.TYPES, ids=name_of)
def test_compare_swap_writes_only_where_the_word_is_cond(dtype):
    left, me, right = neighbours()
    word, whole = guarded(1, dtype)
    word.fill_(5 + me)
    shmem.barrier_all()
    assert atomic("compare_swap", dtype, word, 99, 4) == 5 + right
    assert word.item() == 5 + me
    shmem.barrier_all()
    assert atomic("compare_swap", dtype, word, 100 + me, 5 + right) == 5 + right
    assert word.item() == 100 + left
    assert untouched(whole[1:])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=name_of)
def test_read_words_gives_a_peers_words(dtype):
    _, me, right = neighbours()
    words, found = shmem.array(torch.arange(9, dtype=dtype) + 100 * me), torch.full((10,), 77, dtype=dtype)
    kind = host_atomics.TYPES[dtype][1]
    host_atomics.read_words[(1,)](words.data_ptr() + cpu.deltas[right], found.data_ptr(), 9, kind, num_warps=1)
    assert found.tolist() == [100 * right + each for each in range(9)] + [77]
