"""Users' programs pass mypy --strict, mypy sees what is wrong in them, and the stubs that it reads name all there is."""

import ast
import inspect
import itertools
import os
import pathlib
import re
import subprocess
import sys
import typing

import pyshmem as shmem
import pyshmem.device as dev
import pyshmem.shmem as c
import pytest
from pyshmem import irregular, ops
from pyshmem.irregular import schedules, shares
from pyshmem.ops import gradients
from pyshmem.ops.attention import decode_schedules as decode, prefill_schedules as prefill, segments
from pyshmem.ops.experts import schedules as experts
from pyshmem.ops.gemm import problem as gemm
from pyshmem.ops.gemm.orders import POLICIES
from pyshmem.ops.gemm.selection import ABLE
from pyshmem.ops.norms import reduce_scatter_rms_norm as shares_of_norms, schedules as norms
from pyshmem.ops.norms.share_schedules import SHARES
from pyshmem.ops.training import reducer, schedules as training
from pyshmem.transport.teams import operators

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = """
from typing import Any

import numpy as np
import pyshmem as shmem
import pyshmem.device as dev
import torch
import triton  # type: ignore[import-untyped]
from pyshmem import irregular, ops


@triton.jit  # type: ignore[untyped-decorator]
def kernel(ctx: Any, word: Any) -> None:
    dev.p(ctx, word, 1, (dev.my_pe(ctx) + 1) % dev.n_pes(ctx))
    dev.wait_until(ctx, word, dev.CMP_GE, 1)


def main() -> None:
    shmem.init(heap_size="1m")
    x: torch.Tensor = shmem.zeros(4, dtype=torch.int64)
    shmem.put(x, np.ones(4, dtype=np.int64), shmem.my_pe())
    shmem.sum_reduce(x, x)
    shmem.wait_until(x[:1], shmem.CMP_GE, 1)
    with shmem.TEAM_WORLD.split_strided() as team:
        total: int = team.n_pes() + team.translate_pe()
    old: int = shmem.atomic_fetch_add(x[:1], total, 0)
    kernel[(1,)](shmem.device_context(), x[:1])
    shmem.wait_until(x[:1], ">=", 1)
    shmem.reduce(x, x, "max")
    product: torch.Tensor = ops.gemm_all_gather(x, x, "columns", schedule="fused", order="halves", tile=(16, 16, 16))
    ops.plan("all_gather_gemm", x, x, columns=8)
    normed, kept = ops.reduce_scatter_rms_norm(product, product, x, schedule="push")
    spread: torch.Tensor = irregular.spmv(irregular.csr(kept), product, "by_length", size=8)
    ops.attention(spread, spread, spread, order="zigzag")
    try:
        shmem.put(x, x, old)
    except shmem.OutOfRangeError as error:
        print(error)


main()
"""


WRONG_WORDS = {
    'shmem.wait_until(y, "=>", 1)': '"wait_until" has incompatible type "Literal[\'=>\']"',
    'shmem.test_some(y, "=", 1)': '"test_some" has incompatible type',
    'shmem.signal_wait_until(y, "ge", 1)': '"signal_wait_until" has incompatible type',
    'shmem.reduce(y, y, "mean")': '"reduce" has incompatible type',
    'shmem.fcollect_on_stream(y, y, engine="copies")': '"engine" to "fcollect_on_stream" has incompatible type',
    'ops.gemm_all_gather(y, y, split="row")': '"split" to "gemm_all_gather" has incompatible type',
    'ops.gemm_all_reduce(y, y, schedule="copy_engine")': '"schedule" to "gemm_all_reduce" has incompatible type',
    'ops.all_gather_gemm(y, y, order="half")': '"order" to "all_gather_gemm" has incompatible type',
    "ops.gemm_reduce_scatter(y, y, columns=8)": 'Unexpected keyword argument "columns"',
    'ops.plan("gemm", y, y)': '"plan" has incompatible type',
    "ops.attention(y, y, y, sorted=True)": 'Unexpected keyword argument "sorted"',
    'ops.reduce_scatter_rms_norm(y, y, y, schedule="words")': '"schedule" to "__call__" of "_Norm" has incompatible type',
    'ops.moe_dispatch(y, y, y, 4, overflow="dropped")': '"overflow" to "moe_dispatch" has incompatible type',
    'irregular.spmv(irregular.csr(y), y, "rows")': '"spmv" has incompatible type',
    'irregular.plan(y, cut="columns")': '"cut" to "plan" has incompatible type',
    'shmem.zeros(4, device="gpu")': '"device" to "zeros" has incompatible type',
    "shmem.TEAM_WORLD.split_strided(0, 1, 1, contexts=1)": 'Unexpected keyword argument "contexts"',
    'dev.sum_reduce(y, y, y, op="sum")': 'Unexpected keyword argument "op"',
    'dev.all_reduce(shmem.device_context(), y, "mean")': '"all_reduce" has incompatible type',
    'dev.atomic_add(shmem.device_context(), y, 1, 0, sem="seq_cst")': '"sem" to "atomic_add" has incompatible type',
    "z: int = dev.put(shmem.device_context(), y, y, 1, 0)": '"put" does not return a value',
}


