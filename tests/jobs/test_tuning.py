"""Tile orders: the record of those that suit a shape."""

import os
import pathlib
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pyshmem as shmem
from pyshmem.launch import PYSHMEMRUN, tune
from pyshmem.ops.gemm.product import Configuration
from pyshmem.ops.gemm.copy_engine import PARTS, chunks_of, gathered_chunks, parts_of, wave_of
from pyshmem.ops.gemm.orders import POLICIES, STREAM_K, whole_tiles
from pyshmem.ops.gemm import tuning
from pyshmem.ops.gemm.product import tiles_of
from pyshmem.ops.gemm.record import distinct, population
from pyshmem.ops.machine import Machine
from pyshmem.ops.gemm.record import SLACK, Record, suitable

ROW = Configuration(128, 256, 64, 8, 4)
BF16, F32 = torch.bfloat16, torch.float32

sizes = st.integers(1, 20000)
shapes = st.tuples(sizes, sizes, sizes)
times = st.dictionaries(st.sampled_from(list(POLICIES)), st.floats(1e-6, 1.0), min_size=1)


@settings(max_examples=25)
@given(st.dictionaries(shapes, times, max_size=20), st.sampled_from([BF16, F32]))
def test_the_policies_that_suit_a_shape_are_its_candidates_and_no_others(measured, dtype):
    found = Record("here")
    for shape, each in measured.items():
        found.add(shape, dtype, each)
    for shape, each in measured.items():
        limit = min(each.values()) * (1 + SLACK)
        assert {policy for policy in each if each[policy] <= limit} == set(found.candidates(shape, dtype))


def test_a_type_that_was_not_measured_has_no_candidates():
    found = Record("here")
    found.add((8, 8, 8), BF16, {"streamed": 1.0})
    assert found.candidates((8, 8, 8), BF16) == ("streamed",)
    assert found.candidates((8, 8, 8), F32) == ()


def test_a_policy_is_suitable_within_the_slack():
    assert suitable({"streamed": 1.0, "data_parallel": 1 + SLACK / 2, "streamed_1": 1 + 2 * SLACK}) == [
        "streamed",
        "data_parallel",
    ]
    assert suitable({}) == []


def test_a_saved_record_answers_as_before(tmp_path):
    found, measured = Record("here"), population(50)
    for number, shape in enumerate(measured):
        found.add(shape, BF16, {"data_parallel": 1.0, "streamed_2": 0.5 + number / 50})
    found.save(tmp_path / "orders.json")
    again = Record.read(tmp_path / "orders.json")
    assert again.machine == "here"
    others = population(100, seed=1)
    assert [again.candidates(each, BF16) for each in measured + others] == [
        found.candidates(each, BF16) for each in measured + others
    ]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "another"}', "\x00"])
def test_another_file_is_refused_by_name(content, tmp_path):
    (tmp_path / "other.json").write_text(content)
    with pytest.raises(
        shmem.ArgumentError, match=r"^tuning: .*path: got .*other\.json, another file; expected a file with"
    ):
        Record.read(tmp_path / "other.json")


@given(shapes, st.integers(1, 500))
def test_the_policies_that_differ_stand_for_all(shape, programs):
    tiles, found = tiles_of(shape, ROW), distinct(shape, ROW, programs)
    assert next(iter(found)) == "data_parallel" and found["data_parallel"] == tiles
    assert len(set(found.values())) == len(found)
    for waves in (POLICIES[name] for name in STREAM_K):
        assert whole_tiles(tiles, programs, waves, ROW.cuts(shape[2])) in found.values()


def test_a_population_has_different_shapes_in_its_limits_and_is_always_the_same():
    found = population(1024)
    assert len(set(found)) == 1024 and found == population(1024) and found != population(1024, seed=1)
    assert all(size % 64 == 0 and 128 <= size <= 8192 for shape in found for size in shape)
    assert len({round(m.bit_length()) for m, _, _ in found}) == 7  # every power of two from 128 to 8192


@pytest.mark.parametrize("k, policies", [(1984, 1), (1985, 2)])
def test_tiles_too_shallow_for_two_parts_are_never_streamed(k, policies):
    """32 blocks of 64 are the least for two parts of 16."""
    assert len(distinct((128, 256, k), ROW, 132)) == policies


