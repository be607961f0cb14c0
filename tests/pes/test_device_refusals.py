"""What kernels are refused, in what words, and that a refused call has written nothing anywhere."""

import inspect
import re

import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from pyshmem.memory.cpu_heap import cpu
from support import assert_same, guarded, interpreted, near_neighbours, untouched
from triton.runtime.errors import InterpreterError

pytestmark = [interpreted, pytest.mark.usefixtures("beside_the_heap")]

EYED = 1 << 20  # bytes of the heap that are compared; allocations begin at its start


@triton.jit
def bad_call(ctx, routine: tl.constexpr, arguments):
    routine(ctx, *arguments)


@triton.jit
def bad_lanes(ctx, routine: tl.constexpr, pointers, arguments, lanes: tl.constexpr):
    """On a block of pointers; the last of the arguments is the PE."""
    routine(ctx, pointers + tl.arange(0, lanes), *arguments)


@triton.jit
def bad_wait(ctx, routine: tl.constexpr, ivar, cmp: tl.constexpr, value):
    routine(ctx, ivar, cmp, value)


@triton.jit
def bad_signal(ctx, dest, source, n, signal, value, op: tl.constexpr, pe):
    dev.put_signal(ctx, dest, source, n, signal, value, op, pe)


class Refusal:
    """Calls kernels that must be refused, and compares this PE's heap and the private operands before and after."""

    def __init__(self):
        self.target, self.whole = guarded(8, torch.int64)
        self.private = torch.arange(8, dtype=torch.int64)
        self.look()

    def look(self):
        """What is here now is what shall be here at the end: after an allocation of the test's own."""
        self.before = self.heap(), self.private.clone()
        shmem.barrier_all()

    @staticmethod
    def heap():
        return cpu.tensor(cpu.base, (EYED,), torch.uint8).clone()  # check: ignore, all that is there is compared

    def __call__(self, kind, words, kernel, *arguments, **options):
        """``words`` begin after "kernel ...: "; the message is kept in the error that Triton's is made of."""
        with pytest.raises(InterpreterError) as caught:
            kernel[(1,)](shmem.device_context(), *arguments, **options)
        error = caught.value.__cause__
        assert type(error) is kind, repr(error)
        assert re.fullmatch(rf"kernel {kernel.__name__}: {words}", str(error)), str(error)

    def nothing_changed(self):
        shmem.barrier_all()  # what PEs wrote to each other would be here now
        assert torch.equal(self.heap(), self.before[0])
        assert torch.equal(self.private, self.before[1])


@pytest.fixture
def refused():
    """A Refusal, checked at the end for changes."""
    refusal = Refusal()
    yield refusal
    refusal.nothing_changed()
    assert untouched(refusal.whole)


NEAR = r"the nearest allocation is \d+ to \d+"
ONE_WORD = {
    "p": ("dest", (1,)),
    "g": ("source", ()),
    "load": ("pointers", ()),
    "store": ("pointers", (1,)),
    "ptr": ("pointers", ()),
    "signal_set": ("sig_addr", (1,)),
    "signal_add": ("sig_addr", (1,)),
    "atomic_inc": ("pointers", ()),
    "atomic_fetch": ("pointers", ()),
    "atomic_fetch_inc": ("pointers", ()),
    "atomic_compare_swap": ("pointers", (0, 1)),
    **{
        f"atomic_{name}": ("pointers", (1,))
        for name in ["set", "swap", "add", "and", "or", "xor", "fetch_add", "fetch_and", "fetch_or", "fetch_xor"]
    },
}
every_word = pytest.mark.parametrize("name", ONE_WORD)


def call_of(name, word, pe):
    """(routine, arguments) of the call ``name`` on ``word``."""
    return getattr(dev, name), (word, *ONE_WORD[name][1], pe)


def word_of(name, memory):
    """``memory`` as the routine wants its pointee."""
    return memory.view(torch.uint64) if name.startswith("signal") else memory


@every_word
def test_private_memory_is_refused(refused, name, me):
    words = rf"{name}: PE {me}: {ONE_WORD[name][0]}: got 8 bytes at an address in private memory; "
    words += rf"expected live symmetric memory of this PE; {NEAR}"
    refused(shmem.NotSymmetricError, words, bad_call, *call_of(name, word_of(name, refused.private), me))


