"""pyshmem.native._native by itself: conversions that refuse, waits of every width, copies, and a build without a compiler."""

import ctypes
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from pyshmem.native import _native
from standin_driver import Driver

LIMITS = {
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint64": (0, 2**64 - 1),
}
POLLED = {"int16": (-(2**15), 2**15 - 1), "uint16": (0, 2**16 - 1), **LIMITS}


@pytest.fixture
def memory():
    """(buffer, address) of 64 zeroed words of 8 bytes, aligned."""
    words = (ctypes.c_uint64 * 64)()
    return words, ctypes.addressof(words)


@pytest.mark.parametrize("kind", LIMITS)
def test_atomics_hold_the_limits_of_their_type_and_refuse_one_more(kind, memory):
    words, address = memory
    low, high = LIMITS[kind]
    swap, fetch = getattr(_native, f"swap_{kind}"), getattr(_native, f"fetch_{kind}")
    for value in (low, high):
        swap(address, value)
        assert fetch(address) == value
        assert words[1] == 0, "the neighbour was written"
    for value in (low - 1, high + 1):
        with pytest.raises((OverflowError, TypeError)):
            swap(address, value)
        assert fetch(address) == high
    with pytest.raises(TypeError):
        swap(address, 1.5)


@pytest.mark.parametrize("kind", POLLED)
def test_wait_any_comes_round_to_every_word_but_those_that_are_excluded(kind, memory):
    _, address = memory
    size = ctypes.sizeof(getattr(ctypes, f"c_{kind}"))
    ctypes.memset(address, 1, 8 * size)  # eight elements that differ from 0
    status = (ctypes.c_int32 * 8)(0, 0, 0, 1, 1, 0, 0, 0)
    wait_any = getattr(_native, f"wait_any_{kind}")
    assert {wait_any(address, 8, 1, 0, 0) for _ in range(100)} == set(range(8))
    assert {wait_any(address, 8, 1, 0, ctypes.addressof(status)) for _ in range(100)} == {0, 1, 2, 5, 6, 7}
    assert wait_any(address, 8, 0, 0, 0) == -1
    with pytest.raises(TimeoutError):
        wait_any(address, 8, 0, 0, 0, 0.05, 10)


BUILD = """
import runpy, sys, sysconfig
path = sysconfig.get_path
sysconfig.get_path = lambda name, *more, **named: {include!r} or path(name, *more, **named)
sys.argv = ["setup.py", "-q", "build_ext"]
runpy.run_path("setup.py", run_name="__main__")
"""


@pytest.mark.parametrize(
    "include, words",
    [("", "pyshmem needs a C11 compiler"), ("/nowhere", r"^pyshmem needs Python's header files .* python3-dev")],
    ids=["compiler", "Python.h"],
)
def test_build_without_a_compiler_or_headers_says_which_in_one_line(include, words, tmp_path):
    root = pathlib.Path(__file__).parents[2]
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, tmp_path)
    shutil.copytree(root / "pyshmem", tmp_path / "pyshmem", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copytree(root / "launch", tmp_path / "launch")
    environment = {"PATH": "/nowhere", "CC": "/nowhere/cc"}
    options = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 100}
    done = subprocess.run([sys.executable, "-c", BUILD.format(include=include)], **options)
    assert done.returncode != 0
    assert re.search(words, done.stderr.splitlines()[-1]), done.stderr


@pytest.mark.parametrize("interface, is_read", [(0x01000009, True), (0x02000000, True), (0x03000000, False)])
def test_numpy_arrays_are_read_natively_in_the_interfaces_whose_layout_is_known(interface, is_read):
    """NumPy's table begins with the function that returns the number of its binary interface."""
    version = ctypes.CFUNCTYPE(ctypes.c_uint)(lambda: interface)
    table = (ctypes.c_void_p * 1)(ctypes.cast(version, ctypes.c_void_p).value)
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    capsule = make(("PyCapsule_New", ctypes.pythonapi))(ctypes.addressof(table), None, None)
    kinds = {np.dtype(kind): code * 256 + np.dtype(kind).itemsize for kind, code in (("i8", 0), ("f8", 2))}
    assert _native.use_ndarrays(capsule, np.ndarray, np.integer, kinds) is is_read


@pytest.fixture
def driver():
    return Driver()


@pytest.mark.parametrize("held", [0, 2, 5])
def test_a_launch_has_the_words_of_its_plan_and_then_those_of_the_call(driver, held):
    """Kernel, grid, threads, shared bytes, stream, and each parameter in a word; zeros behind them."""
    head, words = (driver.address, 11, 4, 2, 1, 256, 1024), [5, 2**63 + 1, 7, 8, 9]
    plan = struct.pack(f"<{8 + held}Q", *head, False, *words[:held])
    assert _native.launch_prepared(plan, 77, *words[held:]) == 0
    assert driver.calls == [(11, (4, 2, 1), 256, 1024, 77, [*words, 0, 0, 0])]


def test_a_graph_is_launched_on_its_stream_and_the_drivers_code_is_returned():
    calls = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64)
    def called(graph, stream):
        calls.append((graph, stream))
        return 700

    assert _native.launch_graph(ctypes.cast(called, ctypes.c_void_p).value, 2**63 + 1, 77) == 700
    assert calls == [(2**63 + 1, 77)]


