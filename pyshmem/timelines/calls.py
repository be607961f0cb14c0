"""What a call does, by its name and the names of its arguments: which of them are the PE, the data and the word.

It serves the host API, its classes, the operators and the names of C alike.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from pyshmem.base.comparisons import SIGNS
from pyshmem.base.layout import numbers
from pyshmem.diagnosis import host_calls
from pyshmem.diagnosis.host_calls import ADDS, CALLS, MEETS, OTHER, SETS
from pyshmem.native._native import recorded
from pyshmem.timelines.events import ADD, MEET, NONE, OPERATORS, SET, WAITS, plain

# the arguments of ARG_PE to ARG_TEAM in python/events.c, under all the names that they have
_ARGUMENTS = (
    ("pe", "root"),
    ("source", "sources", "target"),
    ("size", "nelems"),
    ("signal", "sig_addr", "ivar", "ivars", "target", "dest"),
    ("value", "cmp_value", "signal"),
    ("sigop", "sig_op", "cmp"),
    ("ctx",),
    ("team",),
)
NO_ARGUMENTS = (-1,) * len(_ARGUMENTS), ("",) * len(_ARGUMENTS)  # places and names, of calls that have none of these
_PE, _ARRAY, _SIZE, _WORD, _VALUE, _OP, _CTX, _TEAM = range(len(_ARGUMENTS))
_COMPARISONS: dict[Any, int] = {**{sign: code for code, sign in enumerate(SIGNS)}, **{code: code for code in range(6)}}
_EFFECTS = {SETS: SET, ADDS: ADD, MEETS: MEET, host_calls.WAITS: WAITS, "": NONE}


def effect(name: str) -> int:
    """What a call of this plain name does with a word or a team: one of SET, ADD, MEET, WAITS, NONE."""
    return _EFFECTS[CALLS.get(name, OTHER).effect]


# what `size` says of the bytes of arrays: nothing, those of the event, others
_OF_NOTHING, _OF_DATA, _OF_PARTS = numbers("SIZE_OF_NOTHING", "SIZE_OF_DATA", "SIZE_OF_PARTS")
_IDLE = ("plan", "close", "clear")  # read no operands
_Arguments = tuple[tuple[int, str], ...]  # places and names


def accesses(label: str, call: Callable[..., Any]) -> tuple[_Arguments, _Arguments, bool, int]:
    """(arguments that a call reads, those that it writes, whether it writes its results, what `size` says of them).

    As far as it is known: of puts, gets and collectives, and of operators and plans, which write what they return.
    """
    parameters, name = inspect.signature(call).parameters, plain(label)
    places = {each: place for place, each in enumerate(parameters)}

    def found(names: tuple[str, ...]) -> _Arguments:
        return tuple((places[each], each) for each in names if each in places)

    if label.startswith(OPERATORS) and name not in _IDLE:
        several = inspect.Parameter.VAR_POSITIONAL  # which have no names
        tensors = [key for key, each in parameters.items() if "Tensor" in str(each.annotation) and each.kind != several]
        written = ("target",) if label.startswith("shmem.ops.torch.") else ("out", "residual_out")
        return found(tuple(each for each in tensors if each not in written)), found(written), True, _OF_NOTHING
    if "." in label and name.startswith("put"):
        return found(("source",)), (), False, _OF_DATA
    if "." in label and name.startswith("get"):
        return (), found(("target",)), False, _OF_DATA
    if "." in label and effect(name) == MEET:
        return found(("source",)), found(("target",)), False, _OF_PARTS
    return (), (), False, _OF_NOTHING


def record(label: str, call: Callable[..., Any], number: int) -> Callable[..., Any]:
    """Return ``call``, recorded as event ``number``; the call itself if it only asks."""
    name = plain(label)
    if CALLS.get(name, OTHER).query:
        return call
    # calls of C names make calls of Python, which are recorded too; operators enqueue kernels, whatever their names
    op = effect(name) if "." in label and not label.startswith(OPERATORS) else NONE
    parameters = list(inspect.signature(call).parameters)
    places, names = [], []
    for which, words in enumerate(_ARGUMENTS):
        if which == _ARRAY and "get" in name.split("_")[0]:
            words = ("target", "dest")
        if which == _ARRAY and ("putmem" in label or "getmem" in label):  # whose sizes are no elements of the array
            words = ()
        if which == _VALUE:
            words = ("value", "cmp_value") if "sig_addr" not in parameters or op >= WAITS else ("signal",)
        if which == _TEAM and label.startswith("shmem.Team."):
            words = ("self",)
        skips = which in (_WORD, _VALUE) and op not in (SET, ADD, WAITS)
        found = next((word for word in words if word in parameters and not skips), "")
        names.append(found)
        places.append(parameters.index(found) if found else -1)
    return recorded(label, call, number, op, tuple(places), tuple(names), _COMPARISONS, accesses(label, call))
