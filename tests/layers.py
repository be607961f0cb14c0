"""Checks that files of pyshmem/native include only what lies in their folder or below it, and none each other in a circle."""

import re
import sys
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

LAYERS = ("base", "trace", "gpu", "far", "team", "python", "shmem")  # from below; shmem stands beside python

root = Path(__file__).resolve().parents[1] / "pyshmem" / "native"
needs: defaultdict[str, set[str]] = defaultdict(set)  # by modules: a .c file and its header
faults = []
for path in sorted(root.glob("*/*.[ch]")):
    if path.name == "libpyshmem.c":  # the unit of all others there
        continue
    for name in re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE):
        other = (path.parent / name).resolve()
        if root not in other.parents:
            continue
        here, there = (LAYERS.index(each.parent.name) for each in (path, other))
        if there > here or (LAYERS[here], LAYERS[there]) == ("shmem", "python"):
            faults.append(f"{path.relative_to(root)} includes {other.relative_to(root)}, which lies above it")
        if path.with_suffix("") != other.with_suffix(""):
            needs[str(path.relative_to(root).with_suffix(""))].add(str(other.relative_to(root).with_suffix("")))
try:
    TopologicalSorter(needs).prepare()
except CycleError as circle:
    faults.append("a circle: " + " <- ".join(circle.args[1]))
print("\n".join(faults) or f"{len(needs)} modules of C in {len(LAYERS)} layers")
sys.exit(bool(faults))
