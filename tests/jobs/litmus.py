"""Small one-sided programs, all their executions under OpenSHMEM's memory model, and the traces that the checker reads.

A program is a list of operations for each PE: (name, word, PE). Words "x" and "y" hold data, "f" and "g" are flags, which one
operation sets. In counted programs "f" is a counter, to which "add" and "putadd" (a put_signal) add 1, and the last of
("wait", "f", count) is the number that a wait wants. The reference executes a program in all orders that the model allows: an operation on a PE may take effect
at any time until quiet, in the order of fences; a PE's own stores reach its memory for others no later than at a fence. A
program has a race if two executions differ in what is read or in the order in which a word is written.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from pyshmem.check.analyse.analysis import Analysis

Op = tuple[str, str, int]
WORDS = {"x": 0, "y": 8, "f": 16, "g": 24}
_FLAG_OF = {"x": "f", "y": "g"}  # of put_signal


class State:
    """Memory, what is under way, and what each PE has done and read."""

    def __init__(self, n_pes: int) -> None:
        self.at = [0] * n_pes
        self.epoch = [0] * n_pes
        self.memory: dict[tuple[int, str], tuple[int, ...]] = {}  # all values of each word, in their order
        self.pending: list[tuple[int, str, int, str, int, int]] = []  # (from, kind, to, word, value, epoch)
        self.read: tuple[Any, ...] = ()

    def copy(self) -> State:
        new = State(0)
        new.at, new.epoch = list(self.at), list(self.epoch)
        new.memory, new.pending, new.read = dict(self.memory), list(self.pending), self.read
        return new

    def key(self) -> Any:
        return tuple(self.at), tuple(self.epoch), tuple(sorted(self.memory.items())), tuple(self.pending), self.read


def results(program: list[list[Op]], most: float = math.inf) -> set[Any] | None:
    """All results of a program, or the first ``most``; None if executions never end: then none does, as flags stay set."""
    found: set[Any] = set()
    seen, todo = set(), [State(len(program))]
    while todo:
        state = todo.pop()
        key = state.key()
        if key in seen:
            continue
        seen.add(key)
        following = [*_deliveries(state), *_steps(state, program)]
        if not following:
            if any(at < len(ops) for at, ops in zip(state.at, program, strict=True)):
                return None
            found.add((tuple(sorted(state.read)), tuple(sorted(state.memory.items()))))
            if len(found) >= most:
                break
        todo += following
    return found


def _deliveries(state: State) -> Iterator[State]:
    for index, (pe, kind, to, word, value, epoch) in enumerate(state.pending):
        held = False
        for earlier, (other, kind_of, target, its_word, _, when) in enumerate(state.pending):
            if other != pe or earlier == index:
                continue
            before = when < epoch and (target == to or kind_of == "store")
            chained = earlier < index and kind_of == "store" and (target, its_word) == (to, word)
            own = kind == "tail" and earlier == index - 1  # the data of its put_signal
            if before or chained or own:
                held = True
        if not held:
            new = state.copy()
            del new.pending[index]
            new.memory[to, word] = (*new.memory.get((to, word), ()), value)
            following = index < len(new.pending) and new.pending[index][1] == "tail"
            if following:  # its data has arrived: an ordinary signal now
                new.pending[index] = (*new.pending[index][:1], "signal", *new.pending[index][2:])
            yield new


def _steps(state: State, program: list[list[Op]]) -> Iterator[State]:
    meeting = [at < len(ops) and ops[at][0] in ("barrier", "sync") and ops[at][0]
               for at, ops in zip(state.at, program, strict=True)]  # fmt: skip
    if all(meeting):
        waits = [each for each in state.pending if each[1] == "store" or "barrier" in meeting]
        if not waits:
            new = state.copy()
            new.at = [at + 1 for at in new.at]
            yield new
    for pe, ops in enumerate(program):
        if state.at[pe] < len(ops) and not meeting[pe]:
            new = state.copy()
            if _step(new, pe, ops[state.at[pe]], 100 * pe + state.at[pe] + 1):
                new.at[pe] += 1
                yield new


def _step(state: State, pe: int, op: Op, value: int) -> bool:
    """Perform an operation. Return False if it must wait."""
    name, word, to = op
    mine = [each for each in state.pending if each[0] == pe]
    epoch = state.epoch[pe]
    if name == "fence":
        state.epoch[pe] += 1
    elif name == "quiet":
        return not mine
    elif name == "wait":
        return len(state.memory.get((pe, word), ())) >= max(to, 1)
    elif name == "store":
        state.pending.append((pe, "store", pe, word, value, epoch))
    elif name in ("read", "get"):
        place = pe if name == "read" else to
        own = [each for each in mine if each[1] == "store" and each[2:4] == (place, word)]
        seen = own[-1][4] if own else state.memory.get((place, word), (0,))[-1]
        state.read += ((pe, state.at[pe], seen),)
    elif name == "putsig":
        state.pending.append((pe, "put", to, word, value, epoch))
        state.pending.append((pe, "tail", to, _FLAG_OF[word], 1, epoch))
    elif name == "putadd":
        state.pending.append((pe, "put", to, word, value, epoch))
        state.pending.append((pe, "tail", to, "f", 1, epoch))
    else:
        state.pending.append((pe, name, to, word, 1 if name in ("signal", "add") else value, epoch))
    return True


# ---- what the checker sees of one execution, in which all takes effect at once ----


def trace(program: list[list[Op]], chance: random.Random) -> list[list[Any]] | None:
    """The records of each PE in one order of their operations; None if it never ends."""
    records: list[list[Any]] = [[(0, "init", 0, pe, len(program))] for pe in range(len(program))]
    for pe, each in enumerate(records):
        each += [(0, "site", number, "litmus", 100 * pe + number, "") for number in range(1, 9)]
        each.append((0, "alloc", 0, 0, 64, 0, "zeros"))
    at, time = [0] * len(program), 1
    set_flags: Counter[tuple[int, str]] = Counter()
    while True:
        live = [pe for pe, ops in enumerate(program) if at[pe] < len(ops)]
        meeting = [pe for pe in live if program[pe][at[pe]][0] in ("barrier", "sync")]
        if not live:
            return records
        if len(meeting) == len(program):
            for pe in meeting:
                name, end = program[pe][at[pe]][0], time + len(program)
                way = name, (), name, -1, []
                records[pe].append((time, "met", at[pe] + 1, (0, 1, len(program)), *way, end, []))
                time += 1
            time += len(program)
            at = [each + 1 for each in at]
            continue
        able = []
        for pe in live:
            name, word, least = program[pe][at[pe]]
            if pe not in meeting and (name != "wait" or set_flags[pe, word] >= max(least, 1)):
                able.append(pe)
        if not able:
            return None
        pe = chance.choice(able)
        name, word, to = op = program[pe][at[pe]]
        if name in ("signal", "add"):
            set_flags[to, word] += 1
        if name in ("putsig", "putadd"):
            set_flags[to, _FLAG_OF[word] if name == "putsig" else "f"] += 1
        records[pe].append((time, *_record(pe, op, at[pe] + 1)))
        at[pe] += 1
        time += 1


def _record(pe: int, op: Op, site: int) -> tuple[Any, ...]:
    name, word, to = op
    start = WORDS.get(word, 0)
    here = (pe, start, start + 8)
    rows: dict[str, tuple[Any, ...]] = {
        "fence": ("fence", site, 0),
        "quiet": ("quiet", site, 0, None),
        "wait": ("wait", site, [(start, 8, False, 3, max(to, 1))], "wait"),
        "store": ("acc", site, "store", "w", [here], None),
        "read": ("acc", site, "load", "r", [here], None),
        "get": ("get", site, "get", 0, to, [here[1:]], [], False),
        "put": ("put", site, "put", 0, to, [here[1:]], [], False, None),
        "signal": ("amo", site, "signal_set", 0, to, start, 8, "set", 1, None, 8),
        "add": ("amo", site, "signal_add", 0, to, start, 8, "add", 1, None, 8),
        "putadd": ("putsig", site, "put_signal", 0, to, [here[1:]], [], False, WORDS["f"], 8, "add", 1),
        "putsig": ("putsig", site, "put_signal", 0, to, [here[1:]], [], False, start + 16, 8, "set", 1),
    }
    return rows[name]


def finds(program: list[list[Op]], chance: random.Random) -> bool | None:
    """Whether the checker reports a race."""
    records = trace(program, chance)
    return None if records is None else any(found.kind == "race" for found in Analysis(records).run())


def programs(count: int, seed: int, n_pes: int = 2, most: int = 6) -> Iterator[list[list[Op]]]:
    """Programs of up to ``most`` operations in which something is shared."""
    chance = random.Random(seed)
    while count:
        program: list[list[Op]] = [[] for _ in range(n_pes)]
        flags = {"f", "g"}
        for _ in range(chance.randint(2, most)):
            pe = chance.randrange(n_pes)
            name = chance.choice(
                ["put", "put", "signal", "putsig", "fence", "quiet", "wait", "store", "read", "read", "get"]
            )
            to = chance.choice([*(other for other in range(n_pes) if other != pe), *range(n_pes)])
            word = chance.choice("xy")
            if name in ("signal", "putsig"):
                flag = chance.choice("fg") if name == "signal" else _FLAG_OF[word]
                if flag not in flags:
                    continue
                flags.discard(flag)
                word = flag if name == "signal" else word
            if name == "wait":
                word = chance.choice("fg")
            program[pe].append((name, word, to))
        if chance.random() < 0.4:
            name = chance.choice(["barrier", "sync"])
            for ops in program:
                ops.insert(chance.randint(0, len(ops)), (name, "", 0))
        count -= 1
        yield program


def counted(count: int, seed: int, n_pes: int = 2, most: int = 6) -> Iterator[list[list[Op]]]:
    """Programs of up to ``most`` operations in which PEs count signals."""
    chance = random.Random(seed)
    while count:
        program: list[list[Op]] = [[] for _ in range(n_pes)]
        for _ in range(chance.randint(3, most)):
            pe = chance.randrange(n_pes)
            name = chance.choice(
                ["putadd", "putadd", "putadd", "add", "put", "fence", "wait", "wait", "store", "read", "read"]
            )
            to = chance.choice([other for other in range(n_pes) if other != pe])
            if name == "wait":
                program[pe].append((name, "f", chance.randint(1, 2)))
            else:
                program[pe].append((name, "f" if name == "add" else chance.choice("xy"), to))
        if all(chance.random() < 0.2 or any(name == "wait" for name, _, _ in ops) for ops in program[1:]):
            count -= 1
            yield program


CALLS = [
    *((name, word, to) for name in ("put", "get", "putsig") for word in "xy" for to in (0, 1)),
    *(("signal", flag, to) for flag in "fg" for to in (0, 1)),
    *((name, word, 0) for name in ("store", "read") for word in "xy"),
    *(("wait", flag, 0) for flag in "fg"),
    ("fence", "", 0),
    ("quiet", "", 0),
]
_OTHER = {"x": "y", "y": "x", "f": "g", "g": "f", "": ""}


def every(count: int) -> Iterator[list[list[Op]]]:
    """All programs of ``count`` operations of 2 PEs: one of those that differ in the names of words or PEs."""
    for calls in itertools.product(CALLS, repeat=count):
        set_flags = [
            word if name == "signal" else _FLAG_OF[word] for name, word, _ in calls if name in ("signal", "putsig")
        ]
        if len(set_flags) > len(set(set_flags)):
            continue
        for first in range(count + 1):
            program = calls[:first], calls[first:]
            renamed = tuple(tuple((name, _OTHER[word], to) for name, word, to in ops) for ops in program)
            if program <= renamed and all(program <= _exchanged(each) for each in (program, renamed)):
                yield [list(ops) for ops in program]


def _exchanged(program: tuple[tuple[Op, ...], ...]) -> tuple[tuple[Op, ...], ...]:
    """The program with the PEs in each other's place."""
    away = ("put", "get", "putsig", "signal")
    return tuple(tuple((name, word, 1 - to if name in away else to) for name, word, to in ops) for ops in program[::-1])


def disagreements(all_programs: Iterable[list[list[Op]]]) -> tuple[dict[bool, int], list[list[list[Op]]]]:
    """How many programs the two opinions agree about, by whether there is a race, and those about which they do not."""
    agreed, wrong = {True: 0, False: 0}, []
    for program in all_programs:
        reached = results(program, 2)
        found = finds(program, random.Random(0)) if reached else None
        if reached and found is not None:
            if found == (len(reached) > 1):
                agreed[found] += 1
            else:
                wrong.append(program)
    return agreed, wrong
