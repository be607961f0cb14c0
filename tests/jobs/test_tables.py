"""The tables of collectives on a stream: files, what is refused, and what the tuner makes of times."""

import json

import pyshmem as shmem
import pytest
from benchmarks import tune
from pyshmem.host.streams.collectives import by_copy
from pyshmem.kernels import method_tables
from pyshmem.kernels.method_tables import MORE, SENT, Row


def shipped():
    return method_tables.parse((method_tables.SHIPPED / "sm_90.json").read_text(), "sm_90.json")


def test_a_table_that_is_written_is_read_back(tmp_path):
    file = tmp_path / "new" / "table.json"
    method_tables.write(file, "a GPU", shipped())
    assert method_tables.parse(file.read_text(), "") == shipped()


def test_rows_ascend_and_the_last_one_takes_every_call():
    for rows in shipped():
        assert [row.most for row in rows] == sorted(row.most for row in rows)
        assert method_tables.first(rows, 1 << 40).most == MORE


SPOILT = [
    lambda content: content.update(format="another"),
    lambda content: content.pop("copies"),
    lambda content: content["pairs"].pop(),
    lambda content: content["teams"].__setitem__(-1, [None, SENT, 4096, 8]),  # not for every size
    lambda content: content["teams"].__setitem__(0, [128, "tree", 64, 8]),
    lambda content: content["teams"].__setitem__(0, [128, SENT, 0, 8]),
    lambda content: content.update(pairs=7),
    lambda content: content["copies"].__setitem__(0, [128, "sent", 32, 8]),
    lambda content: content["pairs"].__setitem__(0, [128, "copy", 32, 8]),
]


@pytest.mark.parametrize("spoil", SPOILT, ids=range(len(SPOILT)))
def test_another_file_is_refused(spoil):
    content = json.loads((method_tables.SHIPPED / "sm_90.json").read_text())
    spoil(content)
    with pytest.raises(shmem.ArgumentError, match="init: .*PYSHMEM_TUNING: got x.json, another file"):
        method_tables.parse(json.dumps(content), "x.json")


def test_the_file_is_the_named_one_then_the_users_then_the_packages(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert method_tables._file("gfx942") == method_tables.SHIPPED / "sm_90.json"
    own = method_tables.cache_file("gfx942")
    method_tables.write(own, "a GPU", shipped())
    assert method_tables._file("gfx942") == own
    monkeypatch.setenv("PYSHMEM_TUNING", str(tmp_path / "none"))
    with pytest.raises(shmem.ArgumentError, match="none, no file"):
        method_tables._file("gfx942")
    (tmp_path / "none").write_text("{}")
    assert method_tables._file("gfx942") == tmp_path / "none"


def test_the_tuner_takes_the_fastest_row_of_each_size_and_joins_neighbours(monkeypatch):
    monkeypatch.setattr(shmem, "my_pe", lambda: 1)

    def measure(row, nbytes):
        best = 8192 if row.kind == SENT else 128
        return (
            (5 + nbytes / 2**18 if row.kind == SENT else 8 + nbytes / 2**24) + abs(row.size - best) + row.warps / 1000
        )

    rows = tune.table_of(measure, [2**18, 2**19, 2**21, 2**24])
    assert [(row.most, row.kind, row.size, row.warps) for row in rows] == [
        (2**19, SENT, 8192, 4),
        (MORE, "halves", 128, 4),
    ]


def test_the_tuner_keeps_the_fastest_kernel_where_copy_engines_are_faster(monkeypatch, capsys):
    """For engine="kernel", and broadcasts. The engines take 10 us more, but move twice as much in a microsecond."""
    monkeypatch.setattr(shmem, "my_pe", lambda: 0)
    times = {"": lambda nbytes: nbytes / 2**18, "copy": lambda nbytes: 10 + nbytes / 2**19}

    def measure(row, nbytes):
        return times[row.kind](nbytes) + abs(row.size - (32 if nbytes < 2**22 else 128)) * (row.kind == "")

    rows = tune.table_of(measure, [2**20, 2**22, 2**23, 2**24], tune.copies)
    assert [tuple(row) for row in rows] == [(2**20, "", 32, 8), (2**22, "", 128, 8), (MORE, "copy", 128, 8)]
    assert "copy engines 26.00" in capsys.readouterr().out
    method_tables.parse(
        json.dumps({"format": method_tables.FORMAT, **shipped()._replace(copies=[[None, *rows[2][1:]]])._asdict()}),
        "",
    )


def test_auto_takes_copy_engines_for_the_blocks_for_which_the_table_says_so():
    before = method_tables.tables()
    method_tables.use(shipped()._replace(copies=(Row(1024, "", 32, 8), Row(MORE, "copy", 64, 8))))
    try:
        taken = [by_copy("auto", nbytes) for nbytes in (1, 1024, 1025, 1 << 40)]
        assert taken == [False, False, True, True]
        assert by_copy("copy", 1) and not by_copy("kernel", 1 << 40) and not by_copy("sum", 1 << 40)
    finally:
        method_tables.use(before)


class Comm:
    """Of two PEs, of which the other has read ``other``."""

    def __init__(self, other):
        self.other = other

    def allgather(self, mine):
        return [mine, self.other or mine]


def test_all_pes_must_have_read_one_file(tmp_path, monkeypatch):
    monkeypatch.setattr(method_tables, "architecture", lambda: "sm_90")
    monkeypatch.setenv("PYSHMEM_TUNING", str(tmp_path / "table.json"))
    own = shipped()._replace(copies=(Row(MORE, "", 7, 8),))
    method_tables.write(tmp_path / "table.json", "a GPU", own)
    before = method_tables.tables()
    with pytest.raises(shmem.ArgumentError, match="PYSHMEM_TUNING: got another file on PE 1 than on PE 0"):
        method_tables.open_tables(Comm("another text"))
    assert method_tables.tables() == before
    method_tables.open_tables(Comm(None))
    assert method_tables.tables() == own
    method_tables.use(before)


@pytest.mark.parametrize(("arch", "engines"), [("gfx942", False), ("sm_100", True)])
def test_an_amd_gpu_that_was_not_measured_borrows_no_copy_engines(arch, engines, tmp_path, monkeypatch):
    """On ROCm copies to peers may be kernels. What benchmarks.tune writes on the machine is taken as it is."""
    monkeypatch.setattr(method_tables, "architecture", lambda: arch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = method_tables.tables()
    try:
        method_tables.open_tables(Comm(None))
        assert by_copy("auto", 1 << 40) == engines
        assert method_tables.tables()._replace(copies=()) == shipped()._replace(copies=())
        method_tables.write(method_tables.cache_file(arch), "a GPU", shipped())
        method_tables.open_tables(Comm(None))
        assert by_copy("auto", 1 << 40)
    finally:
        method_tables.use(before)
