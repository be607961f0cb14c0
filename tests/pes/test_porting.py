"""docs/porting.md: both ways of each line of its table run, and do the same."""

import pathlib
import re

import torch

import pyshmem as shmem
import pyshmem.shmem as c
from support import assert_same, neighbours

PAGE = (pathlib.Path(__file__).parents[2] / "docs/porting.md").read_text()
ROWS = [re.findall(r"`([^`]+)`|(the same)", row) for row in re.findall(r"^\| `.*", PAGE, re.M) if "..." not in row]


def variables():
    """What the lines of the table use and do not declare."""
    team, npes = shmem.TEAM_WORLD, shmem.n_pes()
    values = {
        "N": 4,
        "M": 5,
        "n": 3,
        "i": 1,
        "j": 2,
        "m": 2,
        "k": 1,
        "v": 4,
        "cmp": shmem.CMP.GE,
        "half": (npes + 1) // 2,
    }
    arrays = {name: shmem.full(3, shmem.my_pe(), dtype=torch.int32) for name in ("src", "dst")}
    counts = shmem.zeros(4, dtype=torch.int64)
    return (
        values
        | arrays
        | {"counts": counts, "f": counts, "team": team, "idx": torch.zeros(4, dtype=torch.int64), "torch": torch}
    )


def run(column):
    """All lines of one column in turn; what the memory holds afterwards."""
    names = variables() | {"pe": neighbours()[2], "shmem": shmem}
    for row in ROWS:
        code = next(text for text in (row[column][0], row[1][0]) if text)  # "the same" is the column before
        exec(code, names)
        if "local" in names and code.startswith("local"):
            names["local"][:] = torch.arange(5) + shmem.my_pe()
        shmem.barrier_all()
    names["t"].destroy()
    return [names[name].clone() for name in ("a", "flag", "dst", "counts")]


def test_both_ways_of_every_line_do_the_same():
    assert len(ROWS) >= 21
    for mine, theirs in zip(run(1), run(2), strict=True):
        assert_same(mine, theirs)


def test_the_lines_by_syntax_move_what_c_moves():
    left = neighbours()[0]
    a, flag, dst, counts = run(1)
    wanted = torch.zeros(4, 5, dtype=torch.float64)
    wanted[1] = torch.arange(5) + left
    wanted[1, 2:4] = torch.arange(2) + left
    wanted[:, 2] = torch.arange(4) + left
    assert_same(a, wanted)
    assert flag.item() == 7 and counts.tolist() == [0, 4, 4, 0]
    assert dst.tolist() == [sum(range(shmem.n_pes()))] * 3


def test_the_c_names_of_the_page_exist():
    names = set(re.findall(r"\b(p?shmem_[a-z0-9_]+)\b(?!>)", PAGE)) - {"shmem_"}
    assert names and all(hasattr(c, name) for name in names)
