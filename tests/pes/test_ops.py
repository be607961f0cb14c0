"""Operators: every schedule, order and dtype against float64, at sizes that no tile and no number of PEs divides."""

import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from operands import BOUNDS, SIZES, TILE, Case, equal_on_all_pes, mine, of_the_caller, refused_on_all_pes
from pyshmem import ops
from pyshmem.ops import plans
from pyshmem.ops.gemm import copy_engine
from pyshmem.ops.streams import ENQUEUED
from pyshmem.ops.gemm.orders import POLICIES
from pyshmem.ops.gemm.selection import ABLE
from support import at_the_end_of_memory, here, refuses, work

pytestmark = pytest.mark.usefixtures("plans_closed")

SHARED = ("gemm_all_gather", "gemm_all_reduce")  # their results are the same on all PEs, in symmetric memory
CASES = [
    (operator, split, schedule)
    for operator, schedules in ABLE.items()
    for split in (("rows", "columns") if operator == "gemm_all_gather" else ("rows",))
    for schedule in schedules
    if not (split == "columns" and schedule == "copy_engine")
]


GPU = torch.cuda.is_available()


@pytest.mark.skipif(GPU, reason="GPU memory has no end of its own behind an array")
@pytest.mark.parametrize("operator, split, schedule", CASES)
@pytest.mark.parametrize("rows", [1, 5])
def test_no_schedule_reads_memory_behind_its_operands(operator, split, schedule, rows):
    """With one row, the tiles of all PEs but the first begin behind a matrix of which each PE has a part of the rows."""
    case = Case(operator, split, sizes=(rows, 7, 6))
    case.a, case.b = at_the_end_of_memory(case.a), at_the_end_of_memory(case.b)
    case.check(case.call(schedule=schedule))


@pytest.mark.parametrize("operator, split, schedule", CASES)
def test_every_schedule_gives_the_product_at_odd_sizes(operator, split, schedule):
    for dtype in BOUNDS:
        case = Case(operator, split, dtype=dtype)
        case.check(case.call(schedule=schedule), dtype)


@pytest.mark.parametrize("operator", [name for name, able in ABLE.items() if "copy_engine" in able])
def test_copies_of_several_chunks_give_the_product(operator, monkeypatch):
    """A GPU that makes one tile at a time cuts these rows, whose shares differ by one, into chunks of 128 and 256, or in halves."""
    monkeypatch.setattr(copy_engine, "TILES", 1)
    n = shmem.n_pes()
    rows = 6 * copy_engine.STEP + 1
    assert len(copy_engine.gathered_chunks(0, rows, 8, 2)) == 4 and len(copy_engine.parts_of(0, rows, 8, rows, 2)) == 2
    case = Case(operator, sizes=(n * rows - 1, 8, 4 * n))
    for _ in range(2):
        case.check(case.call(schedule="copy_engine"))


def test_fewer_rows_may_be_cut_into_more_chunks(monkeypatch):
    """Of several PEs 640 rows are one chunk and 512 two. Plans share memory."""
    monkeypatch.setattr(copy_engine, "TILES", 1)
    n = shmem.n_pes()
    for steps in (6, 5, 4):
        rows = steps * copy_engine.STEP + (steps == 6)
        case = Case("gemm_reduce_scatter", sizes=(n * rows, 8, 4 * n))
        for _ in range(2):
            case.check(case.call(schedule="copy_engine"))


def test_with_a_long_k_the_librarys_product_adds_to_the_chunks_of_the_other_of_two_pes(monkeypatch):
    monkeypatch.setattr(copy_engine, "TILES", 1)
    monkeypatch.setattr(copy_engine, "DEEP", 5)
    n = shmem.n_pes()
    case = Case("gemm_reduce_scatter", sizes=(n * (6 * copy_engine.STEP + 1) - 1, 8, 5 * n))
    plan = ops.plan("gemm_reduce_scatter", case.a, case.b, schedule="copy_engine")
    assert copy_engine.adds_to_slots(plan.problem) == (n == 2)
    for _ in range(2):
        case.check(case.call(schedule="copy_engine"))


