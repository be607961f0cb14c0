"""Agents: the program of a PE on its host, and each program of each kernel. What they know, and what they release.

An agent's own accesses are one stream. Its stores are another, which fence releases. Its operations on each PE, through each
context, are a stream each: fence releases it, to that PE only, and quiet completes it. Its stores to each PE's memory are
streams too, which fence releases to all PEs. What collectives write on each PE is a stream that this PE knows of when it has
returned from the call, and that no fence or quiet orders. The results of non-blocking calls are a stream that only quiet
completes. So are the sources of non-blocking puts; but whoever knows that such a put has arrived knows that its source has
been read, and tells the agent so.

Kernels that have ended come before what the same PE does next, as on a GPU's stream; whoever is told so by a sync of the
host knows only of those that the host has waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyshmem.check.analyse.clocks import Knowledge, Message

if TYPE_CHECKING:
    from pyshmem.check.analyse.doubts import Doubt

STORES = -1  # in the place of a context: stores to the memory of a PE
UNORDERED = -2  # what no fence orders
TOGETHER = -3  # what a collective writes on a PE
EVERY = -1  # in the place of a PE


class Stream:
    """Operations of one agent of one kind; ``number`` of the last, and of the last that a fence has ordered.

    Operations between which nothing can tell have one number: no fence, quiet or release has come between them.
    passed: of operations on its own PE, the last that a later store of the agent has to follow.  at: the agent's clock at
    the last one.  alone: its number is no other one's.  ops: accesses of the number ``of``, for others of their lines.
    told: the last number that a release may have told to others: nobody tells later ones from each other.
    """

    __slots__ = ("alone", "at", "fenced", "id", "number", "of", "ops", "passed", "told")

    def __init__(self, number: int) -> None:
        self.id = number
        self.number = self.fenced = self.passed = self.at = self.of = self.told = 0
        self.alone = False
        self.ops: dict[Any, Any] = {}

    def count(self, clock: int, alone: bool = False) -> None:
        """Number a further operation."""
        if alone or self.alone or self.at != clock or self.number <= self.fenced:
            self.number += 1
            self.at, self.alone = clock, alone


def _towards(ctx: int, pe: int, stream: Stream) -> tuple[int, int]:
    """Return where a fence orders a stream's operations: on their PE, but stores to the memory of a PE on every PE."""
    return (EVERY if ctx == STORES else pe), stream.id


class Streams:
    """Numbers for streams. ``ended``: who knows the end of a kernel knows all of its programs' streams."""

    def __init__(self) -> None:
        self.count = 0
        self.ended: dict[int, tuple[int, int]] = {}  # by stream: one of the host's, and its number at the end

    def new(self) -> Stream:
        self.count += 1
        return Stream(self.count)

    def told(self, message: Message, stream: int, number: int) -> bool:
        """Whether a message says that an operation has happened."""
        return number in message.single.get(stream, ()) or self._told_upto(message, stream, number)

    def _told_upto(self, message: Message, stream: int, number: int) -> bool:
        """Whether it says so of all up to this one."""
        if message.upto.get(stream, 0) >= number:
            return True
        end = self.ended.get(stream)
        return end is not None and message.upto.get(end[0], 0) >= end[1]

    def common(self, first: Message, second: Message) -> Message:
        """What both of two messages say."""
        upto: dict[int, int] = {}
        single: dict[int, set[int]] = {}
        for one, other in ((first, second), (second, first)):
            for stream, number in one.upto.items():
                both = number if self._told_upto(other, stream, number) else other.upto.get(stream, 0)
                if both > upto.get(stream, 0):
                    upto[stream] = both
            for stream, numbers in one.single.items():
                said = {each for each in numbers if self.told(other, stream, each)}
                if said:
                    single[stream] = single.get(stream, set()) | said
        return Message(upto, single)


