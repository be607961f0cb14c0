"""Launches of compiled kernels from Python's arguments: what is compiled anew, and the words that the driver is given."""

import weakref
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from pyshmem.kernels import bound_kernels
from pyshmem.kernels import launch as launching
from pyshmem.ops import aligned
from pyshmem.base.errors import ArgumentError, LaunchError
from pyshmem.diagnosis.event_ring import EventRing
from pyshmem.kernels import compiled as launch
from pyshmem.kernels.compiled import CachedKernel, Loaded
from pyshmem.kernels.signature import parameters_of, plan_of
from standin_driver import Driver
from triton import knobs
from triton import language as tl
from triton.runtime.jit import JITFunction

CONSTANT, POINTER, INTEGER, FLOAT, DOUBLE = range(5)
TYPES = {CONSTANT: "constexpr", POINTER: "*fp32", INTEGER: "i64", None: "a descriptor"}  # of Triton
CONTEXT = (1 << 40, -5, (9, 3))  # what a device context is: a tuple of tuples, of ints


@pytest.fixture
def driver(monkeypatch):
    found = Driver()
    monkeypatch.setattr(launch, "_launcher", lambda: found.address)
    monkeypatch.setattr(launch, "_current_device", lambda: 3)
    monkeypatch.setattr(launch, "current_stream", lambda device: 70 + device)
    return found


@pytest.fixture
def kernel(monkeypatch):
    """A kernel of these kinds of arguments, and the arguments that it was compiled for."""

    def make(*plan):
        compiled = []

        def compile(self, args, options):
            compiled.append(args)
            return Loaded(SimpleNamespace(name="some_kernel"), 77, 128, 512, plan)

        monkeypatch.setattr(CachedKernel, "_compile", compile)
        params = [SimpleNamespace(is_constexpr=kind == CONSTANT) for kind in plan]
        return CachedKernel(SimpleNamespace(params=params)), compiled

    return make


def test_every_kind_of_argument_is_passed_as_its_bits_the_first_time_and_later(driver, kernel):
    call, compiled = kernel(POINTER, INTEGER, CONSTANT, FLOAT, DOUBLE, (INTEGER, CONSTANT, (INTEGER, INTEGER)))
    array = torch.zeros(16)
    for number in (7, 9, -3):
        for grid in ((4,), (4, 2), (4, 2, 5)):
            call(grid, array, number, "text", 1.5, -2.25, CONTEXT, num_warps=4)
            words = [array.data_ptr(), number % 2**64, 0x3FC00000, 0xC002000000000000, 1 << 40, 9, 3, 0]
            assert driver.calls[-1] == (77, (*grid, 1, 1)[:3], 128, 512, 73, words)
    assert len(compiled) == len(call.known) == 1


def test_compile_compiles_what_no_call_has_launched_and_launches_nothing(driver, kernel, monkeypatch):
    call, compiled = kernel(POINTER, INTEGER)
    array = torch.zeros(16)
    call.compile(array, 7)
    call.compile(array, 9)
    assert len(compiled) == 1 and not driver.calls
    call((3,), array, 7)
    monkeypatch.setattr(CachedKernel, "find", lambda self, *args: pytest.fail("looked for a kernel that is known"))
    call.compile(array, 11)
    assert len(compiled) == len(driver.calls) == 1


# pairs for which Triton compiles one kernel, and pairs for which it compiles two
ALIKE = [(3, 5), (16, 32), (-1, 7), (1 << 40, 1 << 50), (-(2**31), 2**30)]
APART = [(1, 3), (3, 16), (3, 2**31), (2**31 + 1, 2**63 + 1), (1, True), (-(2**31) - 1, 3), (None, 3)]


def test_kernels_of_more_parameters_than_a_launch_from_c_takes_are_launched_by_triton(driver, kernel):
    """As many as of three partitions in three dimensions; more are no error."""
    call, _ = kernel((INTEGER,) * 120, *(INTEGER,) * 8)
    call((1,), tuple(range(120)), *range(8))
    assert driver.calls[-1][-1] == [*range(8)]
    signature = {f"argument{number}": "i32" for number in range(129)}
    source = SimpleNamespace(signature=signature)
    assert plan_of(source, (1,) * 129) is None
    del signature["argument0"]
    assert plan_of(source, (1,) * 128) == (INTEGER,) * 128


@pytest.mark.parametrize("pair", [*ALIKE, *APART], ids=repr)
def test_numbers_share_a_kernel_where_triton_compiles_them_alike(driver, kernel, pair):
    call, compiled = kernel(CONSTANT if None in pair else INTEGER)
    call.constants = (False,)
    for number in (*pair, *pair):
        call((1,), number)
    assert len(compiled) == len(call.known) == (1 if pair in ALIKE else 2)


