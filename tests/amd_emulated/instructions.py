"""From an instruction's bits to a function of the wave: what tinygrad's emulator lacks, or does otherwise than these GPUs.

Products of matrices, control and cache control, the clock, atomics (by pyshmem's own on the host, so that they are atomic between processes), bytes
and halves (which are stored one by one), values exchanged between lanes, and operands that come from other lanes (DPP).
gfx90a has the same encodings as gfx942 and gfx950, under older names.
"""

import ctypes
import os
import time

import numpy as np
import torch
from emulator import EXEC, LANE, LANES, LINE, PC, Registers, Store, bits, emu
from pyshmem.native import _native

# Bytes and signedness of the loads (to 19) and stores of less than a word, by opcode; of global memory and of buffers.
NARROW = {16: (1, False), 17: (1, True), 18: (2, False), 19: (2, True), 24: (1, False), 26: (2, False)}
SWAPS = {0x59: 16, 0x5A: 32}  # v_permlane16_swap, v_permlane32_swap
WIDE = {20: 1, 21: 2, 22: 3, 23: 4}  # words of other loads
ATOMICS = {0x40: "swap", 0x41: "compare_swap", 0x42: "add", 0x48: "and", 0x49: "or", 0x4A: "xor"}
CHOICES = {0x44: (min, "int"), 0x45: (min, "uint"), 0x46: (max, "int"), 0x47: (max, "uint")}
FLOAT_ADDS = {0x4D: np.float32, 0x4F: np.float64}
# of products of matrices, by opcode: the rows of the tile, the elements of a lane, and of what kind. gfx90a has the last row's
MATRICES = {
    53: (16, 8, "bf16"), 55: (32, 8, "bf16"), 68: (32, 1, "f32"), 69: (16, 1, "f32"), 76: (32, 4, "f16"), 77: (16, 4, "f16"),
    84: (16, 8, "f16"), 85: (32, 8, "f16"), 96: (32, 4, "bf16"), 97: (16, 4, "bf16"), 115: (16, 8, "fp8"), 119: (32, 8, "fp8"),
    45: (16, 32, "fp8"), 46: (32, 32, "fp8"),
    102: (32, 4, "bf16"), 103: (16, 4, "bf16"),
}  # fmt: skip
DOUBLE = 0x20  # added to the opcode of an atomic of 64 bits


def decode(gpu, place):
    """A function of the wave that executes the instruction at ``place``, true where the wave stops."""
    word = int.from_bytes(ctypes.string_at(place, 8), "little")
    encoding, operation = bits(word, 31, 26), bits(word, 24, 18)
    if bits(word, 31, 23) == 0x17F and bits(word, 22, 16) in (1, 10, 12, 14):
        return control(gpu, word, bits(word, 22, 16))
    if encoding == 0x30 and bits(word, 25, 18) == 0x25:
        return clock(gpu, bits(word, 12, 6))
    if bits(word, 31, 23) == 0x1A7 and bits(word, 22, 16) in MATRICES:
        return matrices(gpu, word, *MATRICES[bits(word, 22, 16)])
    if bits(word, 31, 25) == 0x3F and bits(word, 16, 9) in SWAPS and bits(word, 8, 8):
        return swap(word, SWAPS[bits(word, 16, 9)])
    if encoding == 0x38 and operation in (0x28, 0x29, 0x3E, 0x3F):  # write back; invalidate
        return cache_control(gpu, operation == 0x28)
    if encoding == 0x38:
        return buffer_memory(gpu, place, word, operation)
    if encoding == 0x37 and bits(word, 15, 14) == 2:
        return global_memory(gpu, place, word, operation)
    if encoding == 0x36 and bits(word, 24, 17) in (62, 63):  # ds_permute, ds_bpermute
        return exchange(word, bits(word, 24, 17) == 62)
    if encoding == 0x36 and bits(word, 24, 17) == 227:  # ds_read_b64_tr_b16
        return transposed(gpu, word)
    if encoding == 0x36 and bits(word, 24, 17) == 61:  # ds_swizzle
        return swizzle(word)
    if bits(word, 8, 0) == 0xFA and (encoding >> 5 == 0 or bits(word, 31, 25) == 0x3F):
        return permutation(word)
    return emulated(place)


def emulated(place):
    """The instruction as tinygrad does it."""
    (program, runtime), _ = emu._decode_at(place, "cdna")
    function, wanted = runtime.fxn, program.arg.globals

    def step(wave):
        arguments = wave.arguments
        function(*[arguments[each] for each in wanted])

    return step


