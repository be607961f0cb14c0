"""The heat equation on a plate of one tile per PE: before each step, neighbours put their edges into each other's halos.

Opposite borders of the plate are joined, so every PE has four neighbours; with few PEs it is its own neighbour.

Run: pyshmemrun -n 4 examples/heat.py
Prints: 4 PEs: 600 steps on 240 x 240 points, equal to the serial solution in every bit, drawn in heat.png"""

import math
import sys

import pyshmem as shmem
import torch


def diffuse(u):
    """The inner points one time step later; 0.24 is diffusivity * time step / spacing^2, stable below 1/4."""
    around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    return u[1:-1, 1:-1] + 0.24 * (around - 4 * u[1:-1, 1:-1])


shmem.init()
me, n_pes = shmem.my_pe(), shmem.n_pes()
py = max(d for d in range(1, math.isqrt(n_pes) + 1) if n_pes % d == 0)  # py x px PEs, as square as can be
px = n_pes // py
y, x = divmod(me, px)
north, south = (y - 1) % py * px + x, (y + 1) % py * px + x
west, east = y * px + (x - 1) % px, y * px + (x + 1) % px
height, width = 240 // py, 240 // px  # of a tile

plate = torch.zeros(py * height, px * width)
radius = torch.linspace(-0.8, 1.2, px * width).hypot(torch.linspace(-1.3, 0.7, py * height)[:, None])
plate[(radius < 0.2) | (abs(radius - 0.7) < 0.1) | (radius > 1.4)] = 100

tiles = shmem.zeros(2, height + 2, width + 2)  # old and new: a neighbour one step ahead writes into new
tiles[0, 1:-1, 1:-1] = plate.view(py, height, px, width)[y, :, x]
arrived = shmem.zeros(4, dtype=torch.uint64)  # per side: the last step for which the halo has arrived
from_north, from_south, from_west, from_east = arrived

steps, stride = 600, width + 2
for step in range(1, steps + 1):
    old, new = tiles[(step - 1) % 2], tiles[step % 2]
    shmem.put_signal(old[-1, 1:-1], old[1, 1:-1], north, from_south, step, shmem.SIGNAL.SET)
    shmem.put_signal(old[0, 1:-1], old[-2, 1:-1], south, from_north, step, shmem.SIGNAL.SET)
    points = old.view(-1)[stride:]  # from the first inner row on; a column is every stride-th point
    shmem.iput(points[width + 1 :], points[1:], west, stride, stride, height)
    shmem.iput(points, points[width:], east, stride, stride, height)
    shmem.fence()  # orders the signal after its column
    shmem.signal_set(from_east, step, west)
    shmem.signal_set(from_west, step, east)
    shmem.wait_until_all(arrived, ">=", step)
    new[1:-1, 1:-1] = diffuse(old)
shmem.barrier_all()

if me == 0:
    solution, tile = torch.empty_like(plate), torch.empty(height + 2, width + 2)
    for pe in range(n_pes):
        shmem.get(tile, tiles[steps % 2], pe)
        solution.view(py, height, px, width)[pe // px, :, pe % px] = tile[1:-1, 1:-1]
    for _ in range(steps):
        plate = diffuse(torch.nn.functional.pad(plate[None], (1, 1, 1, 1), mode="circular")[0])
    assert torch.equal(solution, plate), f"the serial solution differs by up to {(solution - plate).abs().max()}"
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        sys.exit("The solution is right, but matplotlib is missing, to draw it: pip install matplotlib")
    figure = Figure(layout="constrained")
    axes = figure.subplots()
    figure.colorbar(axes.imshow(solution, cmap="inferno"), label="temperature")
    axes.set(xticks=range(0, px * width, width), yticks=range(0, py * height, height))
    axes.grid(color="white", linestyle="dotted")  # the tiles
    axes.set_title(f"Heat equation on {py} x {px} PEs, {steps} steps")
    figure.savefig("heat.png", dpi=150)
    size = f"{py * height} x {px * width} points"
    print(f"{n_pes} PEs: {steps} steps on {size}, equal to the serial solution in every bit, drawn in heat.png")
shmem.finalize()