@every_word
def test_freed_memory_is_refused(refused, name, me, npes):
    gone = shmem.zeros(1 << 16, dtype=torch.int64)
    offset = gone.data_ptr() - cpu.base
    shmem.free(gone)
    refused.look()
    words = rf"{name}: PE {me}: {ONE_WORD[name][0]}: got 8 bytes at heap offset {offset}; expected live .*; {NEAR}"
    refused(shmem.NotSymmetricError, words, bad_call, *call_of(name, word_of(name, gone[:1]), npes - 1))


@every_word
def test_an_address_behind_the_end_of_an_allocation_is_refused(refused, name, me):
    """The allocation of 9 words is followed by padding up to 64 bytes: that is no live memory."""
    start = refused.whole.data_ptr() - cpu.base
    behind = cpu.tensor(refused.whole.data_ptr() + 72, (1,), torch.int64)
    words = rf"{name}: PE {me}: {ONE_WORD[name][0]}: got 8 bytes at heap offset {start + 72}; "
    words += rf"expected live symmetric memory of this PE; the nearest allocation is {start} to {start + 72}"
    refused(shmem.NotSymmetricError, words, bad_call, *call_of(name, word_of(name, behind), me))


@every_word
def test_another_pes_memory_is_no_symmetric_address(refused, name, me):
    _, _, right = near_neighbours()
    theirs = shmem.ptr(refused.whole, right)
    if right != me:  # alone, it is one's own
        words = rf"{name}: PE {me}: {ONE_WORD[name][0]}: got 8 bytes at an address in private memory; expected .*"
        refused(shmem.NotSymmetricError, words, bad_call, *call_of(name, word_of(name, theirs[:1]), me))


@every_word
@pytest.mark.parametrize("beyond", [-1, 0, 1000])
def test_a_pe_out_of_range_is_refused(refused, name, beyond, me, npes):
    pe = beyond if beyond < 0 else npes + beyond
    words = rf"{name}: PE {me}: pe: got {pe}; expected a PE from 0 to {npes - 1} of the context's team"
    refused(shmem.OutOfRangeError, words, bad_call, *call_of(name, word_of(name, refused.whole[:1]), pe))


@every_word
def test_an_address_that_is_a_number_is_refused(refused, name, me):
    argument, _ = ONE_WORD[name]
    words = rf"{name}: PE {me}: {argument}: got a value of u?int64; expected a pointer to symmetric memory"
    refused(shmem.ArgumentError, words, bad_call, *call_of(name, refused.whole.data_ptr(), me))


@pytest.mark.parametrize("name", [name for name, (_, values) in ONE_WORD.items() if values])
def test_a_float_or_a_pointer_as_the_value_of_an_integer_is_refused(refused, name, me):
    argument = "cond" if name == "atomic_compare_swap" else "signal" if name.startswith("signal") else "value"
    pointee = "uint64" if name.startswith("signal") else "int64"
    word, values = word_of(name, refused.whole[:1]), ONE_WORD[name][1]
    for bad, got in ((1.5, "a value of fp32"), (refused.private, "a pointer to int64")):
        words = rf"{name}: PE {me}: {argument}: got {got}; expected an integer, for a pointer to {pointee}"
        refused(shmem.DtypeError, words, bad_call, getattr(dev, name), (word, *[bad] * len(values), me))


def test_a_pointer_as_the_value_of_a_float_is_refused(refused, me):
    word = refused.whole[:1].view(torch.float64)
    for name in ("p", "store", "atomic_set", "atomic_add"):
        words = rf"{name}: PE {me}: value: got a pointer to int64; expected a number, for a pointer to fp64"
        refused(shmem.DtypeError, words, bad_call, getattr(dev, name), (word, refused.private, me))


BULK = {"put": ("dest", "source"), "get": ("source", "dest")}  # the symmetric operand, and the other


def bulk(name, symmetric, private, nelems, pe):
    return getattr(dev, name), ((symmetric, private) if name == "put" else (private, symmetric)) + (nelems, pe)


every_bulk = pytest.mark.parametrize("name", BULK)


