"""pyshmem.irregular on one PE: every work on every schedule against dense arithmetic, and what csr refuses."""

import re
from typing import Any, NamedTuple

import pytest
import torch
import pyshmem as shmem
import triton
import triton.language as tl
from pyshmem import irregular
from pyshmem.irregular.parts import Parted
from pyshmem.irregular.schedules import by_length, streamed
from pyshmem.irregular.schedules.by_length import Sorted
from pyshmem.irregular.schedules.row_by_row import Sequences
from matrices import LENGTHS, dense, numbers, sparse
from support import here, refuses


@triton.jit
def plain(operands, tiles, lanes, sums, mask):
    tl.store(operands.y + tiles + lanes, sums, mask=mask)


@triton.jit
def squared(operands, tiles, lanes, sums, mask):
    tl.store(operands.y + tiles + lanes, sums * sums, mask=mask)


@triton.jit
def counted(operands, tiles, lanes, sums, mask):
    tl.atomic_add(operands.y + tiles * 8 + lanes, sums * 0 + 1, mask=mask & (lanes < 8))


class Touched(NamedTuple):
    """How often an atom was counted by ``mask``, and whether ``near`` allows it to be read, with a margin of 64 before each."""

    counted: Any
    read: Any


@triton.jit
def touching(operands, atoms, lanes, mask, near):
    tl.atomic_add(operands.counted + 64 + atoms, 1, mask=mask)
    tl.store(operands.read + 64 + atoms, 1, mask=near)
    return tl.where(mask, 1, 0)


@triton.jit
def reading(operands, atoms, lanes, mask):
    tl.store(operands.read + 64 + atoms, 1, mask=mask)
    return tl.where(mask, 1, 0)


@triton.jit
def nothing(operands, tiles, lanes, sums, mask):
    pass


SIZE = 6  # of a segment: rows have up to 17 elements
every = pytest.mark.parametrize("schedule", irregular.SCHEDULES)
pytestmark = pytest.mark.filterwarnings("ignore:Sparse ")  # torch calls its CSR tensors beta


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@every
def test_spmv_adds_the_products_of_each_row(schedule, lengths, few_pes):
    matrix, x = sparse(lengths), numbers(17)
    y = irregular.spmv(irregular.csr(matrix), x, schedule, SIZE)
    assert torch.equal(y.cpu().double(), dense(matrix) @ x.cpu().double())


@every
def test_products_of_one_matrix_follow_each_other(schedule, few_pes, monkeypatch):
    """The first finds the segments; later ones search no more, and find the sums as the first did."""
    matrix = irregular.csr(sparse(LENGTHS["uneven"]))
    for turn in range(3):
        x = numbers(17) + turn
        y = irregular.spmv(matrix, x, schedule, SIZE)
        assert torch.equal(y.cpu().double(), dense(sparse(LENGTHS["uneven"])) @ x.cpu().double()), turn
        monkeypatch.setattr(irregular.execution, "_planned", None)


@pytest.mark.parametrize("index", irregular.matrix.INDICES)
@pytest.mark.parametrize("dtype", irregular.matrix.VALUES)
@pytest.mark.parametrize("schedule", ["by_length", "streamed"])
def test_rows_may_begin_and_end_anywhere(schedule, dtype, index, few_pes):
    """Some of 100 rows, of arrays that are not aligned: empty ones, one that is split, and ends that are no multiple of 4."""
    lengths = [*torch.randint(0, 12, (50,), generator=torch.Generator().manual_seed(1)).tolist(), 91, 0, 18, 3] * 2
    matrix, x = irregular.csr(sparse(lengths, dtype=dtype, index=index)), numbers(17, dtype=dtype)
    for first, last in ((0, 108), (1, 107), (2, 53), (55, 106)):
        some = matrix.between(first, last)
        y = irregular.spmv(some, x, schedule, 40)
        assert torch.equal(y.cpu().double(), dense(sparse(lengths, dtype=dtype))[first:last] @ x.cpu().double())


