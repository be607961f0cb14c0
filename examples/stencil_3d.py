"""A stencil on a mesh of PEs in three dimensions: each PE makes the tiles that it owns, and loads their neighbours' points.

Run: pyshmemrun -n 4 examples/stencil_3d.py
Prints: 4 PEs, a mesh of 2 x 2 x 1: 3 steps on 8 x 8 x 8 points, error 1.2e-07"""

import math

import pyshmem as shmem  # selects Triton's interpreter if there is no GPU
import pyshmem.device as dev
import torch
import triton.language as tl


@shmem.jit
def step(new, old, N: tl.constexpr, B: tl.constexpr):
    """One tile of a step of heat flow; opposite faces of the cube are joined."""
    x, y, z = dev.my_tile(new, (B, B, B))
    i, j, k = x + tl.arange(0, B)[:, None, None], y + tl.arange(0, B)[None, :, None], z + tl.arange(0, B)[None, None, :]
    around = dev.load_at(old, ((i + N - 1) % N, j, k)) + dev.load_at(old, ((i + 1) % N, j, k))
    around += dev.load_at(old, (i, (j + N - 1) % N, k)) + dev.load_at(old, (i, (j + 1) % N, k))
    around += dev.load_at(old, (i, j, (k + N - 1) % N)) + dev.load_at(old, (i, j, (k + 1) % N))
    own = dev.load_tile(old, (x, y, z), (B, B, B))
    dev.store_tile(new, (x, y, z), own + 0.1 * (around - 6 * own))


shmem.init()
N, B, STEPS = 8, 4, 3  # points, those of a tile, in each dimension
n_pes, mesh = shmem.n_pes(), []
for axis in range(3):  # as near to a cube as the number of PEs allows
    rest = n_pes // math.prod(mesh)
    mesh.append(min(each for each in range(1, rest + 1) if rest % each == 0 and each ** (3 - axis) >= rest))

cubes = [shmem.partitioned((N, N, N), mesh=tuple(mesh), block=B) for _ in range(2)]
torch.manual_seed(0)
whole = torch.randn(N, N, N)
cubes[0].scatter(whole)
for turn in range(STEPS):
    old, new = cubes[turn % 2], cubes[1 - turn % 2]
    step[shmem.grid((N // B, N // B, N // B), partition=new)](new, old, N, B)
    shmem.barrier_all()  # all PEs have read old and made new
found = cubes[STEPS % 2].gather().cpu()

exact = whole.double()
for _ in range(STEPS):
    around = sum(exact.roll(shift, dim) for shift in (-1, 1) for dim in range(3))
    exact = exact + 0.1 * (around - 6 * exact)
error = (found - exact).abs().max().item()
assert error < 1e-5, f"error {error:.1e}"
if shmem.my_pe() == 0:
    size, axes = " x ".join([str(N)] * 3), " x ".join(map(str, mesh))
    print(f"{n_pes} PEs, a mesh of {axes}: {STEPS} steps on {size} points, error {error:.1e}")
shmem.finalize()
