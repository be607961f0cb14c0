"""Which plans are kept: those of a team go by its own calls, and with it."""

import gc
import weakref

import pyshmem as shmem
import pytest
import torch
from pyshmem import ops
from pyshmem.ops import plans
from pyshmem.ops.gemm.selection import ABLE
from support import here, refuses

pytestmark = pytest.mark.usefixtures("plans_closed")

N = 8  # columns


def product(rows, team=None):
    """All elements are 2 times the PEs of the team."""
    return ops.gemm_all_reduce(torch.ones(rows, 2, device=here()), torch.ones(2, N, device=here()), team=team)


def norm(rows, team=None):
    """All elements are 1."""
    x = torch.ones(rows, N, device=here())
    return ops.all_reduce_rms_norm(x, torch.zeros_like(x), torch.ones(N, device=here()), team=team)[0]


kinds = pytest.mark.parametrize("call", [product, norm])


@pytest.fixture
def kept():
    return plans._plans


@kinds
def test_a_team_that_has_ended_gives_the_memory_of_its_plans_back(call, reserve):
    """Before the next plan is made, so that the reserve suffices for team after team."""
    most = 0
    for turn in range(4):
        team = shmem.TEAM_WORLD.split_strided(0, 1, max(1, shmem.n_pes() - 1))
        if team:
            call(3, team)
            most = most or len(reserve.taken)
            assert len(reserve.taken) == most, f"turn {turn}"
            team.destroy()
        shmem.barrier_all()


@kinds
def test_plans_of_a_small_team_do_not_close_those_of_all_pes(call, kept, reserve, monkeypatch, me, npes):
    """Closing these is collective over all PEs, and only PE 0 makes more plans."""
    if npes < 2:
        pytest.skip("there is no smaller team")
    monkeypatch.setattr(kept, "most", 2)
    wanted = [call(rows).clone() for rows in (2, 3)]
    of_all = list(kept.values())
    team = shmem.TEAM_WORLD.split_strided(0, 1, 1)
    if me == 0:
        for rows in range(2, 7):
            call(rows, team)
        assert len(kept) == 4
    assert [plan for plan in kept.values() if plan.team is shmem.TEAM_WORLD] == of_all
    assert [torch.equal(call(rows), each) for rows, each in zip((2, 3), wanted, strict=True)] == [True, True]


@kinds
def test_the_plan_used_longest_ago_goes_first(call, kept, monkeypatch):
    monkeypatch.setattr(kept, "most", 2)
    for rows in (2, 3, 2, 4):
        call(rows)
    assert len(kept) == 2
    held = list(kept)
    call(2)
    assert sorted(map(str, kept)) == sorted(map(str, held))  # that of 3 rows had gone


def test_a_plan_refuses_operands_that_it_was_not_made_for():
    a, b = torch.ones(4, 8, device=here()), torch.ones(8, 8, device=here())
    plan = ops.plan("gemm_all_gather", a, b)
    for other in (torch.ones(3, 8), torch.ones(4, 8, dtype=torch.float16), None):
        given = None if other is None else other.to(here())
        with refuses("gemm_all_gather", "a: got .*; wants .* <plan of gemm_all"):
            plan(given, b)
    assert (plan(a, b) == 8).all()


@pytest.mark.parametrize("schedule", ["bulk_synchronous", "copy_engine", "producer_consumer", "fused"])
@pytest.mark.parametrize("operator", ["all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce", "gemm_all_gather"])
def test_operands_of_another_layout_on_one_pe_find_the_plan(operator, schedule, me):
    """Rows with a gap between them, columns, and odd addresses are private to a PE: no other one waits, nor compiles."""
    if schedule not in ABLE[operator]:
        pytest.skip("it has no such schedule")
    a, b = torch.ones(4, 8, device=here()), torch.ones(8, 8, device=here())
    gapped, columns = torch.ones(4, 11, device=here())[:, :8], torch.ones(8, 4, device=here()).T
    odd = torch.ones(33, device=here())[1:].view(4, 8)
    wanted = getattr(ops, operator)(a, b, schedule=schedule).clone()
    for other in (gapped, columns, odd):
        result = getattr(ops, operator)(a if me else other, b, schedule=schedule)
        assert torch.equal(result, wanted)
    assert len(plans._plans) == 1


