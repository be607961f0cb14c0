"""Kernels that are launched from words: the compiled code takes the words that a launch passes, whatever their numbers are."""

import ctypes
import re
from types import SimpleNamespace

import pyshmem as shmem
import pytest
import torch
from compiling import TARGETS, compile, context, specialise
from pyshmem.kernels import bound_kernels, host_atomics, on_stream, requests, signals, uneven
from pyshmem.ops.gemm import exchanges
from pyshmem.ops.machine import Machine
from pyshmem.base.errors import LaunchError
from pyshmem.kernels import compiled as launch
from pyshmem.kernels.compiled import CachedKernel, Loaded
from pyshmem.kernels.signature import Parameter, parameters_of, plan_of, require_compiled_for

BF16 = torch.bfloat16
LARGE = (1 << 31) + 16
SIDES = 1, 16, 17, LARGE
SCRATCH = 2  # parameters that Triton appends


LAUNCH = ctypes.CFUNCTYPE(  # cuLaunchKernel
    ctypes.c_int,
    ctypes.c_uint64,
    *[ctypes.c_uint] * 7,
    ctypes.c_uint64,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)


class Array:
    """What a kernel gets of a tensor, without memory."""

    def __init__(self, address, *shape, dtype=BF16):
        self.address, self.shape, self.dtype, self.itemsize = address, shape, dtype, dtype.itemsize

    def data_ptr(self):
        return self.address

    def ptr_range(self):
        return self.numel() * self.itemsize

    def numel(self):
        return torch.Size(self.shape).numel()

    def __getitem__(self, place):
        return Array(self.address, *self.shape[1:], dtype=self.dtype)


WORDS, SLOTS, PARTS, OUT = (0x7000_0000_0000 + (place << 40) for place in range(4))


