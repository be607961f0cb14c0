"""Normalised rows in float8_e4m3fn with scales: codes as torch rounds them, results of every schedule, arguments."""

import pyshmem as shmem
import pytest
import torch
import triton
import triton.language as tl
from operands import random
from pyshmem import ops
from pyshmem.ops.norms import all_reduce_rms_norm
from pyshmem.ops.norms import reduce_scatter_rms_norm
from pyshmem.ops.float8 import KIND, coded
from pyshmem.ops.norms.schedules import SCHEDULES
from pyshmem.ops.shares import share_of, start_of
from support import here, refuses

pytestmark = pytest.mark.usefixtures("plans_closed")

EPS = 1e-5
WAYS = [
    *(("all_reduce_rms_norm", schedule) for schedule in SCHEDULES),
    *((name, each) for name in (reduce_scatter_rms_norm.NAME, reduce_scatter_rms_norm.GATHER) for each in reduce_scatter_rms_norm.SHARES),
]  # fmt: skip
every_way = pytest.mark.parametrize("name, schedule", WAYS)


@triton.jit
def code_all(values, codes, count, BLOCK: tl.constexpr):
    for start in range(0, count, BLOCK):
        lane = start + tl.arange(0, BLOCK)
        found = coded(tl.load(values + lane, mask=lane < count, other=0.0))
        tl.store(codes + lane, found, mask=lane < count)


def test_codes_are_those_of_torch_between_and_at_all_numbers_and_ties():
    every = torch.arange(256, dtype=torch.uint8).view(KIND).float()
    numbers = every[every.isfinite()].unique()
    middles = (numbers[1:] + numbers[:-1]) / 2
    near = torch.cat([numbers, middles, torch.nextafter(middles, numbers[1:]), torch.nextafter(middles, numbers[:-1])])
    given = torch.cat([near, torch.randn(1000) * 100, torch.tensor([0.0, -0.0, 1e-20, float("nan")])])
    given = given.clamp(-448, 448).to(here())
    codes = torch.zeros(len(given), dtype=torch.uint8, device=here())
    code_all[(1,)](given, codes, len(given), 2048)
    wanted = given.to(KIND).view(torch.uint8)
    nan = given.isnan()
    assert torch.equal(codes[~nan], wanted[~nan]) and (codes[nan] & 0x7F == 0x7F).all()


class Case:
    """Operands of this PE, and the normalised rows that are wanted here, in float64."""

    def __init__(self, name, tokens=5, hidden=70, dtype=torch.bfloat16):
        me, n = shmem.my_pe(), shmem.n_pes()
        parts = [random(100 + pe, tokens, hidden, dtype=dtype) for pe in range(n)]
        self.name, self.x = name, parts[me].clone()
        self.residual = random(150, tokens, hidden, dtype=dtype)
        self.weight = random(151, hidden, dtype=dtype)
        self.wanted = all_reduce_rms_norm.reference(parts, self.residual, self.weight, EPS)[0]
        mine = slice(start_of(tokens, me, n), start_of(tokens, me, n) + share_of(tokens, me, n))
        if name != "all_reduce_rms_norm":
            self.residual = self.residual[mine].clone()
        if name == reduce_scatter_rms_norm.NAME:
            self.wanted = self.wanted[mine]

    def call(self, schedule, **more):
        return getattr(ops, self.name)(self.x, self.residual, self.weight, EPS, schedule=schedule, **more)

    def check(self, found):
        """Codes are within half a step, which is 1/16 of a number or 2**-10 of a scale, and rounding of x's dtype."""
        assert found.values.dtype == KIND and found.scales.dtype == torch.float32
        assert found.values.shape == self.wanted.shape and found.scales.shape == self.wanted.shape[:1]
        error = (found.to(torch.float64) - self.wanted).abs()
        bound = self.wanted.abs() / 16 + found.scales[:, None] * 2**-10 + 0.02
        assert (error <= bound).all(), f"PE {shmem.my_pe()}: {error.max()}"
        largest = self.wanted.abs().amax(1)
        assert ((found.scales * 448 - largest).abs() <= 0.02 * largest + 1e-6).all()


@every_way
def test_every_schedule_gives_numbers_of_8_bits_and_the_scale_of_each_row(name, schedule):
    for tokens, dtype in ((5, torch.bfloat16), (1, torch.float32)):
        case = Case(name, tokens, 70, dtype)
        for _ in range(3):
            found, rest = case.call(schedule, out_dtype=KIND)
            case.check(found)
        assert torch.equal(rest, case.call(schedule)[1])


@every_way
def test_numbers_and_scales_go_to_arrays_that_are_given(name, schedule):
    case = Case(name, 3, 64)
    whole = ops.Scaled(shmem.zeros((4, 64), dtype=KIND), shmem.full(4, 7.0))
    rows = len(case.wanted)
    out = ops.Scaled(whole.values[:rows], whole.scales[:rows])
    rest = shmem.empty((3, 64), dtype=torch.bfloat16)[: len(case.residual)]
    found, _ = case.call(schedule, out=out, residual_out=rest)
    case.check(found)
    assert found == out
    shmem.barrier_all()
    assert (whole.values[rows:].float() == 0).all() and (whole.scales[rows:] == 7).all()


@every_way
def test_a_row_of_zeros_has_zeros_and_a_finite_scale(name, schedule):
    case = Case(name, 2, 64)
    for each in (case.x, case.residual):
        each.zero_()
    found = case.call(schedule, out_dtype=KIND)[0]
    assert (found.values.float() == 0).all() and (found.scales > 0).all() and found.scales.isfinite().all()


def test_out_and_out_dtype_must_agree():
    case = Case("all_reduce_rms_norm", 3, 64)
    values, scales = torch.zeros(3, 64, dtype=KIND, device=here()), torch.zeros(3, device=here())
    plain, rest = torch.empty_like(case.x), torch.empty_like(case.x)
    for out, dtype, message in (
        (values, None, "out: got torch.float8_e4m3fn; expected one of torch.bfloat16"),
        (values, KIND, r"out: got Tensor; expected ops.Scaled"),
        (ops.Scaled(values, scales), torch.bfloat16, "out: got "),
        (ops.Scaled(plain, scales), None, "out: got torch.bfloat16; expected one of torch.float8_e4m3fn"),
        (ops.Scaled(values, scales[:2]), None, r"out.scales: got shape \(2,\); expected shape \(3,\)"),
        (ops.Scaled(values, scales.half()), None, "out.scales: got torch.float16; expected one of torch.float32"),
        (None, torch.float8_e5m2, "out_dtype: got torch.float8_e5m2; expected None, torch.bfloat16 or torch.float8_e4m3fn"),
    ):  # fmt: skip
        results = {} if out is None else {"out": out, "residual_out": rest}
        with refuses("all_reduce_rms_norm", message, shmem.ShmemError):
            case.call("push", out_dtype=dtype, **results)
