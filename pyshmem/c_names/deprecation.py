"""Deprecated OpenSHMEM names work and warn at their first call."""

from __future__ import annotations

import warnings

from pyshmem.diagnosis import ranges

_warned: set[str] = set()


def warn_once(name: str, since: str, instead: str) -> None:
    """Issue a DeprecationWarning once per name, at the line that called the deprecated function."""
    if name not in _warned:
        _warned.add(name)
        text = f"{name} is deprecated since OpenSHMEM {since}; use {instead}"
        warnings.warn(text, DeprecationWarning, stacklevel=3 + ranges.active)
