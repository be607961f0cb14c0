"""Chooses the schedule of a matrix by decision trees, which look at its offsets only where that is worth its time."""

from __future__ import annotations

from pyshmem.irregular import selector
from pyshmem.irregular.features import features
from pyshmem.irregular.matrix import CSR


def choose(matrix: CSR) -> str:
    """Return the name of the schedule that suits ``matrix``. May wait for torch's current stream.

    Errors: none.
    Spec: none.
    """
    known = matrix.rows, matrix.shape[1], matrix.atoms, matrix.atoms / max(matrix.rows, 1)
    if not selector.gathers(*known):
        return selector.by_known(*known)
    found = features(matrix)
    uneven = found.variance**0.5 / max(found.mean, 1e-9)
    return selector.by_gathered(*known, uneven, found.longest, found.empty)
