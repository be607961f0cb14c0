"""Small programs of two PEs, each with one race or none: the rows of labelled.txt. One job runs all of them.

The division into conflicts, synchronization, atomics, non-blocking calls, kernels and others follows RMARaceBench (Schwitanski
et al., 2023); the programs are our own.
"""

import pathlib

import pyshmem as shmem  # before triton
import pyshmem.device as dev
import torch
import triton
import triton.language as tl

# Each kernel that belongs to one program has its name.


@triton.jit
def kernel_without_fence_kernel(ctx, x, own, f):
    dev.put(ctx, x, own, 8, 1)
    dev.put_signal(ctx, x + 8, own, 0, f, 1, dev.SIGNAL_SET, 1)


@triton.jit
def kernel_with_fence_kernel(ctx, x, own, f):
    dev.put(ctx, x, own, 8, 1)
    dev.fence(ctx)
    dev.put_signal(ctx, x + 8, own, 0, f, 1, dev.SIGNAL_SET, 1)


@triton.jit
def kernel_with_signal_set_kernel(ctx, x, own, f):
    dev.put(ctx, x, own, 8, 1)
    dev.signal_set(ctx, f, 1, 1)


@triton.jit
def wait_and_read(ctx, x, out, f):
    dev.signal_wait_until(ctx, f, dev.CMP_EQ, 1)
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, 8))))


@triton.jit
def programs_write_one_word_kernel(x):
    tl.store(x, 1)


@triton.jit
def programs_write_their_own_words_kernel(x):
    tl.store(x + tl.program_id(0), 1)


TABLE = pathlib.Path(__file__).with_name("labelled.txt")
PROGRAMS = {}  # by name: whether it is a race, its line of the table, what PE 0 and PE 1 do
for number, row in enumerate(TABLE.read_text().splitlines(), 1):
    if row and not row.startswith("#"):
        head, statements = row.split(": ", 1)
        label, name = head.split()
        both = statements.split(" | ")
        PROGRAMS[name] = label == "race", number, (both[0], both[-1])


def perform(name, line, statements):
    """A program, as a function of its name in its line of the table: findings name both."""
    (x, y), (f, back) = shmem.zeros(2, 8, dtype=torch.int64), shmem.zeros(2, dtype=torch.uint64)
    own, lock, me = torch.ones(8, dtype=torch.int64), shmem.zeros(1, dtype=torch.int64), shmem.my_pe()
    words = {each: getattr(shmem, each) for each in shmem.__all__} | globals() | locals()
    before = "\n" * (line - 2)
    exec(compile(f"{before}def {name}():\n    {statements}\n", TABLE, "exec"), words)
    words[name]()


if __name__ == "__main__":
    shmem.init()
    for name, (_, line, both) in PROGRAMS.items():
        perform(name, line, both[shmem.my_pe()])
        shmem.barrier_all()
