"""A mixture-of-experts layer whose experts are divided among the PEs: its output is that of one PE with all experts.

A router scores the experts for each token of this PE, which go to the best two. Their rows travel to the PEs that have these
experts, and come back as sums weighted by the scores. How many rows each expert gets is known when the kernels run.

Run: pyshmemrun -n 4 examples/expert_layer.py
Prints: 4 PEs: 8 experts, 96 tokens, 192 rows, 18 to 34 of an expert, relative error at most 3.0e-07"""

import pyshmem as shmem  # selects Triton's interpreter if there is no GPU
import torch
from pyshmem import ops

shmem.init()
team = shmem.TEAM_SHARED  # the PEs of this node, in whose memory kernels store
me, n_pes = team.my_pe(), team.n_pes()
ops.reserve(1 << 20)  # bytes for plans of teams, which may not include all PEs
device = shmem.zeros(1).device
EXPERTS, TOKENS, WIDTH, HIDDEN, TOP = 2 * n_pes, 24, 32, 64, 2

torch.manual_seed(0)  # the same weights and tokens on all PEs, of which each takes its part
router = torch.randn(WIDTH, EXPERTS)
up, down = torch.randn(EXPERTS, WIDTH, HIDDEN), torch.randn(EXPERTS, HIDDEN, WIDTH)
tokens = torch.randn(n_pes, TOKENS, WIDTH)


def expert(rows: torch.Tensor, j: int) -> torch.Tensor:
    return torch.relu(rows @ up[j].to(rows)) @ down[j].to(rows)


def route(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The scores of the best experts of each token, and their numbers."""
    return (x @ router.to(x)).softmax(1).topk(TOP)


x = tokens[me].to(device)
weights, chosen = route(x)
rows, counts, offsets, handle = ops.moe_dispatch(x, chosen, weights, EXPERTS, schedule="fused", team=team)
results = torch.zeros_like(rows)
local = EXPERTS // n_pes
ends = offsets.tolist()  # a grouped product would read them on the GPU instead
for i in range(local):
    results[ends[i] : ends[i + 1]] = expert(rows[ends[i] : ends[i + 1]], me * local + i)
output = ops.moe_combine(results, handle)

weights, chosen = weights.double().cpu(), chosen.cpu()  # the same experts, whatever rounding says of equal scores
every = torch.stack([expert(tokens[me].double(), j) for j in range(EXPERTS)])
dense = (every[chosen, torch.arange(TOKENS)[:, None]] * weights[:, :, None]).sum(1)
error = ((output.double().cpu() - dense).abs().max() / dense.abs().max()).item()

found = shmem.zeros(local, dtype=torch.int32)
found.copy_(counts)
errors, worst = shmem.full(1, error, dtype=torch.float64), shmem.zeros(1, dtype=torch.float64)
shmem.max_reduce(worst, errors, team=team)
all_counts = torch.zeros(EXPERTS, dtype=torch.int32, device=device)
shmem.fcollect(all_counts, found, team=team)
assert worst.item() < 1e-5, f"PE {me}: relative error {error:.1e}"
assert all_counts.sum() == n_pes * TOKENS * TOP, f"PE {me}: {all_counts.tolist()}"
if me == 0:
    print(
        f"{n_pes} PEs: {EXPERTS} experts, {n_pes * TOKENS} tokens, {all_counts.sum()} rows, {all_counts.min()} to "
        f"{all_counts.max()} of an expert, relative error at most {worst.item():.1e}"
    )
ops.clear()
shmem.finalize()