@pytest.fixture
def users(tmp_path, monkeypatch):
    """The file of this user for this machine, a GPU named "here", with no record in use."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tuning, "architecture", lambda: "gfx942")
    monkeypatch.setattr(tuning, "machine_name", lambda dtype: "here")
    monkeypatch.setattr(tuning, "machine", lambda: Machine("gfx942", 304, 8, False))
    monkeypatch.setattr(tuning, "default", lambda: SimpleNamespace(streams=True))
    monkeypatch.setattr(tuning, "_records", {})
    return tuning.cached(BF16)


@pytest.mark.parametrize("measured_on, found", [("here", ("streamed",)), ("another machine", ())])
def test_the_users_record_of_this_machine_is_used_without_load(measured_on, found, users, tmp_path):
    assert users == tmp_path / "pyshmem" / "tile_orders_gfx942_bfloat16.json"
    record = Record(measured_on)
    record.add((8, 8, 8), BF16, {"streamed": 1.0})
    record.save(users)
    assert tuning.candidates((8, 8, 8)) == found
    assert tuning.order_for((8, 8, 8), BF16)[1].startswith("the first of 1" if found else "no tile orders")


def test_nothing_is_read_without_a_file_nor_after_forget(users):
    assert tuning.candidates((8, 8, 8)) == ()
    record = Record("here")
    record.add((8, 8, 8), BF16, {"streamed": 1.0})
    record.save(users)
    tuning.forget()
    assert tuning.candidates((8, 8, 8)) == ()


@pytest.mark.parametrize("gpus, jobs", [(2, [("2", "256")]), (8, [("2", "0"), ("8", "256")])])
def test_one_command_measures_pairs_and_then_all_gpus_with_the_tile_orders(gpus, jobs, monkeypatch):
    started = []

    def run(command, env, check):
        assert command[:3] == [*PYSHMEMRUN] and command[3] == "-n" and command[5:7] == ["-m", "benchmarks.tune"]
        assert (pathlib.Path(env["PYTHONPATH"].split(os.pathsep)[0]) / "benchmarks" / "tune.py").exists()
        started.append((command[4], command[-1]))
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(tune, "gpus", lambda: gpus)
    monkeypatch.setattr(tune.subprocess, "run", run)
    assert (tune.main([]), started) == (0, jobs)


@pytest.mark.parametrize("gpus, asked", [(0, []), (1, []), (4, ["-n", "8"])])
def test_the_command_wants_a_gpu_for_each_pe(gpus, asked, monkeypatch, capsys):
    monkeypatch.setattr(tune, "gpus", lambda: gpus)
    assert tune.main(asked) == 1
    assert f"PEs on {gpus} GPUs; it needs 2 GPUs or more" in capsys.readouterr().err


@given(st.integers(1, 20_000), st.integers(0, 60_000), st.integers(0, 1))
def test_chunks_are_of_whole_waves_but_for_the_last_and_as_many_on_every_pe(most, columns, less):
    rows = most - less
    gathered, parts = gathered_chunks(5, 5 + rows, columns, 2), parts_of(5, 5 + rows, columns, most, 2)
    of_several = parts_of(5, 5 + rows, columns, most, 4)
    for chunks in (gathered, parts, of_several, gathered_chunks(5, 5 + rows, columns, 4)):
        covers(chunks, 5, 5 + rows)
    assert all((last - first) % wave_of(columns) == 0 for first, last in gathered[:-1])
    assert len(parts) == len(parts_of(0, most, columns, most, 2)) <= PARTS
    assert len(of_several) == len(parts_of(0, most, columns, most, 4)) <= 2


def covers(chunks, first, last):
    """Assert that chunks are all rows in order, each once."""
    assert [start for start, _ in chunks] + [last] == [first] + [end for _, end in chunks]
    assert all(end > start for start, end in chunks) or first == last


@given(st.integers(4, 20_000), st.integers(1, 20_000), st.integers(2, 4))
def test_gathered_rows_are_cut_the_same_way_by_the_pe_that_has_them_and_by_the_others(M, columns, n):
    problem = SimpleNamespace(M=M, N=columns, n_pes=n)
    for last in (False, True):
        every = [chunks_of(problem, pe, last) for pe in range(n)]
        covers([chunk for chunks in every for chunk in chunks], 0, M)
        assert len({len(chunks) for chunks in every}) == 1, "PEs wait for as many chunks as peers send"
        assert len(every[0]) == 1 or last


def test_rows_of_four_pes_are_cut_as_was_fastest_on_four_gpus():
    """2048 rows of each PE: N of the product, and its parts' rows; those of the last peer that are gathered."""
    for columns, parts, gathered in (
        (4096, [1024, 1024], [1024, 512, 512]), (3584, [1024, 1024], [1024, 512, 512]),
        (4608, [1024, 1024], [1024, 512, 512]), (8192, [2048], [2048]),
    ):  # fmt: skip
        problem = SimpleNamespace(M=8192, N=columns, n_pes=4)
        assert [last - first for first, last in parts_of(0, 2048, columns, 2048, 4)] == parts
        assert [last - first for first, last in chunks_of(problem, 3, True)] == gathered
