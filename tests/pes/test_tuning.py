"""Tuning of tile orders, on all PEs: whose times count, what is refused, and that what is measured is the product."""

import pytest
import torch
import pyshmem as shmem
from pyshmem import ops
from pyshmem.ops.gemm import product, tuning
from pyshmem.ops.gemm.product import configuration
from pyshmem.ops import machine as machines
from pyshmem.ops.machine import machine
from pyshmem.ops.gemm.orders import POLICIES
from pyshmem.ops.gemm.problem import problem_of
from pyshmem.ops.gemm.tuning import ProductTimer
from pyshmem.memory.heap import default
from support import here

BF16, F32 = torch.bfloat16, torch.float32
SHAPE = (160, 96, 4096 if torch.cuda.is_available() else 128)  # 15 tiles of 32 x 32 in the interpreter


@pytest.fixture(autouse=True)
def nothing_measured():
    tuning.forget()
    yield
    tuning.forget()


@pytest.fixture
def programs(monkeypatch):
    """Several programs in the interpreter too: those of these kernels never wait for a later one."""
    monkeypatch.setattr(machines, "INTERPRETED_PROGRAMS", 4)


def by_number(shape, dtype, policies):
    """Times that grow from policy to policy."""
    return {policy: 1.0 + number for number, policy in enumerate(policies)}


def test_the_slowest_pe_counts(programs, me, npes):
    """Each PE is slow in a policy of its own, all but the last policy."""

    def timer(shape, dtype, policies):
        slow = policies[me % (len(policies) - 1)]
        return {policy: 2.0 if policy == slow or npes < len(policies) - 1 else 1.0 for policy in policies} | {
            policies[-1]: 1.5
        }

    measured = []
    found = tuning.tune([(4096, 4096, 4096)], timer=lambda *given: measured.append(timer(*given)) or measured[-1])
    assert found.candidates((4096, 4096, 4096), BF16) == (list(measured[0])[-1],)


def test_pe_0_says_every_ten_seconds_how_many_shapes_are_measured(programs, me, monkeypatch, capsys):
    clock = iter(range(0, 100, 6))
    monkeypatch.setattr(tuning, "monotonic", lambda: next(clock))
    tuning.tune([(64, 64, 64)] * 5, timer=by_number)
    wanted = ["pyshmem: tune has measured 1 of 5 shapes", "pyshmem: tune has measured 3 of 5 shapes"]
    assert capsys.readouterr().err.splitlines() == wanted * (me == 0)


def test_orders_come_from_the_record_and_say_why(programs):
    other = (64, 64, 64)
    assert tuning.order_for(SHAPE, BF16)[1].startswith("no tile orders were measured")
    tuning.tune([SHAPE], timer=lambda shape, dtype, policies: by_number(shape, dtype, policies[::-1]))
    best = tuning.candidates(SHAPE)
    assert len(best) == 1 and best != ("data_parallel",)
    assert tuning.order_for(SHAPE, BF16) == (best[0], "the first of 1 that suit")
    assert tuning.order_for(other, BF16)[1].startswith("the tile orders of this shape were not measured")
    assert tuning.candidates(other) == () and tuning.candidates(SHAPE, F32) == ()


def test_shapes_that_were_not_measured_stream_a_last_wave_of_few_tiles(programs):
    row, most = configuration(machine().arch, BF16, None), machine().programs
    assert most >= 2
    deep = 2 * row.least * row.BK
    assert tuning.order_for((row.BM * most, row.BN, deep), BF16)[0] == "data_parallel"
    assert tuning.order_for((row.BM * (most + 1), row.BN, deep - row.BK), BF16)[0] == "data_parallel"
    order, why = tuning.order_for((row.BM * (most + 1), row.BN, deep), BF16)
    assert order == "halves" and "few tiles" in why


def test_pes_whose_products_differ_take_one_order_that_of_the_largest(programs, me, npes):
    m, n, k = SHAPE
    tuning.tune([SHAPE], timer=lambda shape, dtype, policies: by_number(shape, dtype, policies[::-1]))
    mine = m - (me > 0)
    a, b = (torch.zeros(size, dtype=BF16, device=here()) for size in ((mine, k), (k, n)))
    found = problem_of("gemm_all_gather", a, b, None, "rows", {"size": m * npes - npes + 1})
    assert (tuning.order_of(found)[0],) == tuning.candidates(SHAPE)