@every_bulk
def test_bulk_calls_refuse_what_crosses_the_end_of_an_allocation(refused, name, me):
    start, beside = refused.whole.data_ptr() - cpu.base, shmem.zeros(64, dtype=torch.int64)
    refused.look()
    words = rf"{name}: PE {me}: {BULK[name][0]}: got 80 bytes at heap offset {start}; "
    words += rf"expected live symmetric memory of this PE; the nearest allocation is {start} to {start + 72}"
    refused(shmem.NotSymmetricError, words, bad_call, *bulk(name, refused.whole, refused.private, 10, me))
    assert beside.tolist() == [0] * 64


@every_bulk
def test_bulk_calls_refuse_private_memory_and_pes_counts_and_pointers_that_are_none(refused, name, me, npes):
    near, far = BULK[name]
    head = f"{name}: PE {me}:"
    good = bulk(name, refused.whole, refused.private, 4, me)
    cases = [
        (shmem.NotSymmetricError, f"{near}: got 32 bytes at .*", bulk(name, refused.private, refused.whole, 4, me)),
        (shmem.OutOfRangeError, f"pe: got {npes}; expected .*", bulk(name, refused.whole, refused.private, 4, npes)),
        (shmem.OutOfRangeError, "pe: got -1; expected .*", bulk(name, refused.whole, refused.private, 4, -1)),
        (shmem.OutOfRangeError, "nelems: got -1; expected 0 or more", bulk(name, refused.whole, refused.private, -1, me)),
        (shmem.ArgumentError, "nelems: got 1.5; expected an integer", bulk(name, refused.whole, refused.private, 1.5, me)),
        (shmem.ArgumentError, "pe: got None; expected an integer", bulk(name, refused.whole, refused.private, 4, None)),
        (shmem.ArgumentError, "pe: got a pointer to int64; expected an integer", (good[0], (*good[1][:3], refused.whole))),
        (shmem.DtypeError, f"{far}: got a pointer to fp64; expected a pointer to int64",
         bulk(name, refused.whole, refused.private.double(), 4, me)),
        (shmem.DtypeError, f"{far}: got a value of int32; expected a pointer to int64", bulk(name, refused.whole, 7, 4, me)),
        (shmem.ArgumentError, f"{near}: got a value of u?int64; expected a pointer .*",
         bulk(name, refused.whole.data_ptr(), refused.private, 4, me)),
    ]  # fmt: skip
    for kind, words, arguments in cases:
        refused(kind, f"{head} {words}", bad_call, *arguments)


# the operand that need not be symmetric, and the arguments of a call with (symmetric, other, signal, pe) that uses 10 elements
LOCAL = {
    **{name: ("source", lambda near, own, signal, pe: (near, own, 10, pe)) for name in ("put", "put_nbi")},
    **{name: ("dest", lambda near, own, signal, pe: (own, near, 10, pe)) for name in ("get", "get_nbi")},
    **{
        name: ("source", lambda near, own, signal, pe: (near, own, 10, signal, 1, dev.SIGNAL_SET, pe))
        for name in ("put_signal", "put_signal_nbi")
    },
    "iput": ("source", lambda near, own, signal, pe: (near, own, 1, 3, 4, pe)),
    "iget": ("dest", lambda near, own, signal, pe: (own, near, 3, 1, 4, pe)),
    "ibput": ("source", lambda near, own, signal, pe: (near, own, 2, 4, 2, 3, pe)),
    "ibget": ("dest", lambda near, own, signal, pe: (own, near, 4, 2, 2, 3, pe)),
}


@pytest.mark.parametrize("name", LOCAL)
def test_bulk_calls_refuse_the_other_operand_if_it_is_on_the_heap_and_too_short(refused, name, me):
    """It is checked where it begins in the heap; its 9 words are one less than the call uses. Private memory is not."""
    near, signal = shmem.zeros(64, dtype=torch.int64), shmem.zeros(1, dtype=torch.uint64)
    refused.look()
    start = refused.whole.data_ptr() - cpu.base
    argument, arguments = LOCAL[name]
    words = rf"{name}: PE {me}: {argument}: got 80 bytes at heap offset {start}; "
    words += rf"expected live symmetric memory of this PE; the nearest allocation is {start} to {start + 72}"
    bad_call_of = getattr(dev, name), arguments(near, refused.whole, signal, me)
    refused(shmem.NotSymmetricError, words, bad_call, *bad_call_of)