def matrices(gpu, word, rows, each, kind):
    """The product of two tiles is added to a third: all lanes take part, each with its row and some of its elements."""
    if kind == "fp8" and bits(word, 10, 8) | bits(word, 63, 61):
        raise NotImplementedError(f"formats of 8 bits that differ: {word:#x}")
    dest, (first, second, third) = bits(word, 7, 0), (bits(word, at + 8, at) for at in (32, 41, 50))
    groups, count = LANES // rows, rows * rows // LANES
    register = np.arange(count)[:, None]
    row = (8 * (register // 4) if rows == 32 else 0) + 4 * (LANE // rows) + register % 4
    words = each * {"f32": 4, "fp8": 1}.get(kind, 2) // 4

    def tile(file, source):
        found = np.ascontiguousarray(file[source - 256 : source - 256 + words].T)
        return floats(found, kind, gpu.eight).reshape(groups, rows, each).swapaxes(0, 1).reshape(rows, -1)

    def step(wave):
        gpu.multiplied.add(kind)
        files = wave.vector, wave.accumulators
        a, b = tile(files[bits(word, 59, 59)], first), tile(files[bits(word, 60, 60)], second)
        results = files[bits(word, 15, 15)]
        added = results[third - 256 : third - 256 + count].view(np.float32) if third >= 256 else np.float32(third - 128)
        results[dest : dest + count] = ((a @ b.T)[row, LANE % rows] + added).astype(np.float32).view(np.uint32)
        wave.advance(8)

    return step


def floats(words, kind, eight):
    """What lanes hold, as float64. eight: torch's type of 8 bits."""
    if kind == "bf16":
        return (words.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if kind == "fp8":
        return torch.from_numpy(words.view(np.uint8)).view(eight).double().numpy()
    return words.view({"f32": np.float32, "f16": np.float16}[kind]).astype(np.float64)


def control(gpu, word, operation):
    left = bits(word, 3, 0) | bits(word, 15, 14) << 4 if operation == 12 else 63  # s_waitcnt vmcnt(left)

    def step(wave):
        wave.advance(4)
        if left == 0:
            gpu.drain(wave)
        elif left < 63:
            gpu.arrive(wave, left)
        elif operation == 14:  # s_sleep
            os.sched_yield()
        wave.done = operation == 1  # s_endpgm
        return operation in (1, 10)  # s_barrier

    return step


def clock(gpu, register):
    def step(wave):
        wave.set_pair(register, time.monotonic_ns() // gpu.tick)
        wave.advance(8)

    return step


def cache_control(gpu, writes):
    def step(wave):
        if writes:
            gpu.write_back()
        else:
            gpu.lines.clear()
        wave.advance(8)

    return step


def global_memory(gpu, place, word, operation):
    if operation >= 0x40:
        run = atomic(word, operation)
    elif operation in (0x18, 0x1A):
        run = narrow_store(word, operation)
    elif operation in WIDE and not bits(word, 16, 16) | bits(word, 25, 25):
        run = cached_load(gpu, word, WIDE[operation], bits(word, 63, 56), lambda wave: (wave.addresses(word), True))
    else:
        run = emulated(place)
    through = bits(word, 25, 25) == 1
    return in_time(gpu, lambda wave: wave.addresses(word)[wave.active()], run, loaded(word, operation), through)


def buffer_memory(gpu, place, word, operation):
    if operation >= 0x40:
        raise NotImplementedError(f"atomic of a buffer: {word:#x}")
    if operation in WIDE and not bits(word, 16, 14):
        run = cached_load(gpu, word, WIDE[operation], bits(word, 47, 40), lambda wave: wave.buffer_addresses(word))
    else:
        run = narrow_buffer(word, operation) if operation in NARROW else emulated(place)

    def reached(wave):
        places, inside = wave.buffer_addresses(word)
        return places[inside & wave.active()]

    return in_time(gpu, reached, run, None if 0x18 <= operation <= 0x1F else (), bits(word, 15, 15) == 1)


def loaded(word, operation):
    """The registers that a global load writes; none that is known of for atomics; None for a store."""
    if 0x18 <= operation <= 0x1F:
        return None
    first = bits(word, 63, 56)
    plain = operation in WIDE and not bits(word, 55, 55)
    return range(first, first + WIDE[operation]) if plain else ()


def in_time(gpu, reached, run, registers, through):
    """A store to a peer comes later. What a wave reads or changes at a place comes after its own stores there."""

    def step(wave):
        places = reached(wave)
        wave.issued += 1
        if registers is None:
            gpu.forget(places)
        if gpu.late(places).any():
            if registers is None:
                wave.stores.append(Store(wave.later(run), places, through))
                wave.advance(8)
                return
            if any(np.intersect1d(each.places // LINE, places // LINE).size for each in wave.stores):
                gpu.drain(wave)
            if registers and gpu.is_late_load():
                wave.loads.append((wave.issued - 1, late_load(wave, run, registers)))
                wave.advance(8)
                return
        run(wave)

    return step


def late_load(wave, run, registers):
    """The load of these registers, to be called at any time: where it goes is decided now."""
    then, active = Registers(wave.scalar.copy(), wave.vector.copy(), wave.rest), wave.active()

    def arrive():
        run(then)
        wave.vector[registers.start : registers.stop, active] = then.vector[registers.start : registers.stop, active]

    return arrive


def cached_load(gpu, word, words, dest, addresses):
    """A load that no bit sends past the caches: what it finds of a heap may have been read before."""
    accumulates = bits(word, 55, 55)

    def step(wave):
        places, inside = addresses(wave)
        active = wave.active()
        (wave.accumulators if accumulates else wave.vector)[dest : dest + words, active] = gpu.seen(
            places[active], words, np.broadcast_to(inside, LANES)[active]
        )
        wave.advance(8)

    return step


def atomic(word, operation):
    """An atomic of global memory. Bit 16, sc0 or glc: what was there goes to the destination."""
    double = operation == 0x4F if operation in FLOAT_ADDS else operation & DOUBLE
    width, data, dest = 2 if double else 1, bits(word, 47, 40), bits(word, 63, 56)
    kind = f"uint{32 * width}"
    swap_if = getattr(_native, "compare_swap_" + kind)
    name = ATOMICS.get(operation & ~DOUBLE)
    update = getattr(_native, f"{name}_{kind}") if name else None
    choice, signs = CHOICES.get(operation & ~DOUBLE, (None, ""))
    if update is None and choice is None and operation not in FLOAT_ADDS:
        raise NotImplementedError(f"atomic: {word:#x}")

    def value(wave, register, lane):
        return int.from_bytes(wave.vector[register : register + width, lane].tobytes(), "little")

    def add(address, number):
        while True:
            old = getattr(_native, "fetch_" + kind)(address)
            pair = np.array([old, number], kind).view(FLOAT_ADDS[operation])
            if swap_if(address, old, int(pair.sum(keepdims=True).view(kind)[0])) == old:
                return old

    def choose(address, number):
        while True:
            old = getattr(_native, "fetch_" + kind)(address)
            pair = np.array([old, number], kind)
            seen = pair.view(f"{signs}{32 * width}").tolist()
            if swap_if(address, old, int(pair[seen.index(choice(seen))])) == old:
                return old

    def step(wave):
        places = wave.addresses(word)
        for lane in np.flatnonzero(wave.active()):
            address, operand = int(places[lane]), value(wave, data, lane)
            if name == "compare_swap":
                old = swap_if(address, value(wave, data + width, lane), operand)
            else:
                old = (update or (choose if choice else add))(address, operand)
            if bits(word, 16, 16):
                wave.vector[dest : dest + width, lane] = np.array([old], kind).view(np.uint32)
        wave.advance(8)

    return step


def narrow_store(word, operation):
    nbytes, data = NARROW[operation][0], bits(word, 47, 40)

    def step(wave):
        places = wave.addresses(word)
        for lane in np.flatnonzero(wave.active()):
            ctypes.memmove(int(places[lane]), int(wave.vector[data, lane]).to_bytes(4, "little"), nbytes)
        wave.advance(8)

    return step


def narrow_buffer(word, operation):
    (nbytes, signed), loads, data = NARROW[operation], operation < 24, bits(word, 47, 40)

    def step(wave):
        places, inside = wave.buffer_addresses(word)
        for lane in np.flatnonzero(wave.active()):
            if loads:
                found = ctypes.string_at(int(places[lane]), nbytes) if inside[lane] else b"\0"
                wave.vector[data, lane] = int.from_bytes(found, "little", signed=signed) % 2**32
            elif inside[lane]:
                ctypes.memmove(int(places[lane]), int(wave.vector[data, lane]).to_bytes(4, "little"), nbytes)
        wave.advance(8)

    return step


def swap(word, count):
    """Rows of ``count`` lanes change places: the second ones of the destination with the first ones of the source."""
    dest, source, first = bits(word, 24, 17), bits(word, 7, 0), LANE // count % 2 == 0

    def step(wave):
        kept = wave.vector[dest, ~first].copy()
        wave.vector[dest, ~first] = wave.vector[source, first]
        wave.vector[source, first] = kept
        wave.advance(4)

    return step


def transposed(gpu, word):
    """16 lanes read four rows of 16 halves of local memory, four lanes a row, and each takes a column."""
    offset, address, dest = bits(word, 15, 0), bits(word, 39, 32), bits(word, 63, 56)
    giver = LANE[:, None] // 16 * 16 + 4 * np.arange(4) + LANE[:, None] % 16 // 4

    def step(wave):
        halves = gpu.local.view(np.uint16)[
            (wave.vector[address].astype(np.int64) + offset)[:, None] // 2 + np.arange(4)
        ]
        taken = np.ascontiguousarray(halves[giver, LANE[:, None] % 4])
        (wave.accumulators if bits(word, 25, 25) else wave.vector)[dest : dest + 2] = taken.view(np.uint32).T
        wave.advance(8)

    return step


def swizzle(word):
    """Each lane takes the value of the one in its half of the wave that masks make of its number; 0 where that is off."""
    offset, source, dest = bits(word, 15, 0), bits(word, 39, 32), bits(word, 63, 56)
    if offset >> 15:
        raise NotImplementedError(f"ds_swizzle of quads: {word:#x}")
    others = ((LANE & bits(offset, 4, 0)) | bits(offset, 9, 5)) ^ bits(offset, 14, 10) | LANE & 32

    def step(wave):
        active = wave.active()
        values = np.where(active[others], wave.vector[source, others], 0)
        wave.vector[dest, active] = values[active]
        wave.advance(8)

    return step


def exchange(word, push):
    """Each lane gives its value to the one that it names, or takes that one's; 0 where nobody gives, or that one is off."""
    offset, index, data, dest = bits(word, 15, 0), bits(word, 39, 32), bits(word, 47, 40), bits(word, 63, 56)

    def step(wave):
        active, other = wave.active(), (wave.vector[index] + np.uint32(offset)) // 4 % LANES
        moved = np.zeros(LANES, np.uint32)
        if push:
            moved[other[active]] = wave.vector[data][active]
        else:
            moved = np.where(active, wave.vector[data], 0)[other]
        wave.vector[dest][active] = moved[active]
        wave.advance(8)

    return step


def permutation(word):
    """VOP1 and VOP2 whose first operand comes from other lanes: move that, then execute the plain instruction."""
    if bits(word, 55, 52):
        raise NotImplementedError(f"DPP with modifiers of operands: {word:#x}")
    source, exists = lanes(bits(word, 48, 40))
    enabled = (bits(word, 63, 60) >> LANE // 16 & 1) & (bits(word, 59, 56) >> LANE // 4 % 4 & 1) == 1
    zero = bits(word, 51, 51) == 1  # where there is nothing to read
    result, other = bits(word, 24, 17), bits(word, 16, 9)
    spare = next(each for each in range(255, 0, -1) if each not in (result, result + 1, other))
    plain = np.array([word & 0xFFFFFE00 | 256 + spare] + 4 * [0xBF800000], np.uint32)  # s_nop
    run = emulated(plain.ctypes.data)

    def step(wave):
        active, after, mask = wave.active(), wave.pair(PC) + 8, wave.pair(EXEC)
        readable, kept = exists & active[source], wave.vector[spare].copy()  # kernels may use all registers
        wave.vector[spare] = np.where(readable, wave.vector[bits(word, 39, 32)][source], 0)
        written = active & enabled & (readable | zero)
        wave.set_pair(EXEC, int.from_bytes(np.packbits(written, bitorder="little").tobytes(), "little"))
        wave.set_pair(PC, plain.ctypes.data)
        run(wave)
        wave.vector[spare] = kept
        wave.set_pair(EXEC, mask)
        wave.set_pair(PC, after)

    return step


def lanes(control):
    """Which lane each one reads, and whether there is such a lane. Of gfx90a's DPP controls."""
    row, place, count = LANE // 16 * 16, LANE % 16, control & 15
    if control < 0x100:
        source = LANE // 4 * 4 + (control >> LANE % 4 * 2 & 3)
    elif 0x101 <= control <= 0x10F:
        source = np.where(place + count < 16, LANE + count, -1)
    elif 0x111 <= control <= 0x11F:
        source = np.where(place >= count, LANE - count, -1)
    elif 0x121 <= control <= 0x12F:
        source = row + (place - count) % 16
    elif control in (0x140, 0x141):
        source = row + 15 - place if control == 0x140 else LANE // 8 * 8 + 7 - LANE % 8
    elif control in (0x130, 0x138):
        source = np.where(LANE < 63, LANE + 1, -1) if control == 0x130 else LANE - 1
    elif control == 0x142:  # the last lane of the row before
        source = row - 1
    elif control == 0x143:
        source = np.where(LANE >= 32, 31, -1)
    elif 0x150 <= control <= 0x15F:
        source = row + count
    else:
        raise NotImplementedError(f"DPP control {control:#x}")
    return np.maximum(source, 0), source >= 0
