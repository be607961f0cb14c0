"""The order of a job's events: follows what each agent knows of the others, and finds accesses that nothing orders."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from pyshmem.check.analyse.agents import STORES, TOGETHER, Agent, Stream, Streams
from pyshmem.check.analyse.clocks import Knowledge, Meeting, Message
from pyshmem.check.analyse.doubts import Doubt, Doubts
from pyshmem.check.analyse.events import events, in_order
from pyshmem.check.analyse.findings import Findings, Place
from pyshmem.check.analyse.forgetting import forget
from pyshmem.check.analyse.handovers import Handovers
from pyshmem.check.analyse.memory import ATOMIC, FETCH, READ, WRITE, Memory
from pyshmem.check.analyse.places import Block, Blocks
from pyshmem.check.analyse.shadow import Op
from pyshmem.check.analyse.words import COMPARE, Word, Words, signed
from pyshmem.check.spans import Span, bounds, overlap
from pyshmem.check.trace import FENCE, IN_KERNEL, QUIET, Reading, Record

Ranges = list[tuple[int, int, int]]  # (space, start, end)
_READINGS = 4  # of the records, at most, because of doubts
_OF_ROOT = ("root", "from_root")  # collectives of which members hear from the root alone


class Analysis(Handovers):
    """Events in the order of their times; ``findings`` has the result. on_put handles those of kind put, and so on."""

    def __init__(self, traces: Iterable[Iterable[Record]], known: dict[int, Doubt] | None = None) -> None:
        """known: the waits about which an earlier reading has left doubts."""
        super().__init__()
        self.traces = list(traces)
        self.findings = Findings()
        self.memory = Memory(self._race)
        self.streams = Streams()
        self.host: dict[int, Agent] = {}
        self.running: dict[int, Agent] = {}  # the program that runs there, or the host's
        self.n_pes = 0
        self.doubts = Doubts(self.streams, known or {})
        self.words = Words(self.doubts.changed)
        self.meetings: dict[Any, Meeting] = defaultdict(Meeting)  # by team and turn
        self.turns: dict[Any, int] = defaultdict(int)
        self.programs: dict[int, list[Agent]] = defaultdict(list)
        self.waiting: dict[Agent, tuple[int, str, Any]] = {}  # the line, the call, the words
        self.fetching: dict[tuple[int, ...], Op] = {}  # by PE, time of the start, and word
        self.inside: dict[tuple[Agent, Any], tuple[Meeting, int, str, int]] = {}  # by team: its turn, the way, the root
        self.blocks: dict[int, Blocks] = defaultdict(Blocks)

    def run(self) -> Findings:
        """Read the records, again where there are new doubts about what waits tell: each may lead to others."""
        analysis, findings = self, self._follow()
        for _ in range(_READINGS):
            doubts = analysis.doubts.found()
            if doubts == analysis.doubts.known:
                break
            analysis = Analysis(self.traces, doubts)
            findings = analysis._follow()
        return findings

    def _follow(self) -> Findings:
        traces = [(trace, *self._begin(trace)) for trace in self.traces]
        table = self._table()
        collects = gc.isenabled()
        gc.disable()  # what is kept is much, and no cycle of references is among what is not
        try:
            for some in in_order([events(*each) for each in traces if each[1] >= 0]):
                for event in some:
                    pe = event[2]
                    order, handle, whose = table[event[1]]
                    if order is not None:
                        order(self.host[pe], 0)
                    self.now[pe] = whose[pe]
                    handle(event)
                self._forget()
        finally:
            if collects:
                gc.enable()
        self._ended()
        return self.findings

    def _table(self) -> dict[str, tuple[Any, Any, dict[int, Agent]]]:
        """For each kind: what the host has ordered before, what handles it, and whose it is."""
        kinds = {name.removeprefix("on_"): getattr(self, name) for name in dir(self) if name.startswith("on_")}
        return {
            before + mark + kind: (order, handle, whose)
            for before, order in (("", None), (FENCE, Agent.fence), (QUIET, Agent.quiet))
            for mark, whose in (("", self.host), (IN_KERNEL, self.running))
            for kind, handle in kinds.items()
        }

    def _begin(self, trace: Iterable[Record]) -> tuple[int, dict[int, int]]:
        """A first reading: the PE, its lines by their numbers, and the words that it waits for."""
        pe, sites = -1, {0: 0}
        words: set[tuple[int, int]] = set()
        for record in trace.first() if isinstance(trace, Reading) else trace:
            kind = record[1].lstrip(FENCE + QUIET + IN_KERNEL)
            if kind == "init":
                pe = record[3]
            elif kind == "site":
                sites[record[2]] = self.findings.site(record[3], record[4], record[5])
            elif kind in ("wait", "fetched"):
                words.update((pe, row[0]) for row in record[3])
            elif kind == "amo" and record[10] and record[10][1] is not None:
                words.add((record[5], record[6]))
        if pe >= 0:
            self.words.watched.add(words)
            self.n_pes = max(self.n_pes, pe + 1)
            self.host[pe] = self.now[pe] = self.running[pe] = Agent(self.streams, pe, f"PE {pe}", Knowledge({}, {}))
        return pe, sites

    # ---- accesses ----

    def _op(
        self, agent: Agent, kind: str, site: int, name: str, stream: Stream | None = None, width: int = 0
    ) -> tuple[Op, bool]:
        """An access by the agent itself or of a stream, and whether it is an earlier one, of the same number and line."""
        agent.touched = True
        if stream is None:
            stream = agent.own
        if stream.of != stream.number:
            stream.of = stream.number
            stream.ops.clear()
        key = site, kind, name, width
        op = stream.ops.get(key)
        if op is not None:
            return op, True
        op = stream.ops[key] = Op(stream.id, stream.number, kind, agent, site, name, width)
        return op, False

    def on_acc(self, event: tuple[Any, ...]) -> None:
        """Loads and stores of the program itself."""
        _, _, pe, site, name, kind, ranges, value = event
        agent = self.now[pe]
        if kind == "r":
            op, _ = self._op(agent, READ, site, name)
            for space, *span in ranges:
                self._touch(op, agent, space, tuple(span))
            return
        agent.stored()
        local, _ = self._op(agent, WRITE, site, name, agent.stores)
        for space, *each in ranges:
            span = tuple(each)
            if space == pe or space < 0:
                self._touch(local, agent, space, span, (0, pe))
                self.words.change(local, space, span, "store", value)
            else:
                self._remote(agent, WRITE, site, name, STORES, space, [span], ("store", value))

    def _touch(
        self, op: Op, agent: Agent, space: int, span: Span, on: tuple[int, int] | None = None, again: bool = False
    ) -> None:
        if span[0] >= span[1]:
            return
        self.memory.access(op, agent, space, span, on, again)
        if space >= 0:
            blocks = self.blocks[agent.pe]
            if not (blocks.last.start <= span[0] and span[1] <= blocks.last.end and len(span) == 2) and (
                fault := blocks.fault(span)
            ):
                self.findings.alone(fault, op, self._place(agent.pe, space, *bounds(span)))

    def _remote(
        self, agent: Agent, kind: str, site: int, name: str, ctx: int, pe: int, spans: list[Span],
        change: tuple[str, int | None], width: int = 8,
    ) -> Op:  # fmt: skip
        """An operation on a PE: it happens at some time until quiet."""
        watched = self.words.watched.any(pe, spans)
        stream = agent.remote.get((ctx, pe)) or agent.to(ctx, pe)
        stream.count(agent.own.number, alone=watched)
        op, again = self._op(agent, kind, site, name, stream, width if kind == ATOMIC else 0)
        op.target = pe
        if watched:
            op.message = agent.release(pe, 0 if ctx == STORES else ctx)
        for span in spans:
            self._touch(op, agent, pe, span, (ctx, pe), again)
            if watched:
                self.words.change(op, pe, span, *change)
        return op

    def _local(
        self, agent: Agent, kind: str, site: int, name: str, ranges: Ranges, stream: Stream | None = None
    ) -> None:
        """The local side of an operation: at once, or, if there is a stream, at some time until quiet."""
        if stream is not None:
            stream.count(agent.own.number)
        op, again = self._op(agent, kind, site, name, stream)
        for space, *each in ranges:
            span = tuple(each)
            self._touch(op, agent, space, span, None, again)
            if kind == WRITE and stream is None:
                self.words.change(op, space, span, "store", None)

    def on_put(self, event: tuple[Any, ...]) -> None:
        _, _, pe, site, name, ctx, target, dest, source, nbi, value = event
        agent = self.now[pe]
        if source:
            self._local(agent, READ, site, name, source, agent.source(ctx, target) if nbi else None)
            if source[0][0] == target:
                self._overlap(agent, site, name, [(target, *each) for each in dest], source)
        self._remote(agent, WRITE, site, name, ctx, target, dest, ("set", value))

    def on_get(self, event: tuple[Any, ...]) -> None:
        _, _, pe, site, name, ctx, target, source, dest, nbi = event
        agent = self.now[pe]
        there = [(target, *each) for each in source]
        if dest and dest[0][0] == target:
            self._overlap(agent, site, name, dest, there)
        stream = agent.pending(ctx, target) if nbi else None
        self._local(agent, READ, site, name, there, stream)
        if dest:
            self._local(agent, WRITE, site, name, dest, stream)
        if not nbi and all(space < 0 for space, *_ in dest):
            agent.wait()

    def _overlap(self, agent: Agent, site: int, name: str, first: Ranges, second: Ranges) -> None:
        for space, *each in first:
            for other, *there in second:
                common = overlap(tuple(each), tuple(there)) if space == other else None
                if common:
                    op = Op(agent.own.id, 0, WRITE, agent, site, name)
                    self.findings.alone("overlap", op, self._place(agent.pe, space, *common))

    def on_putsig(self, event: tuple[Any, ...]) -> None:
        _, _, pe, site, name, ctx, target, dest, source, nbi, word, size, operator, value = event
        agent = self.now[pe]
        lines = [agent.to(ctx, target)] + ([agent.source(ctx, target)] if nbi else [])
        for line in lines:
            line.alone = True  # the signal's message says of the data alone that it has arrived, and has been read
        if source:
            self._local(agent, READ, site, name, source, lines[1] if nbi else None)
        data = self._remote(agent, WRITE, site, name, ctx, target, dest, ("set", None))
        signal = self._remote(agent, ATOMIC, site, name, ctx, target, [(word, word + size)], (operator, value))
        if signal.message is not None:
            signal.message = signal.message.also(data.stream, data.number)
            if nbi:
                signal.message = signal.message.also(lines[1].id, lines[1].number)
            for line in lines:
                line.told = line.number

    def on_amo(self, event: tuple[Any, ...]) -> None:
        """An atomic operation; one that fetches is complete when it returns, at ``on_amo_end``."""
        time, _, pe, site, name, ctx, target, start, size, operator, operand, fetched, width = event
        agent = self.now[pe]
        span = start, start + size
        if operator != "fetch" and not fetched:
            self._remote(agent, ATOMIC, site, name, ctx, target, [span], (operator, operand), width)
            return
        if operator == "fetch" and not fetched:
            stream = agent.pending(ctx, target)
            stream.count(agent.own.number)
            self._touch(self._op(agent, FETCH, site, name, stream, width)[0], agent, target, span)
            return
        agent.touched = True
        own = agent.own
        op = Op(own.id, own.number, FETCH if operator == "fetch" else ATOMIC, agent, site, name, width)
        if operator == "fetch":
            self._touch(op, agent, target, span)
        else:
            op.target = target
            op.message = agent.release(target, ctx)
            self._touch(op, agent, target, span, (ctx, target))
            self.words.change(op, target, span, operator, operand)
        agent.wait()
        self.fetching[pe, time, target, start] = op

    def on_signal(self, event: tuple[Any, ...]) -> None:
        """signal_set or signal_add in a kernel: a release of what the program has stored here and on the signal's PE."""
        _, _, pe, site, name, target, start, operator, value = event
        agent = self.now[pe]
        op = self._remote(agent, ATOMIC, site, name, 0, target, [(start, start + 8)], (operator, value))
        op.message = agent.release(target, unfenced=True)

    def on_words(self, event: tuple[Any, ...]) -> None:
        """A kernel stores words that others wait for, each with its data."""
        _, _, pe, site, name, target, spans = event
        self._remote(self.now[pe], ATOMIC, site, name, 0, target, [tuple(span) for span in spans], ("set", None))

    def on_amo_end(self, event: tuple[Any, ...]) -> None:
        _, _, pe, site, began, target, start, operator, operand, old, condition = event
        agent, op = self.now[pe], self.fetching.pop((pe, began, target, start))
        word = self.words.known.get((target, start))
        if word is None or old is None:
            return
        value = word.wrap(old)
        self._learn(agent, site, word, word.found(value, op, agent.own.id), op)
        if operator == "compare_swap":
            word.settle(op, operand if value == word.wrap(condition) else None)
        elif operand is not None and (left := word.result(operator, operand, value)) is not None:
            word.settle(op, left)

    def on_stale(self, event: tuple[Any, ...]) -> None:
        """An operator of torch uses a result that a later call has overwritten."""
        _, _, pe, site, name, (space, *span) = event
        agent = self.now[pe]
        op = Op(agent.own.id, 0, READ, agent, site, name)
        self.findings.alone("stale", op, self._place(pe, space, *span))

    # ---- order ----

    def on_fence(self, event: tuple[Any, ...]) -> None:
        self.now[event[2]].fence(event[4])

    def on_quiet(self, event: tuple[Any, ...]) -> None:
        self.now[event[2]].quiet(event[4], event[5])

    def on_quiet_on_stream(self, event: tuple[Any, ...]) -> None:
        """The host does not wait."""
        agent = self.now[event[2]]
        held = dict(agent.held)
        agent.quiet(0)
        agent.held = held

    def on_drained(self, event: tuple[Any, ...]) -> None:
        """The host has waited for its kernels."""
        self.now[event[2]].wait()

    def on_waits(self, event: tuple[Any, ...]) -> None:
        """A wait begins."""
        self.waiting[self.now[event[2]]] = event[3], event[4], event[5]

    def on_wait(self, event: tuple[Any, ...]) -> None:
        """A wait or a test has found that its conditions hold."""
        _, _, pe, site, rows, _ = event
        agent = self.now[pe]
        self.waiting.pop(agent, None)
        agent.touched = True
        for start, size, is_signed, code, value in rows:
            compare = COMPARE[code]
            word = self.words.at((pe, start), size)
            word.size = size
            wanted = value if is_signed else word.wrap(value)
            read = (lambda seen, n=size: signed(seen, n)) if is_signed else (lambda seen: seen)
            self._acquire(agent, site, (pe, start), lambda seen: compare(read(seen), wanted))  # noqa: B023

    def on_fetched(self, event: tuple[Any, ...]) -> None:
        """signal_fetch, or a load with acquire order: one row (start, size), and the value seen."""
        _, _, pe, site, rows, value = event
        for start, size in rows:
            word = self.words.at((pe, start), size)
            agent = self.now[pe]
            self._learn(agent, site, word, word.found(word.wrap(value), None, agent.own.id))

    def _acquire(self, agent: Agent, site: int, key: tuple[int, int], holds: Any) -> None:
        word, doubt = self.words.at(key), self.doubts.next()
        ops = word.seen(holds, lambda op: agent.knows(op.stream, op.number), agent.own.id)
        if ops:
            self.doubts.watch(agent, site, holds, word)
        if doubt is None:
            self._learn(agent, site, word, ops)
        else:
            agent.acquire(doubt.message)
            agent.doubts.append(doubt)
            word.caught.pop(agent.own.id, None)  # a later wait may tell the rest

    def _learn(self, agent: Agent, site: int, word: Word, ops: list[Op] | None, mine: Op | None = None) -> None:
        """Acquire what the operations have released; if it is not known which, of all that have changed the word."""
        for op in [each.op for each in word.changes] if ops is None else ops:
            if op.message is None or op is mine or agent.knows(op.stream, op.number):
                continue
            agent.acquire(op.message)
            agent.know.learn(op.stream, op.number)
            agent.learnt[op.agent.own.id] = (op.site, site)

    # ---- collectives ----

    def on_enter(self, event: tuple[Any, ...]) -> None:
        """A PE enters a collective of a team: (key of the team, name, signature, way, root, what it reads and writes)."""
        _, _, pe, site, key, name, signature, way, root, reads, writes = event
        agent = self.now[pe]
        for space, *span in reads:
            self._touch(self._op(agent, READ, site, name)[0], agent, space, tuple(span))
        self.waiting.pop(agent, None)  # a wait that has given up
        turn = self.turns[pe, key]
        self.turns[pe, key] += 1
        meeting = self.meetings[key, turn]
        sent = {}
        if writes and writes[0][0] >= 0 and (way == "from_all" or (way == "from_root" and pe == root)):
            sent = self._spread(agent, site, name, key, reads, writes)
        meeting.entered.append((pe, self._arrive(agent, way, name), site, name, signature, sent))
        self.inside[agent, key] = meeting, turn, way, root

    def _spread(
        self, agent: Agent, site: int, name: str, key: Any, reads: Ranges, writes: Ranges
    ) -> dict[int, tuple[int, int]]:
        """A member writes into the targets of all at once. It returns by PE the stream and its number."""
        start, stride, size = key[:3]
        sent = {}
        for pe in range(start, start + stride * size, stride):
            stream = agent.to(TOGETHER, pe)
            stream.count(agent.own.number, alone=True)
            op, _ = self._op(agent, WRITE, site, name, stream)
            op.target = pe
            for each in writes if pe != agent.pe or reads != writes else ():
                span = tuple(each[1:])
                self._touch(op, agent, pe, span, (TOGETHER, pe))
                self.words.change(op, pe, span, "store", None)
            stream.told = stream.fenced = stream.number
            sent[pe] = stream.id, stream.number
        return sent

    def _arrive(self, agent: Agent, way: str, name: str) -> Message:
        if way == "barrier":
            agent.quiet(0)
        elif way != "sync" and not name.endswith("_on_stream"):
            agent.wait()
        return agent.release(-1, all_stores=True, kernels=way != "sync")

    def on_exit(self, event: tuple[Any, ...]) -> None:
        """It leaves: (key of the team, name, what it has written)."""
        _, _, pe, site, key, name, writes = event
        agent = self.now[pe]
        agent.touched = True
        meeting, turn, way, root = self.inside.pop((agent, key))
        first, written = meeting.entered[0], False
        for call in meeting.entered:
            other, message, _, called, signature, sent = call
            refused = signature is None or first[4] is None  # by the team
            if (called != first[3] or signature != first[4]) and not refused:
                self.findings.mismatch(first[2:], first[0], call[2:], other)
            if other != pe and (way not in _OF_ROOT or other == root) and (way != "scan" or other < pe):
                agent.acquire(message)
            if pe in sent:
                agent.know.learn(*sent[pe])
                written = True
        start, stride, size = key[:3]
        if len(meeting.entered) < size and way not in (*_OF_ROOT, "scan"):
            here = {call[0] for call in meeting.entered}
            for other in {start + stride * i for i in range(size)} - here:  # it was killed before it has left
                agent.acquire(self._arrive(self.now[other], way, name))
        for space, *each in writes if not written else ():
            (op, _), span = self._op(agent, WRITE, site, name), tuple(each)
            self._touch(op, agent, space, span)
            self.words.change(op, space, span, "store", None)
        meeting.left += 1
        if meeting.left == size:
            del self.meetings[key, turn]
            if way == "barrier" and size == self.n_pes and self.memory.is_full():
                self._forget()

    def _forget(self) -> None:
        agents = [*self.host.values(), *(each for row in self.programs.values() for each in row)]
        under_way = set(self.fetching.values())
        forget(agents, self.memory, self.words.known.values(), under_way, self.doubts.streams())

    # ---- memory ----

    def on_alloc(self, event: tuple[Any, ...]) -> None:
        _, _, pe, site, start, end, fill, name = event
        self.blocks[pe].add(Block(start, end, site, name))
        knows = self.host[pe].knows
        self.memory.begin(pe, start, end, lambda op: knows(op.stream, op.number))
        for key in self.words.watched.within(pe, start, end):
            self.words.at(key).begin(fill, lambda op: knows(op.stream, op.number))

    def on_free(self, event: tuple[Any, ...]) -> None:
        self.blocks[event[2]].remove(event[4])

    # ---- kernels ----

    def on_launch(self, event: tuple[Any, ...]) -> None:
        """A kernel starts, one program, or the next one of it: (its name, number of the program)."""
        _, _, pe, _, name, number = event
        self.running[pe] = self.host[pe].child(f"PE {pe}, program {number} of {name}")
        self.programs[pe].append(self.running[pe])

    def on_done(self, event: tuple[Any, ...]) -> None:
        """A kernel has ended."""
        pe = event[2]
        self.running[pe] = self.host[pe]
        for program in self.programs.pop(pe, ()):
            self.host[pe].adopt(program)
            if program in self.waiting:  # it has given up, and its host may go on
                self.waiting[self.host[pe]] = self.waiting.pop(program)

    # ---- results ----

    def _place(self, pe: int, space: int, start: int, end: int) -> Place:
        block = self.blocks[pe].at(start) if space >= 0 else None
        if block is None:
            return Place(space, start, end, start, "", 0)
        return Place(space, start - block.start, end - block.start, start, block.name, block.site)

    def _race(self, old: Op, new: Op, space: int, start: int, end: int) -> None:
        self.findings.race(old, new, self._place(new.agent.pe, space, start, end))

    def _ended(self) -> None:
        for (pe, _), site in self.held.items():
            self.findings.held(pe, site)
        for agent, (site, name, rows) in self.waiting.items():
            self.findings.waits(agent, site, (name, rows), self.words.known)
