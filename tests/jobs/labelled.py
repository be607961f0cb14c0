"""Small programs, each with one race or none: the rows of two tables. One job runs all of two PEs, another one all of three.

The division into conflicts, synchronization, atomics, non-blocking calls, kernels and others follows RMARaceBench (Schwitanski
et al., 2023); the programs are our own.
"""

import pathlib
import time
from threading import Thread  # noqa: F401, for a row
from typing import NamedTuple

import pyshmem as shmem  # before triton
import pyshmem.device as dev
import pyshmem.ops as ops  # noqa: F401, for a row
import pyshmem.shmem as c_names
import held_out_kernels
import numpy  # noqa: F401, for rows
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


@triton.jit
def stores_a_word(x):
    tl.store(x, 1)


@triton.jit
def signals(ctx, f):
    dev.signal_set(ctx, f, 1, 1)


@triton.jit
def fences_and_signals(ctx, f):
    dev.fence(ctx)
    dev.signal_set(ctx, f, 1, 1)


@triton.jit
def stores_fence_and_the_signal_of_another_program_kernel(ctx, x, count, f):
    dev.store(ctx, x + 4 * tl.program_id(0) + tl.arange(0, 4), 1, 1)
    dev.fence(ctx)
    if dev.atomic_fetch_add(ctx, count, 1, 0) == 1:
        dev.signal_set(ctx, f, 1, 1)


@triton.jit
def stores_without_fence_and_the_signal_of_another_program_kernel(ctx, x, count, f):
    dev.store(ctx, x + 4 * tl.program_id(0) + tl.arange(0, 4), 1, 1)
    if dev.atomic_fetch_add(ctx, count, 1, 0) == 1:
        dev.signal_set(ctx, f, 1, 1)


@triton.jit
def stores_of_two_kernels_with_a_fence_kernel(ctx, x):
    dev.store(ctx, x + tl.arange(0, 4), 1, 1)
    dev.fence(ctx)


@triton.jit
def stores_on_another_pe_and_fences(ctx, x, pe):
    dev.store(ctx, x + tl.arange(0, 8), 1, pe)
    dev.fence(ctx)


@triton.jit
def stores_of_two_kernels_without_a_fence_kernel(ctx, x):
    dev.store(ctx, x + tl.arange(0, 4), 1, 1)


@triton.jit
def loads_one_element_of_each_kernel(ctx, x, z):
    pes = tl.arange(0, 4)
    tl.store(z, tl.sum(dev.load(ctx, x + 1, pes, pes < dev.n_pes(ctx), 0)))


@triton.jit
def swaps_a_block_kernel(ctx, x):
    dev.atomic_compare_swap(ctx, x + tl.arange(0, 8), 0, 5, 0)


@triton.jit
def relay_kernel(ctx, x, f, back):
    dev.signal_wait_until(ctx, f, dev.CMP_EQ, 1)
    dev.put_signal(ctx, x, x, 8, back, 1, dev.SIGNAL_SET, 0)


@triton.jit
def kernel_puts_what_the_host_reads_kernel(ctx, x, own):
    dev.put(ctx, x, own, 8, 1)
    dev.quiet(ctx)


@triton.jit
def kernel_put_without_quiet_kernel(ctx, x, own):
    dev.put(ctx, x, own, 8, 1)
    dev.fence(ctx)


@triton.jit
def kernel_puts_kernel(ctx, x, own):
    dev.put(ctx, x, own, 8, 1)


@triton.jit
def kernel_puts_and_quiets_kernel(ctx, x, own):
    dev.put(ctx, x, own, 8, 1)
    dev.quiet(ctx)


@triton.jit
def sends_without_waiting(ctx, x, source, f):
    dev.put_signal_nbi(ctx, x, source, 8, f, 1, dev.SIGNAL_SET, 1)


@triton.jit
def kernel_changes_a_source_after_an_answer_kernel(ctx, x, source, f, back):
    dev.put_signal_nbi(ctx, x, source, 8, f, 1, dev.SIGNAL_SET, 1)
    dev.signal_wait_until(ctx, back, dev.CMP_EQ, 1)
    tl.store(source, 2)


@triton.jit
def kernel_changes_a_source_after_an_early_answer_kernel(ctx, x, source, f, back):
    dev.put_signal_nbi(ctx, x, source, 8, f, 1, dev.SIGNAL_SET, 1)
    dev.signal_wait_until(ctx, back, dev.CMP_EQ, 1)
    tl.store(source, 2)


@triton.jit
def kernel_get_nbi_and_load_kernel(ctx, x, y, z):
    dev.get_nbi(ctx, y, x, 8, 1)
    tl.store(z, tl.sum(tl.load(y + tl.arange(0, 8))))


@triton.jit
def kernel_get_nbi_quiet_and_load_kernel(ctx, x, y, z):
    dev.get_nbi(ctx, y, x, 8, 1)
    dev.quiet(ctx)
    tl.store(z, tl.sum(tl.load(y + tl.arange(0, 8))))


