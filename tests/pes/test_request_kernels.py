"""The kernels by which a service executes the requests of far PEs on its GPU; on CPUs in the interpreter."""

import operator

import pyshmem as shmem
import pytest
import torch
from pyshmem.kernels import requests
from pyshmem.base.far import OPERATORS
from support import AMO_DTYPES, GUARD, element, here, limits, name_of

pytestmark = pytest.mark.usefixtures("beside_the_heap")
RESULTS = {
    "fetch": lambda old, value: old, "set": lambda old, value: value, "swap": lambda old, value: value,
    "add": operator.add, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
}  # fmt: skip


def bits(value, dtype):
    """A number as the 64 bits of a request."""
    raw = element(value, dtype).view(torch.int32 if dtype.itemsize == 4 else torch.int64).item()
    return raw % 2**32 if dtype.itemsize == 4 else raw


def perform(name, word, value, cond=0):
    """The atomic on ``word``; what was there."""
    old = torch.zeros(1, dtype=torch.int64, device=here())
    detail = OPERATORS.index(name) * 16 + AMO_DTYPES.index(word.dtype)
    operands = (bits(each, word.dtype) for each in (value, cond))
    requests.perform[(1,)](shmem.device_context(), word.data_ptr(), *operands, old.data_ptr(), detail, num_warps=1)
    return old.view(word.dtype)[0].cpu()


@pytest.mark.parametrize("dtype", AMO_DTYPES, ids=name_of)
@pytest.mark.parametrize("name", RESULTS)
def test_an_atomic_writes_its_result_and_returns_what_was_there(name, dtype):
    if name in ("and", "or", "xor") and dtype.is_floating_point:
        return
    for before, value in limits(dtype):
        words = element(before, dtype).repeat(3).to(here())
        old = perform(name, words[1:2], value)
        with_guards = words.cpu().tolist()
        assert old.item() == element(before, dtype).item()
        held = element(before, dtype).item(), element(value, dtype).item()
        wanted = element(RESULTS[name](*held), dtype).item()
        assert with_guards == [held[0], wanted, held[0]]


@pytest.mark.parametrize("dtype", AMO_DTYPES, ids=name_of)
def test_compare_swap_writes_only_where_the_word_is_cond(dtype):
    word = element(5, dtype).to(here())
    assert perform("compare_swap", word, 9, 4) == 5 and word.item() == 5
    assert perform("compare_swap", word, 9, 5) == 5 and word.item() == 9


@pytest.mark.parametrize("word", requests._WORDS, ids=str)
@pytest.mark.parametrize("item, count, step", [(1, 1, 0), (3, 700, 5), (7, 20, 9), (64, 2, 64)])
def test_items_are_moved_and_nothing_else(word, item, count, step):
    """item, step: in words."""
    size = word.primitive_bitwidth // 8
    packed = (torch.arange(item * count * size) % 251).to(torch.uint8).to(here())
    spread = torch.full((max(step, item) * count * size + size,), GUARD, dtype=torch.uint8, device=here())
    programs = (-(-item * count // 1024),)
    steps = step * size, item * size
    requests.move[programs](spread.data_ptr(), steps[0], packed.data_ptr(), steps[1], item, count, word)
    wanted = torch.full_like(spread, GUARD)
    for each in range(count):
        wanted[each * steps[0] :][: item * size] = packed[each * item * size :][: item * size]
    assert torch.equal(spread, wanted)
    back = torch.zeros_like(packed)
    requests.move[programs](back.data_ptr(), steps[1], spread.data_ptr(), steps[0], item, count, word)
    assert torch.equal(back, packed)