@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="there is no GPU: its tiles are too large for the interpreter"
)
@pytest.mark.parametrize("operator, split, schedule", CASES)
def test_the_tiles_of_the_gpu_give_the_product(operator, split, schedule):
    for sizes in ((1536, 1280, 1024), (1000, 1600, 328)):
        case = Case(operator, split, sizes=sizes, dtype=torch.bfloat16)
        for order in ("data_parallel", "halves")[: 1 + (schedule == "fused")]:
            for turn in range(3):
                case.check(case.call(schedule=schedule, order=order, tile=None), (sizes, order, turn))


@pytest.mark.parametrize(
    "operator, order",
    [
        (operator, order)
        for operator, able in ABLE.items()
        for order in POLICIES
        if "fused" in able and (operator == "gemm_reduce_scatter" or order in ("halves", "streamed") or GPU)
    ],
)
def test_every_order_gives_the_product(operator, order, few_pes):
    """On CPUs, where that is slow, all orders of one operator: they cut the tiles alike for all."""
    case = Case(operator, sizes=(35, 50, 40))
    for _ in range(2):
        case.check(case.call(schedule="fused", order=order), order)


@pytest.mark.parametrize("operator", ["gemm_reduce_scatter", "gemm_all_reduce"])
def test_tiles_may_be_streamed_though_only_some_pes_have_a_k_that_can_be_cut(operator, few_pes):
    """Of K = 17 on PE 0 a tile has two parts, of the others' 16 one."""
    case = Case(operator, sizes=(18, 20, 16 * shmem.n_pes() + 1))
    for _ in range(2):
        case.check(case.call(schedule="fused", order="streamed"))


@pytest.mark.parametrize("operator, split, schedule", CASES)
def test_a_plan_has_the_order_of_its_tiles_and_other_orders_are_refused(operator, split, schedule, few_pes):
    case = Case(operator, split)
    given = {"split": split, "size": case.size, "tile": TILE, **case.columns}
    assert ops.plan(operator, case.a, case.b, schedule=schedule, **given).order == "data_parallel"
    assert (
        ops.plan(operator, case.a, case.b, schedule=schedule, order="data_parallel", **given).order == "data_parallel"
    )
    if schedule == "fused":
        assert ops.plan(operator, case.a, case.b, schedule=schedule, order="streamed", **given).order == "streamed"
    else:
        with refuses(operator, f"order: got 'streamed' with schedule='{schedule}'; expected auto"):
            ops.plan(operator, case.a, case.b, schedule=schedule, order="streamed", **given)
    chosen = ops.plan(operator, case.a, case.b, order="streamed", **given)
    assert (chosen.schedule, chosen.order) == ("fused", "streamed") and "streams tiles" in chosen.why


@pytest.mark.parametrize("operator, split, schedule", CASES)
def test_pes_with_more_tiles_than_others_allocate_as_much_as_they(operator, split, schedule, me, npes):
    """What is allocated after the plan has one place on all PEs. 33 tiles need another line of memory than 32."""
    divided, other = 16 * 32 * npes + 1, 16
    sizes = {"gemm_all_gather": (divided, other, 17), "all_gather_gemm": (divided, other, 17)}
    if split == "columns":
        sizes[operator] = (other, divided, 17)
    case = Case(operator, split, sizes=sizes.get(operator, (16 * 33, other, 16 * npes + 1)))
    order = {"order": "streamed"} if schedule == "fused" else {}
    given = {"split": split, "size": case.size, "tile": TILE, **case.columns, **order}
    ops.plan(operator, case.a, case.b, schedule=schedule, **given)
    after = shmem.full(64, -1, dtype=torch.int64)
    shmem.put(after, torch.full((64,), me), (me + 1) % npes)
    shmem.barrier_all()
    assert (after == (me - 1) % npes).all()


