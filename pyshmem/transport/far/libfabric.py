"""Which libfabric there is, and what it offers. Imports no torch: pyshmem info shows it."""

from __future__ import annotations

import re
from pathlib import Path

from pyshmem.native import _native

FABRICS = ("cxi", "verbs", "efa", "psm3", "opx")  # providers of hardware, in the order of choice


def library() -> str:
    """Return the libfabric that this process has loaded, such as MPI's, or the name of the system's."""
    found = re.search(r"\S*/libfabric\.so\S*", Path("/proc/self/maps").read_text())
    return found[0] if found else "libfabric.so.1"


def description() -> str:
    """Return which libfabric there is, and its providers. Errors: none."""
    path = library()
    try:
        major, minor, names = _native.fabric_providers(path)
    except OSError as error:
        return f"libfabric: {error}: TCP reaches other nodes"
    found = [name for each in FABRICS for name in dict.fromkeys(names) if name.split(";")[0] == each]
    fabrics = f"fabric {found[0]}" if found else "no fabric of hardware, so that TCP reaches other nodes"
    return f"libfabric {major}.{minor}, in {path}: {', '.join(dict.fromkeys(names))}: {fabrics}"
