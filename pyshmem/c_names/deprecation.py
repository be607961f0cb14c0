"""Names that OpenSHMEM has deprecated work, and say so the first time."""

from __future__ import annotations

import warnings

_warned: set[str] = set()


def warn_once(name: str, since: str, instead: str) -> None:
    """A DeprecationWarning at the line that called the function that calls this, once for each name."""
    if name not in _warned:
        _warned.add(name)
        text = f"{name} is deprecated since OpenSHMEM {since}; use {instead}"
        warnings.warn(text, DeprecationWarning, stacklevel=3)