def test_operands_at_addresses_of_another_alignment_have_kernels_of_their_own():
    """Rows of 200 bytes: no pitch tells the two apart, and kernels that read rows as flat memory load 16 bytes at once."""
    b = torch.ones(100, 32, dtype=torch.bfloat16, device=here())
    buffer = torch.ones(1604, dtype=torch.bfloat16, device=here())
    plan = ops.plan("all_gather_gemm", buffer[:1600].view(16, 100), b)
    for start in (0, 4, 0):
        assert (plan(buffer[start : start + 1600].view(16, 100), b) == 100).all()
    assert len(plan._steps) == 2


def test_a_plan_made_ahead_has_the_kernels_of_each_layout_that_it_was_asked_for():
    a, b = torch.ones(4, 8, device=here()), torch.ones(8, 8, device=here())
    plan = ops.plan("gemm_all_gather", a, b)
    assert ops.plan("gemm_all_gather", torch.ones(8, 4, device=here()).T, b) is plan
    assert len(plan._steps) == 2


@pytest.mark.parametrize("schedule", ["bulk_synchronous", "workgroup_specialized", "producer_consumer", "fused"])
def test_a_plan_keeps_no_operand(schedule):
    a, b = torch.ones(4, 8, device=here()), torch.ones(8, 8, device=here())
    ops.gemm_all_gather(a, b, schedule=schedule)
    held = weakref.ref(a)
    del a
    gc.collect()
    assert held() is None


@pytest.mark.parametrize("ahead", [False, True], ids=["found", "named"])
def test_what_is_no_team_is_refused_by_name(ahead):
    a, b = torch.ones(4, 8, device=here()), torch.ones(8, 8, device=here())
    plan = ops.plan("gemm_all_gather", a, b) if ahead else None
    for team in ("x", shmem.TEAM_INVALID):
        with refuses("gemm_all_gather", "team: ", shmem.ShmemError):
            ops.gemm_all_gather(a, b, team=team, plan=plan)


def test_plans_go_in_one_order_on_all_pes_though_one_has_another_layout(me):
    """Closing a plan is collective. PE 1 alone comes with rows that it has not had before."""
    b = torch.ones(8, 8, device=here())
    first, second = (ops.plan("gemm_all_gather", torch.ones(rows, 8, device=here()), b) for rows in (4, 5))
    ops.gemm_all_gather(torch.ones(5, 8, device=here()), b, plan=second)
    rows = torch.ones(4, 8 + 3 * (me == 1), device=here())[:, :8]
    ops.gemm_all_gather(rows, b, plan=first)
    assert list(plans._plans.values()) == [second, first]


@pytest.mark.parametrize("split", ["rows", "columns"])
def test_a_product_without_rows_is_empty(split):
    a, b = torch.ones(0, 8, device=here()), torch.ones(8, 8, device=here())
    columns = 8 * shmem.n_pes() if split == "columns" else 8
    assert ops.gemm_all_gather(a, b, split).shape == (0, columns)


def test_what_an_ended_team_of_all_pes_had_is_freed_when_all_pes_come(reserve, npes):
    """A smaller team that makes a plan meanwhile waits for nobody."""
    if npes < 2:
        pytest.skip("there is no smaller team")
    whole = shmem.TEAM_WORLD.split_strided()
    product(3, whole)
    whole.destroy()
    small = shmem.TEAM_WORLD.split_strided(0, 1, 1)
    if small:
        product(2, small)
    shmem.barrier_all()
    before = len(plans._plans)
    product(4)
    assert len(plans._plans) == before  # one has come, and one has gone