@pytest.mark.parametrize("lengths", [[3, 0, 4, 5, 1, 16, 2], [0, 45], [1], [2, 2, 0, 0], [3, 0, 0], [17, 15]], ids=str)
@every
def test_every_atom_counts_once_and_none_is_read_that_is_not_there(schedule, lengths, few_pes):
    """Loads begin and end at multiples of 4 or 16, but not before the first atom nor behind the last one.

    Programs of streamed rows look at all that they load.
    """
    matrix, atoms = irregular.csr(sparse(lengths)), sum(lengths)
    for atom in (touching, reading):
        touched = Touched(*(torch.zeros(atoms + 128, dtype=torch.int32, device=here()) for _ in range(2)))
        irregular.run(irregular.Work(atom, nothing, touched, dtype=torch.int32), matrix, schedule, SIZE)
        once = [0] * 64 + [1] * atoms + [0] * 64
        assert touched.read.tolist() == once
        counted = touched.counted.clamp(max=1) if schedule == "streamed" else touched.counted
        assert atom is reading or counted.tolist() == once


def test_rows_by_length_are_in_groups_of_one_length_with_the_longest_of_a_window_first(few_pes, monkeypatch):
    """Rows 0 to 4 are in the first window of 20 elements, and row 5, of two parts, in the second one."""
    monkeypatch.setattr(by_length, "_WINDOW", 20)
    matrix, kind = irregular.csr(sparse([2, 9, 2, 0, 8, 20])), by_length.Kind
    sides = ((1, 4, 1), (2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 1, 8), (2, 1, 8))  # of 0, 2, 4, 8 and any number, twice
    table = [kind(length, *each, 1) for length, each in zip((0, 2, 4, 8, 16, 16), sides, strict=True)]
    monkeypatch.setattr(by_length, "kinds", lambda width: table)
    found = by_length.Sorted(matrix, 10, 2)
    assert found.items.tiles.tolist() == [1, 4, 0, 2, 3, -1, -2]
    assert found.items.begins.tolist() == [2, 13, 0, 11, 13, 21, 37]
    assert found.items.ends.tolist() == [11, 21, 2, 13, 13, 37, 41]
    assert found.programs.kinds.tolist() == [4, 3, 1, 0, 4, 4]
    assert found.programs.firsts.tolist() == [0, 1, 2, 4, 5, 6, 7]
    assert (found.closed.tolist(), found.opening.tolist(), found.closing.tolist(), found.spread) == ([5], [0], [1], 1)


def test_rows_by_length_are_counted_from_where_vectors_begin_and_the_last_row_of_a_matrix_has_none(
    few_pes, monkeypatch
):
    """Rows begin at 0, 3, 3, 7, 12, 13, 27, 30 and 31, and the last ends at 33, but its vectors would at 34 or 36."""
    kind = by_length.Kind
    shapes = ((0, 1), (4, 4), (4, 2), (8, 4), (8, 2), (16, 4), (16, 1))  # lengths, and atoms of a vector
    monkeypatch.setattr(by_length, "kinds", lambda width: [kind(each, 1, 1, 1, of) for each, of in shapes])
    matrix = irregular.csr(sparse([3, 0, 4, 5, 1, 14, 7, 2, 2]))
    found = by_length.Sorted(matrix, 100, 1)
    of_items = torch.repeat_interleave(found.programs.kinds, found.programs.firsts.diff())
    got = dict(zip(found.items.tiles.tolist(), of_items.tolist(), strict=True))
    assert got == {0: 2, 1: 0, 2: 3, 3: 3, 4: 1, 5: 5, 6: 4, 7: 2, 8: 2}


def test_streamed_rows_are_neighbours_but_long_ones_parts_and_the_last_are_alone(few_pes, monkeypatch):
    """At most 16 elements and 4 rows a program, whatever multiple of 4 it loads from; rows of more than 8 are alone."""
    for name, number in {"_BLOCK": 16, "_THREADS": 4, "_DEEP": 2, "_LONGEST": 8, "_PASSES": 1}.items():
        monkeypatch.setattr(streamed, name, number)
    found = streamed.Streamed(irregular.csr(sparse([2, 2, 0, 0, 0, 3, 1, 9, 20, 2, 0, 3, 0])), 10)
    blocks = found.programs
    rows = [(0, 4), (4, 7), (0, 1), (1, 2), (2, 3), (9, 11), (3, 4), (12, 13)]  # of those alone, items
    assert list(zip(blocks.firsts.tolist(), blocks.lasts.tolist(), strict=True)) == rows
    assert blocks.begins.tolist() == [0, 4, 8, 17, 33, 37, 39, 42]
    assert blocks.ends.tolist() == [4, 8, 17, 33, 37, 39, 42, 42]
    assert blocks.kinds.tolist() == [1, 2, 4, 4, 4, 1, 5, 0]  # of up to 1, 2, 4 and 8, alone, and the last
    assert found.items.tiles.tolist() == [7, -1, -2, 11]
    assert (found.closed.tolist(), found.opening.tolist(), found.closing.tolist(), found.spread) == ([8], [0], [1], 1)