@pytest.mark.parametrize("first", ABLE)
@pytest.mark.parametrize("second", ABLE)
def test_two_operators_in_flight_on_a_team_share_no_memory(first, second, few_pes):
    """Calls of both in turn, the first one's result is read after the second one's."""
    cases = [Case(first, sizes=(18, 20, 12)), Case(second, sizes=(18, 20, 12), seed=5)]
    plans = [
        ops.plan(case.operator, case.a, case.b, size=case.size, tile=TILE, schedule=schedule, **case.columns)
        for case, schedule in zip(cases, ("fused", "bulk_synchronous"), strict=True)
    ]
    places = [(plan.space.room.memory.data_ptr(), plan.space.room.memory.nbytes) for plan in plans]
    (low, nbytes), (high, _) = sorted(places)
    assert low + nbytes <= high
    for turn in range(3):
        results = [plan(case.a, case.b) for plan, case in zip(plans, cases, strict=True)]
        for case, result in zip(cases, results, strict=True):
            case.check(result, turn)


@pytest.mark.parametrize("operator", ABLE)
def test_sizes_may_be_smaller_than_the_number_of_pes(operator):
    n = shmem.n_pes()
    for sizes in ((1, n, 1), (n + 1, n, 2)):
        case = Case(operator, sizes=sizes)
        case.check(case.call(), sizes)


@pytest.mark.parametrize("operator, split, schedule", CASES)
@pytest.mark.parametrize("side", range(3), ids="MNK")
def test_products_have_sides_of_1_and_of_16(operator, split, schedule, side, few_pes):
    """Triton puts a number that is 1 into the code of a kernel, and compiles another one for multiples of 16."""
    for length in (1, 16, 1):
        sizes = [5, 7, 6]
        sizes[side] = length
        case = Case(operator, split, sizes=tuple(sizes))
        for _ in range(3):
            case.check(case.call(schedule=schedule), (sizes, length))


@pytest.mark.parametrize("operator, split, schedule", CASES)
def test_operands_may_be_transposed(operator, split, schedule, few_pes):
    case = Case(operator, split)
    case.a, case.b = case.a.T.contiguous().T, case.b.T.contiguous().T
    case.check(case.call(schedule=schedule))


@triton.jit
def scaled(tile, rows, columns):
    return (tile * 2 + rows * 1000 + columns).to(tl.float32)


@pytest.mark.parametrize("operator, split, schedule", CASES)
def test_the_epilogue_is_applied_once_to_the_whole_sum(operator, split, schedule, few_pes):
    case = Case(operator, split)
    rows, columns = torch.arange(SIZES[0], device=here())[:, None], torch.arange(SIZES[1], device=here())[None, :]
    places = rows * 1000.0 + columns
    if operator == "all_gather_gemm":
        places = places[:, mine(SIZES[1])]
    if operator == "gemm_reduce_scatter":
        places = places[mine(SIZES[0])]
    case.wanted = case.wanted * 2 + places
    case.check(case.call(schedule=schedule, epilogue=scaled))


@pytest.mark.parametrize("operator, split, schedule", CASES)
def test_calls_follow_each_other_without_a_barrier_though_one_pe_is_late(operator, split, schedule):
    """Each call has other operands, and its result is read after the next call has been enqueued."""
    turns = 1000 if torch.cuda.is_available() else 6
    cases = [Case(operator, split, sizes=(18, 20, 12), seed=seed) for seed in range(3)]
    before = None
    for turn in range(turns):
        case = cases[turn % 3]
        if shmem.my_pe() == turn // 7 % shmem.n_pes():
            work(2000)
        result = case.call(schedule=schedule, reuse=True)
        if before is not None and (turn < 10 or turn % 97 == 0):
            before[0].check(before[1], turn - 1)
        before = case, result


@pytest.mark.skipif(GPU, reason="kernels are compiled")
@pytest.mark.parametrize(
    "operator, schedule",
    [
        ("all_gather_gemm", "fused"), ("all_gather_gemm", "bulk_synchronous"), ("all_gather_gemm", "copy_engine"),
        ("gemm_reduce_scatter", "bulk_synchronous"),
        ("gemm_reduce_scatter", "copy_engine"),
    ],
)  # fmt: skip
def test_what_peers_have_sent_stays_until_this_pe_has_read_it(operator, schedule, monkeypatch, me, npes):
    """The last PE is slow between the arrival of rows or parts and their use."""
    cases = [Case(operator, sizes=(18, 12, 12), seed=seed) for seed in range(3)]
    wait = dev.signal_wait_until

    def slow(*args):
        wait(*args)
        work(300_000 * (me == npes - 1))

    monkeypatch.setattr(dev, "signal_wait_until", slow)
    found = [case.call(schedule=schedule).clone() for case in cases]
    for case, result in zip(cases, found, strict=True):
        case.check(result)