def test_constants_are_told_apart_by_type_and_value(driver, kernel):
    call, compiled = kernel(CONSTANT)
    for _ in range(2):
        for value in (1, True, 1.0, 2, "1"):
            call((1,), value)
    assert len(compiled) == 5


def test_tensors_are_told_apart_by_type_and_alignment(driver, kernel):
    call, compiled = kernel(POINTER)
    words = torch.zeros(64, dtype=torch.int32)
    views = [words, words[4:], words[1:], words[2:], words.view(torch.float32), words.view(torch.int64), words[::2]]
    for _ in range(2):
        for view in views:
            call((1,), view)
            assert driver.calls[-1][-1][0] == view.data_ptr()
    assert len(compiled) == 4  # aligned, not aligned, two more types


def test_tensors_of_more_than_2_gib_are_told_apart_for_amd_gpus_also_in_a_partition(driver, kernel, monkeypatch):
    """For these GPUs Triton compiles accesses with offsets of 32 bits to smaller ones."""
    call, compiled = kernel(POINTER, (POINTER, INTEGER))
    small, large = (torch.empty(nbytes, dtype=torch.uint8, device="meta") for nbytes in ((1 << 31) - 1, 1 << 31))
    assert launch.small_ones((small, (large, 3))) == ()
    monkeypatch.setattr(launch, "_BY_SIZE", True)
    assert launch.small_ones((small, 4, (large, 3, (1, small)))) == (True, False, True)
    x = torch.zeros(16)
    for sizes in ((True, True), (True, False), (True, True)):
        monkeypatch.setattr(launch, "small_ones", lambda args, sizes=sizes: sizes)
        call.compile(x, (x, 3))
        call((1,), x, (x, 3))
    assert len(compiled) == len(call.known) == 2


def test_plans_have_a_kernel_of_their_own_for_arrays_of_more_than_2_gib_on_amd_gpus(monkeypatch):
    """As for those that are at no multiple of 16, whatever came before: a plan serves many numbers of rows."""
    made = []

    class Form(SimpleNamespace):
        def at(self, addresses, arrays):
            self.calls.append(arrays)

    def prepare(kernel, grid, fixed, operands, *more):
        made.append(Form(calls=[]))
        return made[-1]

    monkeypatch.setattr(aligned, "Prepared", prepare)
    monkeypatch.setattr(aligned, "small_ones", lambda arrays: tuple(len(each) < 8 for each in arrays))
    small, large, odd = torch.zeros(4), torch.zeros(8), torch.zeros(5)[1:]
    prepared = aligned.Aligned("some_norm", None, 1, (), {})
    for array in (small, large, small, odd, large):
        prepared(array)
    assert [len(each.calls) for each in made] == [2, 2, 1]
    places = aligned.ByPlaces(lambda array: len(array))
    assert [places.of(each) for each in (small, large, torch.zeros(5), odd)] == [4, 8, 4, 4]


def test_options_and_devices_are_told_apart(driver, kernel, monkeypatch):
    call, compiled = kernel(INTEGER)
    for warps in (4, 8, 4):
        call((1,), 3, num_warps=warps)
    assert len(compiled) == 2


def test_an_address_serves_for_a_pointer(driver, kernel):
    call, _ = kernel(POINTER)
    for _ in range(2):
        call((1,), 1 << 45)
        assert driver.calls[-1][-1][0] == 1 << 45


def test_the_drivers_refusal_is_raised_with_the_kernels_name(driver, kernel):
    call, _ = kernel(INTEGER)
    for code in (0, 700, 701):
        driver.code = code
        if code:
            with pytest.raises(
                LaunchError, match=f"launch: PE .: stream: got error {code} of the GPU driver for kernel some_kernel"
            ):
                call((1,), 3)
        else:
            call((1,), 3)


def test_what_is_no_number_for_an_integer_is_refused(driver, kernel):
    call, _ = kernel(INTEGER)
    call.known[((3,), None)] = call.find(3).known((3,))
    with pytest.raises(TypeError):
        call((1,), None)
    assert not driver.calls


def of_two(ctx, count, epoch=3):
    """Never runs."""


@pytest.fixture
def two(kernel, monkeypatch):
    """A kernel of Triton with a tuple and two numbers, compiled by a stand-in."""
    kernel((INTEGER, INTEGER), INTEGER, INTEGER)
    monkeypatch.setattr(launching.interpreter, "active", lambda: False)
    launching._cached.cache_clear()
    yield JITFunction(of_two)
    launching._cached.cache_clear()


