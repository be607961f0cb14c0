"""Collectives on tiles by teams of 5, 6 and 7 PEs, one after the other. Prints what each PE found wrong.

Every PE of the job makes the teams; those that are not members wait for the others."""

import numpy as np
import pyshmem as shmem  # before triton
import pyshmem.device as dev
import torch
import triton
import triton.language as tl

SIDE, SIZE = 16, 256


@triton.jit
def every_collective(ctx, x, y, right, left, SIDE: tl.constexpr, AXIS: tl.constexpr):
    """Store each result behind the one before it."""
    at = tl.arange(0, SIDE)[:, None] * SIDE + tl.arange(0, SIDE)[None, :]
    tile = tl.load(x + at)
    size: tl.constexpr = SIDE * SIDE
    tl.store(y + at, dev.all_reduce(ctx, tile, "sum"))
    tl.store(y + size + at, dev.scan(ctx, tile, "max"))
    tl.store(y + 2 * size + at, dev.scan(ctx, tile, "sum", exclusive=True))
    tl.store(y + 3 * size + at, dev.broadcast(ctx, tile, dev.n_pes(ctx) - 1))
    tl.store(y + 4 * size + at, dev.sendrecv(ctx, tile, right, left))
    tl.store(y + 5 * size + at, dev.all_to_all(ctx, tile, axis=AXIS))
    lane = tl.arange(0, size // ctx.members)
    tl.store(y + 6 * size + lane, tl.ravel(dev.reduce_scatter(ctx, tile, "sum", axis=AXIS)))
    lane = tl.arange(0, size * ctx.members)
    tl.store(y + 7 * size + lane, tl.ravel(dev.all_gather(ctx, tile, axis=AXIS)))


def wanted(tiles, me, axis):
    """What the kernel stores on PE ``me`` of as many as there are tiles, by the rule: eight pieces, of nobody from n on."""
    n, nobodys = len(tiles), [np.zeros((SIDE, SIDE), np.int32)] * (8 - len(tiles))
    pieces = [np.split(tile, 8, axis)[me] for tile in [*tiles, *nobodys]]
    return [
        tiles.sum(0), tiles[: me + 1].max(0), tiles[:me].sum(0), tiles[n - 1], tiles[me - 1], np.concatenate(pieces, axis),
        np.split(tiles.sum(0), 8, axis)[me], np.concatenate([*tiles, *nobodys], axis),
    ]  # fmt: skip


def check(team, axis):
    n, me = team.n_pes(), team.my_pe()
    tiles = np.stack([np.random.default_rng([n, pe, axis]).integers(0, 100, (SIDE, SIDE)) for pe in range(n)]).astype(
        "int32"
    )
    x, y = torch.from_numpy(tiles[me].copy()), torch.full((15 * SIZE,), -1, dtype=torch.int32)
    every_collective[(1,)](shmem.device_context(team), x, y, (me + 1) % n, (me - 1) % n, SIDE, axis)
    start = 0
    for place, each in enumerate(wanted(tiles, me, axis)):
        found = y[start : start + each.size].numpy()
        if not np.array_equal(found, each.ravel()):
            print(f"PE {me} of {n}: axis {axis}: result {place} is {found.tolist()}", flush=True)
        start = start + SIZE if place < 7 else start


shmem.init()
for n in (5, 6, 7):
    team = shmem.TEAM_WORLD.split_strided(0, 1, n)
    if shmem.my_pe() < n:
        for axis in (0, 1):
            check(team, axis)
    shmem.barrier_all()
if shmem.my_pe() == 0:
    print("5, 6 and 7 PEs are done")
shmem.finalize()
