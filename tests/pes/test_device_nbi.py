"""9.5 to 9.8 in kernels: the calls that quiet completes, quiet for some PEs, and what is free again when."""

import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from support import (
    AMO_DTYPES, AMO_INTEGERS, GUARD, assert_same, element, guarded, interpreted, name_of, neighbours, payload,
    untouched,
)  # fmt: skip
from triton.runtime.errors import InterpreterError

pytestmark = pytest.mark.usefixtures("beside_the_heap")

# name: (arguments, old -> new)
FORMS = {
    "fetch": ((), lambda old: old),
    "swap": ((12,), lambda old: 12),
    "compare_swap": ((9, 12), lambda old: 12 if old == 9 else old),
    "fetch_inc": ((), lambda old: old + 1),
    "fetch_add": ((12,), lambda old: old + 12),
    "fetch_and": ((12,), lambda old: old & 12),
    "fetch_or": ((12,), lambda old: old | 12),
    "fetch_xor": ((12,), lambda old: old ^ 12),
}
BITWISE = ("fetch_and", "fetch_or", "fetch_xor")


@triton.jit
def put_then_quiet(ctx, target, source, n, flag, right, QUIET: tl.constexpr, pes, npes):
    """The source is written anew after quiet; nobody may see that."""
    dev.put_nbi(ctx, target, source, n, right)
    if QUIET == "quiet":
        dev.quiet(ctx)
    else:
        dev.pe_quiet(ctx, pes, npes)
    for first in range(0, n, 256):
        place = first + tl.arange(0, 256)
        tl.store(source + place, -1, mask=place < n)
    dev.p(ctx, flag, 1, right)
    dev.wait_until(ctx, flag, dev.CMP_EQ, 1)


@pytest.mark.parametrize("quiet", ["quiet", "pe_quiet"])
@pytest.mark.parametrize("size", [0, 1, 3000])
def test_put_nbi_is_complete_and_its_source_free_after_quiet(size, quiet):
    left, me, right = neighbours()
    (target, whole), flag = guarded(size, torch.int32), shmem.zeros(1, dtype=torch.int64)
    source, pes = payload(me, 1, size + 1, torch.int32), torch.tensor([right], dtype=torch.int32)
    put_then_quiet[(1,)](shmem.device_context(), whole, source, size, flag, right, quiet, pes, 1)
    assert_same(target.clone(), payload(left, 1, size, torch.int32))
    assert untouched(whole[size:])
    shmem.barrier_all()


@triton.jit
def get_then_quiet(ctx, result, buffer, source, n, pe):
    """Each thread reads what others have got."""
    dev.get_nbi(ctx, buffer, source, n, pe)
    dev.quiet(ctx)
    for first in range(0, n, 256):
        place = first + tl.arange(0, 256)
        tl.store(result + place, tl.load(buffer + n - 1 - place, mask=place < n), mask=place < n)


@pytest.mark.parametrize("size", [0, 1, 3000])
def test_get_nbi_has_the_data_for_all_threads_after_quiet(size):
    _, me, right = neighbours()
    source, result = shmem.array(payload(me, 2, size + 1, torch.int16)), torch.zeros(size, dtype=torch.int16)
    buffer, whole = guarded(size, torch.int16)
    get_then_quiet[(1,)](shmem.device_context(), result, whole, source, size, right)
    assert_same(result, payload(right, 2, size, torch.int16).flip(0))
    assert untouched(whole[size:])


@triton.jit
def fetch_nbi(ctx, routine: tl.constexpr, fetch, found, word, arguments, pe):
    routine(ctx, fetch, word, *arguments, pe)
    dev.quiet(ctx)
    lane = tl.arange(0, 64)
    tl.store(found + lane, tl.load(fetch + lane * 0))  # by threads that did not write it


def forms():
    return [(name, dtype) for name in FORMS for dtype in (AMO_INTEGERS if name in BITWISE else AMO_DTYPES)]