def test_a_kernel_of_one_pe_starts_with_all_its_arguments_on_the_grid_of_its_counts(driver, two):
    for grid, options in (
        ((4, 2), {"count": 9}),
        ([5], {"count": 9, "num_warps": 2}),
        (lambda given: (given["count"],), {"count": 0}),
    ):
        launching.start(two, grid, ((6, 7),), options)
    words = [6, 7, 9, 3, 0, 0, 0, 0]
    assert [(call[1], call[-1]) for call in driver.calls] == [((4, 2, 1), words), ((5, 1, 1), words)]
    with pytest.raises(ArgumentError, match="launch: .*args: got missing a required argument: 'count'"):
        launching.start(two, (1,), ((6, 7),), {})


def test_a_profiler_that_hooks_launches_gets_tritons_own(driver, two, monkeypatch):
    own = []
    monkeypatch.setattr(JITFunction, "run", lambda self, *args, **options: own.append((args, options)))
    hook = lambda metadata: None  # noqa: E731
    knobs.runtime.launch_enter_hook.add(hook)
    try:
        launching.start(two, (1,), ((6, 7), 9), {"num_warps": 2})
    finally:
        knobs.runtime.launch_enter_hook.remove(hook)
    assert own == [(((6, 7), 9), {"grid": (1,), "warmup": False, "num_warps": 2})] and not driver.calls


class Pair(NamedTuple):
    array: torch.Tensor
    number: int


def loaded_of(function, kinds, constants, scratch=0):
    """What Triton would have compiled for parameters of these kinds, by their names; constants: what the code has in it."""

    def type_of(kind):
        return tuple(map(type_of, kind)) if isinstance(kind, tuple) else TYPES[kind]

    signature = {name: type_of(kind) for name, kind in kinds.items()}
    places = {(list(kinds).index(name),): value for name, value in constants.items()}
    source = SimpleNamespace(signature=signature, constants=places, attrs={})
    compiled = SimpleNamespace(name="stand_in", packed_metadata=())
    return Loaded(compiled, function, 128, 512, plan_of(source, kinds), scratch, parameters_of(source))


@pytest.fixture
def prepared(driver, monkeypatch):
    """A Prepared of (pair, number, array, operand, CONSTANT), compiled for operands of this kind. scratch: of a program."""

    def make(operand, kind, scratch=0):
        def stand_in(pair, number, array, operand, CONSTANT: tl.constexpr):
            """Never runs."""

        names = ["pair", "number", "array", "operand", "CONSTANT"]
        kinds = (POINTER, INTEGER), INTEGER, POINTER, kind, CONSTANT
        loaded = loaded_of(77, dict(zip(names, kinds, strict=True)), {"CONSTANT": 4}, scratch)
        loaded.compiled.run = lambda *args: driver.calls.append(args)
        monkeypatch.setattr(CachedKernel, "_compile", lambda self, args, options: loaded)
        monkeypatch.setattr(bound_kernels.interpreter, "active", lambda: False)
        monkeypatch.setattr(bound_kernels, "heaps", {"cuda": SimpleNamespace(near=driver)})
        driver.use_stream = lambda: 55
        params = [SimpleNamespace(is_constexpr=name == "CONSTANT") for name in names]
        kernel = type("Kernel", (), {"fn": stand_in, "__name__": "stand_in", "arg_names": names, "params": params})
        array = torch.zeros(16)
        fixed = Pair(array, 5), 7, array
        return bound_kernels.Prepared(kernel, (2, 3), fixed, (operand,), {"CONSTANT": 4}), array.data_ptr()

    return make


def test_a_prepared_kernel_has_the_words_of_its_fixed_arguments_of_the_call_and_of_its_scratch_memory(
    driver, prepared, monkeypatch
):
    array, room = torch.zeros(16), torch.zeros(6 * 32, dtype=torch.uint8)
    wanted = {(6 * 32, torch.uint8, "cuda"): room}
    monkeypatch.setattr(bound_kernels.torch, "empty", lambda n, dtype, device: wanted[n, dtype, device])
    for scratch, last in ((0, 0), (32, room.data_ptr())):
        kernel, fixed = prepared(array, POINTER, scratch)
        kernel(array)
        words = [fixed, 5, 7, fixed, array.data_ptr(), last, 0, 0]
        assert driver.calls.pop() == (77, (2, 3, 1), 128, 512, 55, words)
    driver.code = 701
    with pytest.raises(LaunchError, match="ops: PE .: stream: got error 701 of the GPU driver for its kernel"):
        kernel(array)


def test_other_numbers_and_another_grid_take_the_places_of_those_that_a_kernel_was_made_with(driver, prepared):
    """Numbers are the last of the fixed arguments, alone or in tuples."""
    kernel, fixed = prepared(torch.zeros(16), POINTER)
    array, other = torch.zeros(16), torch.zeros(16)
    kernel.with_numbers(Pair(other, -1), 9, other, grid=(4, 5, 6))(array)
    words = [other.data_ptr(), 2**64 - 1, 9, other.data_ptr(), array.data_ptr(), 0, 0, 0]
    assert driver.calls.pop() == (77, (4, 5, 6), 128, 512, 55, words)
    kernel(array)
    assert driver.calls.pop() == (77, (2, 3, 1), 128, 512, 55, [fixed, 5, 7, fixed, array.data_ptr(), 0, 0, 0])