@pytest.mark.parametrize("size", [1, 6, 12, 50, 64])
def test_all_parts_of_a_row_that_is_split_have_atoms(size, few_pes):
    """Parts are of multiples of 8: seventy in twelves would be six of 16, of which one has nothing."""
    lengths = [2, 0, 70, 35, 13]
    found = Parted(irregular.csr(sparse(lengths)), size)
    begins, ends, tiles = (each[found.of_split] for each in found.items)
    assert (ends > begins).all() and found.parts == begins.numel()
    whole = ~found.of_split
    assert int((ends - begins).sum()) == sum(lengths) - int((found.items.ends - found.items.begins)[whole].sum())
    assert tiles.tolist() == [-1 - part for part in range(found.parts)]


def test_rows_one_by_one_keep_their_order_and_programs_have_a_fourth_of_the_size_with_four_atoms_more_for_each(few_pes):
    found = Sequences(irregular.csr(sparse([2, 9, 0, 70, 3, 1])), 64, 128)
    assert found.items.tiles.tolist() == [0, 1, 2, -1, -2, 4, 5]
    assert found.items.begins.tolist() == [0, 2, 11, 11, 51, 81, 84]
    assert found.items.ends.tolist() == [2, 11, 11, 51, 81, 84, 85]
    assert found.programs.tolist() == [0, 1, 3, 4, 6, 7]  # at 16 atoms' worth, of 6, 13, 4, 44, 34, 7 and 5
    assert (found.closed.tolist(), found.opening.tolist(), found.closing.tolist(), found.spread) == ([3], [0], [1], 1)


@pytest.mark.parametrize("dtype", irregular.matrix.VALUES)
def test_rows_one_by_one_of_every_dtype_give_the_same_bits_in_blocks_of_columns(dtype, few_pes):
    """The second block has two columns. Twice, with another product between: what was stored of parts is not added."""
    lengths, index = [2, 9, 0, 70, 3, 1], torch.int64 if dtype.itemsize == 8 else torch.int32
    sparse_matrix, b = sparse(lengths, dtype=dtype, index=index), numbers(17, 130, dtype=dtype)
    matrix, wanted = irregular.csr(sparse_matrix), (dense(sparse_matrix) @ b.cpu().double()).to(dtype)
    for factor in (1, -2, 1):
        c = irregular.spmm(matrix, b * factor, "row_by_row", 64)
        assert torch.equal(c.cpu(), wanted * factor)


def test_two_works_of_one_kind_on_one_matrix_are_not_mixed_up(few_pes):
    """Operands of equal types, and sums of equal width and type: what is kept for one work is not used for the other."""
    matrix = irregular.csr(sparse([3, 0, 9, 1]))
    y, squares = torch.empty(4, device=here()), torch.empty(4, device=here())
    for out, tile in ((y, plain), (squares, squared)) * 2:
        operands = irregular.works.spmv.Operands(matrix.columns, matrix.values, numbers(17), out)
        irregular.run(irregular.Work(irregular.works.spmv.product, tile, operands), matrix, "by_length", SIZE)
    wanted = dense(sparse([3, 0, 9, 1])) @ numbers(17).cpu().double()
    assert torch.equal(y.cpu().double(), wanted) and torch.equal(squares.cpu().double(), wanted**2)


def test_a_row_is_split_into_more_parts_than_are_added_at_a_time(few_pes):
    matrix, x = sparse([3, 600, 0, 2]), numbers(17)
    y = irregular.spmv(irregular.csr(matrix), x, "by_length", 8)
    assert torch.equal(y.cpu().double(), dense(matrix) @ x.cpu().double())


@every
def test_spmm_adds_the_products_of_each_row_and_column(schedule, few_pes):
    matrix, b = sparse(LENGTHS["uneven"]), numbers(17, 3)
    c = irregular.spmm(irregular.csr(matrix), b, schedule, SIZE)
    assert torch.equal(c.cpu().double(), dense(matrix) @ b.cpu().double())


