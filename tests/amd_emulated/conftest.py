"""The device functions, compiled for AMD GPUs and executed on CPUs by an emulator, on the heaps of a real job.

Run: `PYSHMEM_TINYGRAD=<checkout of github.com/tinygrad/tinygrad> make test-amd-emulated`. It needs clang, or another compiler
that takes clang's arguments, named by CC.
"""

# ruff: noqa: E402
import importlib.util
import os
import pathlib
import sys

os.environ["TRITON_INTERPRET"] = "0"
os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"  # Triton 3.9 warns where it is not decided
_TESTS = pathlib.Path(__file__).parent.parent
sys.path += [str(_TESTS / "pes"), str(_TESTS / "codegen")]

import pyshmem.device as dev  # noqa: F401  before triton
import pytest
from triton.runtime.jit import JITFunction

_spec = importlib.util.spec_from_file_location("conftest_of_pes", _TESTS / "pes" / "conftest.py")
_pes = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_pes)
# A job's PEs run, fail and end here as they do there, with the same fixtures.
globals().update({name: each for name, each in vars(_pes).items() if not name.startswith("_")})

ARCHITECTURES = ("gfx90a", "gfx942", "gfx950")
CHECKOUT = pathlib.Path(os.environ.get("PYSHMEM_TINYGRAD", "/nowhere"))


@pytest.fixture(scope="session", params=ARCHITECTURES)
def amd(request):
    """The architecture on which kernels run, by whatever launch. Skips where there is no emulator."""
    if not (CHECKOUT / "test/mockgpu/amd/emu.py").is_file():
        pytest.skip("PYSHMEM_TINYGRAD names no checkout of github.com/tinygrad/tinygrad, so there is no emulator")
    from launching import Device

    emulated = Device(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JITFunction, "run", lambda kernel, *args, **named: emulated.launch(kernel, *args, **named))
        patch.setattr("pyshmem.host.device_context._heap", lambda device: emulated)
        yield emulated


def pytest_addoption(parser):
    parser.addoption("--everywhere", action="store_true", help="every case of every test on every architecture")


MANY = (
    "test_device_functions.py",
    "test_far_executed.py",
    "test_host_atomics.py",
)  # cases, of element types for the most part


def pytest_collection_modifyitems(config, items):
    """Of the tests of many cases each architecture has a ninth of these, others than the next one, and at least one."""
    if config.getoption("everywhere"):
        return
    cases = {}  # of a test, without the architecture
    for item in items:
        if item.path.name in MANY:
            cases.setdefault((item.path, item.originalname), {}).setdefault(_without_architecture(item), []).append(
                item
            )
    kept = set()
    for several in cases.values():
        for place, architecture in enumerate(ARCHITECTURES):
            own = list(several.values())
            for case in own[place % len(own) :: 9]:
                kept.update(item for item in case if item.callspec.params["amd"] == architecture)
    items[:] = [item for item in items if item in kept or item.path.name not in MANY]


def _without_architecture(item):
    return item.name.replace(item.callspec.params["amd"], "", 1)


@pytest.fixture(autouse=True)
def everywhere(amd):
    """Every test runs on every architecture."""
