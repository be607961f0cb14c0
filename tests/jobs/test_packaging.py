"""The recipes of packaging/ ask for what pyproject.toml asks for, and do what docs/installation.md says."""

import ast
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from pyshmem.version import __version__

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
SPACK = PACKAGING / "spack/packages/py_pyshmem_mpi/package.py"
CONDA = PACKAGING / "conda/recipe.yaml"
STUBS = ("shmem.pyi", "__init__.pyi")  # written by the build
SCRIPTS = ("pyshmem", "pyshmemrun", "oshrun", "oshcc", "oshc++", "shmem_info")  # setuptools installs them beside python
CONDA_NAMES = {"torch": "pytorch"}  # others have the name that they have on the package index


def lower_bounds():
    """What pyshmem needs, without extras: the least version by name."""
    needed = [each for each in metadata.requires("pyshmem-mpi") if "extra ==" not in each]
    return dict(re.fullmatch(r"([a-z0-9]+)>=([\d.]+)(?:; .*)?", each).groups() for each in needed)


def test_the_spack_recipe_has_the_version_and_the_lower_bounds_of_the_distribution():
    calls = [each for each in ast.walk(ast.parse(SPACK.read_text())) if isinstance(each, ast.Call)]
    named = [
        (each.func.id, each.args[0].value) for each in calls if each.args and isinstance(each.args[0], ast.Constant)
    ]
    assert [value for name, value in named if name == "version"] == [__version__]
    bounds = [re.fullmatch(r"py-([a-z0-9]+)@([\d.]+):", value) for name, value in named if name == "depends_on"]
    assert dict(each.groups() for each in bounds if each) == lower_bounds() | {"setuptools": "77"}


def test_the_conda_recipe_has_the_version_and_the_lower_bounds_of_the_distribution():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    recipe = yaml.safe_load(CONDA.read_text())
    assert recipe["context"]["version"] == __version__
    wanted = {CONDA_NAMES.get(name, name): least for name, least in lower_bounds().items()} | {"python": "3.10"}
    assert dict(each.split(" >=") for each in recipe["requirements"]["run"]) == wanted


def test_the_conda_recipe_is_one_that_rattler_build_renders():
    rattler_build = pytest.importorskip("rattler_build", reason="py-rattler-build is not installed")
    (rendered,) = rattler_build.Stage0Recipe.from_file(str(CONDA)).render()
    assert rendered.recipe.to_dict()["package"] == {"name": "pyshmem-mpi", "version": __version__}


@pytest.mark.parametrize("vendor", ["cuda", "rocm"])
def test_hadolint_finds_nothing_in_the_images_but_what_is_meant(vendor):
    """Debian's packages and pip's are not pinned, since constraints.txt is; `cd /` leaves a folder that is then removed."""
    hadolint = shutil.which("hadolint")
    if not hadolint:
        pytest.skip("hadolint is not installed")
    meant = [f"--ignore={rule}" for rule in ("DL3003", "DL3008", "DL3013")]
    done = subprocess.run([hadolint, *meant, PACKAGING / f"Dockerfile.{vendor}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("vendor", ["cuda", "rocm"])
def test_images_install_by_the_lines_of_the_installation_page(vendor):
    text = (PACKAGING / f"Dockerfile.{vendor}").read_text()
    (line,) = re.findall(r"^RUN (pip install .+)$", text, re.M)
    assert f"`{line}`" in (ROOT / "docs/installation.md").read_text()
    assert f"docker build -f packaging/Dockerfile.{vendor} " in text


def test_a_wheel_has_every_file_of_the_package_and_the_stubs_though_the_builder_has_no_torch(tmp_path):
    source, built = tmp_path / "source", tmp_path / "built"
    left_out = shutil.ignore_patterns("__pycache__", "*.so", *STUBS)
    for folder in ("pyshmem", "launch", "packaging"):
        shutil.copytree(ROOT / folder, source / folder, ignore=left_out)
    for file in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    without_torch = "import runpy, sys; sys.modules['torch'] = None; runpy.run_path('setup.py')"
    command = [sys.executable, "-c", without_torch, "-q", "build_py", "--build-lib", built]
    done = subprocess.run(command, capture_output=True, text=True, cwd=source)
    assert done.returncode == 0, done.stderr
    for folder, installed in (("pyshmem", "pyshmem"), ("launch", "pyshmem/launch")):
        files = [file.relative_to(source / folder) for file in (source / folder).rglob("*") if file.is_file()]
        wanted = [file for file in files if file.suffix not in (".c", ".h", ".pyc") and file.name not in SCRIPTS]
        assert wanted and [file for file in wanted if not (built / installed / file).is_file()] == []
    for stub in ("shmem.pyi", "device/__init__.pyi"):
        assert (built / "pyshmem" / stub).read_text() == (ROOT / "pyshmem" / stub).read_text()
