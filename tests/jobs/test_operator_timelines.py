"""Timelines of fused operators: what their kernels mark, whom they wait for, and that the parts of each sum to the whole."""

import pytest
from jobs import mpiexec
from pyshmem.timelines import reading, taxes
from trace_format import checked

# by file: the operator, its kernel, what the programs mark, and the calls that carry its data and end its waits
TRACED = {
    "words": ("all_reduce_rms_norm", "send_words", {"row"}, {"dev.store", "dev.wait_until_all"}),
    "push": ("all_reduce_rms_norm", "push_rows", {"parcel", "row"}, {"dev.store", "dev.signal_wait_until"}),
    "pull": ("all_reduce_rms_norm", "pull_rows", {"row", "meet"}, {"dev.load", "dev.signal_wait_until"}),
    "shares": ("reduce_scatter_rms_norm", "push_shares", {"parcel", "row"}, {"dev.store", "dev.signal_wait_until"}),
    "listed": ("moe_dispatch", "dispatch_words", {"parcel", "places", "spread"},
               {"dev.store", "dev.wait_until_all", "dev.signal_wait_until"}),
    "dispatch": ("moe_dispatch", "dispatch", {"route", "parcel", "meet", "places", "spread"},
                 {"dev.store", "dev.wait_until_all", "dev.signal_wait_until"}),
    "combine": ("moe_combine", "combine", {"parcel", "sums"}, {"dev.store", "dev.signal_wait_until"}),
    "decode": ("flash_decode", "attend", {"tile", "parcel", "meet", "merge"}, {"dev.store", "dev.signal_wait_until"}),
    "pages": ("flash_decode", "attend", {"tile", "parcel", "meet", "merge"}, {"dev.store", "dev.signal_wait_until"}),
    "prefill": ("attention", "attend_blocks", {"tile", "meet"}, {"dev.signal_wait_until"}),
    "product": ("gemm_all_gather", "multiply_and_send", {"tile", "meet"}, {"dev.store", "dev.signal_wait_until"}),
    "sums": ("gemm_all_reduce", "multiply_and_exchange", {"tile"}, {"dev.store", "dev.signal_wait_until"}),
}  # fmt: skip
PROGRAM = """
import struct
import torch
import pyshmem as shmem
from pyshmem import irregular, ops
from pyshmem.ops import torch as tp
from pyshmem.timelines.events import EVENT, WAITS, Event

shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
x, residual, weight = torch.rand(4, 64), torch.rand(4, 64), torch.rand(64)
weights_of_x = torch.rand(64, 64)
experts, weights = torch.tensor([[0, 3], [1, 2], [3, 1]], dtype=torch.int32), torch.rand(3, 2)
q, k, v = torch.rand(2, 4, 16), torch.rand(2, 128, 2, 16), torch.rand(2, 128, 2, 16)
table = torch.arange(8, dtype=torch.int32).view(2, 4)
tokens = torch.rand(1, 64, 2, 16)


def traced(name, operator, *operands, **options):
    with shmem.trace(name + ".json"):
        if name.startswith("late") and me == 1:
            while not waits(name + ".json.parts/pe-0.events"):
                pass
        return getattr(ops, operator)(*operands, **options)


def waits(path):
    try:
        with open(path, "rb") as file:
            (taken,) = struct.unpack("<Q", file.read(4096)[:8])
            rows = [Event(0, *row) for row in EVENT.iter_unpack(file.read(taken * EVENT.size))]
    except (FileNotFoundError, struct.error):  # it does not record yet
        return False
    return any(each.op >= WAITS and each.begin for each in rows)


for schedule in "words", "push", "pull":
    traced(schedule, "all_reduce_rms_norm", x, residual, weight, schedule=schedule)
traced("shares", "reduce_scatter_rms_norm", x, residual[: 4 // n], weight, schedule="push")
traced("listed", "moe_dispatch", x[:3], experts, weights, experts=4, schedule="words")
rows, _, _, handle = traced("dispatch", "moe_dispatch", x[:3], experts, weights, experts=4, schedule="fused")
traced("combine", "moe_combine", rows, handle)
traced("decode", "flash_decode", q, k, v, schedule="fused")
traced("pages", "flash_decode", q, k.view(8, 32, 2, 16), v.view(8, 32, 2, 16), block_table=table, schedule="fused")
traced("prefill", "attention", tokens, tokens, tokens, schedule="copy_engine")
traced("late words", "all_reduce_rms_norm", x, residual, weight, schedule="words")
traced("late lists", "moe_dispatch", x[:3], experts, weights, experts=4, schedule="words")
traced("product", "gemm_all_gather", torch.rand(64, 64), torch.rand(64, 64), schedule="fused")
traced("sums", "gemm_all_reduce", torch.rand(64, 64), torch.rand(64, 64), schedule="fused")
planned, sparse = ops.plan("gemm_all_gather", x, weights_of_x), irregular.plan(torch.eye(8).to_sparse())
with shmem.trace("plans.json"):
    planned(x, weights_of_x)
    sparse(torch.ones(sparse.rows))
    planned.close()
    sparse.close()
with shmem.trace("layer.json"):
    tp.all_gather_gemm(torch.rand(8, 8, requires_grad=True), torch.rand(8, 8)).sum().backward()
"""