@pytest.mark.parametrize("operator, split, schedule", CASES)
def test_results_are_the_callers_or_two_of_the_plan_in_turn(operator, split, schedule, few_pes):
    of_the_caller(lambda **more: Case(operator, split).call(schedule=schedule, **more))


@pytest.mark.parametrize("operator, split, schedule", CASES)
def test_out_takes_the_result_and_keeps_it(operator, split, schedule, few_pes):
    case = Case(operator, split, sizes=(32, 48, 32))
    shared = shmem.zeros(case.wanted.shape, dtype=case.dtype) if operator in SHARED else None
    out = torch.zeros(case.wanted.shape, dtype=case.dtype, device=here()) if shared is None else shared
    for _ in range(3):
        assert case.call(schedule=schedule, out=out) is out
        case.call(schedule=schedule)
        case.check(out)
    shmem.barrier_all()
    if shared is not None:
        shmem.free(shared)


@pytest.mark.parametrize("operator, split, schedule", [case for case in CASES if case[0] in SHARED])
def test_out_is_not_written_before_this_pe_calls(operator, split, schedule, me, npes):
    """The last PE is late to read its result, and the others call with other operands."""
    cases = [Case(operator, split, sizes=(18, 20, 12), seed=seed) for seed in range(3)]
    shared = shmem.zeros(cases[0].wanted.shape, dtype=cases[0].dtype)
    for turn, case in enumerate(cases):
        case.call(schedule=schedule, out=shared)
        work(300_000 * (me == npes - 1))
        case.check(shared, turn)
    shmem.free(shared)


@pytest.mark.parametrize("operator", SHARED)
def test_all_pes_get_the_same_bits(operator):
    for schedule in ABLE[operator]:
        result = Case(operator, dtype=torch.float16).call(schedule=schedule)
        copy = shmem.array(result)
        equal_on_all_pes(copy, schedule)
        shmem.free(copy)


REFUSED = [
    ("b: got .*3, 4.*; expected 2 rows", {"b": torch.ones(3, 4)}),
    ("b: got torch.float16; expected a's type", {"b": torch.ones(2, 4, dtype=torch.float16)}),
    (
        "a: got torch.int32; expected one of",
        {"a": torch.ones(3, 2, dtype=torch.int32), "b": torch.ones(2, 4, dtype=torch.int32)},
    ),
    ("a: got 1 dimensions", {"a": torch.ones(3)}),
    ("a: got list", {"a": [1.0]}),
    ("a: got strides", {"a": torch.ones(6, 4)}),  # every other element of it
    ("schedule: got 'quick', no schedule; expected auto or copy_engine", {"schedule": "quick"}),
    ("order: got 'other'; expected auto or data_parallel", {"order": "other"}),
    ("order: got None; expected 'auto' or a name", {"order": None}),
    (r"schedule: got \['fused'\]; expected 'auto' or a name", {"schedule": ["fused"]}),
    (r"tile: got \[16, 16, 16\]; expected a tuple of three powers of two", {"tile": [16, 16, 16]}),
    (r"tile: got \(16, 24, 16\); expected a tuple of three powers of two", {"tile": (16, 24, 16)}),
    (r"tile: got \(16, 8, 16\); expected .*, each 16 or more", {"tile": (16, 8, 16)}),
    (r"tile: got \(16, 16\); expected a tuple of three", {"tile": (16, 16)}),
    ("split: got 'diagonal'", {"split": "diagonal"}),
    ("epilogue: got function; expected a function of triton.jit", {"epilogue": lambda tile: tile}),
    ("team: got", {"team": shmem.TEAM_INVALID}),
    ("size: got 1000000, with 3 elements of M", {"size": 1000000}),
]


