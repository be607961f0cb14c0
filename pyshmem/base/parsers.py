"""What the texts of environment variables and options mean: one parser for each kind, which knows its bounds.

A parser raises ValueError with a description of valid texts, whatever it is given.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from typing import Any

MOST_BYTES = (1 << 64) - 1
_MOST_DIGITS, _MOST_SHOWN, _LEAST_SECONDS = 20, 60, 1e-3
_NOT_HANDLED = {signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT,
                signal.SIGTRAP}  # fmt: skip
_SIZE = re.compile(r"\s*(?P<number>(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)(?P<unit>[kmgt].*)?\s*", re.IGNORECASE | re.DOTALL)
_UNITS = {None: 0, "k": 10, "m": 20, "g": 30, "t": 40}


def parse_size(text: str) -> int:
    """Return the bytes of "20m", "3.1M" or ".5g". Only the first letter of the unit counts (spec, Environment)."""
    match = _SIZE.fullmatch(text)
    exact = Decimal(-1)
    if match:
        unit = match["unit"]
        with suppress(ArithmeticError):  # an exponent beyond those of Decimal
            exact = Decimal(match["number"]) * (1 << _UNITS[unit and unit[0].lower()])
    if not 0 <= exact <= MOST_BYTES:
        raise ValueError("a number of bytes, 0 or more, with an optional unit k, m, g or t, such as 512m; below 2**64")
    return int(exact.to_integral_value(rounding="ROUND_CEILING"))


def parse_flag(text: str) -> bool:
    """Return False for 0, no, off, false or an empty text, otherwise True."""
    return text.strip().lower() not in ("", "0", "no", "off", "false")


def parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise ValueError("a number of seconds, 0 for no limit")
    return max(seconds, _LEAST_SECONDS) if seconds else 0.0


def count(most: int, least: int = 0) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else -1
        if not least <= number <= most:
            raise ValueError(f"a number from {least} to {most}")
        return number

    return parse


positive = count(10**9, 1)


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(" or ".join(choices))
        return text

    return parse


def parse_far(text: str) -> str:
    if text in ("mixed", "mpi"):
        raise ValueError("fabric, which carries data without MPI's messages, or tcp, or auto")
    return one_of("auto", "tcp", "fabric")(text)


def parse_signal(text: str) -> signal.Signals:
    name = text.upper()
    found = signal.Signals.__members__.get(name if name.startswith("SIG") else f"SIG{name}")
    if found is None or found in _NOT_HANDLED:
        raise ValueError("the name of a signal that programs may handle and that is no fault, as SIGUSR1")
    return found


def parse_folder(text: str) -> str:
    if not os.path.isabs(text):
        raise ValueError("the absolute path of a folder, such as /tmp")
    return text


def parse_writable(text: str) -> str:
    if not (os.path.isdir(text) and os.access(text, os.W_OK | os.X_OK)):
        raise ValueError(f"a folder of {os.uname().nodename} in which this user may make files")
    return text


def parse_json(text: str) -> str:
    if not text.endswith(".json"):
        raise ValueError("the name of a file that ends with .json")
    return text


def shown(value: Any) -> str:
    """Return how an error shows what it got: in one line, and not all of what is long."""
    if isinstance(value, int) and abs(value) > 10**_MOST_SHOWN:
        return f"an int of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 2 * _MOST_SHOWN else f"{text[:_MOST_SHOWN]}... of {len(text)} characters"
