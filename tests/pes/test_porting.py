"""docs/porting.md: both ways of each line of its table run, and do the same."""

import pathlib
import re

import numpy as np
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
        "N": 4, "M": 5, "n": 3, "i": 1, "j": 2, "m": 2, "k": 1, "v": 4, "cmp": shmem.CMP.GE, "half": (npes + 1) // 2,
    }  # fmt: skip
    arrays = {name: shmem.full(3, shmem.my_pe(), dtype=torch.int32) for name in ("src", "dst")}
    counts = shmem.zeros(4, dtype=torch.int64)
    return (
        values
        | arrays
        | {"counts": counts, "f": counts, "team": team, "idx": torch.zeros(4, dtype=torch.int64), "np": np}
    )


def run(column):
    """All lines of one column in turn; what the memory holds afterwards."""
    names = variables() | {"pe": neighbours()[2], "shmem": shmem}
    for row in ROWS:
        code = next(text for text in (row[column][0], row[1][0]) if text)  # "the same" is the column before
        exec(code, names)
        if "local" in names and code.startswith("local"):
            names["local"][:] = torch.arange(5) + shmem.my_pe()
        if "ctx" in names:
            names["ctx"].quiet()  # which barriers do not complete
        shmem.barrier_all()
    for team in ("t", "row", "column"):
        names[team].destroy()
    shmem.finalize()  # init_thread is a second init
    return [names[name].clone() for name in ("a", "flag", "dst", "counts", "w", "total", "text", "sig")]


def test_both_ways_of_every_line_do_the_same():
    assert len(ROWS) >= 36
    for mine, theirs in zip(run(1), run(2), strict=True):
        assert_same(mine, theirs)


def test_the_lines_by_syntax_move_what_c_moves():
    left = neighbours()[0]
    a, flag, dst, counts, w, total, text, sig = run(1)
    wanted = torch.zeros(4, 5, dtype=torch.float64)
    wanted[1] = torch.arange(5) + left
    wanted[1, 2:4] = torch.arange(2) + left
    wanted[:, 2] = torch.arange(4) + left
    assert_same(a, wanted)
    assert flag.item() == 7 and counts.tolist() == [0, 4, 4, 0]
    assert dst.tolist() == [sum(range(shmem.n_pes()))] * 3
    assert w.tolist() == [3, 5] and total.item() == 1 and text.tolist() == [*b"hello", 0, 0, 0] and sig.item() == 1


def test_the_c_names_of_the_page_exist():
    names = set(re.findall(r"\b(p?shmem_[a-z0-9_]+)\b(?!>)", PAGE)) - {"shmem_"}
    assert names and {name for name in names if not hasattr(c, name)} == {"shmem_wtime"}  # which the page says


def test_records_in_bytes_are_an_array_of_structs():
    """As the page says: laid out as C does, whole ones by putmem, a member by its own type's names."""
    left, me, right = neighbours()
    body = np.dtype([("x", "f8"), ("n", "i4")], align=True)
    assert body.itemsize == 16
    s = c.shmem_calloc(4, body.itemsize).numpy().view(body)
    s[2] = (me + 0.5, me)
    c.shmem_barrier_all()
    c.shmem_putmem(s[0:], s[2:], body.itemsize, right)
    c.shmem_int_p(s["n"][1:2], 5, right)
    c.shmem_double_p(s["x"][3:], 2.5, right)
    c.shmem_barrier_all()
    assert s.tolist() == [(left + 0.5, left), (0, 5), (me + 0.5, me), (2.5, 0)]