@pytest.mark.parametrize("lengths", (LENGTHS["uneven"], [1, 21, 0, 19, 40], [3, 15, 4], [0] * 8), ids=str)
@every
def test_spmm_of_many_columns_adds_the_products_of_rows_that_are_split_long_or_empty(
    schedule, lengths, few_pes, monkeypatch
):
    """40 elements are in five parts. What a product has not stored is no number, and is not added."""
    monkeypatch.setattr(irregular.parts.torch, "empty", lambda n, **options: torch.full((n,), torch.nan, **options))
    matrix, b = sparse(lengths), numbers(17, 9)
    c = irregular.spmm(irregular.csr(matrix), b, schedule, SIZE)
    assert torch.equal(c.cpu().double(), dense(matrix) @ b.cpu().double())


@every
def test_every_tile_of_many_sums_is_finished_once(schedule, few_pes):
    """Whole, split or empty, with indices of 64 bits."""
    matrix = irregular.csr(sparse([1, 21, 0, 19, 40, 3], index=torch.int64))
    y = torch.zeros(6, 8, device=here())
    operands = irregular.works.spmv.Operands(matrix.columns, matrix.values, numbers(17), y)
    irregular.run(irregular.Work(irregular.works.spmv.product, counted, operands, width=8), matrix, schedule, SIZE)
    assert y.tolist() == [[1] * 8] * 6


def test_spmm_does_all_of_more_columns_than_it_takes_at_a_time(few_pes):
    matrix, b = sparse([2, 0, 5]), numbers(17, 35)
    c = irregular.spmm(irregular.csr(matrix), b)
    assert torch.equal(c.cpu().double(), dense(matrix) @ b.cpu().double())


@every
def test_degree_histogram_counts_every_row_once(schedule, few_pes):
    counts = irregular.degree_histogram(irregular.csr(sparse(LENGTHS["uneven"])), 5, schedule, SIZE)
    assert counts.tolist() == [5, 1, 1, 1, 3]


@every
def test_pagerank_step_keeps_the_sum_and_adds_the_base_once(schedule, few_pes):
    """The base is added to the whole sum of a row only, however many segments the row has."""
    matrix = sparse([0, 6, 1, 0, 2, 0, 0], 7, torch.float64)
    degrees = torch.bincount(matrix.col_indices(), minlength=7).double()
    ranks = torch.arange(1, 8, dtype=torch.float64, device=here()) / 28
    got = irregular.pagerank_step(irregular.csr(matrix), ranks, degrees, 0.75, schedule, 4)
    links = dense(matrix).bool().double().to(here())
    lost = ranks[degrees == 0].sum()
    wanted = 0.25 / 7 + 0.75 * (lost / 7 + links @ torch.where(degrees > 0, ranks / degrees.clamp(min=1), 0))
    torch.testing.assert_close(got, wanted, rtol=1e-14, atol=0)
    assert abs(got.sum() - 1) < 1e-14


@pytest.mark.parametrize("schedule", ["by_length", "row_by_row"])
@pytest.mark.parametrize("dtype", irregular.matrix.VALUES)
def test_indices_of_64_bits_and_every_dtype(dtype, schedule, few_pes):
    matrix, x = sparse([3, 0, 9], dtype=dtype, index=torch.int64), numbers(17, dtype=dtype)
    y = irregular.spmv(irregular.csr(matrix), x, schedule, SIZE)
    assert y.dtype == dtype
    assert torch.equal(y.cpu().double(), dense(matrix) @ x.cpu().double())


def test_sums_of_float16_are_made_in_float32(few_pes):
    """In float16, 2048 + 1 is 2048."""
    matrix = sparse([2500], 2500, torch.float16)
    matrix.values().fill_(1)
    assert irregular.spmv(irregular.csr(matrix), numbers(2500, dtype=torch.float16) * 0 + 1) == 2500


@pytest.mark.filterwarnings("ignore:overflow")  # of sums that are not stored
def test_products_of_float16_are_made_in_float32(few_pes):
    """In float16, 300 * 300 is infinite."""
    parts = torch.tensor([0, 2]), torch.tensor([1, 0]), torch.tensor([300.0, -300.0], dtype=torch.float16)
    matrix = torch.sparse_csr_tensor(*parts, (1, 2)).to(here())
    x = torch.tensor([299.0, 300.0], dtype=torch.float16, device=here())
    assert irregular.spmv(irregular.csr(matrix), x) == 300


