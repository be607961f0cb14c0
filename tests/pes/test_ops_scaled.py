"""Products of 8-bit floats with scales, by every schedule, against float64 of the decoded and scaled operands."""

import pyshmem as shmem
import pytest
import torch
from pyshmem.ops.gemm.operators import REFERENCES
from operands import close_to, random
from pyshmem import ops
from pyshmem.ops import machine
from pyshmem.ops.gemm import selection
from pyshmem.ops.machine import Machine, eight_bits
from pyshmem.ops.shares import share_of
from support import here, refuses, work
from test_ops import CASES

pytestmark = pytest.mark.usefixtures("plans_closed")

TILE = (16, 16, 32)  # an NVIDIA GPU multiplies 32 bytes of K at once
ODD = (19, 20, 44)  # M, N and K, of which N is of one PE in all_gather_gemm
FORMS = ["tensors", "lines"]
LIBRARY = 5e-4  # its sums of float32 have the 14 bits of a GPU's matrix units within a step of K
E4, E5 = torch.float8_e4m3fn, torch.float8_e5m2


def types():
    """The 8-bit floats with more bits of fraction and with fewer, as the machine has them."""
    return eight_bits()[1]


class Scaled:
    """Operands and scales of all PEs. ``by_columns``: the columns of b are contiguous, which libraries want."""

    def __init__(self, operator, split="rows", sizes=ODD, form="tensors", dtypes=None, seed=1, by_columns=False):
        M, N, K = sizes
        n, me = shmem.n_pes(), shmem.my_pe()
        self.operator, self.split = operator, split
        self.size = {"gemm_reduce_scatter": K, "gemm_all_reduce": K}.get(operator, N if split == "columns" else M)
        first, second = dtypes or types()[:1] * 2
        every = []
        for pe in range(n):
            own = share_of(self.size, pe, n)
            m = own if self.size == M and split == "rows" and operator in ("gemm_all_gather", "all_gather_gemm") else M
            k = own if operator in ("gemm_reduce_scatter", "gemm_all_reduce") else K
            columns = own if split == "columns" else N
            a, b = random(seed + 2 * pe, m, k, dtype=first), random(seed + 2 * pe + 1, k, columns, dtype=second)
            shapes = ((m, 1), (1, columns)) if form == "lines" else ((), (1,))
            scales = tuple(
                random(seed + 7 * pe + i, *shape, dtype=torch.float32).abs() + 0.1 for i, shape in enumerate(shapes)
            )
            every.append((a, b, *scales))
        self.a, self.b, self.scale_a, self.scale_b = every[me]
        if by_columns:
            self.b = self.b.T.contiguous().T
        more = (split,) if operator == "gemm_all_gather" else ()
        reference = REFERENCES[operator]
        self.wanted = reference([(a.double() * p, b.double() * q) for a, b, p, q in every], me, *more)

    def arguments(self, **options):
        options = {"tile": TILE, "size": self.size, "out_dtype": torch.float32} | options
        if self.operator == "gemm_all_gather":
            options["split"] = self.split
        return options | {"scale_a": self.scale_a, "scale_b": self.scale_b}

    def call(self, **options):
        return getattr(ops, self.operator)(self.a, self.b, **self.arguments(**options))

    def check(self, result, bound=1e-5, note=""):
        assert result.shape == self.wanted.shape
        close_to(result, self.wanted, bound, f"{self.operator} {note}")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("operator, split, schedule", CASES)
