"""A = L @ L.T on a mesh of PEs: Cholesky's factorization of a matrix in blocks that are cyclic in both dimensions.

Run: pyshmemrun -n 4 examples/cholesky.py
Prints: 4 PEs: A = L @ L.T, 160 x 160 in float32, blocks of 32 on a 2 x 2 mesh, relative error 2.3e-07

Blocks like ScaLAPACK's. A step factors one block column and updates the blocks to its right; kernels load the blocks that
they need from the PEs that own them."""

import math

import pyshmem as shmem  # selects Triton's interpreter if there is no GPU
import pyshmem.device as dev
import torch
import triton
import triton.language as tl


@triton.jit
def eliminate(tile, column, factor, j):
    """Replace column j of ``tile`` by ``column``, and subtract its multiples from the columns to the right."""
    place = tl.arange(0, tile.shape[1])[None, :]
    rest = tl.where(place > j, tile - column[:, None] * factor[None, :], tile)
    return tl.where(place == j, column[:, None], rest)


@triton.jit
def column_of(tile, j):
    return tl.sum(tl.where(tl.arange(0, tile.shape[1])[None, :] == j, tile, 0.0), axis=1)


@triton.jit
def element_of(column, j):
    return tl.sum(tl.where(tl.arange(0, column.shape[0]) == j, column, 0.0), axis=0)


@triton.jit
def factor_diagonal(a, k, B: tl.constexpr):
    """Make the block of L on the diagonal at k: by its owner, in one program."""
    tile = dev.load_tile(a, k, k, B, B)
    for j in range(B):
        column = column_of(tile, j)
        column = tl.where(tl.arange(0, B) >= j, column / tl.sqrt(element_of(column, j)), 0.0)
        tile = eliminate(tile, column, column, j)
    dev.store_tile(a, k, k, tile)


@triton.jit
def solve_below(a, k, B: tl.constexpr):
    """Make the blocks of L under the one at k: those that this PE has, a program for each of its block rows."""
    row = dev.global_index(a, tl.program_id(0) * B, dev.my_place(a, 0), dim=0)
    if row > k:
        diagonal = dev.load_tile(a, k, k, B, B)
        tile = dev.load_tile(a, row, k, B, B)
        for j in range(B):
            factor = column_of(diagonal, j)
            tile = eliminate(tile, column_of(tile, j) / element_of(factor, j), factor, j)
        dev.store_tile(a, row, k, tile)


@triton.jit
def update(a, k, B: tl.constexpr):
    """Subtract from this PE's blocks on and below the diagonal, right of k, what column k of L accounts for."""
    row = dev.global_index(a, tl.program_id(0) * B, dev.my_place(a, 0), dim=0)
    col = dev.global_index(a, tl.program_id(1) * B, dev.my_place(a, 1), dim=1)
    if (col > k) & (row >= col):
        ours, theirs = dev.load_tile(a, row, k, B, B), dev.load_tile(a, col, k, B, B)
        product = tl.dot(ours, tl.trans(theirs), input_precision="ieee")
        dev.store_tile(a, row, col, dev.load_tile(a, row, col, B, B) - product)


def made():
    """Wait until all PEs have made their blocks: sync alone does not wait for kernels."""
    shmem.quiet()
    team.sync()


shmem.init()
team = shmem.TEAM_SHARED  # the PEs of this node, whose memory kernels load and store
me, n_pes = team.my_pe(), team.n_pes()
N, B = 160, 32
height = max(h for h in range(1, math.isqrt(n_pes) + 1) if n_pes % h == 0)
mesh = height, n_pes // height

random = torch.randn(N, N, generator=torch.Generator().manual_seed(0))
whole = random @ random.T / N + torch.eye(N)  # symmetric, positive definite
a = shmem.partitioned((N, N), dtype=torch.float32, mesh=mesh, block=(B, B), team=team)
a.scatter(whole)
blocks = tuple(extent // B for extent in a.layout.shape_of(me))

for k in range(0, N, B):
    place = a.layout.owner(k, 0), a.layout.owner(k, 1)
    if a.layout.pe_at(place) == me:
        factor_diagonal[(1,)](a.partition, k, B)
    made()
    if a.layout.place_of(me)[1] == place[1] and blocks[0]:
        solve_below[(blocks[0],)](a.partition, k, B)
    made()
    if all(blocks):
        update[blocks](a.partition, k, B)
    made()

found = a.gather().cpu().tril().double()
exact = torch.linalg.cholesky(whole.double())
error = ((found - exact).abs().max() / exact.abs().max()).item()
assert error < 1e-5, f"PE {me}: relative error {error:.1e}"
if me == 0:
    cut = f"blocks of {B} on a {mesh[0]} x {mesh[1]} mesh"
    print(f"{n_pes} PEs: A = L @ L.T, {N} x {N} in float32, {cut}, relative error {error:.1e}")
shmem.finalize()
