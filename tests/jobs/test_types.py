"""Users' programs pass mypy --strict, mypy sees what is wrong in them, and the stubs that it reads name all there is."""

import ast
import inspect
import os
import pathlib
import re
import subprocess
import sys

import pyshmem as shmem
import pyshmem.device as dev
import pyshmem.shmem as c
import pytest

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = """
from typing import Any

import numpy as np
import pyshmem as shmem
import pyshmem.device as dev
import torch
import triton  # type: ignore[import-untyped]


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
    try:
        shmem.put(x, x, old)
    except shmem.OutOfRangeError as error:
        print(error)


main()
"""


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
    found = mypy(tmp_path, program="\n".join([PROGRAM, *wrong]), c_names=c_names)
    assert set(found["program"]) == set(wrong), found
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
