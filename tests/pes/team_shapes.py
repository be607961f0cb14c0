"""Teams of every shape, and the three ways a collective takes: by tensors in C, by other arrays in C, by torch."""

import pytest
import torch
from support import FP8_DTYPES, foreign

import pyshmem as shmem
from pyshmem.transport.teams import meeting as mapped

# name: (start, stride, size) in a world of n PEs
SHAPES = {
    "world": lambda n: (0, 1, n),
    "reversed": lambda n: (n - 1, -1, n),
    "evens": lambda n: (0, 2, (n + 1) // 2),
    "odds, reversed": lambda n: ((n - 1) // 2 * 2 + (1 if n % 2 == 0 else -1), -2, n // 2) if n > 1 else (0, 1, 1),
    "all but the first": lambda n: (1, 1, n - 1) if n > 1 else (0, 1, 1),
    "the last": lambda n: (n - 1, 0, 1),
}
NOT_NUMPYS = (torch.bfloat16, *FP8_DTYPES)
WAYS = ["tensors", "arrays", "torch"]


@pytest.fixture(params=SHAPES)
def group(request, npes):
    """(team, its world PEs in order); the team is false on PEs outside it, which have made the same allocations by then."""
    start, stride, size = SHAPES[request.param](npes)
    team = shmem.TEAM_WORLD.split_strided(start, stride, size)
    yield team, [start + i * stride for i in range(size)]
    team.destroy()


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """What a test passes its symmetric tensors through."""
    if request.param == "torch":
        monkeypatch.setattr(mapped, "native_heap", None)
    return _foreign if request.param == "arrays" else lambda array: array


def _foreign(array):
    return array if array.dtype in NOT_NUMPYS else foreign(array)
