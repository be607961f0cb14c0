"""irregular.plan: a matrix cut over all PEs times vectors, with the segments that each PE fetches."""

import re

import pytest
import torch
import pyshmem as shmem
from pyshmem import irregular
from matrices import dense, numbers, sparse
from support import here, live, refuses, work

LENGTHS = [0, 3, 17, 1, 0, 0, 2, 5, 1, 1, 0, 4, 1, 2, 0, 3, 0]  # 17 x 17
CUTS = ["rows", "nonzeros"]
pytestmark = pytest.mark.filterwarnings("ignore:Sparse ")  # torch calls its CSR tensors beta


def banded(n, distance):
    """A matrix with ones at ``distance`` to both sides of the diagonal."""
    rows = torch.arange(n)
    pairs = [(row, row + step) for row in rows.tolist() for step in (-distance, distance) if 0 <= row + step < n]
    indices = torch.tensor(pairs).T
    return torch.sparse_coo_tensor(indices, torch.ones(len(pairs)), (n, n), check_invariants=True).to(here())


def share(plan, x):
    me = shmem.my_pe()
    return x[plan.starts[me] : plan.starts[me + 1]]


@pytest.mark.parametrize("fetch", ["needed", "whole"])
@pytest.mark.parametrize("cut", CUTS)
def test_a_plan_multiplies_every_vector_of_a_sequence(cut, fetch):
    """Calls follow each other without barriers of the program's own, and no call sees another's vector."""
    matrix = sparse(LENGTHS)
    plan = irregular.plan(matrix, cut, fetch, gap=1)
    for turn in range(5):
        x = numbers(17) * (turn + 1) + turn
        y = plan(share(plan, x).clone())
        assert torch.equal(y.cpu().double(), share(plan, dense(matrix) @ x.cpu().double())), turn
    plan.close()


def test_a_pe_that_is_late_fetches_the_vector_of_its_own_call(me, npes, monkeypatch):
    """One PE begins late, so that the others must wait for it; another fetches late, when they are in the next call."""
    get_nbi, late = shmem.get_nbi, [False]

    def fetch(*arguments):
        work(1_000_000 * late[0])
        get_nbi(*arguments)

    monkeypatch.setattr(shmem, "get_nbi", fetch)
    matrix = sparse(LENGTHS)
    plan = irregular.plan(matrix, "rows", "whole")
    for turn in range(2 * npes):
        x = numbers(17) * (turn + 1) + turn
        late[0] = turn % npes == me
        work(1_000_000 * ((turn + 1) % npes == me))
        assert torch.equal(plan(share(plan, x)).cpu().double(), share(plan, dense(matrix) @ x.cpu().double())), turn


@pytest.mark.parametrize("schedule", irregular.SCHEDULES)
def test_a_plan_uses_the_schedule_that_it_was_made_with(schedule, few_pes):
    matrix, x = sparse(LENGTHS), numbers(17)
    plan = irregular.plan(matrix, schedule=schedule, size=8)
    assert torch.equal(plan(share(plan, x)).cpu().double(), share(plan, dense(matrix) @ x.cpu().double()))


def test_a_plan_of_own_rows_equals_that_of_the_whole_matrix(me, npes):
    """Shares that no cut makes: PE 0 has all rows but one of each other PE."""
    matrix, x = sparse(LENGTHS), numbers(17)
    starts = [0, *range(17 - npes + 1, 18)]
    rows = irregular.csr(matrix).between(starts[me], starts[me + 1])
    plan = irregular.plan(rows, starts)
    assert plan.rows == (17 - npes + 1 if me == 0 else 1)
    assert torch.equal(plan(share(plan, x)).cpu().double(), share(plan, dense(matrix) @ x.cpu().double()))


def test_needed_elements_are_fetched_and_no_others(me, npes):
    """Of a band: the elements at its distance beyond both ends of the share."""
    n, distance = 8 * npes, 3
    plan = irregular.plan(banded(n, distance), "rows", gap=0)
    first, end = plan.starts[me], plan.starts[me + 1]
    beyond = [*range(max(first - distance, 0), first), *range(end, min(end + distance, n))]
    got = [plan.starts[part.pe] + part.first + i for part in plan.segments for i in range(part.count)]
    assert sorted(got) == beyond
    assert plan.fetched == len(beyond) and len(plan.segments) == (me > 0) + (me < npes - 1)


