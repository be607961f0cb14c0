"""Every family of operators executed on small shapes by its own calls: norms, experts, attention, gradients, products of 8 bits."""

import pytest
import test_attention
import test_experts
import test_flash_decode
import test_norms
import test_ops_scaled
import torch
from pyshmem.kernels import bound_kernels
from pyshmem.ops.attention import decode_schedules, prefill_schedules
from pyshmem.ops.gemm import problem, product
from pyshmem.base import interpreter
from reduced_models import averages, check, data, loss_of, network, reducing

pytestmark = pytest.mark.usefixtures("plans_closed")
BF16 = torch.bfloat16
EIGHT = {"gfx942": torch.float8_e4m3fnuz, "gfx950": torch.float8_e4m3fn}


@pytest.fixture(autouse=True)
def plans(amd, monkeypatch):
    """Plans are those of the interpreter, for its small tiles, but that kernels are compiled and multiply what they are given."""
    made = bound_kernels._form

    def form(kernel, grid, fixed, operands, constants, early, options):
        found = made(kernel, grid, fixed, operands, constants, early, {})
        own = {name: value for name, value in options.items() if name != "maxnreg"}  # NVIDIA's
        return found._replace(plainly=lambda *arguments: amd.with_options(own, found.plainly, *arguments))

    def precise(form):
        return lambda *fields: form(*("ieee" if each == "widened" else each for each in fields))

    amd.gpu.multiplied.clear()
    monkeypatch.setattr(interpreter, "active", lambda: True)
    monkeypatch.setattr(bound_kernels, "_form", form)
    for module in (decode_schedules, prefill_schedules):
        monkeypatch.setattr(module, "Form", precise(module.Form))
    monkeypatch.setattr(product, "precision", lambda problem, here: "ieee")
    for module in (problem, test_ops_scaled):
        monkeypatch.setattr(module, "eight_bits", lambda: (amd.arch, tuple(EIGHT.values())))


@pytest.mark.parametrize(
    "name, schedule", [(name, each) for name, found in test_norms.OPERATORS.items() for each in found]
)
def test_rows_are_added_and_normalised(name, schedule):
    case = test_norms.Case(name, tokens=3, hidden=70, dtype=BF16)
    case.check(case.call(schedule))


@pytest.mark.parametrize("schedule", test_experts.SCHEDULES)
@pytest.mark.parametrize("scales", [(), (2,)], ids=["bf16", "8 bits"])
def test_rows_go_to_their_experts_and_weighted_sums_back(schedule, scales):
    more = {"scales": scales, "hidden": 256} if scales else {"dtype": BF16}
    test_experts.Case(**more).round_trip(schedule)


@pytest.mark.parametrize("schedule", test_flash_decode.SCHEDULES)
def test_decoding_attends_to_the_tokens_of_all_pes(schedule, amd):
    case = test_flash_decode.Case(dtype=BF16)
    case.check(case.call(schedule))
    assert "bf16" in amd.gpu.multiplied


@pytest.mark.parametrize("schedule", [each for each in test_attention.SCHEDULES if each != "library"])
def test_prefill_attends_to_the_tokens_of_all_pes(schedule, amd):
    case = test_attention.Case(dtype=BF16, order=list(test_attention.ORDERS)[-1])
    case.check(case.call(schedule))
    assert "bf16" in amd.gpu.multiplied


def test_gradients_are_averaged_by_the_reducers_kernel(me):
    model = network(BF16)
    with reducing(model, bucket_bytes=1200, schedule="copy_engine"):
        loss_of(model, data(me, dtype=BF16)).backward()
        check(model, averages(model))


@pytest.mark.parametrize("operator, split, schedule", [each for each in test_ops_scaled.CASES if each[2] == "fused"])
def test_products_of_8_bits_have_their_scales(operator, split, schedule, amd):
    if amd.arch not in EIGHT:
        pytest.skip("gfx90a multiplies no floats of 8 bits")
    case = test_ops_scaled.Scaled(operator, split, form="lines", dtypes=(EIGHT[amd.arch],) * 2)
    case.check(case.call(schedule=schedule))
    assert "fp8" in amd.gpu.multiplied