def test_a_problem_takes_the_order_of_a_pes_own_product(programs, npes):
    m, n, k = SHAPE
    tuning.tune([SHAPE], timer=lambda shape, dtype, policies: by_number(shape, dtype, policies[::-1]))
    (best,) = tuning.candidates(SHAPE)
    a, b = (shmem.zeros(size, dtype=BF16) for size in ((m, k), (k, n)))
    rows = problem_of("gemm_all_gather", a, b, None, "rows", {})
    depths = problem_of("gemm_reduce_scatter", a, b, None, "rows", {})
    assert tuning.order_of(rows)[0] == tuning.order_of(depths)[0] == best
    gathered = problem_of("all_gather_gemm", a, b, None, "rows", {})
    assert tuning.order_of(gathered)[0] == tuning.order_for((m * npes, n, k), BF16)[0]
    other = problem_of("gemm_all_gather", a, b, None, "rows", {"tile": (64, 64, 32)})
    assert tuning.order_of(other) == ("data_parallel", "tile orders are measured for the tiles of the table")


def test_a_saved_record_is_loaded_on_all_pes(programs, tmp_path_factory, me):
    path = shared_file(tmp_path_factory)
    found = tuning.tune([SHAPE], path=path, timer=by_number)
    shmem.barrier_all()
    tuning.forget()
    again = ops.tuning.load(path)
    assert again.policies == found.policies and tuning.candidates(SHAPE) == ("data_parallel",)


def test_a_file_of_another_machine_is_refused(tmp_path):
    tuning.Record("another GPU").save(tmp_path / "orders.json")
    with pytest.raises(
        shmem.ArgumentError, match=r"^load: .*path: got .*measured on another GPU; expected one measured on "
    ):
        tuning.load(tmp_path / "orders.json")
    assert tuning.order_for(SHAPE, BF16)[1].startswith("no tile orders were measured")


def test_files_that_differ_between_the_pes_are_refused_on_all(tmp_path, me, npes):
    record = tuning.Record(tuning.machine_name(BF16))
    record.add((me + 1, 1, 1), BF16, {"streamed": 1.0})
    record.save(tmp_path / "orders.json")
    if npes == 1:
        tuning.load(tmp_path / "orders.json")
        return
    with pytest.raises(
        shmem.ArgumentError, match=r"^load: .*path: got another file on PE 1 than on PE 0; expected one file"
    ):
        tuning.load(tmp_path / "orders.json")
    assert tuning.order_for(SHAPE, BF16)[1].startswith("no tile orders were measured")


@pytest.mark.parametrize(
    ("shapes", "dtype", "said"),
    [
        ([(1, 2)], BF16, r"shapes: got \(1, 2\); expected \(m, n, k\), ints of 1 or more"),
        ([(1, 2, 0)], BF16, r"shapes: got \(1, 2, 0\); expected"),
        ([SHAPE], torch.int8, "dtype: got torch.int8; expected one of torch.bfloat16"),
    ],
)
def test_other_shapes_and_types_are_refused_and_nothing_is_measured(shapes, dtype, said):
    with pytest.raises(shmem.ShmemError, match=rf"^tune: .*{said}"):
        tuning.tune(shapes, dtype, timer=lambda *given: pytest.fail("measured"))


def test_without_a_gpu_tune_wants_a_timer():
    if default().streams:
        assert set(tuning.tune([SHAPE]).candidates(SHAPE, BF16)) <= set(POLICIES)
        return
    with pytest.raises(
        shmem.ArgumentError, match=r"^tune: .*timer: got None without a GPU; expected a GPU, or a function"
    ):
        tuning.tune([SHAPE])


@pytest.mark.parametrize("least", (1, 3, 100))
def test_what_is_timed_is_the_product_under_each_policy(least, programs, few_pes, monkeypatch):
    """Twice, so that the second call finds what streamed tiles have left in the symmetric words."""
    results = {}

    def clock(calls):
        for name, call in calls.items():
            a, b, out = call.args
            for _ in range(2):
                out.fill_(float("nan"))
                call()
            results[name] = a.double() @ b.double(), out.double().clone()
        return dict.fromkeys(calls, 1.0)

    for key, row in product._ROWS.items():
        monkeypatch.setitem(product._ROWS, key, row._replace(least=least))
    timer = ProductTimer(15, clock)
    policies = ("data_parallel", "streamed_1", "streamed_2", "streamed")
    assert timer((96, 64, 160), F32, policies) == dict.fromkeys(policies, 1.0)
    timer.close()
    assert set(results) == set(policies)
    for wanted, got in results.values():
        torch.testing.assert_close(got, wanted, rtol=2e-2, atol=0.1)


def shared_file(tmp_path_factory):
    """One path for all PEs: PE 0's."""
    from mpi4py import MPI

    return MPI.COMM_WORLD.bcast(str(tmp_path_factory.mktemp("tuning") / "orders.json"), 0)
