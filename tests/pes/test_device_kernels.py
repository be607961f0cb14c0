"""Kernels as people write them: loops, helpers, tuples, keywords, threads, and what Triton finds left behind."""

import inspect
import threading

import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from support import interpreted, neighbours

pytestmark = pytest.mark.usefixtures("beside_the_heap")


@triton.jit
def while_loop(ctx, word, n, pe):
    while dev.g(ctx, word, pe) < n:
        dev.p(ctx, word, dev.g(ctx, word, pe) + 1, pe)
        dev.quiet(ctx)


def test_a_while_loop_on_remote_memory():
    word, (_, _, right) = shmem.zeros(1, dtype=torch.int32), neighbours()
    while_loop[(1,)](shmem.device_context(), word, 20, right)
    shmem.barrier_all()
    assert word.item() == 20


@triton.jit
def put_if(ctx, word, flag, pe):
    if flag:
        dev.p(ctx, word, 7, pe)
        dev.quiet(ctx)


@pytest.mark.parametrize("flag", [True, False])
def test_a_python_bool_is_a_run_time_argument(flag, me):
    word = shmem.zeros(1, dtype=torch.int32)
    put_if[(1,)](shmem.device_context(), word, flag, me)
    assert word.item() == 7 * flag


@triton.jit
def place_of(ctx, array, index):
    return dev.ptr(ctx, array + index, (dev.my_pe(ctx) + 1) % dev.n_pes(ctx))


@triton.jit
def write_at(ctx, array, index, value):
    tl.store(place_of(ctx, array, index), value)
    dev.fence(ctx)
    return dev.my_pe(ctx) + 1


@triton.jit
def with_helpers(ctx, array, out):
    """Device calls before, in and behind helpers of the user's, which Triton's interpreter treats in ways of its own."""
    lanes = tl.arange(0, 4)
    dev.store(ctx, array + lanes, lanes, dev.my_pe(ctx))
    mine = write_at(ctx, array, 4, 40)
    mine = write_at(ctx, array, 5, 50) + mine
    dev.put(ctx, array + 6, array + 2, 1, dev.my_pe(ctx))
    tl.store(out, mine)
    tl.store(out + 1, tl.sum(dev.load(ctx, array + lanes, dev.my_pe(ctx))))
    dev.barrier_all(ctx)
    tl.store(out + 2, dev.g(ctx, array + 5, dev.my_pe(ctx)))


