"""Compares the two opinions of litmus.py on many programs of 2 PEs in which every operation may matter.

Run: .venv/bin/python tests/jobs/litmus_all.py 5                          all programs of 5 operations
     .venv/bin/python tests/jobs/litmus_all.py 5 --part 2/4               one of four parts of them
     .venv/bin/python tests/jobs/litmus_all.py 7 --sample 2000 --seed 1   that many, drawn
Prints how many programs with and without a race the opinions agree about, and those about which they do not; fails if there are
any. Programs that differ in the names of words or PEs count once. Left out are operations that change nothing, as programs of
fewer operations tell of the others: those on words that no other one accesses, or that all only read; signals for which nobody
waits; waits for what nobody signals; waits, fences and quiets at an end of a PE's operations; one fence or quiet after another.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from itertools import islice

from litmus import _FLAG_OF, _OTHER, CALLS, Op, _exchanged, disagreements

_ORDERS, _ON_WORDS, _READS = ("fence", "quiet"), ("put", "get", "putsig", "store", "read"), ("get", "read")
_FEW = 3  # operations by which programs are divided into parts
_AWAY = ("put", "get", "putsig", "signal")
Program = tuple[tuple[Op, ...], ...]


def essential(count: int, part: int = 1, parts: int = 1) -> Iterator[list[list[Op]]]:
    """All programs of ``count`` operations in which every one may matter: PE 0 has at most as many as PE 1.

    part: of ``parts``, those whose first operations are its own.
    """
    begins = ((ops, first) for first in range(count // 2 + 1) for ops in _extended((), min(_FEW, count), count, first))
    for begin, first in islice(begins, part - 1, None, parts):
        for ops in _extended(begin, count, count, first):
            program = ops[:first], ops[first:]
            if every_matters(program) and (2 * first < count or program <= _named(_exchanged(program))):
                yield [list(each) for each in program]


def _extended(ops: tuple[Op, ...], upto: int, count: int, first: int) -> Iterator[tuple[Op, ...]]:
    """These operations and further ones, ``upto`` of ``count``; of PE 0 come ``first``, then those of PE 1."""
    at = len(ops)
    if at == upto:
        yield ops
        return
    begins, ends = at in (0, first), at + 1 in (first, count)
    named = any(word for _, word, _ in ops)
    left = count - at - 1
    for call in CALLS:
        name, word, _ = call
        if name in _ORDERS and (begins or ends or ops[-1][0] in _ORDERS):
            continue
        if (name == "wait" and ends) or (not named and word in ("y", "g")):
            continue
        if name in ("signal", "putsig") and _flag(call) in map(_flag, ops):
            continue
        more = (*ops, call)
        if left <= 1 and len(_unmatched((more[:first], more[first:]))) > 2 * left:
            continue  # an operation is the counterpart of a word and a flag at most
        yield from _extended(more, upto, count, first)


def _flag(op: Op) -> str:
    """The flag that an operation sets. One sets it."""
    return op[1] if op[0] == "signal" else _FLAG_OF[op[1]] if op[0] == "putsig" else ""


def _named(program: Program) -> Program:
    """The same program, in which the first word is x or f."""
    if next((word for ops in program for _, word, _ in ops if word), "x") in "xf":
        return program
    return tuple(tuple((name, _OTHER[word], to) for name, word, to in ops) for ops in program)


def every_matters(program: Program) -> bool:
    """Whether no operation can be left out because of the words that it names."""
    return not _unmatched(program)


def _unmatched(program: Program) -> set[tuple[int, str]]:
    """Words that one operation alone accesses or none changes, and flags that are only set or only waited for."""
    accessed, twice, changed = set(), set(), set()
    told, awaited = set(), set()
    for pe, row in enumerate(program):
        for name, word, to in row:
            if name == "wait":
                awaited.add((pe, word))
                continue
            where = to if name in _AWAY else pe
            if name in _ON_WORDS:
                key = where, word
                (twice if key in accessed else accessed).add(key)
                if name not in _READS:
                    changed.add(key)
            if name in ("signal", "putsig"):
                told.add((where, word if name == "signal" else _FLAG_OF[word]))
    return (accessed - (twice & changed)) | (told ^ awaited)


def drawn(count: int, number: int, seed: int) -> Iterator[list[list[Op]]]:
    """Programs of ``count`` operations in which every one may matter, each as probable as any other."""
    chance = random.Random(seed)
    while number:
        first = chance.randint(0, count // 2)
        ops = tuple(chance.choices(CALLS, k=count))
        program = ops[:first], ops[first:]
        flags = [flag for flag in map(_flag, ops) if flag]
        if len(flags) == len(set(flags)) and every_matters(program) and all(map(_well_ordered, program)):
            number -= 1
            yield [list(each) for each in program]


def _well_ordered(ops: tuple[Op, ...]) -> bool:
    names = ["fence", *(name for name, _, _ in ops), "fence"]
    pairs = zip(names, names[1:], strict=False)
    return not ops or (names[-2] != "wait" and not any(a in _ORDERS and b in _ORDERS for a, b in pairs))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    part, parts = map(int, given.part.split("/"))
    if given.sample:
        programs = islice(drawn(given.count, given.sample, given.seed), part - 1, None, parts)
    else:
        programs = essential(given.count, part, parts)
    agreed, wrong = disagreements(programs)
    print(f"{sum(agreed.values())} programs: {agreed[True]} have a race, {agreed[False]} have none; {len(wrong)} wrong")
    for program in wrong:
        print(program)
    return bool(wrong) or not sum(agreed.values())


if __name__ == "__main__":
    sys.exit(main())
