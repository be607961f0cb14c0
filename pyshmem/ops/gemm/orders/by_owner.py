"""The order of tiles that belong to all PEs by their rows: those of peers ahead of this PE's own, in step with each other.

A part for a peer should be on its way while this PE computes, and an own tile needs the parts of all peers. So the tiles of
each owner are numbered alike, and cut into chunks: F(u) are the tiles of chunk u for the peers, O(u) the own ones. The
order is F(0), F(1), O(0), F(2), O(1), ..., O(last): communication goes on from the first tile to the last, and what an own
tile waits for was sent a whole chunk before.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def distance_and_number(index, each, n_pes, programs):
    """Return (distance, number) of the tile ``index``: the PE me + distance owns it, distance 0 is this PE.

    each: the tiles of an owner.  programs: the number running at once; F of a chunk has about as many tiles.
    """
    chunk = tl.cdiv(programs, tl.maximum(n_pes - 1, 1))
    chunks = tl.cdiv(each, chunk)
    first = tl.minimum(chunk, each) * (n_pes - 1)  # the tiles of F(0)
    later = index - first
    pair = tl.maximum(tl.minimum(later // (n_pes * chunk), chunks - 2), 0)  # F(pair + 1) and O(pair)
    within = later - pair * n_pes * chunk
    ahead = tl.maximum(tl.minimum(chunk, each - (pair + 1) * chunk), 0) * (n_pes - 1)  # the tiles of F(pair + 1)
    peers = tl.maximum(n_pes - 1, 1)
    start = (later < 0) | (within < ahead)  # the tile is a peer's
    place = tl.where(later < 0, index, within)
    base = tl.where(later < 0, 0, (pair + 1) * chunk)
    number = tl.where(start, base + place // peers, pair * chunk + within - ahead)
    return tl.where(start, 1 + place % peers, 0), number