def widths_of(compiled):
    """The bytes of each parameter, as the code reads them."""
    if "ptx" in compiled.asm:
        head = re.search(r"\.entry \w+\((.*?)\n\)", compiled.asm["ptx"], re.DOTALL)[1]
        return [int(each) // 8 for each in re.findall(r"\.param \.\w?(\d+)", head)][:-SCRATCH]
    arguments = re.findall(r"\.size:\s*(\d+)\s+\.value_kind:\s*(\w+)", compiled.asm["amdgcn"])
    return [int(size) for size, kind in arguments if not kind.startswith("hidden")][:-SCRATCH]


def widths_in(signature):
    """The same from the signature of what Triton would compile."""
    widths = {"i32": 4, "constexpr": 0}
    each = (widths_in(kind) if isinstance(kind, tuple) else [widths.get(kind, 8)] for kind in signature)
    return [width for some in each for width in some if width]


class Driver:
    """Takes launches, and compiles kernels where ``whole`` is set; their signatures are enough to know what they take."""

    def __init__(self, target):
        self.target, self.whole, self.widths, self.passed, self.grid = target, False, [], [], None
        self.function = LAUNCH(self.launch)
        self.address = ctypes.cast(self.function, ctypes.c_void_p).value

    def load(self, cached, args, options):
        source, choices = specialise(cached.kernel, self.target, args, **options)
        self.widths.append(widths_in(source.signature.values()))
        if self.whole:
            code = widths_of(compile(source, target=TARGETS[self.target], options=choices.__dict__))
            assert code == self.widths[-1]
        compiled = SimpleNamespace(name=source.name)
        return Loaded(compiled, len(self.widths) - 1, 128, 0, plan_of(source, args), 0, parameters_of(source))

    def launch(self, kernel, x, y, z, threads, block_y, block_z, shared, stream, parameters, extra):
        count = len(self.widths[kernel]) + SCRATCH
        self.passed = [ctypes.c_int64.from_address(parameters[place]).value for place in range(count)]
        self.grid, self.kernel = (x, y, z), kernel
        return 0

    @property
    def words(self):
        """Those of the last launch. Each fits into what the kernel reads of it, and none is left over."""
        widths = self.widths[self.kernel]
        assert all(-1 << 31 <= word < 1 << 31 for word, width in zip(self.passed, widths, strict=False) if width == 4)
        assert self.passed[len(widths) :] == [0] * SCRATCH
        return self.passed[: len(widths)]


CACHES = (
    bound_kernels._kept, on_stream._cached, on_stream._uncounted, signals._cached, uneven._cached, host_atomics._cached,
    host_atomics._reader,
)  # fmt: skip


@pytest.fixture(params=["nvidia", "gfx942"])
def driver(request, monkeypatch):
    """A driver of this kind of GPU."""
    target = request.param
    made = Driver(target)
    monkeypatch.setattr(CachedKernel, "_compile", lambda self, args, options: made.load(self, args, options))
    monkeypatch.setattr(launch, "_launcher", lambda: made.address)
    monkeypatch.setattr(bound_kernels, "early_launcher", lambda: 0)
    monkeypatch.setattr(bound_kernels, "heaps", {"cuda": SimpleNamespace(near=SimpleNamespace(use_stream=lambda: 7))})
    monkeypatch.setattr(shmem, "device_context", lambda team: context(target, 0, 2))
    monkeypatch.setattr(exchanges, "machine", lambda: Machine(target, 132, 1, True))
    for module in (host_atomics, requests, signals):
        monkeypatch.setattr(module, "gpu", SimpleNamespace(arch=target))
    monkeypatch.setattr(host_atomics, "_atomics", {})
    for each in CACHES:
        each.cache_clear()
    yield made
    for each in CACHES:
        each.cache_clear()


def problem_of(M, N):
    return SimpleNamespace(M=M, N=N, n_pes=2, team=None, options=SimpleNamespace(epilogue=None))


def unfolded(*numbers):
    """Those that are words: Triton has put a number that is 1 into the code."""
    return [each for each in numbers if each != 1]


@pytest.mark.parametrize("columns", SIDES)
def test_sums_of_parts_take_any_number_of_columns(columns, driver):
    driver.whole = True
    adder, slots, part = exchanges.Sum(problem_of(8, columns)), Array(SLOTS, 1, 1, columns), Array(PARTS, 1, columns)
    for rows, tall, first in ((1, 16, 17), (16, 1, 1), (LARGE, LARGE, LARGE), (17, 17, 16)):
        part.shape, slots.shape = (rows, columns), (1, tall, columns)
        adder.of(slots, tall, part, first)(part, Array(OUT, rows, columns))
        assert driver.words == [rows, *unfolded(columns), tall, 1, first, SLOTS, PARTS, OUT]
        assert driver.grid[:2] == (-(-rows // 4), max(-(-columns // 1024), 1))


def test_arrays_of_any_length_are_sent(driver):
    sends = exchanges.sender(problem_of(8, 8), Array(WORDS, 8, dtype=torch.uint64), 8)
    for count in (17, 19, *SIDES, 33):  # the first two have one kernel, which does not do for all others
        source, target = Array(SLOTS, count), Array(OUT, count)
        sends.of(source, target).with_numbers(count)(source, target)
        assert driver.words[-4:] == [WORDS, count, SLOTS, OUT]


@pytest.mark.parametrize("N", SIDES)
def test_rows_of_any_width_are_scattered(N, driver):
    words, slots, parts = Array(WORDS, 8, dtype=torch.uint64), Array(SLOTS, 1, 1, N), Array(PARTS, 2, N)
    driver.whole = N == 1
    scatters = exchanges.scatterer(problem_of(2, N), words, slots, parts)
    for M in SIDES:
        scatters.with_numbers(M, N)(slots, parts)
        assert driver.words[-len(unfolded(N)) - 4 :] == [WORDS, M, *unfolded(N), SLOTS, PARTS]


def on_streams():
    """Calls on streams: what binds the kernel for a context, and the words of a call."""
    for count in (1, 16, 999):
        yield "reduce", lambda ctx, n=count: on_stream._tiles(ctx, "sum", torch.float32, n, 256, 4), [OUT, SLOTS, count]
    for count in (1, 16, LARGE):
        yield (
            "sent",
            lambda ctx, n=count: on_stream.reduction(ctx, 2, "sum", torch.float32, n, False),
            [OUT, SLOTS, count],
        )
        yield "scan", lambda ctx, n=count: on_stream.scan(ctx, "sum_inscan", torch.int32, n), [OUT, SLOTS, count]
        yield "blocks", lambda ctx, n=count: on_stream.scattering(ctx, 2, "max", torch.int64, n), [OUT, SLOTS, count]
        for routine, root in (("fcollect", ()), ("alltoall", ()), ("broadcast", (1,))):
            yield (
                routine,
                lambda ctx, n=count, r=routine: on_stream.movement(ctx, r, 4, n, 1),
                [OUT, SLOTS, count, *root],
            )
    yield "barrier", lambda ctx: on_stream.barrier(ctx), [0, 0]
    for number in (1, 16, LARGE, -1):
        yield "signal", lambda ctx: signals.update(True), [OUT, number, 0]
        yield "wait", lambda ctx: signals.wait(ctx, 0), [OUT, number, 1 << 45]
        yield "uneven", lambda ctx: uneven.plan(ctx, 4, 1 << 20), [OUT, SLOTS, WORDS, 0, PARTS, number, 1, 16]


CALLS = list(on_streams())


@pytest.mark.parametrize(
    "call", CALLS, ids=[f"{name}-{words[-1]}-{place}" for place, (name, _, words) in enumerate(CALLS)]
)
def test_calls_on_streams_pass_their_numbers(call, driver):
    _, planned, words = call
    bound = planned(context(driver.target, 0, 2))
    bound.launch("some_call", 7, *words[: len(words) - len(bound.last)])
    assert driver.words[-len(words) :] == words


@pytest.mark.parametrize("number", [1, 16, LARGE, -1])
def test_atomics_and_requests_of_the_host_pass_their_numbers(number, driver):
    host_atomics.apply("compare_swap", torch.int64, OUT, number, 1, SLOTS, 7, 0, False)
    assert driver.words == [OUT, number, 1, SLOTS]
    host_atomics.read(OUT, 8, SLOTS, 7, 0)
    assert driver.words == [OUT, SLOTS, 1]
    assert len(requests.plans()) == 5 * 64, "heads alone: the service adds the words"


def test_binding_refuses_what_a_kernel_is_not_compiled_for():
    """The words would be those of other arguments, or be cut off."""
    cases = [
        (Parameter("columns", "constexpr", 0, 1, 1), 2, "columns: got 2; expected 1, which is in the code"),
        (Parameter("rows", "i32", 2, None, 1), LARGE, "rows: got 2147483664; expected a number that i32 can hold"),
        (Parameter("rows", "i32", 2, None, 16), 17, "rows: got 17; expected a multiple of 16"),
        (Parameter("x.data", "*bf16", 1, None, 16), 8, "x.data: got 8; expected a multiple of 16"),
        (Parameter("rows", "i64", 2, None, 1), 1.5, "rows: got 1.5; expected a value of type i64"),
        (Parameter("flag", "u1", 2, None, 1), 2, "flag: got 2; expected a number that u1 can hold"),
    ]
    for parameter, value, text in cases:
        with pytest.raises(LaunchError, match=f"some_kernel: PE .: {re.escape(text)}"):
            require_compiled_for("some_kernel", (parameter,), (value,))
    for parameter, value in ((cases[0][0], 1), (cases[1][0], -5), (cases[2][0], 32), (cases[5][0], True)):
        require_compiled_for("some_kernel", (parameter,), (value,))


def test_binding_refuses_operands_that_are_in_the_code(driver):
    """Calls would pass their words none the less, and shift those behind them."""
    part = Array(PARTS, 1, 1)
    constants = {"BLOCK": 4, "WIDTH": 1, "EPILOGUE": None}
    with pytest.raises(LaunchError, match="add_parts: PE .: columns: got 1 in the code; expected an array"):
        bound_kernels.Prepared(exchanges.add_parts, 1, (8,), (1, 1, 1, 0, part, part, part), constants)
