"""Reads pyshmem's docstrings: what a function says itself, and what it leaves to another one or to its module.

A docstring is a sentence on what moves where, then parts with labels: parameters, Order, Errors, Spec. ``Errors: put's``
and a first word such as ``put`` in "put that may return before ..." leave what is not said to the function named.
"""

import inspect
import re
import sys
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

PARTS = ("arguments", "order", "errors", "spec", "result", "returns")
ALL_ELSE = ("arguments", "order", "errors")
SUMMARY = ("",)
Api = dict[str, Any]  # the public functions and classes of a module, by name


class Part(NamedTuple):
    """A stretch of a docstring: what it is about, and the text."""

    labels: tuple[str, ...]
    text: str


def api(module: types.ModuleType) -> Api:
    """The functions and classes that a module exports."""
    found = {name: getattr(module, name) for name in module.__all__}
    return {name: each for name, each in found.items() if isinstance(each, type) or inspect.isroutine(plain(each))}


def plain(function: Any) -> Any:
    """A jit function's Python function, any other as it is."""
    return getattr(function, "fn", function)


def parameters(function: Any) -> list[str]:
    """The names of its parameters, none of a class. Those of a jit function are its Python function's."""
    return [] if isinstance(function, type) else list(inspect.signature(plain(function)).parameters)


def document(function: Any) -> str:
    return inspect.getdoc(plain(function)) or ""


def read(text: str, names: list[str]) -> list[Part]:
    """The parts of a docstring; ``names`` are its parameters, or patterns of them. The first part is what it does."""
    words = "|".join(sorted((*names, *PARTS), key=len, reverse=True))
    label = rf"(?:Other )?(?:{words})(?:(?:, | and |, and )(?:{words}))*|All else"
    found = list(re.finditer(rf"(?:^[ ]*|[.;] +|  )({label}): ", text, re.MULTILINE | re.IGNORECASE))
    ends = [each.start() for each in found] + [len(text)]
    parts = [Part(SUMMARY, text[: ends[0]])]
    for each, end in zip(found, ends[1:], strict=True):
        parts.append(Part(_labels(each[1]), text[each.end() : end]))
    return [Part(labels, tidy(said)) for labels, said in parts]


def _labels(text: str) -> tuple[str, ...]:
    if text == "All else":
        return ALL_ELSE
    words = re.split(r", and |, | and ", text.removeprefix("Other "))
    return tuple(word.lower() if word.lower() in PARTS else word for word in words)


def tidy(text: str) -> str:
    """One line a paragraph, which ends with a full stop."""
    paragraphs = [" ".join(each.split()) for each in re.split(r"\n\s*\n", text) if each.strip()]
    return "\n\n".join(each if each.endswith((".", ":")) else each.rstrip(";") + "." for each in paragraphs)


def parts(function: Any) -> list[Part]:
    return read(document(function), parameters(function))


def referred(text: str, known: Api, name: str) -> str | None:
    """The function that a text begins with, and so leaves the rest to."""
    found = re.match(r"(?:as )?([a-z_]\w*)(?=$|['.,;: ])", text)
    return found[1] if found and found[1] in known and found[1] != name else None


def told(known: Api, name: str, label: str, seen: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """What is said of a label: (who says it, what), by the function itself, then by those it leaves that to."""
    own = parts(known[name])
    said = next((each.text for each in own if label in each.labels), None)
    if said is not None:
        yield name, said
        if said.startswith("this module's"):
            yield from _of_module(known[name], label)
        after = referred(said, known, name)
    else:
        after = _left_to(own, label, known, name)
    if after is not None and after not in seen:
        yield from told(known, after, label, (*seen, name))
    elif said is None:
        yield from _of_module(known[name], label)


def _left_to(own: list[Part], label: str, known: Api, name: str) -> str | None:
    """Whom a function leaves a label to that it does not have: for a parameter the one that "Arguments" names."""
    if label not in PARTS:
        for each in own:
            if "arguments" in each.labels:
                return referred(each.text, known, name)
    return referred(own[0].text, known, name)


def _of_module(function: Any, label: str) -> Iterator[tuple[str, str]]:
    """What its module says of all its functions, or else the package of all functions."""
    inner = plain(function).__module__
    for module in (inner, "pyshmem.device" if inner.startswith("pyshmem.device.") else "pyshmem"):
        for each in of_module(module)[1:]:
            if label in each.labels:
                yield "", each.text
                return


def of_module(module: str) -> list[Part]:
    """The parts of a module's docstring, whatever their labels, but for its chapter."""
    return read(re.sub(r"Spec: .*", "", sys.modules[module].__doc__ or ""), [r"[a-z_]\w*"])


def family(function: Any) -> str:
    """What the module says of its functions as a whole, after its first paragraph."""
    return "\n\n".join(of_module(plain(function).__module__)[0].text.split("\n\n")[1:])


def mentioned(known: Api, name: str, label: str, seen: tuple[str, ...] = ()) -> bool:
    """Whether the first sentences have ``label`` in them, of the function or of one that it leaves the rest to."""
    own = parts(known[name])
    if re.search(rf"``[^`]*\b{label}\b[^`]*``", own[0].text):
        return True
    after = _left_to(own, label, known, name)
    return after is not None and after not in seen and mentioned(known, after, label, (*seen, name))
