"""Writes the page stubs of the reference, one per function and class, for Sphinx's autodoc, indices, and figures.md.

autodoc shows signatures and docstrings. What it cannot do is here: chapters, C prototypes, links between host and kernels,
and the labelled lines of docstrings (parameters, Order, Errors, Spec) as definition lists. figures.md has the tables of
the runs in docs/figures, which `python -m benchmarks --medians docs/figures` writes.
"""

import enum
import inspect
import json
import pathlib
import re
import shutil
import sys
import types
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, get_args, get_origin

from families import SECTIONS

import pyshmem
import pyshmem.device
from pyshmem import irregular, ops
from pyshmem.c_names.table import ROWS

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks import sheets  # noqa: E402

SUITES = ("pt2pt", "collectives", "startup", "gpu_pt2pt", "gpu_collectives", "gpu_libraries")
APIS = {"host": pyshmem, "device": pyshmem.device}
TITLES = {"host": "Host calls: pyshmem", "device": "Calls in kernels: pyshmem.device"}
# the rooms above the API: their titles, and the pages that explain them
ROOMS = {
    "ops": (ops, "Operators: pyshmem.ops", ("overlap", "model-operators", "training")),
    "irregular": (irregular, "Irregular work: pyshmem.irregular", ("irregular",)),
}
OWN, ERRORS = "Extensions of pyshmem", "Errors"
_NAMES = r"[A-Za-z_]\w*(?:(?:, and |, | and )[A-Za-z_]\w*)*"  # of a label: one parameter or several


def api(module: types.ModuleType) -> dict[str, Any]:
    """The functions and classes that a module exports, by name."""
    found = {name: getattr(module, name) for name in module.__all__}
    return {name: each for name, each in found.items() if isinstance(each, type) or inspect.isroutine(plain(each))}


def plain(function: Any) -> Any:
    """The Python function of a jit function; any other object as it is."""
    return getattr(function, "fn", function)


KNOWN = {kind: api(module) for kind, module in APIS.items()}


class Part(NamedTuple):
    """A part of a docstring: its labels, none for the summary, and its text."""

    labels: tuple[str, ...]
    text: str


def parts(docstring: str) -> list[Part]:
    """The summary and the labelled parts of a docstring."""
    text = re.sub(rf"(?<=[.;])  (?={_NAMES}: )", "\n", docstring)
    text = re.sub(r"(?<=[.]) (?=(?:Order|Errors|Returns|Spec): )", "\n", text)
    found = [Part((), "")]
    for line in text.splitlines():
        label = re.match(rf"({_NAMES}): ", line)
        if label:
            found.append(Part(tuple(re.split(r", and |, | and ", label[1])), line[label.end() :].strip()))
        else:
            last = found.pop()
            found.append(
                last._replace(text=f"{last.text} {line.strip()}".strip() if line.strip() else last.text + "\n\n")
            )
    return [each._replace(text=each.text.strip()) for each in found]


def show(app: Any, what: str, name: str, shown: Any, options: Any, lines: list[str]) -> None:
    """For autodoc's event: the docstring ``lines`` as markup."""
    if what != "attribute":
        summary, *labelled = parts("\n".join(lines))
        kind = "device" if name.startswith("pyshmem.device") else "host"
        lines[:] = [*rst(kind, summary.text).split("\n"), ""]
        for labels, text in labelled:
            if labels == ("Spec",):
                labels, text = ("Specification",), "OpenSHMEM 1.6, " + text.removeprefix("OpenSHMEM 1.6, ")
            mark = "**{}**" if labels[0].istitle() else "``{}``"
            lines += [", ".join(map(mark.format, labels)), f"   {rst(kind, text)}", ""]


def spell(app: Any, what: str, name: str, called: Any, options: Any, signature: Any, returned: Any) -> Any:
    """For autodoc's event: the ``signature`` with the words of each Literal in place of its name."""
    known = getattr(plain(called), "__globals__", {})

    def words(found: re.Match[str]) -> str:
        kind = known.get(found[0])
        return f"Literal{list(get_args(kind))}" if get_origin(kind) is Literal else found[0]

    return (re.sub(r"\b[A-Z]\w*\b", words, signature), returned) if signature else None


def write(folder: pathlib.Path) -> None:
    """Write all stubs. The folder is deleted first, so that a removed name leaves no page."""
    shutil.rmtree(folder, ignore_errors=True)
    for kind, known in KNOWN.items():
        (folder / kind).mkdir(parents=True)
        for name in known:
            (folder / kind / f"{name}.rst").write_text(page(kind, name))
        (folder / kind / "index.rst").write_text(index(kind))
    for kind, (module, text, guides) in ROOMS.items():
        known = api(module)
        (folder / kind).mkdir()
        for name, called in known.items():
            (folder / kind / f"{name}.rst").write_text(title(name, "=") + automatic(module, name, called))
        program = f".. literalinclude:: /chapters/{kind}/{kind}.py\n\n"
        more = "See " + ", ".join(f":doc:`/{each}`" for each in guides) + ".\n\n"
        head = title(text, "=") + more + f".. currentmodule:: {module.__name__}\n\n"
        (folder / kind / "index.rst").write_text(head + contents(known) + program + hidden(known))
    (folder / "figures.md").write_text(figures())


