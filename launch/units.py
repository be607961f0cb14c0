"""Numbers as people read them, with a unit of a size that suits them."""

from __future__ import annotations

_PREFIXES = ("", "k", "M", "G", "T", "P")


def short(number: float, unit: str = "") -> str:
    """Return such as "12.3 M", or with a unit "12.3 MB/s"; whole numbers below 1000."""
    for prefix in _PREFIXES:
        if number < 999.5 or prefix == _PREFIXES[-1]:
            return f"{number:.0f} {unit}".rstrip() if not prefix else f"{number:.3g} {prefix}{unit}"
        number /= 1000
    raise AssertionError
