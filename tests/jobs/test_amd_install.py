"""The lines that the pages give for AMD GPUs install what pyshmem accepts, and no hint installs CUDA's torch over ROCm's."""

import re
from importlib import metadata
from pathlib import Path

import pytest
from pyshmem.start import requirements

ROOT = Path(__file__).parents[2]
# torch's public build matrices: the newest torch for each ROCm, and the Triton that it brings, where pages may name them
NEWEST = {
    "rocm6.4": ((2, 9), (3, 5)),
    "rocm7.0": ((2, 10), (3, 6)),
    "rocm7.1": ((2, 11), (3, 6)),
    "rocm7.2": ((2, 13), (3, 7)),
    "rocm7.14": ((2, 14), (3, 8)),
}
PLACES = (
    "README.md",
    "docs/installation.md",
    "docs/amd.md",
    "packaging/Dockerfile.rocm",
    "pyshmem/start/requirements.py",
)
LINE = r"pip install torch --index-url https://download\.pytorch\.org/whl/rocm[\d.]+ && [^`\n]+?--no-deps \."


def lines():
    return [(place, line) for place in PLACES for line in re.findall(LINE, (ROOT / place).read_text())]


def test_every_index_for_rocm_that_is_named_has_the_oldest_torch_and_triton_that_are_accepted():
    named = {
        (place, index) for place in PLACES for index in re.findall(r"whl/(rocm[\d.]+\d)", (ROOT / place).read_text())
    }
    assert {place for place, _ in named} >= {"README.md", "docs/installation.md", "packaging/Dockerfile.rocm"}
    for place, index in named:
        torch, triton = NEWEST[index]
        assert torch >= requirements.OLDEST["torch"] and triton >= requirements.OLDEST["triton"], (place, index)


def test_the_line_for_amd_gpus_is_the_same_everywhere_and_leaves_no_dependency_out():
    """It installs pyshmem without its dependencies, as those name CUDA's Triton. torch brings Triton."""
    assert {place for place, _ in lines()} == set(PLACES) - {"pyshmem/start/requirements.py"}
    (line,) = {re.sub(r"whl/rocm[\d.]+", "whl/rocm", line) for _, line in lines()}
    needed = {re.match(r"[a-z0-9]+", each)[0] for each in metadata.requires("pyshmem-mpi") if "extra ==" not in each}
    assert needed - set(line.split()) == {"triton"}


def test_tests_on_amd_gpus_install_every_extra_by_name_and_neither_torch_nor_triton():
    """Else pip takes Triton from the package index beside torch's, which has another name, triton-rocm."""
    (named,) = re.findall(r"^BESIDE_ROCM := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    extras = [
        each for each in metadata.requires("pyshmem-mpi") if re.search(r'extra == "(bench|mpich|rocm|test)"', each)
    ]
    assert set(named.split()) == {re.match(r"[\w-]+", each)[0] for each in extras}


def test_a_cupy_of_any_vendor_is_named_among_the_versions(monkeypatch):
    """CuPy's source package, ``cupy``, wants CUDA: what has wheels for ROCm has another name."""
    rocm = {each for each in metadata.requires("pyshmem-mpi") if 'extra == "rocm"' in each}
    (name,) = {re.match(r"[\w-]+", each)[0] for each in rocm}
    monkeypatch.setattr(requirements, "version_of", lambda each: "14.2.0" if each == name else "")
    assert requirements.versions().endswith("cupy 14.2.0")


ROCM = "pip install -U torch --index-url https://download.pytorch.org/whl/rocm7.2"


@pytest.mark.parametrize(
    ("installed", "hint"),
    [
        ({"torch": "2.10.0+rocm7.0", "pytorch-triton-rocm": "3.6.0"}, ROCM),
        ({"torch": "2.11.0+rocm7.1", "triton-rocm": "3.5.1"}, ROCM),
        ({"torch": "2.11.0+rocm7.1"}, ROCM.replace(" -U", "")),
        ({}, ROCM.replace(" -U", "")),
        ({"torch": "2.10.0+cpu", "triton": "3.7.1"}, "pip install -U torch"),
        ({"torch": "2.11.0+rocm7.1", "triton-rocm": "3.6.0", "numpy": "1.25.2"}, "pip install -U numpy"),
    ],
    ids=str,
)
def test_the_hint_takes_torch_and_triton_from_rocms_index_where_torch_or_the_machine_is_amds(
    installed, hint, monkeypatch, tmp_path
):
    found = {"numpy": "2.4.6", "mpi4py": "4.1.2"} | installed
    monkeypatch.setattr(requirements, "version_of", lambda name: found.get(name, ""))
    monkeypatch.setattr(requirements, "_AMD_DEVICE", str(tmp_path))
    with pytest.raises(ImportError) as caught:
        requirements.check()
    assert str(caught.value).endswith(f"installed: {hint}")


def test_without_torch_and_without_an_amd_gpu_the_hint_is_the_package_index(monkeypatch, tmp_path):
    monkeypatch.setattr(requirements, "version_of", lambda name: "")
    monkeypatch.setattr(requirements, "_AMD_DEVICE", str(tmp_path / "none"))
    with pytest.raises(ImportError, match="installed: pip install torch$"):
        requirements.check()
