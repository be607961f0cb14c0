"""Kernels compiled for GPUs that need not be here, and their instructions read. One process, in an environment of its own.

Run: `make test-codegen`. Triton reads these variables when it is imported.
"""

import os
import tempfile

os.environ["TRITON_INTERPRET"] = "0"
if "PYTEST_XDIST_WORKER" not in os.environ:  # one cache for all workers
    os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(prefix="pyshmem-codegen-")
os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"  # Triton 3.9 warns where it is not decided

import shutil
import zlib

import pytest
import triton.compiler
from generated import recording

if os.environ.get("PYSHMEM_SAVE_CODE"):  # before any module takes the function's name
    triton.compiler.compile = recording(triton.compiler.compile, os.environ["PYSHMEM_SAVE_CODE"])

from compiling import TARGETS

AMD = [name for name in TARGETS if name != "nvidia"]
# Besides the tests that nothing is spilled: files on registers, widths and matrix instructions, and on Gluon's forms of the
# kernels whose order of memory other files test for all targets.
IN_TURN = [
    "test_attention.py", "test_compiles.py", "test_gluon.py", "test_irregular.py", "test_models.py", "test_ops.py",
    "test_partitioned.py", "test_reach.py", "test_tile_kinds.py", "test_translation.py", "test_widths.py",
]  # fmt: skip
# Whose cases are types, sizes and schedules of the same few kernels
HALVED = ["test_attention.py", "test_irregular.py", "test_models.py", "test_ops.py", "test_tile_kinds.py"]


def pytest_addoption(parser):
    parser.addoption("--everywhere", action="store_true", help="compile every case for all of AMD's GPUs")
    parser.addoption("--halved", action="store_true", help="run every other case of each test, in files of few kernels")


def pytest_configure(config):
    config.addinivalue_line("markers", "all_targets: every case of this test is compiled for all of AMD's GPUs")


def pytest_collection_modifyitems(config, items):
    """Cases of IN_TURN are compiled for NVIDIA and for one of AMD's GPUs in turn, unless all code is saved."""
    if config.getoption("everywhere") or os.environ.get("PYSHMEM_SAVE_CODE"):
        return
    others = [
        item for item in items if (item.path.name in IN_TURN or "spill" in item.originalname) and not is_turn(item)
    ]
    if config.getoption("--halved"):
        others += halved([item for item in items if item.path.name in HALVED])
    config.hook.pytest_deselected(items=others)
    others = set(others)
    items[:] = [item for item in items if item not in others]


def halved(items):
    """The second, the fourth, ... case of each test for each GPU."""
    cases = {}
    for item in items:
        target = item.callspec.params.get("target") if hasattr(item, "callspec") else None
        cases.setdefault((item.path, item.originalname, target), []).append(item)
    return [item for each in cases.values() for item in each[1::2]]


def is_turn(item):
    """Whether a test runs: the GPU goes by its case alone, so that tests of one case share what they compile."""
    given = item.callspec.params if hasattr(item, "callspec") else {}
    chosen = given.get("target", given.get("amd", "nvidia"))
    if chosen == "nvidia" or item.get_closest_marker("all_targets"):
        return True
    case = item.callspec.id.replace(chosen, "", 1).strip("-") or item.originalname
    return chosen == AMD[zlib.crc32(case.encode()) % len(AMD)]


def pytest_sessionfinish(session, exitstatus):
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shutil.rmtree(os.environ["TRITON_CACHE_DIR"], ignore_errors=True)


@pytest.fixture(params=TARGETS)
def target(request):
    """What is compiled for."""
    return request.param


@pytest.fixture(params=AMD)
def amd(request):
    return request.param
