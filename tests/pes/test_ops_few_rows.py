"""gemm_all_reduce of few rows: one kernel, in which each program exchanges its tile with all peers."""

import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from operands import BOUNDS, Case, equal_on_all_pes
from pyshmem import ops
from pyshmem.ops.gemm.few_rows import MOST_ROWS, MultiplyAndExchange, configuration, fills
from pyshmem.ops.gemm.problem import Options, problem_of
from pyshmem.ops.gemm.fused import MultiplyAndSend
from support import here, work

pytestmark = pytest.mark.usefixtures("plans_closed")

FUSED = {"schedule": "fused", "tile": None}


def steps_of(case, **options):
    plan = ops.plan("gemm_all_reduce", case.a, case.b, size=case.size, **{"schedule": "fused"} | options)
    return plan.steps(case.a, case.b)


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("rows", [1, 5, 40, MOST_ROWS])
def test_the_result_is_the_product_with_equal_bits_on_all_pes(rows, dtype):
    case = Case("gemm_all_reduce", sizes=(rows, 70, 33), dtype=dtype)
    assert isinstance(steps_of(case), MultiplyAndExchange)
    for _ in range(3):
        result = case.call(**FUSED)
        case.check(result)
    copy = shmem.array(result)
    equal_on_all_pes(copy)
    shmem.free(copy)


def test_operands_may_be_transposed_and_columns_many(few_pes):
    case = Case("gemm_all_reduce", sizes=(7, 300, 40))
    case.a, case.b = case.a.T.contiguous().T, case.b.T.contiguous().T
    case.check(case.call(**FUSED))


def test_the_epilogue_is_applied_once_to_the_whole_sum(few_pes):
    case = Case("gemm_all_reduce", sizes=(6, 40, 30))
    rows, columns = torch.arange(6, device=here())[:, None], torch.arange(40, device=here())[None, :]
    case.wanted = case.wanted * 2 + 100 * rows + columns

    @triton.jit
    def scaled(tile, rows, columns):
        return tile * 2 + tl.cast(100 * rows + columns, tl.float32)

    case.check(case.call(epilogue=scaled, **FUSED))


def test_calls_follow_each_other_without_a_barrier_though_one_pe_is_late():
    """A peer's part of the next call but one has the slot of this one. Results are read after the next call."""
    turns = 1000 if torch.cuda.is_available() else 40
    cases = [Case("gemm_all_reduce", sizes=(5, 40, 12), seed=seed) for seed in range(3)]
    before = None
    for turn in range(turns):
        if shmem.my_pe() == turn // 7 % shmem.n_pes():
            work(2000)
        result = cases[turn % 3].call(**FUSED)
        if before is not None and (turn < 40 or turn % 97 == 0):
            before[0].check(before[1], turn - 1)
        before = cases[turn % 3], result


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled")
def test_a_peer_that_is_a_call_ahead_does_not_write_to_the_slot_that_is_still_read(monkeypatch, me, npes):
    """The last PE reads a part when the next one has come too."""
    if npes == 1:
        pytest.skip("a PE has no peer")
    cases = [Case("gemm_all_reduce", sizes=(5, 30, 12), seed=seed) for seed in range(3)]
    found, wait = [], dev.signal_wait_until
    for turn, case in enumerate(cases):
        ahead = int(me == npes - 1 and turn < 2)
        monkeypatch.setattr(dev, "signal_wait_until", lambda *args, by=ahead: wait(*args[:-1], args[-1] + by))
        found.append(case.call(**FUSED).clone())
    for case, result in zip(cases, found, strict=True):
        case.check(result)


def test_more_rows_chosen_tiles_and_streamed_orders_take_the_other_kernel():
    few, more = (Case("gemm_all_reduce", sizes=(rows, 40, 12)) for rows in (MOST_ROWS, MOST_ROWS + 1))
    assert isinstance(steps_of(few, order="data_parallel"), MultiplyAndExchange)
    for steps in (steps_of(more), steps_of(few, tile=(16, 16, 16)), steps_of(few, order="streamed_1")):
        assert isinstance(steps, MultiplyAndSend)


@pytest.mark.parametrize("columns, width", [(8192, 64), (4096, 32), (2048, 16), (28672, 32), (132 * 128, 128)])
def test_the_tile_is_the_widest_with_which_the_busiest_program_has_the_fewest_columns(columns, width, monkeypatch):
    from pyshmem.ops.gemm import few_rows
    from pyshmem.ops.machine import Machine

    h200 = Machine("nvidia", 132, 1, True)
    monkeypatch.setattr(few_rows, "machine", lambda: h200)
    a, b = (
        torch.ones(8, 4, device=here(), dtype=torch.bfloat16),
        torch.ones(4, columns, device=here(), dtype=torch.bfloat16),
    )
    problem = problem_of("gemm_all_reduce", a, b, None, "rows", Options()._asdict())
    assert configuration(problem, h200)[:3] == (16, width, 128)
    assert fills(problem) == (columns >= 4096)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_graphs_capture_and_replay_it():
    case = Case("gemm_all_reduce", sizes=(16, 8192, 1024), dtype=torch.bfloat16)
    case.call(**FUSED)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = [case.call(**FUSED) for _ in range(4)]
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    for result in results[2:]:
        case.check(result)