def test_every_schedule_gives_the_scaled_product(operator, split, schedule, form):
    """PEs have different scales. Parts of sums in float32 are exact enough to see one that was scaled twice or late."""
    case = Scaled(operator, split, form=form)
    case.check(case.call(schedule=schedule))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "operator, split, schedule", [each for each in CASES if each[2] in ("copy_engine", "bulk_synchronous")]
)
def test_the_library_gives_the_scaled_product(operator, split, schedule, form, monkeypatch):
    """bfloat16, which the library makes of all scales."""
    scaled, called = torch._scaled_mm, []
    monkeypatch.setattr(torch, "_scaled_mm", lambda *args, **more: called.append(args) or scaled(*args, **more))
    n = shmem.n_pes()
    case = Scaled(operator, split, (256 * n + 1, 32 * n, 64 * n), form, by_columns=True)
    plan = ops.plan(operator, case.a, case.b, **case.arguments(schedule=schedule, out_dtype=None))
    assert "our kernel" not in plan.why
    case.check(case.call(schedule=schedule, out_dtype=None), 1e-2)
    assert called


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("operator, split, schedule", [each for each in CASES if each[0] == "all_gather_gemm"])
def test_each_call_has_its_own_scales_though_one_pe_is_late(operator, split, schedule, form, few_pes):
    cases = [Scaled(operator, split, (18, 20, 12), form, seed=seed) for seed in range(3)]
    before = None
    for turn in range(200 if torch.cuda.is_available() else 4):
        case = cases[turn % 3]
        if shmem.my_pe() == turn // 2 % shmem.n_pes():
            work(2000)
        result = case.call(schedule=schedule)
        if before is not None and (turn < 10 or turn % 37 == 0):
            before[0].check(before[1], note=turn - 1)
        before = case, result


@pytest.mark.parametrize("first, second", [(0, 1), (1, 0), (1, 1)])
def test_both_types_of_8_bits_are_multiplied(first, second):
    case = Scaled("gemm_reduce_scatter", dtypes=(types()[first], types()[second]))
    case.check(case.call(schedule="fused"))


