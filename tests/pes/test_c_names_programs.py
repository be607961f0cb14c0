"""Programs of OpenSHMEM's specification and tutorials, ported by syntax alone: declarations become allocations, the rest is C's."""

# ruff: noqa: F403, F405
import numpy as np
import pytest
import torch

from pyshmem.shmem import *
from c_interface import NUMPY

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def static(count, ctype):
    """C's `static <ctype> name[count]`: symmetric and zero."""
    dtype = torch.from_numpy(np.empty(0, NUMPY[ctype])).dtype
    return shmem_calloc(count, dtype.itemsize, dtype)


def test_circular_shift():
    """The tutorials' first program: everybody puts its number into the right neighbour's variable."""
    shmem_init()
    aaa = static(1, "int")
    me, npes = shmem_my_pe(), shmem_n_pes()
    shmem_barrier_all()
    shmem_int_p(aaa, me, (me + 1) % npes)
    shmem_barrier_all()
    assert aaa[0] == (me - 1) % npes
    shmem_finalize()


def test_ring_broadcast_with_put_signal():
    """The example of the specification's page of SHMEM_PUT_SIGNAL."""
    nelems = 2048
    sig_addr = static(1, "uint64")
    mype, npes = shmem_my_pe(), shmem_n_pes()
    message, data = shmem_malloc(nelems * 8, torch.int64), shmem_calloc(nelems, 8, torch.int64)
    for i in range(nelems):
        message[i] = mype
    pe = (mype + 1) % npes
    if mype == 0:
        shmem_put_signal(data, message, nelems, sig_addr, 1, SHMEM_SIGNAL_SET, pe)
        if npes > 1:
            shmem_signal_wait_until(sig_addr, SHMEM_CMP_EQ, 1)
    else:
        shmem_signal_wait_until(sig_addr, SHMEM_CMP_EQ, 1)
        shmem_put_signal(data, data, nelems, sig_addr, 1, SHMEM_SIGNAL_SET, pe)
    shmem_barrier_all()
    assert data.tolist() == [0] * nelems
    shmem_free(data)
    shmem_free(message)


def test_parallel_matrix_sum_with_active_set_reduction():
    """OpenSHMEM 1.0's way: pSync and pWrk are static arrays, filled in a loop, then a barrier."""
    n = 3
    pWrk = static(max(n // 2 + 1, SHMEM_REDUCE_MIN_WRKDATA_SIZE), "double")
    pSync = static(SHMEM_REDUCE_SYNC_SIZE, "long")
    src, total = static(n, "double"), static(n, "double")
    start_pes(0)
    for i in range(SHMEM_REDUCE_SYNC_SIZE):
        pSync[i] = SHMEM_SYNC_VALUE
    for i in range(n):
        src[i] = _my_pe() + i
    shmem_barrier_all()
    shmem_double_sum_to_all(total, src, n, 0, 0, _num_pes(), pWrk, pSync)
    assert total.tolist() == [sum(pe + i for pe in range(_num_pes())) for i in range(n)]


def test_pi_by_counting():
    """Each PE counts the points that fall into the circle; PE 0 gathers by atomics through a context of its own."""
    total, mype, npes, points = static(1, "long"), shmem_my_pe(), shmem_n_pes(), 200
    ret, ctx = shmem_ctx_create(SHMEM_CTX_PRIVATE)
    assert ret == 0
    inside = 0
    for i in range(mype, points, npes):
        for j in range(points):
            inside += (2 * i + 1) ** 2 + (2 * j + 1) ** 2 < (2 * points) ** 2
    shmem_ctx_long_atomic_add(ctx, total, inside, 0)
    shmem_ctx_quiet(ctx)
    shmem_ctx_destroy(ctx)
    shmem_barrier_all()
    assert abs(4 * shmem_long_g(total, 0) / points**2 - 3.1416) < 0.01


def test_matrix_transpose_by_strided_puts():
    """Row pe of the matrix goes into column pe of everybody's transpose: pointers into arrays are addresses plus bytes."""
    npes, mype = shmem_n_pes(), shmem_my_pe()
    row, transpose = static(npes, "double"), static(npes * npes, "double")
    for i in range(npes):
        row[i] = 10 * mype + i
    for pe in range(npes):
        shmem_double_iput(transpose.data_ptr() + 8 * mype, row, npes, 1, npes, pe)  # &transpose[0][mype]
    shmem_barrier_all()
    assert transpose.view(npes, npes).tolist() == [[10 * pe + i for pe in range(npes)] for i in range(npes)]


def test_teams_of_two_dimensions_reduce_along_each():
    """The example of the page of SHMEM_TEAM_SPLIT_2D, with a reduction along both axes."""
    npes, mype = shmem_n_pes(), shmem_my_pe()
    source, sums = static(1, "int"), static(2, "int")
    source[0] = mype
    ret, xteam, yteam = shmem_team_split_2d(SHMEM_TEAM_WORLD, 2, None, 0, None, 0)
    assert ret == 0
    shmem_int_sum_reduce(xteam, sums, source, 1)
    shmem_int_sum_reduce(yteam, sums[1:], source, 1)
    assert sums.tolist() == [
        sum(pe for pe in range(npes) if pe // 2 == mype // 2),
        sum(pe for pe in range(npes) if pe % 2 == mype % 2),
    ]
    shmem_team_destroy(xteam)
    shmem_team_destroy(yteam)


def test_a_shared_counter_under_a_lock():
    """The example of the page of SHMEM_LOCK."""
    L, count = static(1, "long"), static(1, "int")
    shmem_set_lock(L)
    value = shmem_int_g(count, 0) + 1
    shmem_int_p(count, value, 0)
    shmem_quiet()
    shmem_clear_lock(L)
    shmem_barrier_all()
    assert shmem_int_g(count, 0) == shmem_n_pes()
