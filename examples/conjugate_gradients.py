"""Poisson's equation on a square, solved by conjugate gradients: rows of the sparse matrix are divided over the PEs.

The plan finds out once which elements of the vector this PE needs from others; each product gets them one-sidedly.

Run: pyshmemrun -n 4 examples/conjugate_gradients.py
Prints: 4 PEs: 256 unknowns, 16 elements from others for each product, 50 iterations, relative residual 4.7e-11"""

import pyshmem as shmem
from pyshmem import irregular
import torch

SIDE = 16  # points along a side; beyond them the solution is 0


def poisson(side):
    """The five-point Laplacian as a torch sparse tensor: 4 on the diagonal, -1 for each neighbour in the square."""
    points = torch.arange(side * side).view(side, side)
    right = torch.stack([points[:, :-1].flatten(), points[:, 1:].flatten()])
    below = torch.stack([points[:-1].flatten(), points[1:].flatten()])
    diagonal = points.flatten().expand(2, -1)
    places = torch.cat([diagonal, right, right.flip(0), below, below.flip(0)], dim=1)
    values = torch.full((places.shape[1],), -1.0, dtype=torch.float64)
    values[: side * side] = 4
    return torch.sparse_coo_tensor(places, values, check_invariants=True)


def dot(a, b):
    """The scalar product of two vectors that are divided over the PEs."""
    product = (a @ b).reshape(1)
    shmem.sum_reduce(product, product.clone())
    return product


shmem.init()
me, n_pes = shmem.my_pe(), shmem.n_pes()
matrix = poisson(SIDE)
device = shmem.zeros(1).device  # that of the symmetric heap
A = irregular.plan(matrix.to(device), cut="nonzeros")

b = torch.linspace(1, 2, SIDE * SIDE, dtype=torch.float64)
r = b[A.starts[me] : A.starts[me + 1]].to(device, copy=True)  # this PE's share
x, p = torch.zeros_like(r), r.clone()
first = now = dot(r, r)
iterations = 0
while now > 1e-20 * first:
    Ap = A(p)
    step = now / dot(p, Ap)
    x += step * p
    r -= step * Ap
    before, now = now, dot(r, r)
    p = r + now / before * p
    iterations += 1

solution = torch.empty(SIDE * SIDE, dtype=torch.float64, device=x.device)
shmem.collect(solution, x)
residual = torch.linalg.norm(b - matrix @ solution.cpu()) / torch.linalg.norm(b)  # by torch's own product
assert residual < 1e-9, f"PE {me}: the residual is {residual:.1e} after {iterations} iterations"
if me == 0:
    fetched = f"{A.fetched} elements from others for each product"
    print(f"{n_pes} PEs: {SIDE * SIDE} unknowns, {fetched}, {iterations} iterations, relative residual {residual:.1e}")
shmem.finalize()
