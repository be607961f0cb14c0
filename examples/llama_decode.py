"""Steps of decoding with a small model like Llama, divided over the PEs: logits and tokens are those of one PE.

Each PE has columns of the weights that follow a norm, rows of those that precede one, and a part of the tokens of the
cache. Products that all PEs need whole are gathered; sums over PEs, residual and RMSNorm are one kernel; attention
combines what each PE finds in its tokens. The weights are made up.

Run: pyshmemrun -n 4 examples/llama_decode.py
Prints: 1 step is done
4 PEs: 2 steps of 2 sequences through 2 layers, the tokens of one PE, logits with a relative error of 6.2e-07"""

import pyshmem as shmem
import torch
from pyshmem import ops

shmem.init()
team = shmem.TEAM_SHARED  # the PEs of this node, in whose memory kernels store
me, n_pes = team.my_pe(), team.n_pes()
ops.reserve(1 << 20)  # bytes for plans of teams, which may not include all PEs
device = shmem.zeros(1).device  # that of the symmetric heap
LAYERS, BATCH, STEPS, EPS, BASE = 2, 2, 2, 1e-6, 10000.0
HEADS, KV_HEADS, DIM, FEED, WORDS = 12, 3, 8, 96, 120  # n_pes divides HEADS * DIM, FEED and WORDS
HIDDEN, KV, PAST = HEADS * DIM, KV_HEADS * DIM, 21  # PAST: tokens in the cache, of each sequence

torch.manual_seed(0)  # the same numbers on all PEs


def made(rows, columns):
    return torch.randn(rows, columns, device=device) / rows**0.5


layers = [
    {
        "qkv": made(HIDDEN, HIDDEN + 2 * KV), "o": made(HIDDEN, HIDDEN), "gate": made(HIDDEN, FEED),
        "up": made(HIDDEN, FEED), "down": made(FEED, HIDDEN), "norms": 1 + 0.1 * torch.randn(2, HIDDEN, device=device),
        "cache": torch.randn(2, BATCH, PAST, KV_HEADS, DIM, device=device),
    }
    for _ in range(LAYERS)
]  # fmt: skip
embedding, last_norm, head = made(WORDS, HIDDEN) * 10, torch.ones(HIDDEN, device=device), made(HIDDEN, WORDS)


def norm(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight


def heads_of(qkv, position):
    """Queries, keys and values of each sequence, (batch, heads, DIM), the first two with rotary positions."""
    parts = [each.view(BATCH, -1, DIM) for each in qkv.split([HIDDEN, KV, KV], 1)]
    angles = position * BASE ** (-torch.arange(0, DIM, 2, device=device, dtype=qkv.dtype) / DIM)
    for i in (0, 1):
        one, two = parts[i].chunk(2, -1)
        parts[i] = torch.cat([one * angles.cos() - two * angles.sin(), one * angles.sin() + two * angles.cos()], -1)
    return parts


def step_alone(tokens, turn, layers):
    """The logits by one PE, in float64. layers: with whole caches, to which it adds the tokens'."""
    h = embedding[tokens].double()
    for layer in layers:
        w = {name: each.double() for name, each in layer.items()}
        q, k, v = heads_of(norm(h, w["norms"][0]) @ w["qkv"], PAST + turn)
        layer["cache"] = torch.cat([w["cache"], torch.stack([k, v])[:, :, None]], 2)
        keys, values = layer["cache"].repeat_interleave(HEADS // KV_HEADS, 3)
        found = torch.einsum("bhd,bthd->bht", q, keys) / DIM**0.5
        h = h + torch.einsum("bht,bthd->bhd", found.softmax(-1), values).flatten(1) @ w["o"]
        x = norm(h, w["norms"][1])
        h = h + (torch.nn.functional.silu(x @ w["gate"]) * (x @ w["up"])) @ w["down"]
    return norm(h, last_norm.double()) @ head.double()


def columns(weight):
    return weight.tensor_split(n_pes, 1)[me].contiguous()


def rows(weight):
    return weight.tensor_split(n_pes, 0)[me].contiguous()


def mine(layer):
    """What this PE has of a layer: parts of the weights, and its tokens of the cache, with room for those to come."""
    part = {name: columns(layer[name]) for name in ("qkv", "gate", "up")} | {
        name: rows(layer[name]) for name in ("o", "down")
    }
    part["k"], part["v"] = torch.zeros(2, BATCH, PAST // n_pes + 1 + STEPS, KV_HEADS, DIM, device=device)
    held = layer["cache"].tensor_split(n_pes, 2)[me]
    part["k"][:, : held.shape[2]], part["v"][:, : held.shape[2]] = held
    return part | {
        "norms": layer["norms"],
        "lengths": torch.full((BATCH,), held.shape[2], dtype=torch.int32, device=device),
    }


def step(tokens, turn, parts):
    """The logits by all PEs. The new keys and values go to the PEs in turn."""
    h = embedding[tokens]
    x = norm(h, parts[0]["norms"][0])
    for i, part in enumerate(parts):
        q, k, v = heads_of(ops.gemm_all_gather(x, part["qkv"], split="columns", team=team), PAST + turn)
        if turn % n_pes == me:
            place = part["lengths"][0].item()
            part["k"][:, place], part["v"][:, place] = k, v
            part["lengths"] += 1
        found = ops.flash_decode(q.contiguous(), part["k"], part["v"], part["lengths"], team=team).flatten(1)
        x, h = ops.all_reduce_rms_norm(columns(found) @ part["o"], h, part["norms"][1], EPS, team=team)
        inner = torch.nn.functional.silu(x @ part["gate"]) * (x @ part["up"])
        following = parts[i + 1]["norms"][0] if i + 1 < LAYERS else last_norm
        x, h = ops.all_reduce_rms_norm(inner @ part["down"], h, following, EPS, team=team)
    return ops.gemm_all_gather(x, columns(head), split="columns", team=team)


parts = [mine(layer) for layer in layers]
tokens, error = torch.arange(BATCH, device=device), 0.0
for turn in range(STEPS):
    logits, wanted = step(tokens, turn, parts), step_alone(tokens, turn, layers)
    error = max(error, ((logits - wanted).abs().max() / wanted.abs().max()).item())
    tokens = wanted.argmax(1)
    assert torch.equal(logits.argmax(1), tokens) and error < 1e-4, f"PE {me}: step {turn}: relative error {error:.1e}"
    if me == 0 and turn == 0:
        print("1 step is done")
if me == 0:
    done = f"{STEPS} steps of {BATCH} sequences through {LAYERS} layers"
    print(f"{n_pes} PEs: {done}, the tokens of one PE, logits with a relative error of {error:.1e}")
ops.clear()
shmem.finalize()