@pytest.mark.parametrize("out_dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_out_dtype_is_that_of_the_result(out_dtype):
    for operator in ("gemm_all_gather", "all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce"):
        case = Scaled(operator)
        result = case.call(out_dtype=out_dtype)
        assert result.dtype is out_dtype
        case.check(result, 2e-2)
    assert Scaled("gemm_all_reduce").call(out_dtype=None).dtype is torch.bfloat16


@pytest.mark.parametrize("form", FORMS)
def test_few_rows_are_scaled_before_they_are_added(form):
    for rows in (1, 5, 16):
        case = Scaled("gemm_all_reduce", sizes=(rows, 40, 36), form=form)
        case.check(case.call(tile=None, schedule="fused"), note=rows)


def test_a_plan_takes_the_scales_of_each_call():
    case = Scaled("gemm_all_gather")
    plan = ops.plan("gemm_all_gather", case.a, case.b, **case.arguments())
    case.check(plan(case.a, case.b, None, case.scale_a, case.scale_b))
    case.wanted = case.wanted * 4
    case.check(plan(case.a, case.b, None, case.scale_a * 2, case.scale_b * 2))
    for scales in ((), (case.scale_a,), (None, case.scale_b)):
        with refuses("gemm_all_gather", "scale_a: got .*; expected scale_a and scale_b"):
            plan(case.a, case.b, None, *scales)
    with pytest.raises(shmem.ArgumentError, match="plan: got .*other arguments"):
        case.scale_a = torch.ones(case.a.shape[0], 1, device=here())
        case.scale_b = torch.ones(1, case.b.shape[1], device=here())
        case.call(plan=plan)


@pytest.mark.parametrize(
    "reason, by_columns, changed",
    [("contiguous rows", False, {}), ("multiples of 16", True, {"sizes": (64, 24, 64)}),
     ("two matrices of", True, {"dtypes": (E5, E5)}), ("bfloat16 only", True, {"form": "lines"})],
)  # fmt: skip
def test_a_plan_says_why_the_library_does_not_multiply(reason, by_columns, changed):
    if changed.get("dtypes") and E5 not in types():
        pytest.skip("this GPU has other floats of 8 bits")
    n = shmem.n_pes()
    given = {"sizes": (64, 64, 64), "by_columns": by_columns} | changed
    case = Scaled("gemm_all_gather", **given)
    plan = ops.plan("gemm_all_gather", case.a, case.b, **case.arguments(schedule="bulk_synchronous"))
    assert "our kernel multiplies" in plan.why and reason in plan.why, (n, plan.why)
    case.check(case.call(schedule="bulk_synchronous"))


@pytest.mark.parametrize("operator", ["gemm_all_gather", "all_gather_gemm", "gemm_reduce_scatter"])
def test_other_lengths_are_right_though_the_library_multiplies_on_one_pe_alone(operator, me):
    """It takes contiguous columns of b, which one PE has. What PEs write for each other lies where both expect it."""
    for rows in (64, 40, 56, 48):
        case = Scaled(operator, sizes=(rows, 64, 64), by_columns=me == 0)
        case.check(case.call(schedule="bulk_synchronous"), LIBRARY, rows)


@pytest.mark.parametrize("schedule", selection.ABLE["all_gather_gemm"])
def test_scales_of_other_lengths_lie_where_the_kernel_of_peers_finds_them(schedule):
    for rows in (64, 40, 43):
        case = Scaled("all_gather_gemm", sizes=(rows, 20, 44), form="lines")
        case.check(case.call(schedule=schedule), LIBRARY, rows)


def lined(rows, scales=None):
    """Return operands of ones, with scales of rows and columns of ones. scales: of rows; None: as many as there are."""
    a, b = (torch.ones(*shape, device=here()).to(types()[0]) for shape in ((rows, 32), (32, 12)))
    count = rows if scales is None else scales
    of_rows, of_columns = (torch.ones(*shape, device=here()) for shape in ((count, 1), (1, 12)))
    return (a, b), {"scale_a": of_rows, "scale_b": of_columns, "out_dtype": torch.float32}


def test_the_scales_of_a_single_row_are_those_of_rows_though_peers_have_more(npes, me):
    """Whether a plan is known does not depend on how many rows this PE has."""
    for size in (2 * npes - 1, 2 * npes, 2 * npes - 1):  # the last PE has one, then two
        operands, options = lined(share_of(size, me, npes))
        assert (ops.gemm_all_gather(*operands, size=size, **options) == 32).all()


def test_the_scales_of_a_single_row_and_column_are_those_of_peers_with_more_columns(npes, me):
    """Of two dimensions they are of rows and columns, of fewer of whole operands."""
    for size in (2 * npes - 1, 2 * npes, 2 * npes - 1):  # the last PE has one column, then two
        columns = share_of(size, me, npes)
        a, b = (torch.ones(*shape, device=here()).to(types()[0]) for shape in ((1, 32), (32, columns)))
        for shapes in (((1, 1), (1, columns)), ((1,), ())):
            scale_a, scale_b = (torch.full(shape, 2.0, device=here()) for shape in shapes)
            found = ops.gemm_all_gather(a, b, "columns", size=size, scale_a=scale_a, scale_b=scale_b)
            assert found.shape == (1, size) and (found == 128).all()


def test_scales_of_another_number_of_rows_are_refused_though_calls_like_theirs_came_before():
    for rows in (12, 16):
        operands, options = lined(rows)
        ops.gemm_all_reduce(*operands, **options)
    for rows, scales in ((13, 12), (13, 16), (16, 12), (15, 14)):
        operands, options = lined(rows, scales)
        with refuses("gemm_all_reduce", "scale_a: got shape"):
            ops.gemm_all_reduce(*operands, **options)


def test_pes_whose_scales_differ_in_form_are_refused_on_all(me, npes):
    if npes < 2:
        pytest.skip("there is no other PE")
    case = Scaled("gemm_all_gather", form="lines" if me == 1 else "tensors")
    with pytest.raises(
        shmem.ArgumentError, match="scale_a: got one scale on PE 0 and scales of rows and columns on PE 1"
    ):
        case.call()


def eights(*shape):
    return torch.ones(*shape, device=here()).to(types()[0])


ONE = torch.ones(())
REFUSED = [
    ("scale_a: got NoneType; expected a float32 tensor of one element", {}),
    ("scale_b: got NoneType", {"scale_a": ONE}),
    ("scale_a: got float; expected", {"scale_a": 1.0, "scale_b": ONE}),
    ("scale_b: got torch.float64; expected a float32", {"scale_a": ONE, "scale_b": ONE.double()}),
    (
        r"scale_a: got shape \(4,\); expected .*of shape \(4, 1\)",
        {"scale_a": torch.ones(4), "scale_b": torch.ones(1, 8)},
    ),
    (r"scale_a: got shape \(\); expected", {"scale_a": ONE, "scale_b": torch.ones(1, 8)}),
    ("scale_a: got strides", {"scale_a": torch.ones(4, 1), "scale_b": torch.ones(1, 8)}),
    ("scale_b: got the address .*; expected a multiple of 16", {"scale_a": ONE, "scale_b": ONE}),
    (
        "out_dtype: got torch.float64; expected torch.bfloat16",
        {"scale_a": ONE, "scale_b": ONE, "out_dtype": torch.float64},
    ),
    ("b: got torch.float16; expected a's type", {"b": torch.ones(8, 8, dtype=torch.float16)}),
]


@pytest.mark.parametrize("message, changed", REFUSED, ids=[each[0][:24] for each in REFUSED])
def test_wrong_scales_are_refused_with_their_name(message, changed):
    given = {"a": eights(4, 8), "b": eights(8, 8)}
    for name, each in changed.items():
        given[name] = each.to(here()) if isinstance(each, torch.Tensor) else each
    if "strides" in message:  # a copy would lie elsewhere
        given["scale_a"] = torch.ones(4, 2, device=here())[:, :1]
    if "address" in message:
        given["scale_b"] = torch.ones(2, device=here())[1:]
    with refuses("gemm_all_gather", message, shmem.ShmemError):
        ops.gemm_all_gather(**given)


@pytest.mark.parametrize("option, value", [("scale_a", ONE), ("out_dtype", torch.float32), ("use_fast_accum", True)])
def test_other_types_have_no_scales(option, value):
    a, b = torch.ones(4, 8, device=here()).bfloat16(), torch.ones(8, 8, device=here()).bfloat16()
    with refuses("gemm_all_reduce", f"{option}: got .*; expected (None|False)", shmem.ShmemError):
        ops.gemm_all_reduce(a, b, **{option: value}, **({"scale_b": ONE} if option == "scale_a" else {}))


@pytest.mark.parametrize("arch, name", [("gfx90a", "gfx90a"), ("gfx942", "")])
def test_a_gpu_that_multiplies_no_such_floats_is_named(arch, name, monkeypatch):
    monkeypatch.setattr(machine, "machine", lambda: Machine(arch, 100, 1, False))
    a, b = (torch.ones(4, 8, device=here()).to(E4) for _ in range(2))
    wants = f"{name} multiplies no floats of 8 bits" if name else "torch.float8_e4m3fnuz, torch.float8_e5m2fnuz$"
    with refuses("gemm_all_reduce", f"a: got torch.float8_e4m3fn; expected .*{wants}", shmem.DtypeError):
        ops.gemm_all_reduce(a, b.T, scale_a=ONE.to(here()), scale_b=ONE.to(here()))


def test_an_old_nvidia_gpu_is_named(monkeypatch):
    monkeypatch.setattr(machine, "machine", lambda: Machine("nvidia", 108, 1, False))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    a = torch.ones(4, 8, device=here()).to(E4)
    with pytest.raises(shmem.DtypeError, match="expected one of .*; sm_80 multiplies no floats of 8 bits"):
        ops.gemm_all_reduce(a, a.T, scale_a=ONE.to(here()), scale_b=ONE.to(here()))


@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="there is no GPU: its tiles are too large for the interpreter"
)
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("operator, split, schedule", CASES)
def test_the_tiles_of_the_gpu_give_the_scaled_product(operator, split, schedule, fast):
    n, streamed = shmem.n_pes(), "halves" if schedule == "fused" else "data_parallel"
    for sizes, form, by_columns, order in (
        ((1536, 1280 * n, 1024 * n), "tensors", True, "data_parallel"), ((1000, 1600, 328), "lines", fast, streamed)
    ):  # fmt: skip
        case = Scaled(operator, split, sizes, form, by_columns=by_columns)
        result = case.call(schedule=schedule, order=order, tile=None, out_dtype=None, use_fast_accum=fast)
        case.check(result, 3e-2 if fast else 1e-2, (sizes, order, by_columns))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU to capture graphs")
@pytest.mark.parametrize("operator, split, schedule", CASES)
def test_graphs_replay_scaled_products_with_the_scales_of_then(operator, split, schedule):
    """A graph reads the scales where they lie, as it reads operands."""
    case = Scaled(operator, split, (304, 208, 160), by_columns=True)
    case.call(schedule=schedule)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        results = [case.call(schedule=schedule) for _ in range(3)]
    for _ in range(3):
        graph.replay()
    case.scale_b *= 2
    case.wanted = case.wanted * 2
    shmem.barrier_all()
    graph.replay()
    torch.cuda.synchronize()
    for result in results[1:]:
        case.check(result, LIBRARY if schedule in ("bulk_synchronous", "copy_engine") else 1e-5)
