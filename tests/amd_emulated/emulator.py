"""Executes the machine code of AMD's GPUs on a CPU: registers, waves, and when a store is seen by peers.

Most instructions are done by the emulator in tinygrad's repository (it is not in the package): PYSHMEM_TINYGRAD names a
checkout, seen working with commit a9069c177a9d of 2026-08-22. The others are in instructions.py.

Memory is as late as the architecture lets it be. A store to a peer waits in its wave until that wave waits for it
(s_waitcnt vmcnt(0)), then, unless it is written through, in the GPU's cache until that is written back (buffer_wbl2), and at
most until the kernel ends. Stores that are on their way together arrive in the order that is the worst. What a program has read of
a heap stays in its cache until it invalidates it (buffer_inv): a plain load of a word or more then finds what was there before. Waves
run one after the other, each until its next barrier. Loads are never early; those
that ``is_late_load`` picks come when their wave waits for them, perhaps behind its later stores.
"""

import ctypes
import functools
import hashlib
import itertools
import os
import pathlib
import pickle
import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

sys.path.insert(0, os.environ["PYSHMEM_TINYGRAD"])  # before the standard library's own package "test"

from test.mockgpu.amd import emu

# what tinygrad compiles, for all PEs and later runs
KEPT = pathlib.Path(__file__).parents[2] / "build" / "amd_emulated"


def kept(compiler):
    """``compiler``, which takes half a second for an instruction, such that no other process does the same again."""
    files = sorted(pathlib.Path(os.environ["PYSHMEM_TINYGRAD"], "tinygrad").rglob("*.py"))
    version = [(str(each), each.stat().st_mtime_ns) for each in files]

    def compiled(instruction, renderer):
        key = repr((version, instruction.key, type(renderer), renderer.target))
        path = KEPT / hashlib.sha256(key.encode()).hexdigest()
        if not path.exists():
            KEPT.mkdir(parents=True, exist_ok=True)
            beside = path.with_suffix(f".{os.getpid()}")
            beside.write_bytes(pickle.dumps(compiler(instruction, renderer)))
            beside.replace(path)
        return pickle.loads(path.read_bytes())

    return compiled


emu.to_program = kept(emu.to_program)

LANES = 64
LANE = np.arange(LANES)
EXEC, PC = 126, 256  # scalar registers: which lanes execute, the next instruction
SLICE = 200_000  # instructions of a wave until the next one has its turn, for waves that wait for a peer
LINE = 64  # bytes
UNWRITTEN = 0xDEADBEEF  # what local memory holds before a program writes it


def bits(word, high, low):
    return word >> low & (1 << high - low + 1) - 1


def memory(place, words):
    return np.frombuffer((ctypes.c_uint32 * words).from_address(place), np.uint32)


class Registers:
    """Of a wave: 32 bits each, one of the scalar ones, one a lane of the vector ones."""

    def __init__(self, scalar, vector, rest):
        self.scalar, self.vector, self.rest = scalar, vector, rest
        addresses = (scalar.ctypes.data, vector.ctypes.data, *rest)
        self.arguments = [ctypes.c_uint64(each) for each in addresses]  # of tinygrad's functions

    def pair(self, register):
        """Two scalar registers as one number."""
        return int(self.scalar[register]) | int(self.scalar[register + 1]) << 32

    def set_pair(self, register, value):
        self.scalar[register : register + 2] = value & 0xFFFFFFFF, value >> 32

    def advance(self, nbytes):
        self.set_pair(PC, self.pair(PC) + nbytes)

    def active(self):
        """Which lanes execute."""
        return (np.uint64(self.pair(EXEC)) >> LANE.astype(np.uint64) & np.uint64(1)).astype(bool)

    def addresses(self, word):
        """Where a load, store or atomic of global memory goes, of every lane."""
        register, base, offset = bits(word, 39, 32), bits(word, 54, 48), bits(word, 12, 0)
        places = self.vector[register].astype(np.int64) + (offset - (offset >> 12 << 13))
        if base == 0x7F:  # none: 64-bit addresses in two vector registers
            return places + (self.vector[register + 1].astype(np.int64) << 32)
        return places + self.pair(base)

    def buffer_addresses(self, word):
        """The same of an access through a buffer's descriptor, and which lanes are inside: others load 0, store nothing."""
        descriptor, added = bits(word, 52, 48) * 4, bits(word, 63, 56)
        start = self.pair(descriptor) % 2**48 + (int(self.scalar[added]) if added < 128 else added - 128)
        varying = self.vector[bits(word, 39, 32)].astype(np.int64) * bits(word, 12, 12)
        offsets = varying + bits(word, 11, 0)
        return start + offsets, offsets < self.scalar[descriptor + 2]


class Store(NamedTuple):
    """A store on its way. through: whether it passes the cache."""

    perform: Callable[[], None]
    places: np.ndarray
    through: bool