def test_csr_takes_scipy_matrices_of_any_format_and_adds_duplicates(few_pes):
    scipy = pytest.importorskip("scipy.sparse")
    coo = scipy.coo_matrix(([1.0, 2.0, 4.0, 8.0], ([1, 1, 0, 1], [2, 0, 1, 2])), shape=(3, 3))
    kept = coo.tocsr()
    for matrix in (coo, scipy.csc_array(coo), kept):
        y = irregular.spmv(irregular.csr(matrix), numbers(3, dtype=torch.float64))
        assert y.tolist() == (matrix @ numbers(3, dtype=torch.float64).cpu().numpy()).tolist()
    pair = scipy.csr_matrix(([3.0, 5.0], [1, 1], [0, 2, 2]), shape=(2, 2))  # a duplicate
    assert irregular.spmv(irregular.csr(pair), numbers(2, dtype=torch.float64) * 0 + 1).tolist() == [8, 0]


def test_csr_takes_coo_tensors_with_duplicates_and_empty_rows(few_pes):
    places = torch.tensor([[3, 1, 3, 1], [2, 0, 2, 4]])
    matrix = torch.sparse_coo_tensor(places, torch.tensor([1.0, 2.0, 4.0, 8.0]), (5, 6), check_invariants=True)
    x = numbers(6)
    assert torch.equal(irregular.spmv(irregular.csr(matrix.to(here())), x).cpu(), matrix.to_dense() @ x.cpu())


def test_csr_takes_no_more_elements_than_the_offsets_say(few_pes):
    scipy = pytest.importorskip("scipy.sparse")
    matrix = scipy.csr_matrix(([1.0, 2.0, 9.0], [0, 1, 0], [0, 1, 3]), shape=(2, 2))
    matrix.indptr[2] = 2
    assert irregular.csr(matrix).atoms == 2


WRONG = {
    "column 17 in row 3; expected columns 0 to 16": ([0, 0, 0, 1, 3, 4], [1, 2, 17, 3]),
    "column -1 in row 0; expected columns 0 to 16": ([0, 2, 4], [1, -1, 17, 3]),
    "row 1 from 3 to 1; expected offsets that never fall": ([0, 3, 1, 4], [1, 2, 3, 4]),
    "5 non-zeros in all; expected at most 4": ([0, 2, 5], [1, 2, 3, 4]),
    "shape \\(3,\\); expected 3 offsets, one more than rows, the first 0": ([1, 2, 4], [1, 2, 3, 4]),
}


@pytest.mark.parametrize("message", WRONG)
def test_csr_refuses_indices_that_lead_out_of_the_matrix(message):
    offsets, columns = WRONG[message]
    parts = torch.tensor(offsets), torch.tensor(columns), torch.ones(len(columns))
    matrix = torch.sparse_csr_tensor(*parts, (len(offsets) - 1, 17), check_invariants=False)
    kind = shmem.OutOfRangeError if "column " in message else shmem.ArgumentError
    with refuses("csr", f"(columns|offsets): got {message}", kind):
        irregular.csr(matrix)


def test_csr_refuses_what_is_no_sparse_matrix_of_floats(me):
    wrong = [
        (torch.ones(3, 3), "matrix: got a torch.strided tensor of shape (3, 3)"),
        ([[1]], "matrix: got list"),
        (sparse([1, 1], dtype=torch.int32), "values: got torch.int32"),
    ]
    for matrix, got in wrong:
        with pytest.raises(shmem.ShmemError, match=re.escape(f"csr: PE {me}: {got}")):
            irregular.csr(matrix)


def test_products_refuse_vectors_that_do_not_fit_the_matrix():
    matrix = irregular.csr(sparse([1, 2]))
    for x in (numbers(16), numbers(17, dtype=torch.float64), numbers(34)[::2], numbers(17, 1)):
        with refuses("spmv", "x: got .*; expected a contiguous torch.float32"):
            irregular.spmv(matrix, x)
    odd = ((["by_length"], None), ("by_length", "8"), ("by_length", [8]), ("by_length", 8.0))
    for schedule, size in (("length", None), ("by_length", 0), (by_length, None), (by_length.SCHEDULE, None), *odd):
        with refuses("run", "s(chedul|iz)e: got "):
            irregular.spmv(matrix, numbers(17), schedule, size)


def test_auto_is_the_default_and_chooses_once(few_pes, monkeypatch):
    matrix, x = irregular.csr(sparse([4, 0, 2])), numbers(17)
    seen = []
    monkeypatch.setattr(irregular.selection, "schedule_for", lambda *given: seen.append(given) or "row_by_row")
    for arguments in ((), ("auto",), ()):
        y = irregular.spmv(matrix, x, *arguments)
        assert torch.equal(y.cpu().double(), dense(sparse([4, 0, 2])) @ x.cpu().double())
    assert seen == [(matrix, 1)]
    assert [type(each) for each in matrix.kept.values() if isinstance(each, Parted)] == [Sequences]


