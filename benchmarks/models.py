"""Operators of models by every schedule, beside NCCL, torch's symmetric memory and torch's own kernels, in one job.

Run, from a checkout with pyshmem built in it: pyshmemrun -n 2 -m benchmarks.models [--only TEXT ...] [--json FILE]
Operators are timed in CUDA graphs of sixteen calls. Of gradients the time is what a step takes more than without
communication; "torch alone" is the step without it, and NCCL is DistributedDataParallel. Results are compared before, those
of operators with float64, on arrays that held NaN.
"""

from __future__ import annotations

import sys

from benchmarks.command import Suite
from benchmarks.in_job import main
from benchmarks.rows import KIB, MIB, Row, once
from benchmarks.runner import Effort

HIDDEN = 8192
NORM = (1, 8, 64, 512, 4096)  # tokens
HEADS, KV_HEADS, WIDTH = 32, 8, 128
EXPERTS = (128, 2048, 8192)  # tokens of a PE
LAYER = (7168, 64, 8)  # hidden, experts, and those of a token
BLOCKS = 56  # scales of a token of 8 bits, one for each 128 elements
DECODE = ((1, 128), (8, 32), (8, 128), (32, 8))  # sequences, and their thousands of 1024 tokens over all PEs
PAGED, PAGE = DECODE[1], 64  # the one that is measured with pages, too, and their tokens
# thousands of 1024 tokens on all PEs
ATTENTION = ((8, "zigzag", True), (32, "zigzag", True), (16, "contiguous", False))
BOUNDED = 512  # tokens, from which bytes and not latency bound an operator
LAYERS, MODEL_WIDTH, TOKENS = 39, 2048, 4096  # 1.3 billion parameters

ROWS = (
    *(
        Row("all_reduce_rms_norm", f"all-reduce, {tokens} tokens of {HIDDEN}", "rms_norm",
            parameters=(tokens, HIDDEN, tokens >= BOUNDED),
            ceiling="bytes alone" if tokens >= BOUNDED else "")
        for tokens in NORM
    ),
    *(
        Row(f"reduce_scatter_rms_norm{'_all_gather' * gathers}",
            f"reduce-scatter{', all-gather' * gathers}, {tokens} tokens of {HIDDEN}{', 8 bits' * scaled}",
            "shared_norm", parameters=(tokens, HIDDEN, gathers, scaled))
        for gathers in (False, True) for scaled in (False, True) for tokens in (64, 512, 4096)
    ),
    *(
        Row("flash_decode", f"{batch} sequences of {thousands}k tokens", "decode",
            parameters=(batch, thousands * 1024, HEADS, KV_HEADS, WIDTH))
        for batch, thousands in DECODE
    ),
    Row("flash_decode", f"{PAGED[0]} sequences of {PAGED[1]}k tokens in pages of {PAGE}", "decode",
        parameters=(PAGED[0], PAGED[1] * 1024, HEADS, KV_HEADS, WIDTH, PAGE)),
    *(
        Row("attention", f"{thousands}k tokens, {order}{', causal' if causal else ''}", "attention",
            parameters=(thousands * 1024, order, causal, HEADS, KV_HEADS, WIDTH),
            bound=("torch alone", "copy engine"))
        for thousands, order, causal in ATTENTION
    ),
    *(
        Row("moe_dispatch", f"dispatch, {tokens} tokens{' of 8 bits' * bool(scales)}", "dispatch",
            parameters=(tokens, *LAYER, *scales))
        for scales in ((), (BLOCKS,)) for tokens in EXPERTS
    ),
    *(Row("moe_combine", f"combine, {tokens} tokens", "combine", parameters=(tokens, *LAYER)) for tokens in EXPERTS),
    Row("GradientReducer", f"{LAYERS} layers of {MODEL_WIDTH}, {TOKENS} tokens", "gradients",
        parameters=(LAYERS, MODEL_WIDTH, TOKENS)),
    *(
        Row("send_activations", "there and back", "activations", nbytes, bus=once, least_pes=2)
        for nbytes in (16, 64 * KIB, MIB, 16 * MIB, 128 * MIB)
    ),
)  # fmt: skip
SUITE = Suite("models", ROWS, full=Effort(0.0, 7, 11), quick=Effort(0.0, 2, 2))

if __name__ == "__main__":
    sys.exit(main(SUITE, __doc__))