def figures() -> str:
    """The page of all tables of docs/figures, a section for each suite."""
    runs = [json.loads((ROOT / "docs/figures" / f"{suite}.json").read_text()) for suite in SUITES]
    title = "# Tables\n\nMedians of the slowest PE, ± the spread: see [Performance](../performance.md).\n"
    return title + "".join(f"\n## {run['suite']}\n\n{sheets.markdown(run)}\n" for run in runs)


def title(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}\n\n"


def page(kind: str, name: str) -> str:
    """autodoc's directive, then the C prototypes and the same call in the other API."""
    called, other = KNOWN[kind][name], "device" if kind == "host" else "host"
    text = title(name, "=") + automatic(APIS[kind], name, called)
    for prototype in prototypes(name):
        text += f"\n.. rubric:: In C\n\n``{prototype}``\n\nSee :doc:`/c-names`.\n"
    if name in KNOWN[other]:
        text += f"\n.. rubric:: {'In kernels' if kind == 'host' else 'On the host'}\n\n{link(other, name)}\n"
    return text


def automatic(module: types.ModuleType, name: str, called: Any) -> str:
    """autodoc's directive for a name of a module."""
    text = f".. {directive(called)}:: {module.__name__}.{name}\n"
    if isinstance(called, type) and not issubclass(called, (Exception, tuple)):
        text += "   :members:\n" + "   :undoc-members:\n" * issubclass(called, enum.Enum)
    return text


def contents(names: Iterable[str]) -> str:
    """A table of names with their summaries."""
    return ".. autosummary::\n   :nosignatures:\n\n" + "".join(f"   {name}\n" for name in names) + "\n"


def hidden(names: Iterable[str]) -> str:
    """The entries of names in the table of contents."""
    return ".. toctree::\n   :hidden:\n\n" + "".join(f"   {name}\n" for name in names) + "\n"


def directive(called: Any) -> str:
    if not isinstance(called, type):
        return "autofunction"
    return "autoexception" if issubclass(called, Exception) else "autoclass"


def prototypes(name: str) -> list[str]:
    """Those of the current C routines of that name."""
    routine = f"shmem_{name}"
    return [row.prototype for row in ROWS if row.name.replace("<TYPENAME>_", "") == routine and not row.deprecated[0]]


def index(kind: str) -> str:
    """The chapters of the specification, each a table of its functions with their summaries, and a program."""
    text = title(TITLES[kind], "=") + f".. automodule:: {APIS[kind].__name__}\n\n"
    chapters: dict[str, list[str]] = {each: [] for each in (*SECTIONS.values(), OWN, ERRORS)}
    for name in KNOWN[kind]:
        chapters[chapter(KNOWN[kind][name])].append(name)
    for each, names in chapters.items():
        if names:
            text += title(each, "-") + contents(names)
            if each != ERRORS:
                text += f".. literalinclude:: /chapters/{kind}/{each.lower().replace(' ', '_')}.py\n\n"
            text += hidden(names)
    return text + constants(kind)


def chapter(called: Any) -> str:
    """The chapter that its Spec names, or that of its module."""
    if isinstance(called, type) and issubclass(called, Exception):
        return ERRORS
    for documented in (plain(called), inspect.getmodule(plain(called))):
        section = re.search(r"Spec: (?:OpenSHMEM 1\.6, )?(\d+(?:\.\d+)?)", documented.__doc__ or "")
        if section and section[1] in SECTIONS:
            return SECTIONS[section[1]]
    return OWN


def constants(kind: str) -> str:
    """The exported names that are neither functions nor classes."""
    module, text = APIS[kind], title("Constants", "-")
    for name in module.__all__:
        value = getattr(getattr(module, name), "value", getattr(module, name))
        if name not in KNOWN[kind] and not name.startswith("__"):
            meaning = f" = {value}" if isinstance(value, int) else f", a {type(value).__name__}"
            text += f"- ``{name}``{meaning}\n"
    return text


def link(kind: str, name: str) -> str:
    role = "class" if isinstance(KNOWN[kind][name], type) else "func"
    return f":py:{role}:`{name} <{APIS[kind].__name__}.{name}>`"


def rst(kind: str, text: str) -> str:
    """Text of a docstring as markup: ``literals`` as they are, names with an underscore as links, the rest escaped."""
    pieces = re.split(r"(``.*?``)", text)
    return "".join(each if each.startswith("``") else _linked(kind, each) for each in pieces)


def _linked(kind: str, text: str) -> str:
    escaped = re.sub(r"([*`|\\])|_(?!\w)", r"\\\g<0>", text)
    return re.sub(r"(?<![\w.`])[a-z]+_\w+(?![\w=(])", lambda found: _link(kind, found[0]), escaped)


def _link(kind: str, name: str) -> str:
    home = next((each for each in (kind, "host") if name in KNOWN[each]), None)
    return f"{link(home, name)}\\ " if home else name