def test_ctx_may_be_passed_on_to_helpers_of_helpers(me):
    array, out = shmem.zeros(8, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    for _ in range(2):
        with_helpers[(1,)](shmem.device_context(), array, out)
        assert array.tolist() == [0, 1, 2, 3, 40, 50, 2, 0]
        assert out.tolist() == [2 * (me + 1), 6, 50]
        shmem.barrier_all()


@triton.jit
def plain_triton(x, y, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    tl.store(y + lanes, tl.load(x + lanes) * 2 + tl.sum(tl.load(x + lanes)))


@interpreted
def test_triton_is_left_as_it_was_found():
    """Before a kernel, after one with helpers, and after a refused one: triton.language is patched only while one runs."""
    names = [name for name in dir(tl) if not name.startswith("_")]
    found = {name: getattr(tl, name) for name in names}, dict(vars(tl.tensor))
    word, x, y = shmem.zeros(8, dtype=torch.int64), torch.arange(8), torch.zeros(8, dtype=torch.int64)
    with_helpers[(1,)](shmem.device_context(), word, torch.zeros(3, dtype=torch.int64))
    with pytest.raises(Exception, match="PE"):
        while_loop[(1,)](shmem.device_context(), word, 20, -1)
    assert ({name: getattr(tl, name) for name in names}, dict(vars(tl.tensor))) == found
    plain_triton[(1,)](x, y, BLOCK=8)
    assert y.tolist() == [2 * i + 28 for i in range(8)]


@triton.jit
def from_tuples(parts, words):
    word, value = parts[1][0], parts[1][1]
    dev.p(parts[0], word, value, dev.my_pe(parts[0]))
    dev.p(words[0], words[1] + 1, value + 1, dev.my_pe(words[0]))
    dev.quiet(parts[0])


def test_ctx_may_be_part_of_a_tuple():
    word, ctx = shmem.zeros(2, dtype=torch.int64), shmem.device_context()
    from_tuples[(1,)]((ctx, (word, 6)), (ctx, word))
    assert word.tolist() == [6, 7]


@triton.jit
def by_keyword(ctx, dest, source, flag, n, OP: tl.constexpr = dev.SIGNAL_SET, CMP: tl.constexpr = dev.CMP_GE):
    me = dev.my_pe(ctx)
    dev.put_signal(
        ctx, dest=dest, source=source, nelems=n, sig_addr=flag, signal=2, sig_op=OP, pe=(me + 1) % dev.n_pes(ctx)
    )
    dev.signal_wait_until(ctx, sig_addr=flag, cmp=CMP, value=2)
    dev.store(ctx, pe=me, pointers=dest + 3, value=9, mask=dev.test(ctx, flag, CMP, 2))


@pytest.mark.parametrize(
    "constants",
    [
        {},
        {"OP": dev.SIGNAL_ADD},
        {"CMP": dev.CMP_EQ, "OP": dev.SIGNAL_ADD},
        {"CMP": 5, "OP": 1},
        {"CMP": dev.CMP_GT.value},
    ],
    ids=str,
)
def test_keyword_and_constexpr_arguments(constants, me, npes):
    dest, flag, left = shmem.zeros(4, dtype=torch.int32), shmem.zeros(1, dtype=torch.uint64), (me - 1) % npes
    source = torch.full((3,), me + 1, dtype=torch.int32)
    if "CMP" in constants and constants["CMP"] == 2:
        flag.view(torch.int64).add_(1)  # then 2 more: over 2
        constants = {**constants, "OP": dev.SIGNAL_ADD}
    shmem.barrier_all()
    by_keyword[(1,)](ctx=shmem.device_context(), dest=dest, source=source, flag=flag, n=3, **constants)
    shmem.barrier_all()
    assert dest.tolist() == [left + 1] * 3 + [9]


@triton.jit
def stored_constants(ctx, flag, out):
    """Constants under names of the kernel's own: the interpreter makes tensors of them."""
    how, which = dev.SIGNAL_ADD, dev.CMP_GE
    cmp = dev.CMP_EQ
    dev.put_signal(ctx, out, out, 0, flag, 5, how, dev.my_pe(ctx))
    dev.wait_until(ctx, flag, which, 5)
    dev.wait_until(ctx, flag, cmp, 5)


@interpreted
def test_constants_may_be_given_names_in_the_kernel():
    flag = shmem.zeros(1, dtype=torch.uint64)
    stored_constants[(1,)](shmem.device_context(), flag, shmem.zeros(1, dtype=torch.int32))
    assert shmem.signal_fetch(flag) == 5


def test_a_kernel_may_be_launched_from_another_thread():
    word, faults = shmem.zeros(1, dtype=torch.int32), []

    def launch():
        try:
            while_loop[(1,)](shmem.device_context(), word, 20, shmem.my_pe())
        except BaseException as error:  # noqa: BLE001  handed to the test
            faults.append(error)

    thread = threading.Thread(target=launch)
    thread.start()
    thread.join()
    assert not faults and word.item() == 20


def test_device_functions_have_only_annotations_that_triton_compiles():
    """Of constants. Triton reads no others, and typing.Any, for one, is a global that its compiler refuses."""
    for name in dev.__all__:
        routine = getattr(dev, name)
        if inspect.isfunction(routine):
            assert next(iter(inspect.signature(routine).parameters)) in ("ctx", "part"), name
            assert set(routine.__annotations__.values()) <= {"tl.constexpr"}, name
