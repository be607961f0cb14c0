"""What `pyshmem doctor` examines with large messages: kernels of all PEs write to all PEs at once.

Another library's kernels ended there with a write to a read-only page, on 8 MI300X with ROCm 7.2 and messages of 768 MiB and
more (iris#532); why is not known. A job of its own, as such a fault ends it.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

import pyshmem as shmem
import pyshmem.device as dev

BYTES = 768 << 20  # of a message
_PROGRAMS = 64


@triton.jit
def write_all(ctx, inbox, message, n, each):  # type: ignore[no-untyped-def]
    first = tl.program_id(0) * each
    count = min(each, n - first)
    for pe in range(dev.n_pes(ctx)):
        if count > 0:
            dev.put(ctx, inbox + dev.my_pe(ctx) * n + first, message + first, count, pe)


def heap_bytes(n_pes: int) -> int:
    """Return the size of a heap that holds a message of each PE and one to send."""
    return (n_pes + 1) * BYTES + (64 << 20)


def room(device: int, n_pes: int) -> bool:
    """Return whether a GPU has the memory for the heaps of all PEs that use it."""
    users = -(-n_pes // torch.cuda.device_count())
    return bool(torch.cuda.mem_get_info(device)[0] > users * heap_bytes(n_pes) * 5 // 4)


def large(nbytes: int = BYTES) -> list[str]:
    """Write a message of each PE to all PEs, and return what is wrong with those that came here."""
    n_pes, me, n = shmem.n_pes(), shmem.my_pe(), nbytes // 8
    inbox, message = shmem.zeros((n_pes, n), dtype=torch.int64), shmem.zeros(n, dtype=torch.int64)
    torch.arange(me * n, (me + 1) * n, out=message)
    shmem.barrier_all()
    write_all[(_PROGRAMS,)](shmem.device_context(), inbox, message, n, triton.cdiv(n, _PROGRAMS))
    shmem.barrier_all()
    return [_differs(pe, inbox[pe], pe * n) for pe in range(n_pes)]


def _differs(pe: int, got: Any, first: int) -> str:
    """Describe the first element that is not ``first`` more than its index, or return ""."""
    for chunk in range(0, len(got), 1 << 24):  # so that what compares takes little memory
        part = got[chunk : chunk + (1 << 24)]
        wrong = (part != torch.arange(first + chunk, first + chunk + len(part), device=got.device)).nonzero()
        if len(wrong):
            at = int(wrong[0])
            return f"from PE {pe}: element {chunk + at} is {int(part[at])}; expected {first + chunk + at}"
    return ""
