"""A user's program passes mypy --strict, mypy sees what is wrong in it, and the stubs that it reads name all there is."""

import ast
import inspect
import os
import pathlib
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


def mypy(text, tmp_path):
    """mypy's words on a program, as of a user: no configuration, and pyshmem found as an installed package is."""
    (tmp_path / "program.py").write_text(text)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        f"--cache-dir={ROOT}/.mypy_cache/user",
        "program.py",
    ]
    environment = {**os.environ, "MYPYPATH": str(tmp_path / "path")}
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "pyshmem").symlink_to(ROOT / "pyshmem")
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    return [line for line in done.stdout.splitlines() if line.startswith("program.py")]


@pytest.mark.timeout(600)
def test_a_users_program_passes_mypy_strict_and_its_errors_are_found(tmp_path):
    wrong = PROGRAM + "shmem.put([1, 2], [1, 2], 0)\ndev.putt(1)\nshmem.barrier_al()\n"
    found = mypy(wrong, tmp_path)
    lines = wrong.splitlines()
    at = {lines[int(line.split(":")[1]) - 1] for line in found if " error: " in line}
    assert at == {"shmem.put([1, 2], [1, 2], 0)", "dev.putt(1)", "shmem.barrier_al()"}, found


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
