"""Ranges: with PYSHMEM_NVTX=1 each call of the host API is a range of NVTX, or of ROCTx under ROCm, for profilers.

pyshmem.timelines records the same ranges: then ``record`` is set before they are made, or ``replace`` makes them anew. Calls
of plans are no ranges, but timelines note by which plan an operator was performed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import isfunction
from typing import Any

import torch.cuda.nvtx

from pyshmem.base.environment import read
from pyshmem.base.errors import ArgumentError, refuse

nvtx: Any = torch.cuda.nvtx  # its functions have no types


def _problem() -> str:
    """Return why there are no ranges; "" if there are."""
    if not read("PYSHMEM_NVTX"):
        return "unset"
    try:
        nvtx.range_push("pyshmem")
        nvtx.range_pop()
    except RuntimeError as error:  # of a torch for CPUs
        return str(error)
    return ""


_reason = _problem()
active = not _reason
record: Callable[[str, Callable[..., Any]], Callable[..., Any]] | None = None  # makes the recorded form of a call
# the modules and classes whose calls are ranges, with what their labels begin with, and the names of calls that are not all
_spaces: list[tuple[Any, str, tuple[str, ...]]] = []
note: Callable[[Any], Any] | None = None  # as record, of the methods by which plans are performed
_plans: list[tuple[type, str]] = []  # classes and these methods


def check() -> None:
    """Errors: ArgumentError if PYSHMEM_NVTX is set and torch has no ranges."""
    if read("PYSHMEM_NVTX") and not active:
        refuse(ArgumentError, "init", "PYSHMEM_NVTX", f"1 with a torch without ranges: {_reason}", "a torch for GPUs")


def ranged(label: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``call`` in a range of this label; ``call`` itself, which costs nothing, if nobody wants ranges."""
    if active:
        call = _marked(label, call)
    return record(label, call) if record else call


def _marked(label: str, call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def within(*arguments: Any, **options: Any) -> Any:
        nvtx.range_push(label)
        try:
            return call(*arguments, **options)
        finally:
            nvtx.range_pop()

    return within


def put_into(namespace: Any, prefix: str = "", *names: str) -> None:
    """Make ranges of the public functions of a module or class, also of those of with; of ``names`` alone, if any."""
    _spaces.append((namespace, prefix, names))
    if active or record:
        _put(namespace, prefix, names, ranged)


def note_plans(kind: type, method: str) -> None:
    """Let timelines note the calls of this method, which performs a plan. The class has what Recorder.noted asks for."""
    _plans.append((kind, method))
    if note:
        setattr(kind, method, note(getattr(kind, method)))


def _put(
    namespace: Any, prefix: str, names: tuple[str, ...], made: Callable[[str, Any], Any]
) -> list[tuple[Any, str, Any]]:
    """Replace the functions by what ``made`` makes of them. Return where each was."""
    replaced = []
    for name, call in list(vars(namespace).items()):
        wanted = name in names if names else not name.startswith("_") or name in ("__enter__", "__exit__")
        if isfunction(call) and wanted:
            found = made((prefix + name).removesuffix(".__call__"), call)
            if found is not call:
                replaced.append((namespace, name, call))
                setattr(namespace, name, _method(found) if isinstance(namespace, type) else found)
    return replaced


def _method(call: Callable[..., Any]) -> Callable[..., Any]:
    """A function that a class binds, which it does not do with functions of C."""

    @wraps(call)
    def within(*arguments: Any, **options: Any) -> Any:
        return call(*arguments, **options)

    return call if isfunction(call) else within


def replace(made: Callable[[str, Any], Any], noted: Callable[[Any], Any]) -> Callable[[], None]:
    """Replace every call that is a range by what ``made`` makes of it, and methods of note_plans by what ``noted`` makes of
    them. Return what undoes that."""
    replaced = [each for space in _spaces for each in _put(*space, made)]
    for kind, method in _plans:
        call = getattr(kind, method)
        replaced.append((kind, method, call))
        setattr(kind, method, noted(call))

    def undo() -> None:
        for namespace, name, call in replaced:
            setattr(namespace, name, call)

    return undo
