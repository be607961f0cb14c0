"""Writes calls.md: every call with its signature and the first sentence of its docstring, readable without a build.

Run: .venv/bin/python docs/calls.py      `make docs` runs it too, and tests/jobs/test_docs.py compares.
"""

import inspect
import os
import pathlib
import re
from typing import Any

os.environ.setdefault("TRITON_INTERPRET", "1")  # device functions are then plain Python functions
os.environ.setdefault("PYSHMEM_QUIET", "1")

import pages
from families import SECTIONS

PAGE = pathlib.Path(__file__).with_name("calls.md")
HEADS = {
    "host": ("Host: `import pyshmem as shmem`", "shmem"),
    "device": ("Kernels: `import pyshmem.device as dev`", "dev"),
    "ops": ("Operators: `from pyshmem import ops`", "ops"),
    "irregular": ("Sparse matrices: `from pyshmem import irregular`", "irregular"),
}
INTRO = """# All calls

Every call with its arguments, by the chapters of OpenSHMEM 1.6. `help(shmem.put)` prints operands with shapes and types,
order, errors and the routine of the specification; the HTML pages of `make docs` have the same. This page is written by
`docs/calls.py`.
"""


def page() -> str:
    """The text of calls.md."""
    parts = [INTRO]
    for kind, (head, prefix) in HEADS.items():
        parts.append(f"\n## {head}\n")
        known = pages.KNOWN[kind] if kind in pages.APIS else pages.api(pages.ROOMS[kind][0])
        for chapter, names in chapters(kind, known).items():
            if chapter:
                parts.append(f"\n### {chapter}\n")
            parts.append("\n" + "".join(line(prefix, name, known[name]) for name in names))
    return "".join(parts)


def chapters(kind: str, known: dict[str, Any]) -> dict[str, list[str]]:
    """The names of each chapter that has any; operators have one without a name."""
    found: dict[str, list[str]] = {each: [] for each in (*SECTIONS.values(), pages.OWN, pages.ERRORS, "")}
    for name, called in known.items():
        found[pages.chapter(called) if kind in pages.APIS else ""].append(name)
    return {chapter: names for chapter, names in found.items() if names}


def line(prefix: str, name: str, called: Any) -> str:
    """An item of the list: the call, and what it does."""
    return f"- `{prefix}.{name}{arguments(called)}`: {summary(called)}\n"


def arguments(called: Any) -> str:
    """The arguments with their defaults, without types. Exceptions and enumerations have none."""
    if isinstance(called, type) and not hasattr(called, "_fields"):
        return ""
    signature = inspect.signature(pages.plain(called))
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    text = str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    return re.sub(r"<[^>]*>", "...", text)


def summary(called: Any) -> str:
    """The first sentence of a docstring, without its markup."""
    text = " ".join((inspect.getdoc(pages.plain(called)) or "").split("\n\n")[0].split())
    first = re.split(r"(?<=[^.][.:]) (?=[A-Z`a-z]+)", text)[0].rstrip(":")
    return first.replace("``", "`")


if __name__ == "__main__":
    PAGE.write_text(page())
