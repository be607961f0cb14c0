"""irregular.triangle_count: graphs divided over all PEs, against SciPy's product of the part below the diagonal."""

import re

import pytest
import torch
import pyshmem as shmem
from pyshmem import irregular
from support import here, live

scipy = pytest.importorskip("scipy.sparse")
pytestmark = pytest.mark.filterwarnings("ignore:Sparse ")  # torch calls its CSR tensors beta
VERTICES = 13


def graph(seed=3, edges=40):
    """An undirected graph, with one vertex that has an edge to nearly all others and one without edges."""
    draw = torch.Generator().manual_seed(seed)
    ends = torch.randint(0, VERTICES - 1, (2, edges), generator=draw)
    hub = torch.stack([torch.full((VERTICES - 3,), 4), torch.arange(VERTICES - 3)])
    ends = torch.cat([ends, hub], dim=1)
    return scipy.coo_matrix((torch.ones(ends.shape[1]).numpy(), ends.numpy()), shape=(VERTICES, VERTICES))


def wanted(edges):
    whole = ((edges + edges.T) != 0).astype(int)
    below = scipy.tril(whole, -1).tocsr()
    return int((below @ below).multiply(below).sum())


def on_device(matrix):
    return irregular.csr(matrix.astype("float32"), here())


@pytest.mark.parametrize("schedule", irregular.SCHEDULES)
@pytest.mark.parametrize("cut", ["rows", "nonzeros"])
def test_triangles_are_counted_once_over_all_pes(cut, schedule):
    edges = graph()
    assert wanted(edges) > 20
    assert irregular.triangle_count(on_device(edges + edges.T), cut, schedule, 16) == wanted(edges)


def test_the_diagonal_the_upper_part_duplicates_and_64_bits_do_not_matter():
    edges = graph(5)
    below = scipy.tril(edges + edges.T, -1).tocoo()
    twice = torch.tensor([below.row.tolist() * 2, below.col.tolist() * 2])
    index = torch.cat([twice, torch.arange(VERTICES).expand(2, -1)], 1)
    order = torch.argsort(index[0], stable=True)
    offsets = torch.nn.functional.pad(torch.bincount(index[0], minlength=VERTICES).cumsum(0), (1, 0))
    matrix = torch.sparse_csr_tensor(
        offsets, index[1][order], torch.ones(index.shape[1]), (VERTICES, VERTICES), check_invariants=False
    )
    assert irregular.triangle_count(matrix.to(here())) == wanted(edges)


def test_own_rows_with_the_starts_of_all_shares(me, npes):
    edges = graph(7)
    whole = on_device((edges + edges.T).tocsr())
    starts = [0, *range(VERTICES - npes + 1, VERTICES + 1)]
    rows = whole.between(starts[me], starts[me + 1])
    assert irregular.triangle_count(rows, starts) == wanted(edges)


def test_graphs_without_triangles_and_without_edges_have_none():
    square = scipy.coo_matrix(([1.0] * 4, ([1, 2, 3, 3], [0, 1, 0, 2])), shape=(4, 4))
    assert irregular.triangle_count(on_device(square)) == 0
    assert irregular.triangle_count(on_device(scipy.coo_matrix((5, 5)))) == 0


def test_triangle_count_frees_its_memory_and_refuses_what_does_not_fit(me, npes):
    before = live()
    irregular.triangle_count(on_device(graph()))
    assert live() == before
    for matrix, cut, message in (
        (scipy.coo_matrix((3, 4)), "rows", "matrix: got 4 columns and 3 rows in all; expected a square matrix"),
        (graph(), "columns", "cut: got 'columns'; expected 'rows' or 'nonzeros' or the starts of all shares"),
        (graph(), [0], f"cut: got [0]; expected {npes + 1} rows that never fall, from 0 on"),
    ):
        with pytest.raises(shmem.ArgumentError, match=re.escape(f"triangle_count: PE {me}: {message}")):
            irregular.triangle_count(on_device(matrix), cut)
