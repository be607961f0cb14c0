"""Every intrinsic compiles for every GPU, keeps its values in registers, and is compiled once for all PEs."""

import ast
import importlib
import pathlib

import pytest
import torch
from compiling import assembly, cache_key, context, operand
from kernels import EVERY, F32, I32, U64, name_of, put_to_all, ring, sync_twice, wait_until

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


def refuse_spills(text, target):
    if target == "nvidia":
        assert ".local" not in text
    else:
        assert ".private_segment_fixed_size: 0" in text
        assert "scratch_load" not in text and "scratch_store" not in text


@pytest.mark.parametrize("case", EVERY, ids=name_of)
def test_every_intrinsic_compiles_and_spills_nothing(case, target):
    refuse_spills(assembly(case[0], target, *case[1:]), target)


@pytest.mark.parametrize("case", EVERY[::5], ids=name_of)
def test_intrinsics_compile_where_a_table_finds_the_peers(case, target):
    refuse_spills(assembly(case[0], target, *case[1:], by_table=True), target)


@pytest.mark.parametrize("case", [(sync_twice,), (ring, I32, I32, 1000, U64), (wait_until, U64, 3)], ids=name_of)
@pytest.mark.parametrize("n_pes", [1, 16])
def test_teams_whose_size_triton_compiles_a_variant_for(case, n_pes, target):
    refuse_spills(assembly(case[0], target, *case[1:], n_pes=n_pes), target)


LAUNCHES = {
    "ring_broadcast": ("pass_on", torch.int32, torch.uint64, 1000),
    "ports/bale_histogram": ("count", torch.int64, torch.int64, 4096, 512),
    "ports/bale_index_gather": ("gather", torch.int64, torch.int64, torch.int64, 4096, 512),
    "gemm_all_scatter": (
        "gemm_all_scatter", torch.float16, torch.float16, torch.float32, 512, 512, 128, 128, 64, 64, 64,
    ),
}  # fmt: skip


@pytest.mark.parametrize("example", LAUNCHES)
def test_the_kernels_of_the_examples_compile_and_spill_nothing(example, target, tmp_path, monkeypatch):
    name, *operands = LAUNCHES[example]
    refuse_spills(assembly(kernel_of(example, name, tmp_path, monkeypatch), target, *operands), target)


def kernel_of(example, name, tmp_path, monkeypatch):
    """An example's kernel, without the program that follows it, which needs a job."""
    tree = ast.parse((EXAMPLES / f"{example}.py").read_text())
    kept = [each for each in tree.body if isinstance(each, (ast.Import, ast.ImportFrom))]
    kept += [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.decorator_list]
    module = f"only_{pathlib.Path(example).name}"
    (tmp_path / f"{module}.py").write_text("\n".join(map(ast.unparse, kept)))
    monkeypatch.syspath_prepend(tmp_path)
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("case", EVERY[::6], ids=name_of)
def test_one_binary_serves_all_pes(case, target):
    for by_table in (False, True):
        args = [*map(operand, case[1:])]
        keys = {cache_key(case[0], target, [context(target, me, 32, by_table), *args]) for me in (0, 1, 2, 13, 16)}
        assert len(keys) == 1


# Of equal members: (PE's number, members, the rest of the context).
TEAMS = [
    (0, 4, {}), (3, 4, {"start": 1}), (1, 4, {"start": 16, "step": 2}), (2, 4, {"step": 16}), (0, 3, {"start": 2, "step": -1}),
    (1, 3, {"scratch": 1 << 18}), (1, 4, {"scratch": 1 << 16}), (3, 4, {"scratch": 1 << 10}), (0, 4, {"scratch": 0}),
]  # fmt: skip


@pytest.mark.parametrize("case", EVERY[::6], ids=name_of)
def test_one_binary_serves_teams_of_other_starts_steps_and_scratch(case, target):
    for by_table in (False, True):
        args = [*map(operand, case[1:])]
        contexts = [context(target, me, n_pes, by_table, **rest) for me, n_pes, rest in TEAMS]
        assert len({cache_key(case[0], target, [each, *args]) for each in contexts}) == 1


def test_one_binary_serves_teams_of_one(target):
    contexts = [context(target, 0, 1, start=start, step=step) for start, step in ((0, 1), (1, 1), (16, 0), (3, 4))]
    assert len({cache_key(sync_twice, target, [each]) for each in contexts}) == 1


@pytest.mark.parametrize("case", [(put_to_all, F32, F32, 1000), (put_to_all, I32, I32, 1)], ids=name_of)
def test_a_loop_over_all_pes_around_a_bulk_put_compiles_in_a_team_of_one(case, target):
    """Triton 3.6 fails on loops that it knows to be dead."""
    refuse_spills(assembly(case[0], target, *case[1:], n_pes=1), target)
