"""Defaults of a site: a TOML file in which administrators set environment variables, below those that users set."""

from __future__ import annotations

import os
from collections.abc import Container
from functools import cache
from typing import Any

VARIABLE, FILE = "PYSHMEM_CONFIG", "/etc/pyshmem.toml"


def path() -> str:
    """The file of this process: that of PYSHMEM_CONFIG, else the system's. An empty PYSHMEM_CONFIG means no file."""
    return os.environ.get(VARIABLE, FILE)


def defaults(path: str, known: Container[str]) -> dict[str, str]:
    """Return the texts that a file gives to variables. Without the system's file there are none.

    Errors: ValueError with a sentence for a file that cannot be read, for other content and for unknown variables.
    """
    rows = _content(path)
    for name, value in rows.items():
        if name not in known:
            raise ValueError(f"variables of pyshmem that a site may set, see docs/environment.md; {name} is none")
        if not isinstance(value, (str, int, float)):
            raise ValueError(f"a text, a number or a truth value for {name}; it has {value!r}")
    return {name: str(int(value)) if isinstance(value, bool) else str(value) for name, value in rows.items()}


@cache
def _content(path: str) -> dict[str, Any]:
    if not path or (path == FILE and not os.path.exists(path)):
        return {}
    try:
        import tomllib  # most machines have no such file
    except ModuleNotFoundError:  # Python 3.10
        import tomli as tomllib
    try:
        with open(path, "rb") as file:
            rows: dict[str, Any] = tomllib.load(file)
            return rows
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"a file of variables and values; {error}") from None