def test_segments_are_joined_over_a_gap_within_a_share_only(me, npes):
    """Each PE needs elements 0, 3 and 7 of each share of 8."""
    columns = torch.tensor([8 * pe + i for pe in range(npes) for i in (0, 3, 7)])
    parts = torch.arange(8 * npes + 1).clamp(max=1) * len(columns), columns, torch.ones(len(columns))
    matrix = torch.sparse_csr_tensor(*parts, (8 * npes, 8 * npes)).to(here())
    for gap, wanted in ((1, [(0, 1), (3, 1), (7, 1)]), (2, [(0, 4), (7, 1)]), (3, [(0, 8)])):
        plan = irregular.plan(matrix, "rows", gap=gap)
        found = [(part.pe, part.first, part.count) for part in plan.segments]
        assert found == [(pe, *pair) for pe in range(1, npes) for pair in wanted if me == 0]
        y = plan(numbers(8))
        assert y.tolist() == [npes * int(numbers(8)[[0, 3, 7]].sum()) if me == 0 else 0, *[0] * 7]


def test_cut_by_nonzeros_balances_them_to_within_the_longest_row(me, npes):
    matrix = irregular.csr(sparse(LENGTHS))
    starts = irregular.plan(matrix, "nonzeros").starts
    assert len(starts) == npes + 1 and starts[0] == 0 and starts[-1] == 17 and starts == sorted(starts)
    mine = matrix.between(starts[me], starts[me + 1]).atoms
    assert abs(mine - matrix.atoms / npes) <= 17
    assert irregular.plan(matrix, "rows").starts == [17 * pe // npes for pe in range(npes + 1)]


def test_more_pes_than_rows_leave_some_without(npes):
    matrix = sparse([1], 1)
    plan = irregular.plan(matrix)
    x = torch.full((plan.rows,), 3.0, device=here())
    assert plan(x).tolist() == [3.0] * plan.rows
    total = shmem.zeros(1, dtype=torch.int64)
    shmem.sum_reduce(total, shmem.full(1, plan.rows, dtype=torch.int64))
    assert total == 1


def test_a_closed_plan_is_refused_and_its_memory_free():
    before = live()
    plan = irregular.plan(sparse(LENGTHS))
    assert live() != before
    plan.close()
    plan.close()
    assert live() == before
    with refuses("plan", "plan: got one that is closed; expected one that is open"):
        plan(numbers(plan.rows))


def test_plan_refuses_what_does_not_fit_together(me, npes):
    matrix = irregular.csr(sparse(LENGTHS))
    wrong = [
        ({"cut": "columns"}, "cut: got 'columns'; expected 'rows' or 'nonzeros' or the starts of all shares"),
        ({"fetch": "some"}, "fetch: got 'some'; expected 'needed' or 'whole'"),
        ({"fetch": ["needed"]}, "fetch: got ['needed']; expected 'needed' or"),
        ({"gap": -1}, "gap: got -1; expected a number of elements, 0 or more"),
        ({"cut": [0]}, f"cut: got [0]; expected {npes + 1} rows that never fall, from 0 on"),
        ({"cut": [0] * (npes + 1)}, "matrix: got 17 rows; expected 0, as cut says"),
        ({"matrix": sparse([1, 2])}, "matrix: got 17 columns and 2 rows in all; expected a square matrix"),
    ]
    for arguments, message in wrong:
        with pytest.raises(shmem.ArgumentError, match=re.escape(f"plan: PE {me}: {message}")):
            irregular.plan(**{"matrix": matrix, **arguments})
    plan = irregular.plan(matrix)
    with refuses("plan", "x: got torch.float64 of shape"):
        plan(numbers(plan.rows, dtype=torch.float64))


def test_plan_refuses_shares_that_differ_between_pes_on_all_of_them(me, npes):
    if npes == 1:
        pytest.skip("one PE agrees with itself")
    last = 17 + (me == 1)
    rows = 0 if me < npes - 1 else last
    starts = [0] * npes + [last]
    matrix = irregular.csr(sparse([1] * rows, last))
    with refuses("plan", "cut: .* the same shares on all PEs"):
        irregular.plan(matrix, starts)
