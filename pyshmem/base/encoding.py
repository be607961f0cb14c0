"""Plain values as bytes, for a store that others may write to: to read them executes nothing, as pickle would.

None, truth values, numbers, texts, bytes, sequences, sets, torch's dtypes, the errors of pyshmem, and the named tuples that
are marked ``@passed``. All else is refused on both sides.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import torch

from pyshmem.base.errors import ShmemError

_MOST = 64 << 20  # bytes of a message
_Kind = TypeVar("_Kind", bound=type)
_passed: dict[str, Callable[..., Any]] = {}


class EncodingError(ValueError):
    """A message that ``encode`` has not made."""


def passed(kind: _Kind) -> _Kind:
    """Let processes pass each other this class of named tuples."""
    _passed[kind.__name__] = kind
    return kind


def encode(value: Any) -> bytes:
    """Return the bytes of a value. Errors: TypeError if it is of none of the kinds above."""
    return json.dumps(_plain(value), separators=(",", ":")).encode()


def decode(data: bytes) -> Any:
    """Return the value whose bytes these are. Errors: EncodingError if they are of none."""
    if len(data) > _MOST:
        raise EncodingError(f"{len(data)} bytes")
    try:
        return _value(json.loads(data))
    except (ValueError, TypeError, RecursionError) as error:  # of text that is none, of a name or number of fields
        raise EncodingError(f"{data[:40]!r}: {error}") from None


def _plain(value: Any) -> Any:
    """Return what JSON has for a value: a list of its kind and its content, or the value itself."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if isinstance(value, ShmemError):
        name = next(each.__name__ for each in kind.__mro__ if each.__name__ in _errors())
        return ["error", name, str(value)]
    if isinstance(value, (bytes, torch.dtype)):
        return ["bytes", value.hex()] if isinstance(value, bytes) else ["dtype", str(value).removeprefix("torch.")]
    if isinstance(value, (list, set)):
        return [kind.__name__, *map(_plain, value)]
    if isinstance(value, tuple):
        name = kind.__name__ if hasattr(value, "_fields") else "tuple"
        if name == "tuple" or _passed.get(name) is kind:
            return [name, *map(_plain, value)]
    raise TypeError(f"got {kind.__name__}; expected a plain value, or a named tuple that is @passed")


def _value(found: Any) -> Any:
    if not isinstance(found, (list, dict)):
        return found
    if isinstance(found, dict) or not found or not isinstance(found[0], str):
        raise TypeError("no kind")
    kind, *content = found
    make = _MAKERS.get(kind)
    if make:
        return make(*content)
    values = [_value(each) for each in content]
    if kind in _passed:
        return _passed[kind](*values)
    if kind not in _SEQUENCES:
        raise TypeError(f"kind {kind!r}")
    return _SEQUENCES[kind](values)


def _errors() -> dict[str, type[ShmemError]]:
    kinds: list[type[ShmemError]] = [ShmemError, *ShmemError.__subclasses__()]
    return {kind.__name__: kind for kind in kinds}


def _error(name: Any, text: Any) -> ShmemError:
    return _errors()[_text(name)](_text(text)) if name in _errors() else _unknown(name)


def _dtype(name: Any) -> torch.dtype:
    found = getattr(torch, _text(name), None)
    return found if isinstance(found, torch.dtype) else _unknown(name)


def _text(found: Any) -> str:
    return found if isinstance(found, str) else _unknown(found)


def _unknown(found: Any) -> NoReturn:
    raise TypeError(f"{found!r}")


_SEQUENCES: dict[str, Callable[[list[Any]], Any]] = {"list": list, "set": set, "tuple": tuple}
_MAKERS: dict[str, Callable[..., Any]] = {
    "bytes": lambda text: bytes.fromhex(_text(text)),
    "dtype": _dtype,
    "error": _error,
}
