"""Launches of compiled kernels from Python's arguments: what is compiled anew, and the words that the driver is given."""

from types import SimpleNamespace

import pytest
import torch
from pyshmem.runtime.errors import LaunchError
from pyshmem.runtime.gpu import launch
from pyshmem.runtime.gpu.launch import CachedKernel, Loaded
from standin_driver import Driver

CONSTANT, POINTER, INTEGER, FLOAT, DOUBLE = range(5)
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


# pairs for which Triton compiles one kernel, and pairs for which it compiles two
ALIKE = [(3, 5), (16, 32), (-1, 7), (1 << 40, 1 << 50), (-(2**31), 2**30)]
APART = [(1, 3), (3, 16), (3, 2**31), (2**31 + 1, 2**63 + 1), (1, True), (-(2**31) - 1, 3), (None, 3)]


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