@pytest.mark.parametrize("message, changed", REFUSED, ids=[each[0][:20] for each in REFUSED])
def test_wrong_arguments_are_refused_with_their_name(message, changed):
    given = {"a": torch.ones(3, 2), "b": torch.ones(2, 4)} | changed
    for name in ("a", "b"):
        if isinstance(given[name], torch.Tensor):
            given[name] = given[name].to(here())
    if "strides" in message:
        given["a"] = given["a"][::2, ::2]
    kept = list(plans._plans)
    with refuses("gemm_all_gather", message, shmem.ShmemError):
        ops.gemm_all_gather(**given)
    assert list(plans._plans) == kept  # nothing was made, so nothing was launched


@pytest.mark.parametrize("operator", ABLE)
def test_what_one_pe_refuses_is_refused_on_all(operator):
    """The operands, an option and an array for the result; the call that is right succeeds then."""
    case = Case(operator, sizes=(18, 20, 12))
    given = {"a": case.a, "b": case.b, "size": case.size, **case.columns}
    refused_on_all_pes(operator, dict(given), "b", "got torch.float16")
    refused_on_all_pes(operator, dict(given), "schedule", "got 'quick'", "quick")
    refused_on_all_pes(operator, dict(given), "out", r"got \(1, 1\)", torch.zeros(1, 1, device=here()))
    case.check(getattr(ops, operator)(**given))


def test_a_plan_refuses_columns_of_a_product_that_divides_none():
    with refuses("gemm_all_gather", "columns: got 8; expected None: it is for all_gather_gemm"):
        ops.plan("gemm_all_gather", torch.ones(3, 2, device=here()), torch.ones(2, 4, device=here()), columns=8)


def test_rows_that_overlap_in_memory_are_refused():
    a = torch.ones(36, device=here()).expand(20, 36)
    with refuses("gemm_all_gather", r"a: got strides \(0, 1\)"):
        ops.gemm_all_gather(a, torch.ones(36, 4, device=here()))


def test_a_wrong_out_is_refused():
    a, b = torch.ones(4, 8, device=here()), torch.ones(8, 8, device=here())
    rows = 4 * shmem.n_pes()
    for message, out in (
        ("shape", torch.zeros(3, 8, device=here())),
        ("torch.float64", torch.zeros(rows, 8, dtype=torch.float64, device=here())),
        ("strides", torch.zeros(8, rows, device=here()).T),
        ("private memory", torch.zeros(rows, 8, device=here())),
    ):
        with refuses("gemm_all_gather", f"out: got .*{message}", shmem.ShmemError):
            ops.gemm_all_gather(a, b, out=out)


def test_a_plan_serves_its_own_arguments_until_it_is_closed():
    a, b = torch.ones(4, 8, device=here()), torch.ones(8, 8, device=here())
    plan = ops.plan("gemm_all_gather", a, b)
    assert plan.schedule in ABLE["gemm_all_gather"] and plan.why
    assert plan.flops == 2 * 4 * 8 * 8 and plan.bytes_sent == 4 * 8 * 4 * (shmem.n_pes() - 1)
    for _ in range(2):
        assert (ops.gemm_all_gather(a, b, plan=plan) == 8).all()
        assert (plan(a, b) == 8).all()
    with refuses("gemm_all_gather", "plan: got .*other arguments"):
        ops.gemm_all_gather(a, b, plan=ops.plan("gemm_all_gather", a, b, schedule="fused"))
    with refuses("gemm_all_gather", "plan: got .*other arguments"):
        ops.gemm_all_gather(torch.ones(5, 8, device=here()), b, plan=plan)
    plan.close()
    for call in (lambda: plan(a, b), lambda: ops.gemm_all_gather(a, b, plan=plan)):
        with refuses("gemm_all_gather", "plan: got .*ended"):
            call()
    assert (ops.gemm_all_gather(a, b) == 8).all()  # by a new plan


def test_a_plan_takes_operands_at_any_alignment():
    """Kernels are compiled for addresses that are multiples of 16, and again for others."""
    a, b = torch.ones(4, 8, device=here()), torch.ones(8, 8, device=here())
    shifted = torch.ones(33, device=here())[1:].view(4, 8)
    plan = ops.plan("gemm_all_gather", a, b)
    for _ in range(2):
        for operand in (a, shifted):
            assert (plan(operand, b) == 8).all()
            assert (ops.gemm_all_gather(operand, b, plan=plan) == 8).all()


