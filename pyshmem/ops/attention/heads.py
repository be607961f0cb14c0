"""Order of attention's tiles: all tiles of a head in succession, so that programs that run together read the same keys.

With the numbers of ops/chiplets.py the programs of a chiplet have whole heads, and share their keys in its L2: Swizzled
Head-first Mapping (Choudhary et al., arXiv 2511.02132).
"""

from __future__ import annotations

import triton
import triton.language as tl  # noqa: F401  the interpreter wants it here


@triton.jit
def head_and_tile(number, tiles):
    """Return the head, over all sequences, and the tile of ``number``. A head's last tiles, with most work, are first."""
    return number // tiles, tiles - 1 - number % tiles
