"""Reads the signature of a compiled kernel: which words a launch passes, and for which values they are compiled.

Triton puts an int that is 1 into the code, and a launch then passes no word for it; it compiles other variants for multiples
of 16, and for 32 and 64 bits. A kernel that is launched with other values accesses wrong memory, so binding compares them.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from pyshmem.base.errors import LaunchError, refuse
from pyshmem.base.layout import number, numbers

CONSTANT, POINTER, INTEGER, FLOAT, DOUBLE, WORDS = numbers("CONSTANT", "POINTER", "INTEGER", "FLOAT", "DOUBLE", "WORDS")
MOST_WORDS = number("MOST_WORDS")
_KINDS = {"constexpr": CONSTANT, "fp32": FLOAT, "fp64": DOUBLE}


class Parameter(NamedTuple):
    """An argument of a compiled kernel, or a field of one that is a tuple.

    type: Triton's name for it.  kind: one from above; None: only Triton can pass it.
    constant: what the code has in place of a CONSTANT.  multiple: what divides the values of other kinds.
    """

    name: str
    type: str
    kind: int | None
    constant: Any
    multiple: int


def parameters_of(source: Any) -> tuple[Any, ...]:
    """Return for each argument of a compiled kernel its Parameter, or a tuple of them. source: Triton's record of it."""
    arguments = enumerate(source.signature.items())
    return tuple(_parameter(source, name, kind, (place,)) for place, (name, kind) in arguments)


def _parameter(source: Any, name: str, kind: Any, path: tuple[int, ...]) -> Any:
    if isinstance(kind, (tuple, list)):
        fields = enumerate(zip(getattr(kind, "_fields", range(len(kind))), kind, strict=True))
        return tuple(_parameter(source, f"{name}.{field}", each, (*path, place)) for place, (field, each) in fields)
    multiple = max([number for text, number in source.attrs.get(path, ()) if text == "tt.divisibility"], default=1)
    return Parameter(name, str(kind), _kind_of(kind), _bare(source.constants.get(path)), multiple)


def plan_of(source: Any, args: tuple[Any, ...]) -> Any:
    """Return the kind of each argument, or a tuple of kinds; None: only Triton can launch this kernel."""
    plan = tuple(_kind_of(each) for each in source.signature.values())
    return None if len(plan) != len(args) or _unknown(plan) or _words(plan) > MOST_WORDS else plan


def _kind_of(signature: Any) -> Any:
    if isinstance(signature, (tuple, list)):
        return tuple(_kind_of(each) for each in signature)
    text = str(signature)
    if text in _KINDS:
        return _KINDS[text]
    return POINTER if text[0] == "*" else INTEGER if text[0] in "iu" and text[1:].isdigit() else None


def _unknown(plan: Any) -> bool:
    return any(_unknown(each) if isinstance(each, tuple) else each is None for each in plan)


def _words(plan: Any) -> int:
    """Return the number of words that a launch passes."""
    return sum(_words(each) if isinstance(each, tuple) else each != CONSTANT for each in plan)


def words_of(args: Any, plan: Any) -> list[int]:
    """Return the arguments as kernel parameters, each in the low bytes of a 64-bit word."""
    words: list[int] = []
    for value, kind in zip(args, plan, strict=True):
        if kind == INTEGER:
            words.append(value if type(value) is int else int(value))
        elif isinstance(kind, tuple):
            words += words_of(value, kind)
        elif kind == POINTER:
            words.append(value if type(value) is int else value.data_ptr())
        elif kind != CONSTANT:
            single = kind == FLOAT
            words.append(int.from_bytes(struct.pack("<f" if single else "<d", value), "little"))
    return words


def require_compiled_for(kernel: str, parameters: Any, values: Any) -> None:
    """Refuse values for which the kernel is not compiled. Errors: LaunchError."""
    for parameter, value in zip(parameters, values, strict=True):
        if type(parameter) is not Parameter:
            require_compiled_for(kernel, parameter, value)
        elif wants := _wanted(parameter, _bare(value)):
            refuse(LaunchError, kernel, parameter.name, repr(_bare(value)), wants)


def require_addresses(kernel: str, parameters: Any) -> None:
    """Refuse operands for which a call cannot pass addresses alone. Errors: LaunchError."""
    for parameter in parameters:
        if type(parameter) is not Parameter:
            require_addresses(kernel, parameter)
        elif parameter.kind != POINTER:
            refuse(
                LaunchError, kernel, parameter.name, _described(parameter), "an array, whose address each call passes"
            )


def require_words(kernel: str, parameters: Any) -> None:
    """Refuse parameters for which a call cannot pass any word of 64 bits. Errors: LaunchError."""
    for parameter in parameters:
        if type(parameter) is not Parameter or (parameter.type, parameter.multiple) != ("i64", 1):
            refuse(LaunchError, kernel, parameter.name, _described(parameter), "an int64 that is not specialised")


def _described(parameter: Parameter) -> str:
    return f"{parameter.constant!r} in the code" if parameter.kind == CONSTANT else parameter.type


def _wanted(parameter: Parameter, value: Any) -> str:
    """Return for which values a parameter is compiled, if ``value`` is another one, or ""."""
    if parameter.kind == CONSTANT:
        same = value is parameter.constant or (type(value), value) == (type(parameter.constant), parameter.constant)
        return "" if same else f"{parameter.constant!r}, which is in the code"
    if hasattr(value, "data_ptr"):
        value = value.data_ptr() if parameter.kind == POINTER else None
    if parameter.kind in (POINTER, INTEGER):
        if not isinstance(value, int):
            return f"a value of type {parameter.type}"
        least, most = _range(parameter)
        if not least <= value <= most:
            return f"a number that {parameter.type} can hold"
        if value % parameter.multiple:
            return f"a multiple of {parameter.multiple}"
    return ""


def _range(parameter: Parameter) -> tuple[int, int]:
    if parameter.kind == POINTER:
        return 0, (1 << 64) - 1
    bits = int(parameter.type[1:])
    return (0, (1 << bits) - 1) if parameter.type[0] == "u" or bits == 1 else (-1 << bits - 1, (1 << bits - 1) - 1)


def _bare(value: Any) -> Any:
    """Return what a constexpr of Triton holds, and any other value as it is."""
    return value.value if type(value).__name__ == "constexpr" else value
