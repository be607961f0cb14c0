"""Small programs by two programs of a kernel, many times, and how many results exist and how many came up.

Run on one PE under pyshmemrun --check=schedules. The memory of each "PE" of a litmus program is a row here. A result that no
execution of the memory model has is an error, and so is a second result where the checker of traces finds no race.
"""

import random
import sys
from pathlib import Path

import litmus
import pyshmem as shmem
import pyshmem.device as dev
import torch
import triton
import triton.language as tl

sys.path.append(str(Path(__file__).parents[1] / "pes"))
import quick_interpreter

TIMES, CODES = 16, ("put", "signal", "putsig", "fence", "quiet", "wait", "store", "read", "get")
WORDS = {"x": 0, "y": 1, "f": 0, "g": 1}

# for every one of their results to come up: messages with and without what orders them, and reads while something arrives
MESSAGES = [
    [[("put", "x", 1), ("fence", "", 0), ("signal", "f", 1)], [("wait", "f", 1), ("read", "x", 1)]],
    [[("put", "x", 1), ("signal", "f", 1)], [("wait", "f", 1), ("read", "x", 1)]],
    [[("put", "x", 1), ("quiet", "", 0), ("signal", "f", 1)], [("wait", "f", 1), ("read", "x", 1)]],
    [[("putsig", "x", 1)], [("wait", "f", 1), ("read", "x", 1)]],
    [[("put", "y", 1), ("putsig", "x", 1)], [("wait", "f", 1), ("read", "y", 1)]],
    [[("store", "x", 0), ("fence", "", 0), ("signal", "f", 1)], [("wait", "f", 1), ("get", "x", 0)]],
    [[("store", "x", 0), ("signal", "f", 1)], [("wait", "f", 1), ("get", "x", 0)]],
    [[("put", "x", 1)], [("read", "x", 1), ("read", "x", 1)]],
    [[("put", "x", 0), ("read", "x", 0), ("quiet", "", 0), ("read", "x", 0)], []],
]


@triton.jit
def perform(ctx, ops, counts, data, flags, values, seen, most):
    """Programs 2i and 2i + 1 perform a program once, in rows 2i and 2i + 1."""
    i = tl.program_id(0)
    agent = i % 2
    for at in range(tl.load(counts + agent)):
        op = ops + 3 * (agent * most + at)
        code, word, to = tl.load(op), tl.load(op + 1), i - agent + tl.load(op + 2)
        mine, there, flag = data + 2 * i + word, data + 2 * to + word, flags + 2 * to + word
        value = 100 * agent + at + 1
        if code == 0:
            dev.p(ctx, there, value, 0)
        elif code == 1:
            dev.p(ctx, flag, 1, 0)
        elif code == 2:
            dev.put_signal(ctx, there, values + value, 1, flag, 1, dev.SIGNAL_SET, 0)
        elif code == 3:
            dev.fence(ctx)
        elif code == 4:
            dev.quiet(ctx)
        elif code == 5:
            dev.signal_wait_until(ctx, flags + 2 * i + word, dev.CMP_EQ, 1)
        elif code == 6:
            tl.store(mine, value)
        elif code == 7:
            tl.store(seen + i * most + at, tl.load(mine))
        else:
            tl.store(seen + i * most + at, dev.g(ctx, there, 0))


def found(program, most=8):
    """The results of a program: what it reads, and what is left."""
    data.zero_()
    flags.zero_()
    ops, seen = torch.zeros(2, most, 3, dtype=torch.int64), torch.zeros(2 * TIMES, most, dtype=torch.int64)
    for agent, row in enumerate(program):
        for at, (name, word, to) in enumerate(row):
            ops[agent, at] = torch.tensor([CODES.index(name), WORDS.get(word, 0), to])
    counts = torch.tensor([len(row) for row in program])
    perform[(2 * TIMES,)](shmem.device_context(), ops, counts, data, flags, values, seen, most)
    shmem.quiet()
    reads = [(pe, at) for pe, row in enumerate(program) for at, op in enumerate(row) if op[0] in ("read", "get")]
    return {
        (
            tuple((pe, at, seen[2 * i + pe, at].item()) for pe, at in reads),
            tuple(data[2 * i : 2 * i + 2].flatten().tolist()),
        )
        for i in range(TIMES)
    }


def expected(program):
    """The results of all executions; None if one does not end."""
    results = litmus.results(program)
    if results is None:
        return None
    left = [(reads, dict(memory)) for reads, memory in results]
    return {(reads, tuple(last.get((pe, word), (0,))[-1] for pe in range(2) for word in "xy")) for reads, last in left}


quick_interpreter.install()
shmem.init()
data = shmem.zeros(2 * TIMES, 2, dtype=torch.int64)
flags = shmem.zeros(2 * TIMES, 2, dtype=torch.uint64)
values = torch.arange(200)
for program in MESSAGES:
    results, turns = found(program), 0
    while results < expected(program) and turns < 40:
        results, turns = results | found(program), turns + 1
    results |= found(program)
    assert results == expected(program), f"{program}: got {results}; expected {expected(program)}"
exist = came = races = differ = 0
for program in litmus.programs(200, seed=5):
    if any(name in ("barrier", "sync") for row in program for name, _, _ in row) or not (wanted := expected(program)):
        continue
    results, race = found(program), litmus.finds(program, random.Random(0))
    assert results <= wanted, f"{program}: got {results - wanted}; expected one of {wanted}"
    assert race or len(results) == 1, f"{program}: no race is found, and there are {results}"
    exist, came = exist + len(wanted), came + len(results)
    races, differ = races + (len(wanted) > 1), differ + (len(results) > 1)
print(exist, came, races, differ)