@pytest.mark.parametrize("name", LOCAL)
def test_bulk_calls_accept_the_other_operand_if_it_is_just_long_enough_or_private(name, me):
    near, signal = shmem.zeros(64, dtype=torch.int64), shmem.zeros(1, dtype=torch.uint64)
    for own in (shmem.ones(10, dtype=torch.int64), torch.ones(10, dtype=torch.int64)):
        bad_call[(1,)](shmem.device_context(), getattr(dev, name), LOCAL[name][1](near, own, signal, me))
        shmem.quiet()
    shmem.barrier_all()


def test_atomics_refuse_an_order_or_a_scope_that_there_is_not(refused, me):
    for wrong, words in (
        (("seq_cst", "sys"), "sem: got 'seq_cst'; expected one of relaxed, acquire, release, acq_rel"),
        (("release", "world"), "scope: got 'world'; expected one of sys, gpu, cta"),
    ):
        arguments = dev.atomic_add, (refused.whole[:1], 1, me, None, *wrong)
        refused(shmem.ArgumentError, f"atomic_add: PE {me}: {words}", bad_call, *arguments)


def test_calls_on_one_pointer_refuse_blocks_and_name_what_takes_them(refused, me):
    block = "got a block of pointers to int64; expected one pointer; load, store and atomics take blocks"
    for name, rest in (("put", (refused.private, 1, me)), ("p", (1, me)), ("g", (me,)), ("signal_set", (1, me))):
        argument = "sig_addr" if name == "signal_set" else "source" if name == "g" else "dest"
        words = rf"{name}: PE {me}: {argument}: {block}"
        refused(shmem.ArgumentError, words, bad_lanes, getattr(dev, name), refused.whole, rest, 4)


@triton.jit
def bad_blocks(ctx, dest, source, case: tl.constexpr):
    lanes = tl.arange(0, 4)
    if case == "pe":
        dev.put(ctx, dest, source, 1, lanes * 0)
    if case == "nelems":
        dev.put(ctx, dest, source, lanes, 0)
    if case == "source":
        dev.put(ctx, dest, source + lanes, 1, 0)
    if case == "value of p":
        dev.p(ctx, dest, lanes, 0)
    if case == "value of add":
        dev.atomic_add(ctx, dest, lanes, 0)
    if case == "shapes":
        dev.store(ctx, dest + lanes, 1, tl.arange(0, 8) * 0)
    if case == "mask":
        dev.store(ctx, dest + lanes, 1, 0, mask=tl.arange(0, 8) < 9)


@pytest.mark.parametrize(
    ("case", "kind", "words"),
    [
        ("pe", shmem.ArgumentError, "put: .* pe: got a block of int32; expected one PE"),
        ("nelems", shmem.ArgumentError, "put: .* nelems: got a block of int32; expected one number"),
        ("source", shmem.DtypeError, "put: .* source: got a block of pointers to int64; expected a pointer to int64"),
        ("value of p", shmem.ArgumentError, "p: .* value: got a block of int32; expected a scalar, for one pointer"),
        (
            "value of add",
            shmem.ArgumentError,
            "atomic_add: .* value: got a block of int32; expected a scalar, for one .*",
        ),
        ("shapes", shmem.ArgumentError, r"store: .* pointers: got shapes \(4,\), \(8,\); expected pe and mask that .*"),
        (
            "mask",
            shmem.ArgumentError,
            r"store: .* pointers: got shapes \(4,\), \(1,\), \(8,\); expected pe and mask .*",
        ),
    ],
)
def test_blocks_where_there_is_one_place_are_refused(refused, case, kind, words):
    refused(kind, words, bad_blocks, refused.whole, refused.private, case)


@triton.jit
def tile(ctx, dest, n, pe, bad_pe, STORE: tl.constexpr):
    """16 lanes on n words: lanes from n on are behind the end, and go to bad_pe."""
    lanes = tl.arange(0, 16)
    pes = tl.where(lanes < n, pe, bad_pe)
    if STORE == "store":
        dev.store(ctx, dest + lanes, lanes, pes, mask=lanes < n)
    if STORE == "load":
        dev.load(ctx, dest + lanes, pes, mask=lanes < n)
    if STORE == "add":
        dev.atomic_add(ctx, dest + lanes, lanes, pes, mask=lanes < n)


