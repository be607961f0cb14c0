"""constraints.txt has one version of each package for each Python that pyproject.toml accepts."""

import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = [f"3.{minor}" for minor in range(10, 15)]
UNPINNED = {"cupy-cuda13x", "cupy-rocm-7-0", "triton-rocm"}  # of machines with a GPU, whose vendor's release decides


def holding(lines, python):
    """The requirements in these lines that hold on a Python."""
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return [each for each in found if not each.marker or each.marker.evaluate({"python_version": python})]


@pytest.mark.parametrize("python", PYTHONS)
def test_each_requirement_has_one_version_that_it_accepts(python):
    assert python in SpecifierSet(PROJECT["requires-python"])
    pins = {}
    for each in holding((ROOT / "constraints.txt").read_text().splitlines(), python):
        assert each.name not in pins, f"{each.name} has two versions on Python {python}"
        (pins[each.name],) = (part.version for part in each.specifier)
    wanted = [
        *PROJECT["dependencies"],
        *(line for extra in PROJECT["optional-dependencies"].values() for line in extra),
    ]
    for each in holding(wanted, python):
        if each.name not in UNPINNED:
            assert pins.get(each.name) in each.specifier, f"{each} on Python {python}: {pins.get(each.name)}"