@pytest.mark.parametrize(
    ("width", "longest", "atoms", "schedule"),
    [
        (1, 20, 2_000_000, "streamed"), (1, 1, 2_000_000, "streamed"), (1, 21, 2_000_000, "by_length"),
        (1, 4, 1_999_999, "by_length"), (2, 4, 2_000_000, "by_length"), (31, 900, 500_000, "by_length"), (32, 5, 500_000, "row_by_row"),
        (32, 3, 500_000, "by_length"), (63, 900, 1800, "by_length"), (64, 9, 90, "row_by_row"), (64, 7, 70, "by_length"),
        (127, 7, 70, "by_length"), (128, 1, 9, "row_by_row"),
    ],
)  # fmt: skip
def test_auto_takes_a_schedule_by_the_rows_of_large_matrices_and_by_how_many_sums(width, longest, atoms, schedule):
    offsets = torch.cat([torch.zeros(1), torch.arange(atoms % longest, atoms + 1, longest)]).int().to(here())
    matrix = irregular.CSR(offsets, torch.zeros(atoms, dtype=torch.int32), torch.zeros(atoms), (len(offsets) - 1, 9))
    assert matrix.longest == longest or atoms < longest
    assert irregular.selection.schedule_for(matrix, width) == schedule


@pytest.mark.parametrize(("longest", "schedule"), [(12, "streamed"), (13, "by_length"), (9000, "streamed")])
def test_auto_streams_rows_of_which_neighbours_are_about_as_long(longest, schedule, few_pes):
    """One of 64 has three times as many as the mean row, or more; or one of 64,000 has very many."""
    lengths = torch.full((600_000,), 4, device=here())
    lengths[:: 64_000 if longest > 100 else 64] = longest
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    atoms = int(offsets[-1])
    matrix = irregular.CSR(offsets, torch.zeros(atoms, dtype=torch.int32), torch.zeros(atoms), (600_000, 9))
    assert irregular.selection.schedule_for(matrix, 1) == schedule


@pytest.mark.parametrize(("longest", "schedule"), [(10, "streamed"), (11, "by_length")])
def test_auto_streams_mostly_empty_rows_of_which_the_others_are_short(longest, schedule, few_pes):
    lengths = torch.zeros(2_000_000, device=here(), dtype=torch.int64)
    lengths[::8] = longest
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    atoms = int(offsets[-1])
    matrix = irregular.CSR(offsets, torch.zeros(atoms, dtype=torch.int32), torch.zeros(atoms), (2_000_000, 9))
    assert irregular.selection.schedule_for(matrix, 1) == schedule


@pytest.mark.parametrize(("columns", "ordered"), [(2, Sorted), (128, Sequences)])
def test_auto_multiplies_several_columns_by_length_and_many_row_by_row(columns, ordered, few_pes):
    matrix, b = irregular.csr(sparse([4, 0, 2])), numbers(17, columns)
    assert torch.equal(irregular.spmm(matrix, b).cpu().double(), dense(sparse([4, 0, 2])) @ b.cpu().double())
    assert [type(each) for each in matrix.kept.values() if isinstance(each, Parted)] == [ordered]


def test_programs_have_fewer_atoms_until_there_are_enough_of_them():
    """Of 1000 tiles with 100,000 atoms; the least are 256, or 32 where warps have them."""
    fitting, schedules = irregular.granularity.fitting, irregular.SCHEDULES
    for wanted, atoms, row in ((1, 4096, 256), (100, 512, 256), (200, 256, 128), (1000, 256, 32)):
        assert fitting(schedules["by_length"], 1000, 100_000, wanted, 2) == atoms
        assert fitting(schedules["row_by_row"], 1000, 100_000, wanted, 128) == row


@pytest.mark.parametrize(("longest", "width", "size"), [(4096, 1, 4096), (4097, 1, 256), (4096, 2, 256)])
def test_rows_are_not_split_by_length_for_more_segments_alone(longest, width, size):
    """Of works with one sum, if no row is longer than the schedule's own size."""
    by_length = irregular.SCHEDULES["by_length"]
    assert irregular.granularity.fitting(by_length, 1000, 100_000, 1000, width, longest) == size
