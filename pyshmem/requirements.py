"""Refuse, at import and in one line, versions that are known not to work: alone or in pairs."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

OLDEST = {"torch": (2, 11), "triton": (3, 6), "numpy": (1, 26), "mpi4py": (4, 1)}


def check() -> None:
    """Errors: ImportError naming the package, what is installed, and what to install."""
    found = {name: _installed(name) for name in OLDEST}
    for name, least in OLDEST.items():
        if found[name] < least:
            raise ImportError(
                f"pyshmem needs {name} >= {_text(least)}; {_text(found[name])} is installed: pip install -U {name}"
            )
    if found["triton"] < (3, 7) and found["numpy"] >= (2, 4):
        raise ImportError(
            f"triton {_text(found['triton'])} cannot interpret range(0, n) under NumPy {_text(found['numpy'])}: "
            "pip install 'numpy<2.4', or 'triton>=3.7'"
        )


def _installed(name: str) -> tuple[int, int]:
    try:
        major, minor = version(name).split(".")[:2]
    except PackageNotFoundError:
        raise ImportError(
            f"pyshmem needs {name} >= {_text(OLDEST[name])}, which is not installed: pip install {name}"
        ) from None
    return int(major), int(minor)


def _text(release: tuple[int, int]) -> str:
    return f"{release[0]}.{release[1]}"