class Config(ctypes.Structure):
    """CUlaunchConfig; and its attribute's words: CUlaunchAttribute has an int, as much padding, and 64 bytes."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(ctypes.c_uint64 * 9)),
        ("count", ctypes.c_uint),
    )


def test_an_early_launch_allows_the_kernel_to_begin_while_the_one_in_front_of_it_runs():
    """By cuLaunchKernelEx and attribute 6, programmatic stream serialization."""
    calls = []

    @ctypes.CFUNCTYPE(
        ctypes.c_int,
        ctypes.POINTER(Config),
        ctypes.c_uint64,
        ctypes.POINTER(ctypes.POINTER(ctypes.c_uint64)),
        ctypes.c_void_p,
    )
    def called(config, kernel, words, extra):
        config = config[0]
        calls.append((kernel, [*config.grid], [*config.block], config.shared, config.stream, extra))
        calls.append((config.count, [*config.attributes[0]][:2], [words[place][0] for place in range(4)]))
        return 700

    address = ctypes.cast(called, ctypes.c_void_p).value
    plan = struct.pack("<9Q", address, 11, 4, 2, 1, 256, 1024, True, 5)
    assert _native.launch_prepared(plan, 77, 6, 7) == 700
    assert calls == [(11, [4, 2, 1], [256, 1, 1], 1024, 77, None), (1, [6, 1], [5, 6, 7, 0])]


def test_a_prepared_launch_takes_negative_words_and_returns_the_drivers_code(driver):
    driver.code = 700
    plan = struct.pack("<8Q", driver.address, 13, 1, 1, 1, 32, 0, False)
    assert _native.launch_prepared(plan, 0, -1) == 700
    assert driver.calls[0][-1] == [2**64 - 1, *[0] * 7]


def test_a_prepared_launch_refuses_what_is_none(driver):
    plan = struct.pack("<8Q", driver.address, 11, 1, 1, 1, 32, 0, False)
    for wrong in [(), (plan,), (plan[:-8], 0), ("x", 0), (plan, "x"), (plan, 0, *range(129))]:
        with pytest.raises(TypeError):
            _native.launch_prepared(*wrong)
    assert not driver.calls


# ---- layouts of tensors: what plans compare ----


def test_layouts_differ_where_a_kernel_or_a_check_would():
    heap = torch.zeros(64)
    base = heap.data_ptr()
    table = getattr(torch.Tensor, "__dlpack_c_exchange_api__")  # noqa: B009
    view = (
        _native.tensor_reader(table), torch.Tensor, base, [-(1 << 63), 0], [-(1 << 63), 128], 1, 0, None, {}, None, {},
        None,
    )  # fmt: skip

    def of(*tensors):
        return _native.layout([view], *tensors)

    own, live = torch.zeros(4, 4), heap[:16].view(4, 4)
    assert of(None, own) == of(None, own.clone()) == of(None, live)
    others = [
        own[:3], own[:, :3], own.T, own.half(), own.int(), own.view(16), heap[1:17].view(4, 4), own.bool(), own.view(1, 4, 4),
    ]  # fmt: skip
    assert len({of(None, each) for each in (own, *others)}) == len(others) + 1
    assert of(live) != of(own) == of(heap[32:48].view(4, 4)) and of(live) == of(live)
    assert len({of(None, own), of(own, None), of(None, own, None), of(None, own, own)}) == 4


def test_a_layout_is_none_for_what_is_no_plain_tensor():
    class Other(torch.Tensor):
        pass

    table = torch.Tensor.__dlpack_c_exchange_api__
    views = [
        (_native.tensor_reader(table), torch.Tensor, 0, [-(1 << 63)], [-(1 << 63)], 1, 0, None, {}, None, {}, None)
    ]
    for each in (3, [1.0], torch.zeros(2).as_subclass(Other), torch.zeros(1, 1, 1, 1, 1)):
        assert _native.layout(views, None, each) is None
    assert _native.layout([], None, torch.zeros(2)) is None
    for wrong in ((), (views,), (views, *[None] * 7)):
        with pytest.raises(TypeError):
            _native.layout(*wrong)


# ---- copies on a GPU's stream: labs stands for the driver's function, whose answer 0 is success ----


@pytest.fixture
def copier():
    """(copy, the set of its streams, the calls that went the other way)"""
    function = ctypes.cast(ctypes.CDLL(None).labs, ctypes.c_void_p).value
    streams, otherwise = set(), []
    copy = _native.copier(function, lambda device: 70 + device, 3, streams, lambda *call: otherwise.append(call))
    return copy, streams, otherwise


def test_a_threads_first_copy_goes_the_other_way_and_later_ones_to_its_stream(copier):
    copy, streams, otherwise = copier
    for turn in (1, 2):
        copy(0, 5, 8)
        assert (otherwise, streams) == ([(0, 5, 8)], {73} if turn == 2 else set())
    thread = threading.Thread(target=copy, args=(0, 6, 8))
    thread.start()
    thread.join()
    assert otherwise == [(0, 5, 8), (0, 6, 8)]


def test_a_stream_that_quiet_forgot_is_noted_again(copier):
    copy, streams, _ = copier
    copy(0, 5, 8)
    copy(0, 5, 8)
    streams.clear()
    copy(0, 5, 8)
    assert streams == {73}


def test_a_copy_that_the_driver_refuses_goes_the_other_way(copier):
    copy, _, otherwise = copier
    for dest in (0, 7):
        copy(dest, 5, 8)
    assert otherwise == [(0, 5, 8), (7, 5, 8)]


def test_each_copier_is_entered_for_itself(copier):
    copy, _, otherwise = copier
    copy(0, 5, 8)
    other = _native.copier(1, None, 0, set(), lambda *call: otherwise.append("other"))
    other(0, 5, 8)  # would call address 1
    assert otherwise == [(0, 5, 8), "other"]


def test_an_error_of_the_other_way_is_raised_and_the_thread_is_not_entered():
    def refuse(*call):
        raise RuntimeError("no such GPU")

    copy = _native.copier(1, None, 0, set(), refuse)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no such GPU"):
            copy(0, 5, 8)
