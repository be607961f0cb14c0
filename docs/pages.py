"""Writes the reference: a page for each public function and class, and an index for each of the two APIs."""

import enum
import inspect
import pathlib
import re
import shutil
from typing import Any

import docstrings

import pyshmem
import pyshmem.device
from pyshmem.c_names.stub import SECTIONS
from pyshmem.c_names.table import ROWS
from pyshmem.c_names.unfold import Row

APIS = {"host": pyshmem, "device": pyshmem.device}
TITLES = {"host": "Host calls: pyshmem", "device": "Calls in kernels: pyshmem.device"}
KNOWN = {kind: docstrings.api(module) for kind, module in APIS.items()}
OTHER, ERRORS = "pyshmem's own", "Errors"
HEADINGS = {"order": "Order", "errors": "Errors", "result": "Result", "returns": "Returns"}


def write(folder: pathlib.Path) -> None:
    """Everything anew: a name that is gone leaves no page."""
    shutil.rmtree(folder, ignore_errors=True)
    for kind, known in KNOWN.items():
        (folder / kind).mkdir(parents=True)
        for name in known:
            (folder / kind / f"{name}.rst").write_text(page(kind, name))
        (folder / kind / "index.rst").write_text(index(kind))


def title(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}\n\n"


def index(kind: str) -> str:
    """The chapters of the specification, each a table of its functions with their first sentences."""
    text = title(TITLES[kind], "=") + rst(kind, docstrings.document(APIS[kind])) + "\n\n"
    for chapter, names in chapters(kind).items():
        text += title(chapter, "-") + ".. list-table::\n   :widths: 25 75\n\n"
        for name in names:
            first = summary(kind, name).split("\n\n")[0]
            text += f"   * - {link(kind, name)}\n     - {rst(kind, first)}\n"
        text += "\n.. toctree::\n   :hidden:\n\n" + "".join(f"   {name}\n" for name in names) + "\n"
    return text + constants(kind)


def chapters(kind: str) -> dict[str, list[str]]:
    """The names by chapter, in the specification's order, and last those that it does not have."""
    found: dict[str, list[str]] = {each: [] for each in (*SECTIONS.values(), OTHER, ERRORS)}
    for name in KNOWN[kind]:
        found[chapter(kind, name)].append(name)
    return {each: names for each, names in found.items() if names}


def chapter(kind: str, name: str) -> str:
    """By its own Spec, or else its module's."""
    called = KNOWN[kind][name]
    if isinstance(called, type) and issubclass(called, Exception):
        return ERRORS
    module = inspect.getmodule(docstrings.plain(called))
    for text in (docstrings.document(called), module.__doc__ or ""):
        section = re.search(r"Spec: (?:OpenSHMEM 1\.6, )?(\d+(?:\.\d+)?)", text)
        if section and section[1] in SECTIONS:
            return SECTIONS[section[1]]
    return OTHER


def constants(kind: str) -> str:
    """What is exported and cannot be called."""
    module, text = APIS[kind], title("Constants", "-")
    for name in module.__all__:
        value = getattr(module, name)
        if name not in KNOWN[kind] and not name.startswith("__"):
            value = getattr(value, "value", value)
            text += (
                f"- ``{name}``" + (f" = {value}" if isinstance(value, int) else f", a {type(value).__name__}") + "\n"
            )
    return text


def page(kind: str, name: str) -> str:
    called, module = KNOWN[kind][name], APIS[kind].__name__
    text = title(name, "=") + f".. py:currentmodule:: {module}\n\n"
    if isinstance(called, type):
        return text + class_of(kind, name, called)
    return text + f".. py:function:: {name}{signature(called)}\n\n" + indent(body(kind, name) + elsewhere(kind, name))


def signature(called: Any) -> str:
    """The parameters and their defaults; types are in what is said of them."""
    plain = []
    found = inspect.signature(docstrings.plain(called))
    for each in found.parameters.values():
        default = getattr(each.default, "value", each.default)
        if isinstance(each.default, enum.Enum):
            default = Shown(str(each.default))
        plain.append(each.replace(annotation=each.empty, default=default))
    return str(found.replace(parameters=plain, return_annotation=found.empty))


