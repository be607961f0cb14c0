"""What takes tiles to other PEs is refused by name, on all PEs, where these are on several nodes; on one node, as if they were."""

import re
from contextlib import nullcontext

import pyshmem as shmem
import pytest
import torch
from matrices import sparse
from pyshmem import irregular, ops
from pyshmem.ops import agreement
from pyshmem.ops.attention import decode_schedules
from pyshmem.ops.attention import prefill_schedules as attention_schedules
from pyshmem.ops.experts import schedules as expert_schedules
from pyshmem.ops.norms import schedules as norm_schedules
from pyshmem.ops.training import schedules as gradient_schedules
from pyshmem.ops.norms import share_schedules as norm_share_schedules
from pyshmem.base.job import job
from pyshmem.ops.checks import WITHOUT_TILES
from pyshmem.ops.gemm.selection import ABLE
from support import here, interpreted, live, on_one_node, refuses

pytestmark = pytest.mark.filterwarnings("ignore:Sparse ")  # torch calls its CSR tensors beta


@pytest.fixture(autouse=True)
def several_nodes(monkeypatch):
    """No PE has allocated anything when all of them have been refused."""
    if on_one_node():
        monkeypatch.setattr(shmem.TEAM_WORLD.meeting, "spans", True)
    before = live()
    yield
    assert live() == before


def ones(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype, device=here())


def products(operator, **options):
    getattr(ops, operator)(ones(4, 8), ones(8, 8), **options)


def norms(operator, **options):
    getattr(ops, operator)(ones(4, 8), ones(4, 8), ones(8), **options)


def share_norms(operator, **options):
    n, me = shmem.n_pes(), shmem.my_pe()
    getattr(ops, operator)(ones(4 * n, 8), ones(4, 8) * me, ones(8), **options)


def attention(operator, **options):
    ops.attention(ones(1, 4, 1, 16), ones(1, 4, 1, 16), ones(1, 4, 1, 16), **options)


def decode(operator, **options):
    ops.flash_decode(ones(1, 1, 16), ones(1, 4, 1, 16), ones(1, 4, 1, 16), **options)


def experts(operator, **options):
    ops.moe_dispatch(ones(2, 8), ones(2, 1, dtype=torch.int32), ones(2, 1), shmem.n_pes(), **options)


def gradients(operator, **options):
    ops.GradientReducer(torch.nn.Linear(2, 2).to(here()), **options)


def activations(operator, **options):
    me, n = shmem.my_pe(), shmem.n_pes()
    ops.send_activations(ones(4), pe=(me + 1) % n)


SHARES = norm_share_schedules.SHARES
OF_MODELS = {
    "all_reduce_rms_norm": (norms, norm_schedules.SCHEDULES),
    "reduce_scatter_rms_norm": (share_norms, SHARES),
    "reduce_scatter_rms_norm_all_gather": (share_norms, SHARES),
    "attention": (attention, attention_schedules.SCHEDULES),
    "flash_decode": (decode, decode_schedules.SCHEDULES),
    "moe_dispatch": (experts, expert_schedules.SCHEDULES),
    "GradientReducer": (gradients, gradient_schedules.SCHEDULES),
}


def refused(call, routine, argument, got=""):
    with refuses(
        f"{re.escape(routine)}",
        f"{argument}: got {got}.*TEAM_WORLD.*, which spans nodes; expected ",
        shmem.UnreachableError,
    ):
        call()


@pytest.mark.parametrize("split", ["rows", "columns"])
@pytest.mark.parametrize("operator", ABLE)
def test_products_are_refused(operator, split):
    """On all heaps: every schedule stores tiles."""
    if split == "columns" and operator != "gemm_all_gather":
        pytest.skip("one way of dividing")
    options = {"split": split} if operator == "gemm_all_gather" else {}
    refused(lambda: products(operator, **options), operator, "team")


@interpreted
@pytest.mark.parametrize(
    "operator, schedule",
    [(name, each) for name, (_, known) in OF_MODELS.items() for each in known if each not in WITHOUT_TILES],
)
def test_schedules_of_models_that_store_tiles_are_refused(operator, schedule):
    call = OF_MODELS[operator][0]
    refused(lambda: call(operator, schedule=schedule), operator, "schedule", f"'{schedule}' for ")


@pytest.mark.parametrize("operator", [*OF_MODELS, "send_activations, recv_activations"])
def test_on_gpus_operators_of_models_are_refused_with_every_schedule(operator, monkeypatch):
    gpu = type("Heap", (), {"streams": True})
    monkeypatch.setattr(agreement, "default", lambda: gpu)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    call = OF_MODELS[operator][0] if operator in OF_MODELS else activations
    refused(lambda: call(operator), operator, "team")


def test_triangle_count_is_refused():
    refused(lambda: irregular.triangle_count(sparse([1] * 17)), "triangle_count", "team")


def test_a_broadcast_that_is_not_the_roots_does_not_pass_on_through_its_node(me, npes):
    if on_one_node():
        pytest.skip("all PEs are on one node")
    last = [pe for pe in range(npes) if job.nodes[pe] == job.nodes[-1]]
    odd = last[0] if last[0] else npes - 1  # of the last node, whose others receive from it
    fails = odd and me in (last if last[0] else [odd])
    target, source = shmem.zeros(8), shmem.ones(8)
    text = rf"^broadcast: PE {me}: call: got [48] float32 elements from root 0 here"
    with pytest.raises(shmem.ArgumentError, match=text) if fails else nullcontext():
        shmem.broadcast(target, source, 0, 4 if me == odd else 8)
    shmem.barrier_all()
    shmem.broadcast(target, source, 0, 8)
    assert (target == 1).all()
    shmem.free(target)
    shmem.free(source)
