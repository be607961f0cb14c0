"""Every line that the pages give to install pyshmem, resolved by pip among stub distributions, without a network.

Stubs are wheels without files. Each index has the versions, names and requirements of the real one that matter: the names
under which Triton and CuPy come for ROCm, and that torch for ROCm 7.14 has ROCm's libraries from wheels of their own.
"""

import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from pyshmem.start import requirements

ROOT = Path(__file__).parents[2]
PLACES = ("README.md", "docs/installation.md", "docs/amd.md", "packaging/Dockerfile.cuda", "packaging/Dockerfile.rocm")
INDEXES = {  # distribution, version, what it requires
    "cpu": [("torch", version + "+cpu", []) for version in ("2.13.0", "2.14.1")],
    "rocm7.2": [
        ("torch", "2.13.0+rocm7.2", ["triton-rocm==3.7.1"]),
        ("triton-rocm", "3.7.1", []),
    ],
    "rocm7.14": [
        ("torch", "2.14.1+rocm7.14", ["triton-rocm==3.8.0", "rocm[libraries]==7.14.0"]),
        ("triton-rocm", "3.8.0", []),
        ("rocm", "7.14.0", ["rocm-sdk-core==7.14.0", "rocm-sdk-libraries==7.14.0; extra == 'libraries'"]),
        ("rocm-sdk-core", "7.14.0", []),
        ("rocm-sdk-libraries", "7.14.0", []),
    ],
    "pypi": [
        ("torch", "2.13.0", ["triton==3.7.1"]),
        ("torch", "2.14.1", ["triton==3.9.0"]),
        ("triton", "3.7.1", []),
        ("triton", "3.9.0", []),
        *((name, "14.2.0", []) for name in ("cupy-cuda13x", "cupy-rocm-7-0")),  # cupy itself has no wheel
    ],
}
CONSTRAINED = re.findall(r"^([\w-]+)==([\d.]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)


def wheel(folder, name, version, requires):
    stem = f"{name.replace('-', '_')}-{version}"
    extras = {found for each in requires for found in re.findall(r"""extra == ["']([\w-]+)""", each)}
    head = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    head += [f"Provides-Extra: {each}" for each in sorted(extras)] + [f"Requires-Dist: {each}" for each in requires]
    files = {
        "METADATA": "\n".join(head) + "\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as file:
        for each, text in files.items():
            file.writestr(f"{stem}.dist-info/{each}", text)
        listed = "".join(f"{stem}.dist-info/{each},,\n" for each in (*files, "RECORD"))
        file.writestr(f"{stem}.dist-info/RECORD", listed)


@pytest.fixture(scope="module")
def indexes(tmp_path_factory):
    """A folder of wheels for each index. pyshmem itself has the requirements of pyproject.toml."""
    folder = tmp_path_factory.mktemp("indexes")
    others = [(name, version, []) for name, version in CONSTRAINED if name not in ("torch", "triton")]
    own = [("pyshmem-mpi", "0.1.0", metadata.requires("pyshmem-mpi"))]
    tomli = [] if any(name == "tomli" for name, *_ in others) else [("tomli", "2.5.0", [])]
    for index, rows in INDEXES.items():
        (folder / index).mkdir()
        for row in [*rows, *((*others, *own, *tomli) if index == "pypi" else ())]:
            wheel(folder / index, *row)
    return folder


def installed(line, indexes, tmp_path, before=()):
    """{distribution: version} after a line of `pip install`s in an empty environment, or one with ``before`` in it."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True, timeout=100)
    for part in [*before, *line.split("&&")]:
        words = re.findall(r"'[^']*'|\S+", part.strip().removeprefix("$ "))
        assert words[:2] == ["pip", "install"], part
        pip(venv, options(words[2:], indexes))
    (site,) = venv.glob("lib/python*/site-packages")
    return dict(re.match(r"(.+)-(.+)\.dist-info", path.name).groups() for path in site.glob("*.dist-info"))


def options(words, indexes):
    """pip's arguments, with folders in place of indexes, and the stub of pyshmem in place of the checkout."""
    given, found = [], {"pypi"}
    words = iter(word.strip("'") for word in words)
    for word in words:
        if word in ("--index-url", "--extra-index-url"):
            name = next(words).rsplit("/whl/", 1)[1]
            found = {name} if word == "--index-url" else found | {name}
        else:
            given.append(re.sub(r"^\.(?=\[|$)", "pyshmem-mpi", word))
    return given + [word for name in sorted(found) for word in ("--find-links", str(indexes / name))]


def pip(venv, arguments):
    command = [sys.executable, "-m", "pip", "--isolated", "--python", str(venv / "bin" / "python"), "install"]
    done = subprocess.run(
        [*command, "--no-index", "--no-cache-dir", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, f"{arguments}: {done.stderr}"


def lines():
    """Every line of the pages that installs the checkout; the same line once."""
    pattern = r"pip install [^`\n#]*?(?:--no-deps \.|'\.\[\w+(?:,\w+)*\]')"
    return sorted({line for place in PLACES for line in re.findall(pattern, (ROOT / place).read_text())})


def machine_of(line):
    index = re.search(r"whl/([\w.]+)", line)
    return index[1] if index else "cuda"


# what the environment of each machine has; of ROCm's, nothing whose name is among those that are CUDA's
WANTED = {
    "cpu": {"torch": "2.13.0+cpu", "triton": "3.7.1"},
    "cuda": {"torch": "2.13.0", "triton": "3.7.1", "cupy_cuda13x": "14.2.0"},
    "rocm7.2": {"torch": "2.13.0+rocm7.2", "triton_rocm": "3.7.1"},
    "rocm7.14": {"torch": "2.14.1+rocm7.14", "triton_rocm": "3.8.0", "rocm_sdk_core": "7.14.0"},
}
USUAL = {"pyshmem_mpi", "mpi4py", "mpich", "numpy", "rich"}  # rich prints the tables of taxes, top and bench
OF_CUDA = {"triton", "cupy_cuda13x"}


def accepted(found, monkeypatch):
    """What pyshmem says of an environment. Errors: ImportError if it refuses it."""
    monkeypatch.setattr(requirements, "version_of", lambda name: found.get(name.replace("-", "_"), ""))
    requirements.check()
    return requirements.versions()


def test_pages_have_a_line_for_each_kind_of_machine():
    assert sorted(map(machine_of, lines())) == sorted(WANTED)


@pytest.mark.parametrize("line", lines(), ids=machine_of)
def test_a_line_of_the_pages_installs_what_pyshmem_accepts_and_one_triton(line, indexes, tmp_path, monkeypatch):
    machine = machine_of(line)
    found = installed(line, indexes, tmp_path)
    assert WANTED[machine].items() <= found.items() and set(found) >= USUAL, found
    assert machine == "cuda" or not set(found) & (OF_CUDA - set(WANTED[machine])), found
    said = accepted(found, monkeypatch)
    assert "rocm-sdk-core 7.14.0" in said if machine == "rocm7.14" else "rocm-sdk-core" not in said


def of_test_gpu(vendor):
    """The line by which `make test-gpu` installs beside torch of that vendor."""
    text = (ROOT / "Makefile").read_text()
    (named,) = re.findall(r"^BESIDE_ROCM := (.*)$", text, re.MULTILINE)
    (recipe,) = re.findall(r"is None\)\"; then (.*?)\n\ttouch", text, re.DOTALL)
    amd, cuda = re.sub(r"\s*\\\n\s*", " ", recipe).split("; else ")
    chosen = (amd if vendor == "amd" else cuda.removesuffix("; fi")).removesuffix(";")
    return chosen.replace("$(BESIDE_ROCM)", named).replace("$(GPU_VENV)/bin/python -m pip", "pip")


@pytest.mark.parametrize("machine", ["cuda", "rocm7.2", "rocm7.14"])
def test_the_tests_on_gpus_keep_the_machines_torch_and_triton(machine, indexes, tmp_path, monkeypatch):
    """The machine has a torch; what the tests need comes beside it."""
    index = "" if machine == "cuda" else f" --index-url https://download.pytorch.org/whl/{machine}"
    wanted = {"torch": "2.14.1", "triton": "3.9.0"} if machine == "cuda" else WANTED[machine]
    line = of_test_gpu("cuda" if machine == "cuda" else "amd")
    found = installed(line, indexes, tmp_path, before=[f"pip install torch{index}"])
    cupy = "cupy_cuda13x" if machine == "cuda" else "cupy_rocm_7_0"
    assert wanted.items() <= found.items() and set(found) >= USUAL | {cupy, "pytest", "scipy"}, found
    assert machine == "cuda" or not set(found) & OF_CUDA, found
    assert "cupy 14.2.0" in accepted(found, monkeypatch)
