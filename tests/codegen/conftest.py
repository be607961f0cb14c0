"""Kernels compiled for GPUs that need not be here, and their instructions read. One process, in an environment of its own.

Run: `make test-codegen`. Triton reads these variables when it is imported.
"""

import collections
import gc
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
from hazards import scanned

if os.environ.get("PYSHMEM_SAVE_CODE"):  # before any module takes the function's name
    triton.compiler.compile = recording(triton.compiler.compile, os.environ["PYSHMEM_SAVE_CODE"])
triton.compiler.compile = scanned(triton.compiler.compile)  # here for the same reason

import compiling  # noqa: E402
from compiling import TARGETS  # noqa: E402

AMD = [name for name in TARGETS if name != "nvidia"]
# Besides the tests that nothing is spilled: files on registers, widths and matrix instructions, and on Gluon's forms of the
# kernels whose order of memory other files test for all targets.
IN_TURN = [
    "test_attention.py", "test_compiles.py", "test_gluon.py", "test_irregular.py", "test_models.py", "test_ops.py",
    "test_partitioned.py", "test_reach.py", "test_redistribution.py", "test_tile_kinds.py", "test_translation.py", "test_widths.py",
]  # fmt: skip
ALIKE = ("gfx942", "gfx950")  # test_arch_names.py: device functions do not tell them apart


def pytest_addoption(parser):
    parser.addoption("--everywhere", action="store_true", help="compile every case for all of AMD's GPUs")
    parser.addoption(
        "--halved",
        action="store_true",
        help="compile half of the cases, and every kernel",
    )


def pytest_configure(config):
    config.addinivalue_line("markers", "all_targets: every case of this test is compiled for all of AMD's GPUs")


def pytest_sessionstart():
    # compilers make objects that live: to look for garbage takes a twentieth of the time
    gc.set_threshold(200_000, 20, 100)


def pytest_collection_modifyitems(config, items):
    """Cases are compiled for some of AMD's GPUs, unless all code is saved. See is_turn."""
    if config.getoption("everywhere") or os.environ.get("PYSHMEM_SAVE_CODE"):
        return
    others = {item for item in items if not is_turn(item)}
    config.hook.pytest_deselected(items=list(others))
    items[:] = [item for item in items if item not in others]


def is_turn(item):
    """Whether a test runs: the GPU goes by its case alone, so that tests of one case share what they compile.

    Cases of IN_TURN, and of tests that nothing is spilled, are compiled for one of AMD's GPUs, others for one of ALIKE.
    """
    chosen, case = split(item)
    among = AMD if item.path.name in IN_TURN or "spill" in item.originalname else ALIKE
    if chosen not in among or item.get_closest_marker("all_targets"):
        return True
    return chosen == among[zlib.crc32((case or item.originalname).encode()) % len(among)]


def split(item):
    """The GPU of a test, and its case, which other tests of the file may have too."""
    given = item.callspec.params if hasattr(item, "callspec") else {}
    chosen = given.get("target", given.get("amd", "nvidia"))
    return chosen, item.callspec.id.replace(chosen, "", 1).strip("-") if given else ""


@pytest.fixture(autouse=True)
def halved(request, monkeypatch):
    """With --halved, a test of every other case of a file ends where it compiles a kernel that another test has compiled."""
    _, case = split(request.node)
    if case and request.config.getoption("halved"):
        known = _cases[request.node.path]
        place = known.setdefault(case, len(known))
        monkeypatch.setattr(compiling, "spared", place % 2 == 1)


_cases = collections.defaultdict(dict)


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