@pytest.mark.parametrize("where", ["private", "symmetric"])
@pytest.mark.parametrize(
    ("name", "dtype"), forms(), ids=lambda each: name_of(each) if isinstance(each, torch.dtype) else each
)
def test_what_was_there_is_in_fetch_after_quiet_and_the_word_has_changed(name, dtype, where):
    left, me, right = neighbours()
    arguments, new = FORMS[name]
    word, (_, fetch) = shmem.full(1, 9 + me, dtype=dtype), guarded(1, dtype)
    fetch, found = fetch if where == "symmetric" else fetch.clone(), torch.zeros(64, dtype=dtype)
    fetch_nbi[(1,)](shmem.device_context(), getattr(dev, f"atomic_{name}_nbi"), fetch, found, word, arguments, right)
    shmem.barrier_all()
    assert_same(found, element(9 + right, dtype).repeat(64))
    assert_same(fetch[:1].clone(), element(9 + right, dtype))
    assert untouched(fetch[1:])
    assert_same(word.clone(), element(new(9 + me), dtype))


@triton.jit
def fetch_lanes(ctx, fetch, words, n, pe, left):
    """Lane i goes to ``pe`` where i is even, to ``left`` where it is odd."""
    lane = tl.arange(0, 16)
    dev.atomic_fetch_nbi(ctx, fetch + lane, words + lane, tl.where(lane % 2 == 0, pe, left), mask=lane < n)
    dev.quiet(ctx)


def test_a_block_is_fetched_lane_by_lane_and_masked_lanes_are_untouched():
    left, me, right = neighbours()
    words, (fetch, whole) = shmem.array(torch.arange(16) * 100 + me), guarded(10, torch.int64, behind=6)
    fetch_lanes[(1,)](shmem.device_context(), whole, words, 10, right, left)
    assert fetch.tolist() == [lane * 100 + (left if lane % 2 else right) for lane in range(10)]
    assert untouched(whole[10:])


@interpreted
def test_nbi_calls_refuse_what_the_others_refuse(me, npes):
    word, other = shmem.full(1, 5, dtype=torch.int64), torch.full((1,), GUARD, dtype=torch.int32)
    fetch = torch.full((1,), GUARD, dtype=torch.int64)
    for name, (arguments, _) in FORMS.items():
        routine, said = getattr(dev, f"atomic_{name}_nbi"), f"atomic_{name}_nbi: PE {me}: "
        for words, given in (
            ("fetch: got a pointer to int32; expected a pointer to int64", (other, word, arguments, me)),
            (f"pe: got {npes}; expected a PE .*", (fetch, word, arguments, npes)),
            ("pointers: got 8 bytes at an address in private memory; ", (fetch, fetch, arguments, me)),
        ):
            with pytest.raises(InterpreterError, match=said + words):
                fetch_nbi[(1,)](shmem.device_context(), routine, given[0], fetch, *given[1:])
    assert fetch.item() == other.item() == GUARD and word.item() == 5


@interpreted
def test_pe_quiet_refuses_a_pe_that_is_none(me, npes):
    for pes, count, words in (
        (
            torch.tensor([0, npes], dtype=torch.int32),
            2,
            f"target_pes: got {npes}; expected a PE from 0 to {npes - 1} .*",
        ),
        (torch.tensor([0]), 1, "target_pes: got a pointer to int64; expected a pointer to int32"),
        (torch.zeros(1, dtype=torch.int32), -1, "npes: got -1; expected 0 or more"),
    ):
        with pytest.raises(InterpreterError, match=f"pe_quiet: PE {me}: {words}"):
            only_quiet[(1,)](shmem.device_context(), pes, count)
    only_quiet[(1,)](shmem.device_context(), torch.tensor([0, npes], dtype=torch.int32), 1)


@triton.jit
def only_quiet(ctx, pes, n):
    dev.pe_quiet(ctx, pes, n)
