"""Pass PE 0's data once around the ring with put_signal: wait for the signal, then forward data and signal in one call.

The ring runs twice, with the same calls: on the host, and in a Triton kernel.

Run: pyshmemrun -n 4 examples/ring_broadcast.py
Prints: 4 PEs: 1000 elements came round, by host calls and by a kernel
After: the example of SHMEM_PUT_SIGNAL in OpenSHMEM 1.6."""

import pyshmem as shmem  # selects Triton's interpreter if there is no GPU
import pyshmem.device as dev
import torch
import triton


@triton.jit
def pass_on(ctx, data, signal, n):
    if dev.my_pe(ctx) > 0:
        dev.signal_wait_until(ctx, signal, dev.CMP_EQ, 1)
    right = (dev.my_pe(ctx) + 1) % dev.n_pes(ctx)
    dev.put_signal(ctx, data, data, n, signal, 1, dev.SIGNAL_SET, right)


shmem.init()
me, n_pes = shmem.my_pe(), shmem.n_pes()
by_host, by_kernel = shmem.full((2, 1000), me, dtype=torch.int32)
host_signal, kernel_signal = shmem.zeros(2, dtype=torch.uint64)

if me > 0:
    shmem.signal_wait_until(host_signal, "==", 1)
shmem.put_signal(by_host, by_host, (me + 1) % n_pes, host_signal, 1, shmem.SIGNAL.SET)

pass_on[(1,)](shmem.device_context(), by_kernel, kernel_signal, by_kernel.numel())

shmem.barrier_all()  # completes the last hop, back to PE 0
for data in by_host, by_kernel:
    assert (data == 0).all(), f"PE {me}: wanted PE 0's zeros, got {data.unique().tolist()}"
if me == 0:
    print(f"{n_pes} PEs: {by_host.numel()} elements came round, by host calls and by a kernel")
shmem.finalize()