@pytest.fixture(scope="module")
def timelines(tmp_path_factory):
    """The calls of each timeline, by the name of its file."""
    folder = tmp_path_factory.mktemp("operators")
    status, _, err = mpiexec(2, PROGRAM, tmp_path=folder)
    assert status == 0, err
    for path in folder.glob("*.json"):
        checked(path)
    return {path.stem: reading.read(path)[0] for path in folder.glob("*.json")}


@pytest.mark.parametrize("name", TRACED)
def test_the_kernels_of_an_operator_mark_what_they_do_on_each_pe_and_their_data_and_waits_are_calls(name, timelines):
    operator, kernel, marks, calls = TRACED[name]
    for pe in range(2):
        own = [each for each in timelines[name] if each.pe == pe]
        (whole,) = (each for each in own if each.name == f"shmem.ops.{operator}")
        inside = [each for each in own if each.kind == "kernel" and each.name == kernel]
        assert inside and all(whole.begin <= each.begin and each.end <= whole.end for each in inside)
        assert {each.name for each in own if each.kind == "span"} == marks
        assert calls <= {each.name for each in own}
        sent = [each for each in own if each.name in ("dev.store", "dev.load") and each.to == 1 - pe]
        assert all(each.nbytes for each in sent) and bool(sent) == bool({"dev.store", "dev.load"} & calls)


@pytest.mark.parametrize("name", TRACED)
def test_the_parts_of_an_operator_sum_to_its_time_and_its_kernels_compute_communicate_and_wait(name, timelines):
    operator, kernel, _, calls = TRACED[name]
    divided = taxes.divided(timelines[name])
    for pe in range(2):
        own = [each for each in timelines[name] if each.pe == pe]
        (whole,) = (each for each in own if each.name == f"shmem.ops.{operator}")
        parts = divided.by_owner[f"shmem.ops.{operator}"][pe]
        assert sum(parts.values()) == pytest.approx(whole.end - whole.begin)
        assert sum(divided.parts[pe].values()) == pytest.approx(divided.whole[pe])
        assert parts["computing"] > 0
        assert parts["communication"] > 0 or name == "prefill"
        assert parts["waits"] > 0


@pytest.mark.parametrize("name", ["late words", "late lists"])
def test_a_wait_for_words_that_are_their_own_flags_is_ended_by_the_late_pe_that_stores_them(name, timelines):
    waits = [each for each in timelines[name] if each.pe == 0 and each.name == "dev.wait_until_all"]
    assert min(waits).ended_by == 1


def test_calls_of_plans_are_operators_and_what_they_do_within_has_no_slice(timelines):
    for pe in range(2):
        own = [each.name for each in sorted(timelines["plans"]) if each.pe == pe and each.kind == "operator"]
        assert own == [
            f"shmem.{each}" for each in ("ops.Plan", "irregular.Plan", "ops.Plan.close", "irregular.Plan.close")
        ]


def test_an_operator_of_torch_has_a_slice_in_forward_and_in_backward_passes(timelines):
    for pe in range(2):
        own = [each.name for each in sorted(timelines["layer"]) if each.pe == pe and each.kind == "operator"]
        assert own == ["shmem.ops.torch.all_gather_gemm", "shmem.ops.torch.gemm_reduce_scatter"]
