"""Small sparse matrices, and the same as dense ones."""

import torch

from support import here

LENGTHS = {
    "uneven": [0, 0, 3, 17, 0, 1, 2, 0, 5, 6, 0],
    "one row with all": [0, 17, 0],
    "all rows equal": [4] * 6,
    "only empty rows": [0] * 8,
    "no rows": [],
}


def sparse(lengths, width=17, dtype=torch.float32, index=torch.int32):
    """A matrix of small integers, so that sums are exact in any order; columns of a row fall and wrap around."""
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    columns = torch.cat([torch.zeros(0), *[(row * 5 - torch.arange(n) * 3) % width for row, n in enumerate(lengths)]])
    values = torch.arange(len(columns)) % 5 + 1
    parts = offsets.to(index), columns.to(index), values.to(dtype)
    return torch.sparse_csr_tensor(*parts, (len(lengths), width), check_invariants=False).to(here())


def dense(matrix):
    """The same with duplicates added up."""
    full = torch.zeros(matrix.shape, dtype=torch.float64)
    offsets, columns, values = (
        each.cpu() for each in (matrix.crow_indices(), matrix.col_indices(), matrix.values().double())
    )
    rows = torch.repeat_interleave(torch.arange(len(full)), offsets.diff().long())
    return full.index_put((rows, columns.long()), values, accumulate=True)


def numbers(*shape, dtype=torch.float32):
    return (torch.arange(torch.Size(shape).numel()).reshape(shape) * 3 % 11 - 4).to(dtype).to(here())