class Shown(str):
    """A text that is shown without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def summary(kind: str, name: str) -> str:
    return docstrings.parts(KNOWN[kind][name])[0].text


def body(kind: str, name: str) -> str:
    """What the function does, then its arguments, then order and errors, with what it leaves to others."""
    known = KNOWN[kind]
    text = rst(kind, summary(kind, name)) + "\n\n"
    if kind == "device":  # the host's modules speak of how it is done
        text += rst(kind, docstrings.family(known[name])) + "\n\n"
    before: list[tuple[str, str]] = []
    terms: list[tuple[list[str], list[tuple[str, str]]]] = []
    for each in docstrings.parameters(known[name]):
        said = list(docstrings.told(known, name, each))
        if said and said == before:
            terms[-1][0].append(each)
        elif said:
            terms.append(([each], said))
        before = said
    text += "".join(term(kind, ", ".join(f"``{each}``" for each in names), said, name) for names, said in terms)
    for label, heading in HEADINGS.items():
        said = list(docstrings.told(known, name, label))
        text += term(kind, f"**{heading}**", said, name) if said else ""
    return text


def term(kind: str, heading: str, said: list[tuple[str, str]], name: str) -> str:
    """A definition: the function's own words, then those of the others that it leaves the matter to."""
    plain = [each for each in said if not re.fullmatch(r"(as |this )?\w+('s)?\.", each[1])] or said
    lines = [rst(kind, text) if who in (name, "") else f"{link(kind, who)}: {rst(kind, text)}" for who, text in plain]
    return heading + "\n" + indent("\n\n".join(lines)) + "\n"


def elsewhere(kind: str, name: str) -> str:
    """The routine of the specification, its C prototypes, and the same call in the other API."""
    text, other = "", "device" if kind == "host" else "host"
    for each in docstrings.parts(KNOWN[kind][name]):
        if "spec" in each.labels:
            text += term(
                kind, "**Specification**", [("", "OpenSHMEM 1.6, " + each.text.removeprefix("OpenSHMEM 1.6, "))], name
            )
    rows = [f"``{row.prototype}``" for row in prototypes(name)]
    if rows:
        text += "**C**\n" + indent("\n\n".join(rows) + "\n\nSee :doc:`/c-names`.") + "\n"
    if name in KNOWN[other]:
        text += ("**In kernels**" if kind == "host" else "**On the host**") + f"\n   {link(other, name)}\n"
    return text


def prototypes(name: str) -> list[Row]:
    """The current C routines of that name."""
    return [row for row in ROWS if row.name.replace("<TYPENAME>_", "") == f"shmem_{name}" and not row.deprecated[0]]


def class_of(kind: str, name: str, called: type) -> str:
    """The class, and what of it is public."""
    error = issubclass(called, (Exception, tuple))
    head = f".. py:class:: {name}" + ("" if error or issubclass(called, enum.Enum) else signature(called))
    if issubclass(called, Exception):
        head = f".. py:exception:: {name}"
    text = rst(kind, docstrings.document(called)) + "\n\n"
    if issubclass(called, enum.Enum):
        text += "".join(f".. py:attribute:: {each.name}\n   :value: {each.value}\n\n" for each in called)
    for each, value in vars(called).items():
        method = getattr(value, "__func__", value)
        if inspect.isfunction(method) and not each.startswith("_"):
            text += f".. py:method:: {each}{signature(getattr(called, each))}\n\n"
            text += indent(rst(kind, docstrings.document(method))) + "\n"
    return head + "\n\n" + indent(text)


def link(kind: str, name: str) -> str:
    role = "class" if isinstance(KNOWN[kind][name], type) else "func"
    return f":py:{role}:`{name} <{APIS[kind].__name__}.{name}>`"


def indent(text: str) -> str:
    return re.sub(r"(?m)^(?=.)", "   ", text) + "\n"


def rst(kind: str, text: str) -> str:
    """Text of a docstring as markup: ``literals`` as they are, functions and classes as links, all else escaped."""
    pieces = re.split(r"(``.*?``)", text)
    marked = [each if each.startswith("``") else _linked(kind, each) for each in pieces]
    for place in range(2, len(marked), 2):
        marked[place] = re.sub(r"^(?=\w)", r"\\ ", marked[place])  # markup ends at no letter
    return "".join(marked)


def _linked(kind: str, text: str) -> str:
    escaped = re.sub(r"([*`|\\])|_(?!\w)", r"\\\g<0>", text)
    return re.sub(r"(?<![\w.])([A-Za-z]\w*)('s\b)?(\()?", lambda found: _word(kind, found), escaped)


def _word(kind: str, found: re.Match[str]) -> str:
    """A name as a link where it cannot be a word of the language: put's, put_signal, Team."""
    name, possessive = found[1], found[2] or ""
    home = next((each for each in (kind, "host") if name in KNOWN[each]), None)
    if home is None or not (possessive or "_" in name or not name.islower()):
        return found[0]
    after = possessive + (found[3] or "")
    return link(home, name) + (f"\\ {after}" if after else "")