def in_any_order(stores):
    """Return them as badly ordered as memory allows: the last ones first, but those to the same words as they were made."""
    made, turn = {}, []  # how many stores a line of 16 bytes has had; of each store, behind how many it comes
    for each in stores:
        lines = np.unique(each.places // 16).tolist()
        turn.append(max((made.get(line, 0) for line in lines), default=0))
        made.update(dict.fromkeys(lines, turn[-1] + 1))
    return [stores[place] for place in sorted(range(len(stores)), key=lambda place: (turn[place], -place))]


class Wave(Registers):
    """64 lanes of a program, and their stores to peers that are still on their way."""

    def __init__(self, code, kernarg, local, first, threads, place):
        sizes = (threads, threads, 1, 1, kernarg, code.rsrc2, 0, "cdna")
        self.state = emu._init_wave(code.entry, first, *sizes, *place, code.user_registers(kernarg), LANES)
        scalar = np.frombuffer(self.state._sgpr_mv, np.uint32)
        vector = np.frombuffer(self.state._vgpr_mv, np.uint32).reshape(256, LANES)
        accumulators = self.state.accvgpr_buf._buf.va_addr
        super().__init__(scalar, vector, (0, local, 0, accumulators))
        words = (ctypes.c_uint32 * (256 * LANES)).from_address(accumulators)
        self.accumulators = np.frombuffer(words, np.uint32).reshape(256, LANES)
        self.stores = []
        self.issued = 0  # loads, stores and atomics of the vector unit
        self.loads = []  # on their way, where loads may be late: (how many were issued before, the step that is late)
        self.done = False

    def later(self, step):
        """``step`` of these registers as they are now, to be called at any time."""
        return functools.partial(step, Registers(self.scalar.copy(), self.vector.copy(), self.rest))


class Gpu:
    """One GPU. ``decode(gpu, address)``: a function of the wave that executes what is there, true where the wave stops.

    away, shared: which of an array of addresses are a peer's memory, or any PE's heap.  cached: whether stores there may be.  eight: its floats of 8 bits.
    tick: the nanoseconds between two values of its clock.  late: to which addresses stores are late, those that are away or
    all that are shared.  is_late_load: whether the next load from there is late, too; None: never.
    """

    def __init__(self, decode, away, shared, cached, eight, tick, late=None, is_late_load=None):
        self.decode, self.away, self.shared, self.cached = decode, away, shared, cached
        self.late, self.is_late_load = late or away, is_late_load or bool
        self.eight, self.tick = eight, tick
        self.steps = {}  # decoded, by address
        self.cache = []  # stores to peers until they are written back
        self.lines = {}  # what the program that runs has read of heaps, by address // LINE
        self.multiplied = set()  # the kinds of elements of which products of matrices were made
        self.local = np.zeros(1 << 14, np.uint32)

    def run(self, code, grid, threads, kernarg):
        """Run the programs of a grid one after the other."""
        for z, y, x in itertools.product(*map(range, reversed(grid))):
            self.local[:] = UNWRITTEN
            self.lines.clear()
            local = self.local.ctypes.data
            waves = [Wave(code, kernarg, local, first, threads, (x, y, z)) for first in range(0, threads, LANES)]
            while not all(wave.done for wave in waves):
                for wave in waves:
                    self.turn(wave)
            for wave in waves:
                self.drain(wave)
        self.write_back()

    def seen(self, places, words, inside):
        """What loads of so many words find there, a row a word; 0 where ``inside`` is false."""
        found, shared = np.zeros((words, len(places)), np.uint32), self.shared(places)
        for lane in np.flatnonzero(inside):
            for word, place in enumerate(range(int(places[lane]), int(places[lane]) + 4 * words, 4)):
                found[word, lane] = self.line(place // LINE)[place % LINE // 4] if shared[lane] else memory(place, 1)[0]
        return found

    def line(self, number):
        if number not in self.lines:
            self.lines[number] = memory(number * LINE, LINE // 4).copy()
        return self.lines[number]

    def forget(self, places):
        """A program finds what it has stored itself."""
        for number in np.unique(np.concatenate([places // LINE, (places + 15) // LINE])).tolist():
            self.lines.pop(number, None)

    def turn(self, wave):
        """Let a wave run until its next barrier."""
        for _ in range(0 if wave.done else SLICE):
            if self.step(wave):
                return

    def step(self, wave):
        """Execute the wave's next instruction. Return whether it stops there."""
        place = wave.pair(PC)
        step = self.steps.get(place)
        if step is None:
            step = self.steps[place] = self.decode(self, place)
        return step(wave)

    def drain(self, wave):
        """What s_waitcnt vmcnt(0) waits for: the wave's stores are in the cache, or in memory, and its loads have come."""
        self.arrive(wave)
        self.leave(wave)

    def leave(self, wave):
        """The wave's stores reach the cache, or memory."""
        for each in in_any_order(wave.stores):
            if each.through or not self.cached or not self.away(each.places).any():
                each.perform()
            else:
                self.cache.append(each)
        wave.stores.clear()

    def arrive(self, wave, left=0):
        """What s_waitcnt vmcnt(left) waits for: all loads have come but those among the last ``left`` accesses."""
        coming = [step for before, step in wave.loads if before < wave.issued - left]
        del wave.loads[: len(coming)]
        for step in coming:
            step()

    def write_back(self):
        for each in in_any_order(self.cache):
            each.perform()
        self.cache.clear()