@pytest.mark.parametrize("how", ["store", "load", "add"])
def test_masked_out_lanes_may_have_any_address_and_any_pe(how, me, npes):
    target, whole = guarded(10, torch.int64)
    wanted = {"store": range(10), "add": [target[0].item() + lane for lane in range(10)]}.get(how)
    tile[(1,)](shmem.device_context(), whole, 10, me, npes + 7, how)
    tile[(1,)](shmem.device_context(), whole, 0, -3, -4, how)
    assert untouched(target) if wanted is None else target.tolist() == list(wanted)
    assert untouched(whole[10:])


@pytest.mark.parametrize("how", ["store", "load", "add"])
def test_one_lane_too_many_is_refused_and_no_lane_is_written(refused, how, me, npes):
    name = "atomic_add" if how == "add" else how
    end = refused.whole.data_ptr() - cpu.base + 72
    words = rf"{name}: PE {me}: pointers: got 8 bytes at heap offset {end}; expected live .*; {NEAR}"
    refused(shmem.NotSymmetricError, words, tile, refused.whole, 10, me, 0, how)
    for wrong in (-1, npes):
        words = rf"{name}: PE {me}: pe: got {wrong}; expected a PE from 0 to {npes - 1} of the context's team"
        refused(shmem.OutOfRangeError, words, tile, refused.whole, 9, wrong, 0, how)


def test_put_signal_refuses_before_it_moves_anything(refused, me, npes):
    """The payload is not there either: all is checked first."""
    whole, private = refused.whole, refused.private
    signal = shmem.zeros(2, dtype=torch.uint64)
    refused.look()
    op = dev.SIGNAL_SET
    inside = whole.view(torch.uint64)
    cases = [
        (shmem.NotSymmetricError, "dest: got 64 bytes at .*", (private, whole, 8, signal, 1, op, me)),
        (shmem.NotSymmetricError, "sig_addr: got 8 bytes at .*", (whole, private, 8, private.view(torch.uint64), 1, op, me)),
        (shmem.OutOfRangeError, f"pe: got {npes}; .*", (whole, private, 8, signal, 1, op, npes)),
        (shmem.DtypeError, "sig_addr: got a pointer to int64; expected .*", (whole, private, 2, whole[5:], 1, op, me)),
        (shmem.DtypeError, "source: got a pointer to fp32; expected .*", (whole, private.float(), 8, signal, 1, op, me)),
        (shmem.DtypeError, "signal: got a value of fp32; expected an integer, .*", (whole, private, 8, signal, 1.0, op, me)),
        (shmem.DtypeError, "signal: got a pointer to int64; .*", (whole, private, 8, signal, private, op, me)),
        (shmem.ArgumentError, "sig_op: got 2; expected one of dev.SIGNAL_.*", (whole, private, 8, signal, 1, 2, me)),
        (shmem.ArgumentError, "sig_addr: got an element of dest; expected .*", (whole, private, 8, inside[7:], 1, op, me)),
        (shmem.OutOfRangeError, "nelems: got -2; expected 0 or more", (whole, private, -2, signal, 1, op, me)),
    ]  # fmt: skip
    for kind, words, arguments in cases:
        refused(kind, rf"put_signal: PE {me}: {words}", bad_signal, *arguments)
    refused.nothing_changed()
    bad = inside[8:]  # the first word behind dest[:8] is legal
    bad_signal[(1,)](shmem.device_context(), whole, whole, 8, bad, bad.item(), op, me)


@pytest.mark.parametrize("name", ["wait_until", "test", "signal_wait_until"])
def test_waits_refuse_at_once(refused, name, me, npes):
    signal = name.startswith("signal")
    argument, routine = ("sig_addr" if signal else "ivar"), getattr(dev, name)
    word, private = word_of(name, refused.whole[:1]), word_of(name, refused.private)
    head = rf"{name}: PE {me}:"
    refused(
        shmem.NotSymmetricError, rf"{head} {argument}: got 8 bytes at .*", bad_wait, routine, private, dev.CMP_EQ, 1
    )
    refused(
        shmem.DtypeError, rf"{head} {argument}: got a pointer to fp64; expected .*",
        bad_wait, routine, refused.whole.view(torch.float64), dev.CMP_EQ, 1,
    )  # fmt: skip
    refused(shmem.DtypeError, rf"{head} value: got a value of fp32; .*", bad_wait, routine, word, dev.CMP_EQ, 1.5)
    for cmp in (6, -1, ">="):
        wants = "one of dev.CMP_EQ, CMP_NE, CMP_GT, CMP_GE, CMP_LT, CMP_LE"
        refused(shmem.ArgumentError, rf"{head} cmp: got {cmp!r}; expected {wants}", bad_wait, routine, word, cmp, 1)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.float16, torch.bfloat16, torch.bool], ids=str)