def test_kernels_are_enqueued_with_one_tuple_of_operands_each(driver, prepared):
    operands = Pair(torch.zeros(16), -3)
    kernel, fixed = prepared(operands, (POINTER, INTEGER))
    bound_kernels.enqueue("run", [kernel, kernel], 66, operands)
    words = [fixed, 5, 7, fixed, operands.array.data_ptr(), 2**64 - 3, 0, 0]
    assert driver.calls == [(77, (2, 3, 1), 128, 512, 66, words)] * 2
    driver.code = 701
    with pytest.raises(LaunchError, match="run: PE .: stream: got error 701"):
        bound_kernels.enqueue("run", [kernel], 66, operands)


def test_triton_launches_a_kernel_of_operands_that_are_no_words(driver, prepared):
    operands = Pair(torch.zeros(16), 3)
    kernel, _ = prepared(operands, None)
    bound_kernels.enqueue("run", [kernel], 66, operands)
    (call,) = driver.calls
    assert call[:4] == (2, 3, 1, 66) and call[-2] is operands and call[-1] == 4


class Context(NamedTuple):
    """As a device context is: it has the ring's address, and is compiled for its room."""

    trace: int
    events: int = 0

    def recording(self, address, room):
        return Context(address, room)


@pytest.fixture
def traced(prepared, monkeypatch):
    """A Prepared whose fixed arguments are a context and 7, what it was compiled for, and the ring."""
    compiled, ring = [], EventRing()

    def compile(self, args, options):
        compiled.append(args)
        kind = (POINTER, INTEGER) if isinstance(args[2], tuple) else POINTER
        kinds = {"context": (INTEGER, INTEGER), "number": INTEGER, "operand": kind, "CONSTANT": CONSTANT}
        return loaded_of(70 + len(compiled), kinds, {"CONSTANT": 4})

    def make(operand):
        def stand_in(context, number, operand, CONSTANT: tl.constexpr):
            """Never runs."""

        names = ["context", "number", "operand", "CONSTANT"]
        params = [SimpleNamespace(is_constexpr=name == "CONSTANT") for name in names]
        kernel = type("Kernel", (), {"fn": stand_in, "__name__": "stand_in", "arg_names": names, "params": params})
        return bound_kernels.Prepared(
            kernel, lambda kernel: len(compiled), (Context(9), 7), (operand,), {"CONSTANT": 4}
        )

    prepared(torch.zeros(16), POINTER)  # for what it sets
    monkeypatch.setattr(CachedKernel, "_compile", compile)
    monkeypatch.setattr(bound_kernels, "ring", ring)
    return make, compiled, ring


def test_a_kernel_is_compiled_for_a_timeline_as_it_begins_and_is_the_same_one_again_after_it(driver, traced):
    make, compiled, ring = traced
    array, first = torch.zeros(16), torch.zeros(16)
    kernel, held = make(first), weakref.ref(first)
    del first, compiled[0]
    assert held() is None, "a plan keeps no memory of its operands"
    compiled.append(())
    for _ in range(2):
        ring.open(3, "cpu")
        assert len(compiled) == 2, "before a call, and once"
        kernel(array)
        ring.close()
        kernel(array)
        recorded, plain = driver.calls[-2:]
        assert recorded == (72, (2, 1, 1), 128, 512, 55, [ring.memory.data_ptr(), 3, 7, array.data_ptr(), *[0] * 4])
        assert plain == (71, (1, 1, 1), 128, 512, 55, [0, 0, 7, array.data_ptr(), *[0] * 4])
    assert len(compiled) == 2


@pytest.mark.parametrize("enqueues", [False, True])
def test_a_kernel_made_within_a_timeline_does_not_write_to_its_ring_afterwards(enqueues, driver, traced):
    make, compiled, ring = traced
    ring.open(3, "cpu")
    operand = Pair(torch.zeros(16), 5) if enqueues else torch.zeros(16)
    kernel = make(operand)
    ring.close()
    assert len(compiled) == 1, "perhaps nobody calls it again"
    for _ in range(2):
        bound_kernels.enqueue("run", [kernel], 66, operand) if enqueues else kernel(operand)
        assert driver.calls.pop()[-1][:3] == [0, 0, 7] and len(compiled) == 2


def test_a_thread_hashes_tritons_files_before_the_first_kernel_does():
    """Triton keeps the hash. The first kernel waits for the thread."""
    from triton.runtime.cache import triton_key

    launch.hashing().join()
    made = triton_key.cache_info().misses
    triton_key()
    assert made and triton_key.cache_info().misses == made and not launch.hashing().is_alive()
