"""9.1 set-up and query while a job runs. What ends a job, or needs one of its own, is in tests/jobs."""

import pytest
import torch
from support import live, refuses, work

import pyshmem as shmem
from pyshmem.base.job import job


def test_init_and_finalize_are_counted(me):
    """Only the last finalize ends anything: memory, values and teams stay."""
    array = shmem.full(4, me, dtype=torch.int64)
    generation, inits = job.generation, job.inits
    for count in (1, 2, 3):
        assert shmem.init() is None
        assert shmem.query_initialized() is True and job.inits == inits + count
    for count in (2, 1, 0):
        assert shmem.finalize() is None
        assert shmem.query_initialized() is True and job.inits == inits + count
    assert array.tolist() == [me] * 4 and shmem.is_symmetric(array)
    assert job.generation == generation and shmem.my_pe() == me


def test_init_thread_counts_too_and_gives_the_level_that_mpi_provides():
    for requested in shmem.THREAD:
        provided = shmem.init_thread(requested)
        assert isinstance(provided, shmem.THREAD) and provided == shmem.query_thread()
    for _ in shmem.THREAD:
        shmem.finalize()
    assert shmem.query_initialized()


def test_a_finalize_before_the_last_is_a_barrier(me, npes):
    """1.6: it equals barrier_all. Another PE is late each time."""
    count = shmem.zeros(1, dtype=torch.int64)
    for turn in range(1, 101):
        shmem.init()
        if me == turn % npes:
            work(turn * 20)
        shmem.atomic_fetch_inc(count, 0)
        shmem.finalize()
        assert npes * turn <= shmem.atomic_fetch(count, 0) < npes * (turn + 1)


def test_init_after_the_first_waits_for_nobody(me, npes):
    """It only counts; the PEs do it one after the other."""
    turn = shmem.zeros(1, dtype=torch.int32)
    shmem.wait_until(turn, "==", int(me > 0))
    shmem.init()
    shmem.p(turn, 1, (me + 1) % npes)
    shmem.wait_until(turn, "==", 1)
    shmem.finalize()


def test_thread_levels_are_ordered():
    levels = [shmem.THREAD.SINGLE, shmem.THREAD.FUNNELED, shmem.THREAD.SERIALIZED, shmem.THREAD.MULTIPLE]
    assert levels == sorted(set(levels)) and shmem.query_thread() in levels


def test_my_pe_and_n_pes_number_the_pes_from_0(npes):
    seen = shmem.zeros(npes, dtype=torch.int64)
    for pe in range(npes):
        shmem.atomic_inc(seen[shmem.my_pe()], pe)
    shmem.barrier_all()
    assert seen.tolist() == [1] * npes == [1] * shmem.n_pes()


def test_the_predefined_teams_number_the_pes_as_the_world_does(me, npes):
    """TEAM_SHARED is the PEs of the node: all PEs of a job on one node."""
    world, shared = shmem.TEAM_WORLD, shmem.TEAM_SHARED
    node = [pe for pe in range(npes) if job.nodes[pe] == job.nodes[me]]
    for team, pes in ((world, list(range(npes))), (shared, node)):
        assert team and (team.my_pe(), team.n_pes()) == (pes.index(me), len(pes))
        assert [team.translate_pe(pe, world) for pe in range(-1, len(pes) + 1)] == [-1, *pes, -1]
        there = [node.index(pe) if pe in node else -1 for pe in pes]
        assert [team.translate_pe(pe, shared) for pe in range(-1, len(pes) + 1)] == [-1, *there, -1]
    outside = shmem.Team("TEAM_INVALID")
    assert not outside and (outside.my_pe(), outside.n_pes()) == (-1, -1)
    assert outside.translate_pe(0, shmem.TEAM_WORLD) == shmem.TEAM_WORLD.translate_pe(0, outside) == -1


def test_info_names_the_library_and_the_specification_it_follows():
    assert shmem.info_get_version() == (1, 6)
    assert shmem.info_get_name() == f"pyshmem {shmem.__version__}"


@pytest.mark.parametrize("status", ["0", None, 1.5])
def test_global_exit_refuses_a_status_that_is_no_int(status):
    with refuses("global_exit", "status: got .*; expected an int$"):
        shmem.global_exit(status)


@pytest.mark.parametrize("call", [shmem.init_thread, shmem.init, shmem.finalize], ids=lambda call: call.__name__)
def test_setup_leaves_no_memory_behind(call):
    before = live()
    shmem.init()
    call()
    shmem.finalize()
    if call is not shmem.finalize:
        shmem.finalize()
    else:
        shmem.init()
        before = [each for each in before if each in live()]  # the last finalize has freed what others had left
    assert live() == before and shmem.query_initialized()