class Agent:
    """``label`` names it in reports; ``parent`` is the host's agent for a program of a kernel."""

    def __init__(self, streams: Streams, pe: int, label: str, know: Knowledge) -> None:
        self.pe, self.label, self.know = pe, label, know
        self.streams = streams
        self.own, self.stores = streams.new(), streams.new()
        self.remote: dict[tuple[int, int], Stream] = {}  # by context and PE
        self.sources: dict[tuple[int, int], Stream] = {}  # what non-blocking puts read here, by context and PE
        self.unfinished: dict[tuple[int, int], Stream] = {}  # what other non-blocking calls do, by context and PE
        self.kernels = streams.new()  # those that have ended here
        self.held: dict[int, int] = {}  # by stream: what it knew before kernels that the host has not waited for
        self.end: tuple[int, int] | None = None  # of a program: the host's own stream, and its number then
        self.adopted: list[tuple[int, int, Stream]] = []  # context, PE and operations of kernels that have ended
        # by PE, -1 for all, and stream: operations that a fence has ordered, of ended kernels or of a program's host
        self.fences: dict[tuple[int, int], int] = {}
        self.clock = 1
        self.touched = True  # since the last release: what is released from now on includes an access
        self._most = 128  # streams that it knows of, before those that have ended are looked for
        self._messages: dict[tuple[int, int], Message] = {}
        self.doubts: list[Doubt] = []  # of its waits
        self.learnt: dict[int, tuple[int, int]] = {}  # by agents' own streams: sites of the release and of the acquire

    @property
    def clock(self) -> int:
        return self.own.number

    @clock.setter
    def clock(self, value: int) -> None:
        self.own.number = self.know.upto[self.own.id] = value

    def knows(self, stream: int, number: int) -> bool:
        if self.know.knows(stream, number):
            return True
        end = self.streams.ended.get(stream)
        return end is not None and self.know.upto.get(end[0], 0) >= end[1]

    def stored(self) -> int:
        self.touched = True
        self.stores.count(self.own.number)
        self.know.upto[self.stores.id] = self.stores.number
        own = self.remote.get((0, self.pe))
        if own is not None:
            own.passed = own.fenced
            own.told = max(own.told, own.passed)
        return self.stores.number

    def to(self, ctx: int, target: int) -> Stream:
        found = self.remote.get((ctx, target))
        if found is None:
            found = self.remote[ctx, target] = self.streams.new()
        return found

    def has_fenced(self, stream: int, number: int, ctx: int, target: int) -> bool:
        """Whether a fence has ordered an earlier operation before what follows on a PE, through a context.

        Collectives keep their own order alone.
        """
        if ctx == TOGETHER:
            before = self.remote.get((ctx, target))
            return before is not None and before.id == stream and number <= before.fenced
        for each in (self.remote.get((max(ctx, 0), target)), self.remote.get((STORES, target))):
            if each is not None and each.id == stream:
                return number <= each.fenced
        return number <= self.fences.get((target, stream), 0) or number <= self.fences.get((EVERY, stream), 0)

    def source(self, ctx: int, pe: int) -> Stream:
        found = self.sources.get((ctx, pe))
        if found is None:
            found = self.sources[ctx, pe] = self.streams.new()
        return found

    def pending(self, ctx: int, pe: int) -> Stream:
        found = self.unfinished.get((ctx, pe))
        if found is None:
            found = self.unfinished[ctx, pe] = self.streams.new()
        return found

    # ---- order ----

    def fence(self, ctx: int) -> None:
        for (of, _), stream in (*self.remote.items(), *self.sources.items()):
            if of in (ctx, STORES):
                stream.fenced = stream.number
        self.stores.fenced = self.stores.number
        for of, pe, stream in self.adopted:
            if of in (ctx, STORES):
                self.fences[_towards(of, pe, stream)] = stream.number
        self._changed()

    def quiet(self, ctx: int, pes: list[int] | None = None) -> None:
        """Complete the operations of a context, to some PEs or to all."""
        upto = self.know.upto
        for (of, pe), stream in (*self.remote.items(), *self.sources.items()):
            if of in (ctx, STORES) and (pes is None or pe in pes):
                stream.fenced = upto[stream.id] = stream.number
                self.know.single.pop(stream.id, None)
        for (of, pe), stream in self.unfinished.items():
            if of == ctx and (pes is None or pe in pes):
                stream.fenced = upto[stream.id] = stream.number
        if pes is None and ctx == 0 and self.adopted:
            self.clock += 1
            self._end([stream for _, _, stream in self.adopted], self.own)
            self.adopted.clear()
            self.fences.clear()
        self.stores.fenced = self.stores.number
        self.wait()
        self._changed()

    def wait(self) -> None:
        """The host waits for its kernels."""
        self.held.clear()

    def _changed(self) -> None:
        self._messages.clear()
        self.touched = True

    # ---- edges ----

    def release(
        self, target: int, ctx: int = 0, all_stores: bool = False, unfenced: bool = False, kernels: bool = True
    ) -> Message:
        """What an operation on ``target`` through a context carries: what fences of that context have ordered before it.

        all_stores: as sync does, which orders stores without a fence.  unfenced: as a signal of a kernel does, which
        needs no fence.  kernels: whether those count for which the host has not waited.
        """
        if self.touched:
            self._messages.clear()
        more = all_stores or unfenced
        found = None if more else self._messages.get((target, ctx))
        if found is None:
            found = self._message(target, ctx, all_stores, unfenced)
            if not kernels:
                found.upto.update(self.held)
            if not more:
                self._messages[target, ctx] = found
            self.own.number += 1
            self.know.upto[self.own.id] = self.own.number
        self.touched = False
        return found

    def _message(self, target: int, ctx: int, all_stores: bool, unfenced: bool) -> Message:
        upto, stores = dict(self.know.upto), self.stores
        if all_stores or unfenced:
            stores.told = stores.number
        else:
            stores.told = max(stores.told, stores.fenced)
            upto[stores.id] = stores.fenced
        for (of, pe), stream in (*self.remote.items(), *self.sources.items()):
            if of == STORES:
                known = stream.number if unfenced and pe == target else stream.fenced
            elif (of, pe) == (ctx, target):
                known = stream.number if unfenced else stream.fenced
            else:
                known = stream.passed if all_stores else 0
            done = upto.get(stream.id, 0)
            if known > done:
                upto[stream.id] = done = known
            if done > stream.told:
                stream.told = done
        for stream in self.unfinished.values():
            stream.told = stream.fenced
        for (pe, number), fenced in self.fences.items():
            if pe in (target, EVERY) and fenced > upto.get(number, 0):
                upto[number] = fenced
        single = self.know.single
        return Message(upto, {stream: set(each) for stream, each in single.items()} if single else {})

    def acquire(self, message: Message) -> None:
        self.know.join(message)
        if self.held:
            for stream in self.held.keys() & message.upto.keys():
                self.held[stream] = max(self.held[stream], message.upto[stream])
        self._messages.clear()
        if len(self.know.upto) > self._most:
            self._forget_ended()

    def lines(self) -> list[Stream]:
        """The streams that more can come of, and those that no quiet has completed."""
        rest = [stream for _, _, stream in self.adopted]
        under_way = (*self.remote.values(), *self.sources.values(), *self.unfinished.values())
        return [self.own, self.stores, self.kernels, *under_way, *rest]

    def forget(self, live: set[int]) -> None:
        """Nothing is left to compare of all streams but these."""
        self.know.forget(self.know.upto.keys() - live)
        self.fences = {(pe, stream): number for (pe, stream), number in self.fences.items() if stream in live}
        self.learnt = {stream: sites for stream, sites in self.learnt.items() if stream in live}

    def _forget_ended(self) -> None:
        """Streams of kernels of which the agent knows the end."""
        ended, upto = self.streams.ended, self.know.upto
        ends = {stream: ended[stream] for stream in upto.keys() & ended.keys()}
        self.know.forget({stream for stream, (host, clock) in ends.items() if upto.get(host, 0) >= clock})
        self._most = 2 * len(upto) + 64

    def child(self, label: str) -> Agent:
        """A program of a kernel that this agent launches."""
        self.clock += 1
        self._changed()
        know = Knowledge(dict(self.know.upto), {stream: set(each) for stream, each in self.know.single.items()})
        program = Agent(self.streams, self.pe, label, know)
        for each in (self.stores, *self.remote.values(), *self.sources.values()):
            each.told = each.number
        under_way = (*self.remote.items(), *self.sources.items())
        lines = ((*line, stream) for line, stream in under_way if line[0] in (0, STORES))
        program.fences = self.fences | {_towards(*line): line[2].fenced for line in lines}
        return program

    def adopt(self, child: Agent) -> None:
        """The end of a kernel: its own accesses and stores are complete, its operations on PEs are not."""
        own = (child.own.id, child.stores.id)
        upto = {stream: number for stream, number in child.know.upto.items() if stream not in own}
        known = self.know.upto
        news = {stream: known.get(stream, 0) for stream, number in upto.items() if number > known.get(stream, 0)}
        held = {self.kernels.id: self.kernels.number} | news | self.held
        self.acquire(Message(upto, child.know.single))
        self.held = held
        self.clock += 1
        child.end = self.own.id, self.clock
        self.kernels.number += 1
        self._end([child.own, child.stores], self.kernels)
        under_way = (*child.remote.items(), *child.sources.items())
        self.fences |= {_towards(*line, each): each.fenced for line, each in under_way if each.fenced}
        self.adopted += [(*line, stream) for line, stream in under_way]
        self.adopted += [(UNORDERED, pe, stream) for (_, pe), stream in child.unfinished.items()]

    def _end(self, streams: list[Stream], of: Stream) -> None:
        """Who knows of a stream what has come so far knows all of these."""
        self.know.upto[of.id] = of.number
        for stream in streams:
            self.streams.ended[stream.id] = of.id, of.number