C_NAMES = """\
import torch
from pyshmem.shmem import *

shmem_init()
x = shmem_malloc(64, torch.int64)
shmem_long_put(x, torch.zeros(8, dtype=torch.int64), 8, 0)
shmem_put(SHMEM_CTX_DEFAULT, x, x, 1, 0)
config = shmem_team_config_t(num_contexts=1)
ret, team = shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, shmem_n_pes(), config, SHMEM_TEAM_NUM_CONTEXTS)
ret, ctx = shmem_team_create_ctx(team, SHMEM_CTX_PRIVATE)
value: int = pshmem_ctx_long_g(ctx, x, 0) + _my_pe() + _SHMEM_SYNC_VALUE
shmem_finalize()
"""
WRONG_C_NAMES = {
    "shmem_long_put(1, 2)": "Too few arguments",
    "w: str = shmem_long_g(1, 2)": "Incompatible types",
    "shmem_clear_cache_inv()": "not defined",
    "shmem_ctx_long_put(1, 1, 1, 1, 1)": "incompatible type",
    "shmem_long_g(1, pe=2)": "Unexpected keyword",
}


def mypy(tmp_path, **programs):
    """The lines with errors that mypy finds in each program, and what it says, as for a user: no configuration, and pyshmem
    found as an installed package is."""
    for name, text in programs.items():
        (tmp_path / f"{name}.py").write_text(text)
    files = [f"{name}.py" for name in programs]
    options = ["--strict", "--config-file=", f"--cache-dir={ROOT}/.mypy_cache/user"]
    environment = {**os.environ, "MYPYPATH": str(tmp_path / "path")}
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "pyshmem").symlink_to(ROOT / "pyshmem")
    command = [sys.executable, "-m", "mypy", *options, *files]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    said = {name: {} for name in programs}
    for name, number, words in re.findall(r"^(\w+)\.py:(\d+): error: (.*)$", done.stdout, re.MULTILINE):
        said[name].setdefault(programs[name].splitlines()[int(number) - 1], words)
    return said


@pytest.mark.timeout(600)
def test_users_programs_pass_mypy_strict_and_their_errors_are_found(tmp_path):
    wrong = ["shmem.put([1, 2], [1, 2], 0)", "dev.putt(1)", "shmem.barrier_al()"]
    c_names = "\n".join([C_NAMES, *WRONG_C_NAMES])
    words = "y = torch.ones(4)"
    found = mypy(tmp_path, program="\n".join([PROGRAM, *wrong, words, *WRONG_WORDS]), c_names=c_names)
    assert set(found["program"]) == {*wrong, *WRONG_WORDS}, found
    assert all(words in found["program"][line] for line, words in WRONG_WORDS.items()), found
    assert set(found["c_names"]) == set(WRONG_C_NAMES), found
    assert all(words in found["c_names"][line] for line, words in WRONG_C_NAMES.items()), found


def declared(stub):
    """What an installed stub declares: the parameters of each function, with whether they may be left out; None for a value."""
    found = {}
    for each in ast.parse((pathlib.Path(shmem.__file__).parent / stub).read_text()).body:
        if isinstance(each, ast.FunctionDef):
            taken = [*each.args.posonlyargs, *each.args.args]
            optional = len(taken) - len(each.args.defaults)
            rest = [(each.args.vararg.arg, False)] if each.args.vararg else []
            found.setdefault(each.name, [(one.arg, place >= optional) for place, one in enumerate(taken)] + rest)
        elif isinstance(each, ast.AnnAssign):
            found[each.target.id] = None
        elif isinstance(each, ast.Assign):
            found[each.targets[0].id] = found.get(getattr(each.value, "id", ""))
        elif isinstance(each, ast.ImportFrom):
            found |= {name.asname: None for name in each.names if name.asname}
    return found


def taken(function):
    parameters = inspect.signature(getattr(function, "fn", function)).parameters.values()
    return [(each.name, each.default is not each.empty) for each in parameters]


def test_the_stub_of_the_device_functions_has_their_names_and_parameters():
    found = declared("device/__init__.pyi")
    assert sorted(found) == dev.__all__
    for name, parameters in found.items():
        if parameters is not None:
            assert parameters == taken(getattr(dev, name)), name
    values = {name for name, parameters in found.items() if parameters is None}
    assert values == {
        name for name in dev.__all__ if not inspect.isroutine(getattr(getattr(dev, name), "fn", getattr(dev, name)))
    }


def test_the_stub_of_the_c_names_has_all_of_them_and_their_parameters():
    found = declared("shmem.pyi")
    assert set(found) - {"Address", "__all__"} == set(c.__all__)
    for name in c.__all__:
        value = getattr(c, name)
        if inspect.isfunction(value):
            assert found[name] == taken(value), name
        else:
            assert found[name] is None, name


def test_the_words_that_types_allow_are_those_that_calls_accept():
    accepted = [
        (operators.Op, operators.OPERATORS),
        (gemm.Product, ABLE),
        (gemm.Order, {"auto", *POLICIES}),
        (gradients.Gradient, gradients.KINDS),
        (gemm.Schedule, {"auto", *itertools.chain(*ABLE.values())}),
        *((schedules_of(name), {"auto", *able}) for name, able in ABLE.items()),
        *((room.Schedule, {"auto", *room.SCHEDULES}) for room in (norms, decode, prefill, experts, training)),
        (shares_of_norms.Schedule, {"auto", *SHARES}),
        (segments.Order, segments.ORDERS),
        (reducer.Buffers, reducer.BUFFERS),
        (schedules.Name, {"auto", *irregular.SCHEDULES}),
        (shares.Balanced, shares.CUTS),
        (shares.Fetch, shares.FETCHES),
    ]
    for words, known in accepted:
        assert set(typing.get_args(words)) == set(known)


def schedules_of(name):
    return typing.get_type_hints(getattr(ops, name))["schedule"]