@triton.jit
def program_gets_what_another_stores_kernel(ctx, x, y):
    if tl.program_id(0) == 0:
        dev.get(ctx, y, x, 8, 0)
    else:
        tl.store(x + 3, 1)


@triton.jit
def program_reads_before_another_has_waited_kernel(ctx, x, y, f):
    if tl.program_id(0) == 0:
        dev.signal_wait_until(ctx, f, dev.CMP_EQ, 1)
    tl.store(y + tl.program_id(0), tl.sum(tl.load(x + tl.arange(0, 8))))


@triton.jit
def programs_wait_each_kernel(ctx, x, y, f):
    dev.signal_wait_until(ctx, f, dev.CMP_EQ, 1)
    tl.store(y + tl.program_id(0), tl.sum(tl.load(x + tl.arange(0, 8))))


@triton.jit
def programs_add_atomically_kernel(x):
    tl.atomic_add(x + tl.arange(0, 8), tl.full([8], 1, tl.int64))


@triton.jit
def programs_add_and_load_kernel(x, y):
    tl.atomic_add(x, 1)
    tl.store(y + tl.program_id(0), tl.load(x))


@triton.jit
def programs_count_and_the_last_reads_kernel(ctx, x, y, f):
    tl.store(x + tl.program_id(0), 1)
    dev.fence(ctx)
    if tl.atomic_add(f, 1, sem="acq_rel") == 3:
        tl.store(y, tl.sum(tl.load(x + tl.arange(0, 4))))


@triton.jit
def programs_count_without_fence_and_the_last_reads_kernel(x, y, f):
    tl.store(x + tl.program_id(0), 1)
    if tl.atomic_add(f, 1, sem="acq_rel") == 3:
        tl.store(y, tl.sum(tl.load(x + tl.arange(0, 4))))


@triton.jit
def programs_count_relaxed_and_the_last_reads_kernel(ctx, x, y, f):
    tl.store(x + tl.program_id(0), 1)
    dev.fence(ctx)
    if tl.atomic_add(f, 1, sem="relaxed") == 3:
        tl.store(y, tl.sum(tl.load(x + tl.arange(0, 4))))


@triton.jit
def masked_load_kernel(x, y, n):
    places = tl.arange(0, 8)
    tl.store(y, tl.sum(tl.load(x + places, mask=places < n, other=0)))


@triton.jit
def unmasked_lanes_meet_kernel(x, y, n):
    places = tl.arange(0, 8)
    tl.store(y, tl.sum(tl.load(x + places, mask=places < n, other=0)))


class Program(NamedTuple):
    race: bool
    table: pathlib.Path
    line: int
    parts: tuple[str, ...]  # what PE 0 does, PE 1, and, in programs of three, PE 2


HERE = pathlib.Path(__file__).parent
PROGRAMS = {}
for table in (HERE / "labelled.txt", HERE / "labelled_held_out.txt"):
    for number, row in enumerate(table.read_text().splitlines(), 1):
        if row and not row.startswith("#"):
            head, statements = row.split(": ", 1)
            label, name = head.split()
            parts = statements.split(" | ")
            assert name not in PROGRAMS, f"two programs are called {name}"
            PROGRAMS[name] = Program(label == "race", table, number, tuple(parts if len(parts) > 1 else parts * 2))


def found(findings):
    """The programs that findings, of a JSON file, are about: by the lines of the table or by their kernels."""
    by_line = {(str(program.table), program.line): name for name, program in PROGRAMS.items()}
    sites = [site for finding in findings for site in finding["sites"]]
    return {by_line.get((site["file"], site["line"]), site["function"].removesuffix("_kernel")) for site in sites}


def deep(depth, call):
    """Call a function from within calls."""
    return call() if depth == 0 else deep(depth - 1, call)


def until(holds):
    while not holds():
        time.sleep(1e-4)  # for others the core


def split_ends():
    """The teams of PEs 0 and 1, and of PEs 1 and 2."""
    return shmem.TEAM_WORLD.split_strided(0, 1, 2), shmem.TEAM_WORLD.split_strided(1, 1, 2)


def perform(name, program):
    """A program, in its line of the table, which findings name."""
    x, y, z = shmem.zeros(3, 8, dtype=torch.int64)
    f, back = shmem.zeros(2, dtype=torch.uint64)
    own, more, lock = (
        torch.ones(8, dtype=torch.int64),
        torch.ones(8, dtype=torch.int64),
        shmem.zeros(1, dtype=torch.int64),
    )
    me = shmem.my_pe()
    words = (
        {each: getattr(shmem, each) for each in shmem.__all__}
        | {"c_names": c_names}
        | vars(held_out_kernels)
        | globals()
        | locals()
    )
    before = "\n" * (program.line - 2)
    exec(compile(f"{before}def {name}():\n    {program.parts[me]}\n", program.table, "exec"), words)
    words[name]()


if __name__ == "__main__":
    shmem.init()
    for name, program in PROGRAMS.items():
        if len(program.parts) == shmem.n_pes():
            perform(name, program)
            shmem.barrier_all()
