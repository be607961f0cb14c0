"""What `pyshmem doctor` examines with calls of the API, between each pair of PEs: each function returns what is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
import triton

import pyshmem as shmem
import pyshmem.device as dev
from pyshmem.base import interpreter
from pyshmem.kernels.clock import compared
from pyshmem.memory.gpu.heap import gpu

ops: Any = import_module("pyshmem.ops")
N = 1000  # the elements of a message
_CLOCK_SECONDS, _CLOCK_ERROR = 0.1, 0.05  # of the clock: how long it is watched, and by which part it may differ


@triton.jit
def exchange(ctx, inbox, n):  # type: ignore[no-untyped-def]
    me = dev.my_pe(ctx)
    for pe in range(n):
        dev.p(ctx, inbox + me, 100 * me + pe + 1, pe)
    for pe in range(n):
        dev.wait_until(ctx, inbox + pe, dev.CMP_EQ, 100 * pe + me + 1)


@triton.jit
def await_host(ctx, word):  # type: ignore[no-untyped-def]
    dev.wait_until(ctx, word, dev.CMP_EQ, 1)


def put() -> list[str]:
    inbox = shmem.zeros((shmem.n_pes(), N), dtype=torch.int64)
    for pe in range(shmem.n_pes()):
        shmem.put(inbox[shmem.my_pe()], _message(shmem.my_pe(), pe, inbox), pe)
    shmem.barrier_all()
    return [_wrong(f"from PE {pe}", inbox[pe], _message(pe, shmem.my_pe(), inbox)) for pe in range(shmem.n_pes())]


def get() -> list[str]:
    outbox = shmem.zeros(N, dtype=torch.int64)
    outbox.copy_(_message(shmem.my_pe(), 0, outbox))
    shmem.barrier_all()
    faults = []
    for pe in range(shmem.n_pes()):
        here = torch.zeros_like(outbox)
        shmem.get(here, outbox, pe)
        faults.append(_wrong(f"from PE {pe}", here, _message(pe, 0, outbox)))
    shmem.barrier_all()
    return faults


def signal() -> list[str]:
    inbox = shmem.zeros((shmem.n_pes(), N), dtype=torch.int64)
    signals = shmem.zeros(shmem.n_pes(), dtype=torch.uint64)
    me = shmem.my_pe()
    for pe in range(shmem.n_pes()):
        shmem.put_signal(inbox[me], _message(me, pe, inbox), pe, signals[me : me + 1], 7, shmem.SIGNAL.SET)
    faults = []
    for pe in range(shmem.n_pes()):
        shmem.signal_wait_until(signals[pe : pe + 1], "==", 7)
        faults.append(_wrong(f"from PE {pe}", inbox[pe], _message(pe, me, inbox)))
    return faults


def atomic() -> list[str]:
    words = shmem.zeros(2, dtype=torch.int64)
    found = [shmem.atomic_fetch_add(words[:1], 1, pe) for pe in range(shmem.n_pes())]
    for pe in range(shmem.n_pes()):
        shmem.atomic_add(words[1:], 1 << 8 * shmem.my_pe() % 56, pe)
    shmem.barrier_all()
    wanted = sum(1 << 8 * pe % 56 for pe in range(shmem.n_pes()))
    sums = words.tolist()
    faults = (
        [f"{sums} after additions of all PEs; expected {[shmem.n_pes(), wanted]}"]
        if sums != [shmem.n_pes(), wanted]
        else []
    )
    return faults + [f"PE {pe} had {old} before" for pe, old in enumerate(found) if not 0 <= old < shmem.n_pes()]


def kernel() -> list[str]:
    n, me = shmem.n_pes(), shmem.my_pe()
    inbox = shmem.zeros(n, dtype=torch.int64)
    exchange[(1,)](shmem.device_context(), inbox, n)
    shmem.barrier_all()
    return [_wrong("from all PEs", inbox, torch.arange(n, device=inbox.device) * 100 + me + 1)]


def queues() -> list[str]:
    """Whether the host can look at memory while a kernel on another stream waits for the host."""
    words = shmem.zeros(2, dtype=torch.int64)
    word, other = words[:1], words[1:]
    beside: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(beside):
        await_host[(1,)](shmem.device_context(), word)
    seen = int(shmem.g(other, shmem.my_pe())), shmem.test(other, "==", 0)
    shmem.p(word, 1, shmem.my_pe())
    beside.synchronize()
    return [] if seen == (0, True) else [f"a look found {seen}; expected (0, True)"]


def all_reduce() -> list[str]:
    target, source = shmem.zeros(N), shmem.zeros(N)
    source.copy_(torch.arange(N) * (1 + shmem.my_pe()))
    shmem.reduce(target, source, "sum")
    return [_wrong("the sum", target, torch.arange(N, device=target.device) * sum(range(1, shmem.n_pes() + 1)))]


def product(schedule: str) -> list[str]:
    rows, inner = (16, 32) if interpreter.active() else (256, 512)
    a = torch.full((rows, inner), 1.0 + shmem.my_pe(), dtype=torch.bfloat16, device=shmem.zeros(1).device)
    found = ops.gemm_all_gather(a, torch.ones((inner, rows), dtype=a.dtype, device=a.device), schedule=schedule)
    wanted = torch.arange(1, shmem.n_pes() + 1, device=a.device).repeat_interleave(rows) * inner
    return [_wrong("the rows of all PEs", found.float(), wanted[:, None].expand(-1, rows).float())]


def clock() -> list[str]:
    """Whether kernels count the seconds of their time-outs as the host does."""
    (there, away, error), begun = compared(gpu.arch), time.monotonic()
    while time.monotonic() < begun + _CLOCK_SECONDS:
        pass
    later, other, _ = compared(gpu.arch)
    passed = later - there, later + other - there - away
    if error is None or abs(passed[0] - passed[1]) <= passed[1] * _CLOCK_ERROR:
        return []
    return [f"{passed[0] / 1e6:.1f} ms have passed in kernels and {passed[1] / 1e6:.1f} ms on the host"]


def last_error() -> list[str]:
    code = gpu.driver.kept_error()
    return [f"error {code} is kept, which torch reports after its next launch"] if code else []


_COHERENT = "PYSHMEM_HIP_MEMORY=uncached, or PYSHMEM_PEER_MAP=ipc"
CHECKS: dict[str, tuple[Callable[[], list[str]], str]] = {  # with the setting to try
    "put": (put, "PYSHMEM_PEER_MAP=ipc, or HSA_ENABLE_SDMA=0 on AMD GPUs"),
    "get": (get, "PYSHMEM_PEER_MAP=ipc, or HSA_ENABLE_SDMA=0 on AMD GPUs"),
    "signal": (signal, _COHERENT),
    "atomic": (atomic, _COHERENT),
    "kernel": (kernel, _COHERENT),
    "all-reduce": (all_reduce, _COHERENT),
    "GEMM": (lambda: product("auto"), 'schedule="bulk_synchronous" in calls of pyshmem.ops'),
    "fused GEMM": (lambda: product("fused"), 'schedule="bulk_synchronous" in calls of pyshmem.ops'),
}
ON_GPUS: dict[str, tuple[Callable[[], list[str]], str]] = {
    "queues": (queues, "GPU_MAX_HW_QUEUES=8, and import pyshmem before the first use of torch.cuda"),
    "clock": (clock, "report this with the GPU's name: PYSHMEM_WAIT_TIMEOUT counts other seconds in kernels"),
    "last error": (last_error, "report this; until then call torch.cuda.synchronize() after shmem.init()"),
}


def _message(source: int, target: int, like: torch.Tensor) -> torch.Tensor:
    return torch.arange(N, device=like.device) + 1000 * (1000 * source + target)


def _wrong(what: str, got: torch.Tensor, wanted: torch.Tensor) -> str:
    """Describe the first element that differs, or return ""."""
    places = (got != wanted).nonzero()
    if not len(places):
        return ""
    at = tuple(places[0].tolist())
    return (
        f"{what}: {len(places)} of {got.numel()} elements differ; {at}: got {got[at].item()}, not {wanted[at].item()}"
    )