def test_a_ready_plan_looks_at_out_in_every_call():
    a, b = torch.ones(4, 8, device=here()), torch.ones(8, 8, device=here())
    shape = (4 * shmem.n_pes(), 8)
    plan, out = ops.plan("gemm_all_gather", a, b), shmem.zeros(shape)
    calls = (lambda out: ops.gemm_all_gather(a, b, out=out), lambda out: plan(a, b, out))
    for call in calls:
        for _ in range(2):
            assert call(out) is out and (out == 8).all()
            for message, wrong in (("private memory", torch.zeros(shape, device=here())), ("torch.int32", out.int())):
                with refuses("gemm_all_gather", f"out: got .*{message}", shmem.ShmemError):
                    call(wrong)
    shmem.free(out)
    for call in calls:
        with refuses("gemm_all_gather", "out: got ", shmem.NotSymmetricError):
            call(out)


def test_teams_have_plans_of_their_own():
    a, b = torch.ones(4, 8, device=here()), torch.ones(8, 8, device=here())
    team = shmem.TEAM_WORLD.split_strided(0, 1, shmem.n_pes())
    for _ in range(2):
        assert (ops.gemm_all_reduce(a, b) == 8 * shmem.n_pes()).all()
        assert (ops.gemm_all_reduce(a, b, team=team) == 8 * shmem.n_pes()).all()
    assert ops.plan("gemm_all_reduce", a, b, team) is not ops.plan("gemm_all_reduce", a, b)
    team.destroy()
    with refuses("gemm_all_reduce", "team: got "):
        ops.gemm_all_reduce(a, b, team=team)


@pytest.mark.parametrize("operator", ABLE)
def test_empty_products_are_zeros_or_empty(operator):
    n = shmem.n_pes()
    for sizes in ((0, n, 4), (2 * n, 0, 4), (2 * n, n, 0)):
        case = Case(operator, sizes=sizes)
        result = case.call()
        assert result.shape == case.wanted.shape and not result.any()


def test_pes_that_call_differently_are_refused_on_all():
    if shmem.n_pes() < 2:
        pytest.skip("there is no other PE")
    one = shmem.my_pe() == 1
    a, b = torch.ones(4 + one, 8, device=here()), torch.ones(8, 8 + one, device=here())
    with refuses("gemm_all_gather", "a: got 4 rows on PE 0 and 5 on PE 1; expected the same call"):
        ops.gemm_all_gather(a, b[:, :8])
    with refuses("gemm_all_gather", "b: got 8 columns on PE 0 and 9 on PE 1; expected the same call"):
        ops.gemm_all_gather(torch.ones(4, 8, device=here()), b)
    with refuses("gemm_all_gather", "order: got auto on PE 0 and streamed on PE 1; expected the same call"):
        ops.gemm_all_gather(b[:, :8].clone(), b[:, :8], order="streamed" if one else "auto")


@pytest.mark.skipif(not GPU, reason="there is no GPU to capture graphs")
@pytest.mark.parametrize("operator, split, schedule", CASES)
def test_a_pe_whose_addresses_come_again_replays_what_the_others_enqueue(operator, split, schedule):
    """Addresses are private: allocators return other ones on other PEs."""
    case, kept = Case(operator, split, sizes=(30, 20, 16)), []
    for call in range(2 * ENQUEUED + 4):  # of two results in turn
        if shmem.my_pe() != 0:
            kept.append(case.a)
            case.a = case.a.clone()
        case.check(case.call(schedule=schedule, reuse=True), f"call {call}")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU to capture graphs")
@pytest.mark.parametrize("operator, split, schedule", CASES)
def test_graphs_capture_and_replay_every_schedule(operator, split, schedule):
    case = Case(operator, split, sizes=(300, 200, 160))
    case.call(schedule=schedule)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        results = [case.call(schedule=schedule) for _ in range(3)]
    for _ in range(20):
        graph.replay()
    torch.cuda.synchronize()
    for result in results[1:]:
        case.check(result)
