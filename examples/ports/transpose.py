"""Transpose a matrix whose rows are distributed over the PEs: each PE divides its rows into one block per PE, transposes the
blocks and exchanges them in one alltoall. A second transpose restores the matrix.

Run: pyshmemrun -n 4 examples/ports/transpose.py
Prints: 4 PEs: 192 x 256 transposed by alltoall, and back, every element in its place
After: the matrix transpose of the Parallel Research Kernels, which has a SHMEM version, written afresh."""

import pyshmem as shmem
import torch


def transposed(rows):
    """This PE's rows of the transpose of the matrix of which ``rows`` are this PE's rows: all PEs call it."""
    height, width = rows.shape[0], rows.shape[1] // n_pes
    blocks = shmem.empty(2, n_pes, width, height, dtype=rows.dtype)
    source, target = blocks
    source.copy_(rows.view(height, n_pes, width).permute(1, 2, 0))  # block pe: the columns that become rows of pe
    shmem.alltoall(target, source)  # block pe: height elements, from pe, of each of this PE's rows
    result = torch.cat(tuple(target), dim=1)
    shmem.free(blocks)
    return result


shmem.init()
me, n_pes = shmem.my_pe(), shmem.n_pes()
height, width = 48, 64  # of a block
n_rows, n_columns = n_pes * height, n_pes * width

whole = torch.arange(n_rows * n_columns, dtype=torch.float64).view(n_rows, n_columns)
mine = shmem.array(whole[me * height : (me + 1) * height])

there = transposed(mine)
wanted = whole.T[me * width : (me + 1) * width]
assert torch.equal(there.cpu(), wanted), f"PE {me}: {(there.cpu() != wanted).sum()} elements are in the wrong place"

back = transposed(there)
assert torch.equal(back, mine), f"PE {me}: transposed twice, {(back != mine).sum()} elements are not back"

shmem.barrier_all()
if me == 0:
    print(f"{n_pes} PEs: {n_rows} x {n_columns} transposed by alltoall, and back, every element in its place")
shmem.finalize()
