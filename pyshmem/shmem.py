"""OpenSHMEM 1.6 under its C names. With ``from pyshmem.shmem import *`` a C program ports line by line.

The module has all routines, such as ``shmem_long_put(dest, source, nelems, pe)``, the generic names of C11 (``shmem_put``),
the profiling names (``pshmem_long_put``), constants and handles (``SHMEM_TEAM_WORLD``), and the deprecated names, which warn
once. An address is a tensor, an array, a ctypes object or an int. docs/c-names.md lists the families and the differences
from C.
"""

from typing import Any

from pyshmem.c_names import handles as _handles
from pyshmem.c_names import rows as _rows
from pyshmem.c_names import unfold as _unfold
from pyshmem.c_names.table import ROWS as _ROWS
from pyshmem.diagnosis import ranges as _ranges

_names = _rows.names(_ROWS)
_generics = _rows.generics(_ROWS)
_values = _handles.values()


_made: dict[str, Any] = {}


def _function(name: str) -> Any:
    """The library's own function of a C name, even if a tool has replaced the name in this module."""
    if name not in _made:
        generic = name in _generics
        made = _unfold.generic(name, _generics[name]) if generic else _unfold.function(_names[name])
        _made[name] = _ranges.ranged(name, made)
    return _made[name]


def __getattr__(name: str) -> Any:
    """Create the function of a C name at its first use."""
    if name in _names or name in _generics:
        found = _function(name)
    elif name[:1] == "p" and name[1:] in _names:  # the profiling interface
        found = _function(name[1:])
    elif name in _values:
        found = _values[name]
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__


__all__ = sorted({*_names, *("p" + name for name in _names), *_generics, *_values})
