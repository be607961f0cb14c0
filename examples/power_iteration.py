"""The largest eigenvalue of a graph's Laplacian by power iteration: rows of the matrix are divided over the PEs.

Each step multiplies by a plan, which gets the elements of other PEs that its rows need. The graph grows by preferential
attachment, so a few vertices have many edges and most have few.

Run: pyshmemrun -n 4 examples/power_iteration.py
Prints: 4 PEs: 100 vertices, 482 elements, eigenvalue 33.10796 after 22 steps, residual 6.3e-07, drawn in power_iteration.png
Needs matplotlib for the picture: pip install matplotlib"""

import sys

import pyshmem as shmem
from pyshmem import irregular
import torch

VERTICES, LINKS = 100, 2  # each new vertex is linked to as many


def laplacian():
    """Degrees on the diagonal and -1 for each edge. New vertices are linked to ends of the edges that are there."""
    draw = torch.Generator().manual_seed(30)
    ends = [0, 1]
    for vertex in range(2, VERTICES):
        for old in {ends[int(torch.randint(len(ends), (), generator=draw))] for _ in range(LINKS)}:
            ends += [vertex, old]
    one, other = torch.tensor(ends).view(-1, 2).T
    places = torch.stack([torch.cat([one, other, one, other]), torch.cat([other, one, one, other])])
    values = torch.ones(places.shape[1], dtype=torch.float64)
    values[: 2 * len(one)] = -1
    return torch.sparse_coo_tensor(places, values, (VERTICES, VERTICES), check_invariants=True).coalesce()


def total(value):
    """The sum over the PEs."""
    found = value.reshape(1)
    shmem.sum_reduce(found, found.clone())
    return float(found)


shmem.init()
me, n_pes = shmem.my_pe(), shmem.n_pes()
matrix = laplacian()
device = shmem.zeros(1).device  # that of the symmetric heap
A = irregular.plan(matrix.to(device), cut="nonzeros", schedule="program_mapped", size=256)

x = torch.cos(torch.arange(A.starts[me], A.starts[me + 1], dtype=torch.float64)).to(device)  # this PE's share
x /= total(x.square().sum()) ** 0.5
residuals = [1.0]
while residuals[-1] > 1e-6:
    Ax = A(x)
    eigenvalue = total(x @ Ax)  # Rayleigh's quotient
    residuals.append(total((Ax - eigenvalue * x).square().sum()) ** 0.5 / eigenvalue)
    x = Ax / total(Ax.square().sum()) ** 0.5

largest = float(torch.linalg.eigvalsh(matrix.to_dense())[-1])
assert abs(eigenvalue - largest) < 1e-9 * largest, f"PE {me}: {eigenvalue}, and {largest} by torch"
if me == 0:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        sys.exit("The eigenvalue is right, but matplotlib is missing, to draw it: pip install matplotlib")
    figure = Figure(layout="constrained", figsize=(9, 4))
    spy, curve = figure.subplots(1, 2)
    spy.spy(matrix.to_dense(), markersize=1.5)
    for start in A.starts[1:-1]:
        spy.axhline(start - 0.5, color="tab:orange", linewidth=1)
    spy.set_title(f"the rows of {n_pes} PEs")
    curve.semilogy(range(1, len(residuals)), residuals[1:], marker=".")
    curve.set(title="|A x - λ x| / λ", xlabel="step")
    figure.savefig("power_iteration.png", dpi=150)
    found = f"eigenvalue {eigenvalue:.5f} after {len(residuals) - 1} steps, residual {residuals[-1]:.1e}"
    print(f"{n_pes} PEs: {VERTICES} vertices, {matrix._nnz()} elements, {found}, drawn in power_iteration.png")
shmem.finalize()