def test_atomics_refuse_small_elements(refused, dtype, me):
    word = refused.whole[:1].view(torch.uint8)[: dtype.itemsize].view(dtype)
    for name in ("add", "set", "fetch", "compare_swap", "inc"):
        words = rf"atomic_{name}: PE {me}: pointers: got a pointer to \w+; expected a pointer to an integer or float of 4 .*"
        refused(shmem.DtypeError, words, bad_call, *call_of(f"atomic_{name}", word, me))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_bitwise_atomics_refuse_floats(refused, dtype, me):
    for name in ("and", "or", "xor", "fetch_and", "fetch_or", "fetch_xor"):
        words = rf"atomic_{name}: PE {me}: pointers: got a pointer to fp\d\d; expected a pointer to an integer of 4 or 8 bytes"
        refused(shmem.DtypeError, words, bad_call, *call_of(f"atomic_{name}", refused.whole.view(dtype), me))


@triton.jit
def without_context(word, routine: tl.constexpr, pe):
    routine(word, word, 1, pe)


def test_a_call_without_the_context_says_what_is_missing(refused, me):
    with pytest.raises(
        InterpreterError, match=r"atomic_add: PE \d+: ctx: got a pointer to int64; expected a device context"
    ):
        without_context[(1,)](refused.whole, dev.atomic_add, me)


@triton.jit
def ordering(word, routine: tl.constexpr):
    routine(word)


@pytest.mark.parametrize("name", ["fence", "quiet", "barrier_all", "sync_all"])
def test_what_orders_wants_a_context_too(refused, name):
    with pytest.raises(
        InterpreterError, match=rf"{name}: PE \d+: ctx: got a pointer to int64; expected a device context"
    ):
        ordering[(1,)](refused.whole, getattr(dev, name))


@triton.jit
def without_any(word, routine: tl.constexpr, arguments):
    routine(None, *arguments)


def with_context():
    """The device functions whose first argument is the context, and the number of arguments that they want behind it."""
    for name in dev.__all__:
        function = getattr(getattr(dev, name), "fn", getattr(dev, name))
        first, *others = inspect.signature(function).parameters.values() if inspect.isroutine(function) else [None]
        if first and first.name == "ctx":
            yield name, sum(each.default is each.empty for each in others)


@pytest.mark.parametrize(("name", "count"), list(with_context()))
def test_none_in_place_of_the_context_is_named(refused, name, count):
    routine = name.removesuffix("_grid")
    words = rf"kernel without_any: {routine}(_grid)?: PE \d+: ctx: got None; expected a device context, which .*, as the first argument"
    with pytest.raises(InterpreterError, match=words):
        without_any[(1,)](refused.whole, getattr(dev, name), (refused.whole,) * count)


def test_the_second_context_is_named_by_its_own_name(refused):
    words = r"translate_pe: PE \d+: dest_ctx: got None; expected a device context, which shmem.device_context\(\) returns\W*$"
    with pytest.raises(InterpreterError, match=words):
        bad_call[(1,)](shmem.device_context(), dev.translate_pe, (0, None))


@triton.jit
def inner(ctx, word, pe):
    dev.p(ctx, word, 1, pe)


@triton.jit
def outer_kernel(ctx, word, pe):
    inner(ctx, word, pe)


def test_the_kernel_that_was_launched_is_named_where_a_helper_made_the_call(refused, npes):
    with pytest.raises(InterpreterError, match=r"kernel outer_kernel: p: PE \d+: pe: got \d+; expected"):
        outer_kernel[(1,)](shmem.device_context(), refused.whole, npes)


def test_a_kernel_runs_after_a_refused_one(refused, me):
    refused(shmem.OutOfRangeError, r"p: .*", bad_call, dev.p, (refused.whole, 1, -1))
    word = shmem.zeros(1, dtype=torch.int64)
    refused.look()
    bad_call[(1,)](shmem.device_context(), dev.p, (word, 0, me))
    shmem.quiet()
    assert_same(word.clone(), torch.zeros(1, dtype=torch.int64))
