"""The device functions in Gluon's kernels: they compile, and what holds for Triton's instructions holds for these."""

import importlib
import inspect
import pathlib
import re

import gluon_kernels as forms
import kernels
import pyshmem.device.gluon as dev
import pytest
import test_memory_model as model
import test_widths as widths
import torch
from compiling import TARGETS, assembly, instructions, places
from test_compiles import refuse_spills
from test_partitioned import partition
from triton.runtime.jit import JITFunction

F32, U64 = torch.float32, torch.uint64


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """A cache for each test: Triton's does not tell a kernel from its Gluon form."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def gluon_assembly(kernel, target, *operands, **options):
    """assembly of the kernel's Gluon form."""
    form = forms.FORMS.get(kernel, kernel)
    warp = [TARGETS[target].warp_size] if "WARP" in form.arg_names else []
    return assembly(form, target, *operands, *warp, **options)


EVERY = list({case[0]: case for case in reversed(kernels.EVERY)}.values()) + [
    (forms.gathers, F32, F32, 1000),
    (forms.reductions, F32, F32, 1000),
]


@pytest.mark.parametrize("case", EVERY, ids=kernels.name_of)
def test_every_intrinsic_compiles_and_spills_nothing(case):
    """For one of the GPUs in turn: what they differ in is compiled for all of them below."""
    target = list(TARGETS)[EVERY.index(case) % len(TARGETS)]
    refuse_spills(gluon_assembly(case[0], target, *case[1:]), target)


def test_elements_of_partitions_compile_and_spill_nothing(target):
    refuse_spills(gluon_assembly(forms.elements, target, partition(target), 1000), target)


TILES = [
    (forms.tiles_combined, F32, F32),
    (forms.tiles_moved, F32, F32),
    (forms.tiles_passed, F32, F32, 1, 3),
    (forms.rows_without_axis, F32, F32),
]


@pytest.mark.parametrize("case", TILES, ids=kernels.name_of)
def test_tiles_keep_their_layouts_through_collectives(case, target):
    """No element changes its thread, so none goes through shared memory: on NVIDIA, where polling needs none either."""
    text = gluon_assembly(case[0], target, *case[1:])
    refuse_spills(text, target)
    lines = instructions(text)
    if target == "nvidia":
        assert places(lines, r"st\.global\.v4\.b32")
        assert not places(lines, r"(ld|st)\.shared")


def test_gathering_along_a_new_dimension_is_refused_in_gluon():
    with pytest.raises(Exception) as caught:
        gluon_assembly(forms.gathered_without_axis, "nvidia", F32)
    error = caught.value
    while error.__cause__ is not None:
        error = error.__cause__
    assert "all_gather: PE ?: axis: got None; expected a dimension of the tile, from 0 to 1" in str(error)


def test_every_function_is_called_by_some_kernel():
    sources = [form.src for form in vars(forms).values() if isinstance(form, JITFunction)]
    sources += [form.src for form in forms.FORMS.values()]
    functions = {name for name in dev.__all__ if isinstance(getattr(dev, name), JITFunction)}
    # of names for one function each
    rows = ("_reduce", "_grid", "inscan", "exscan", "collect", "alltoall", "alltoalls")
    families = {name for name in functions if name.endswith(rows)}
    assert {name for name in functions - families if not any(f"dev.{name}(" in text for text in sources)} == set()


def test_the_kernel_of_the_page_compiles_to_accesses_of_16_bytes(target, tmp_path, monkeypatch):
    """Down to the kernel: the program that follows needs a job."""
    page = pathlib.Path(__file__).parents[2] / "docs/gluon.md"
    program = page.read_text().split("```python\n")[1].split("```")[0].split("shmem.init()")[0]
    (tmp_path / f"page_{target}.py").write_text(program)
    monkeypatch.syspath_prepend(tmp_path)
    kernel = importlib.import_module(f"page_{target}").scale_to_the_right
    rows = forms.gl.BlockedLayout([4], [TARGETS[target].warp_size], [4], [0])
    lines = instructions(assembly(kernel, target, F32, F32, U64, 100_000, 2048, rows))
    assert widths.wide_loops(lines, target)


# ---- the memory model and the widths: the tests of Triton's kernels, on Gluon's ----


@pytest.fixture(autouse=True)
def of_gluon(monkeypatch):
    for module in (model, widths):
        monkeypatch.setattr(module, "assembly", gluon_assembly)


READ = "signals|signal$|polls|acquires|behind_a_barrier|fence|barriers|atomics|loops"
for _name, _test in inspect.getmembers(model, inspect.isfunction):
    if _name.startswith("test_") and places([_name], READ):
        globals()[_name] = _test


def test_copies_and_tiles_move_16_bytes_an_access(target):
    widths.test_a_bulk_copy_has_four_loads_of_16_bytes_in_flight(torch.int8, kernels.put_signal, True, target)
    widths.test_a_bulk_copy_has_four_loads_of_16_bytes_in_flight(F32, kernels.get, False, target)
    widths.test_tiles_keep_their_alignment_through_translation(torch.float16, False, target)
    widths.test_tiles_keep_their_alignment_through_translation(F32, True, target)


# ---- partitions of a program's warps ----


@pytest.mark.parametrize("num_warps", [1, 4])
def test_a_partition_signals_by_its_own_first_thread_behind_its_own_barrier(num_warps):
    lines = instructions(assembly(forms.send_in_partition, "nvidia", F32, F32, U64, 3, num_warps))
    release = r"@p st\.release\.sys\.global\.b64"
    assert len(places(lines, release)) == 1
    barrier = r"bar\.warp\.sync" if num_warps == 1 else rf"bar\.sync\s+[1-9]\d*, {num_warps * 32};"
    signal = places(lines, release)[0]
    before = [line for line in lines[:signal] if re.search(r"bar\.|st\.global", line)]
    assert re.search(barrier, before[-1]), before
    assert "tid" not in lines[signal]  # which counts from the program's first warp
