"""Compiles a kernel for an AMD GPU and runs it on the emulated one, as a launch on the real one would."""

import ctypes
import mmap
import struct

import pyshmem as shmem
import torch
from compiling import TARGETS, specialise
from emulator import LANES, Gpu
from instructions import decode
from pyshmem.base.kernel_timeouts import WORDS
from pyshmem.memory import areas
from pyshmem.memory.cpu_heap import cpu
from pyshmem.memory.heap import AREAS_BYTES
from triton.compiler import compile

FORMATS = {"i1": "B", "u1": "B", "i32": "i", "i64": "q", "u32": "I", "u64": "Q", "fp32": "f", "fp64": "d"}


class Code:
    """A code object in memory: where it starts, and what its kernel finds in its registers."""

    def __init__(self, binary, name, shared):
        (headers,) = struct.unpack_from("<Q", binary, 32)
        (count,) = struct.unpack_from("<H", binary, 56)
        loads = [struct.unpack_from("<IIQQQQ", binary, headers + 56 * each) for each in range(count)]
        loads = [(offset, at, size) for kind, _, offset, at, _, size in loads if kind == 1]  # PT_LOAD
        self.image = mmap.mmap(-1, max(at + size for _, at, size in loads) + 256)
        for offset, at, size in loads:
            self.image[at : at + size] = binary[offset : offset + size]
        descriptor = symbol(binary, name + ".kd")
        (start,) = struct.unpack_from("<q", self.image, descriptor + 16)
        self.rsrc2, self.properties, preload = struct.unpack_from("<IHH", self.image, descriptor + 52)
        self.rsrc2 |= -(-shared // 512) << 15
        # words of arguments that are in registers, from which on
        self.preload, self.skip = (preload & 0x7F, preload >> 7)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.image))
        self.entry = base + descriptor + start + (256 if self.preload else 0)

    def user_registers(self, kernarg):
        """The first scalar registers: null for what these kernels do not use, the arguments' address, arguments."""
        registers = []
        # buffer, dispatch, queue, arguments, dispatch id, scratch, size
        for bit, words in enumerate((4, 2, 2, 2, 2, 2, 1)):
            if self.properties >> bit & 1:
                registers += [kernarg % 2**32, kernarg >> 32] if bit == 3 else [0] * words
        return registers + list((ctypes.c_uint32 * self.preload).from_address(kernarg + 4 * self.skip))


def symbol(binary, name):
    """The address of a dynamic symbol."""
    (headers,) = struct.unpack_from("<Q", binary, 40)
    (count,) = struct.unpack_from("<H", binary, 60)
    sections = [struct.unpack_from("<IIQQQQII", binary, headers + 64 * each) for each in range(count)]
    for _, kind, _, _, offset, size, link, _ in sections:
        if kind == 11:  # SHT_DYNSYM
            names = sections[link][4]
            for at in range(offset, offset + size, 24):
                text, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", binary, at)
                if binary[names + text :].startswith(name.encode() + b"\0"):
                    return value
    raise KeyError(name)


def flatten(kinds, values):
    """The kind and the value of each argument; those of a tuple one by one, unless it is a constant."""
    for kind, value in zip(kinds, values, strict=True):
        if isinstance(kind, tuple):
            yield from flatten(kind, value)
        else:
            yield kind, value


def pack(signature, values, grid, threads):
    """The arguments as a kernel finds them in memory: each aligned to its size, Triton's two scratch pointers, hidden ones."""
    packed = bytearray()
    for kind, value in flatten(signature, values):
        if kind == "constexpr":
            continue
        form = "Q" if kind.startswith("*") else FORMATS[kind]
        packed += bytes(-len(packed) % struct.calcsize(form))
        packed += struct.pack(form, value.data_ptr() if kind.startswith("*") else value)
    hidden = struct.pack("3I3H", *grid, threads, 1, 1)  # programs of the grid, threads of a program
    return packed + bytes(-len(packed) % 8 + 16) + hidden + bytes(256 - len(hidden))


class Device:
    """An emulated GPU, and the heap in CPU memory as if it were the GPU's: what shmem.device_context asks of a heap.

    Peers' memory is not cached on gfx90a, where heaps must be uncached; elsewhere it may be.
    """

    scratch_bytes = 1 << 20
    streams = False  # its work is done on return
    limits = False  # whether waits of the next launches may give up

    def __init__(self, arch):
        self.arch = self.device = arch
        eight = torch.float8_e4m3fn if arch == "gfx950" else torch.float8_e4m3fnuz
        tick = 40 if arch == "gfx90a" else 10
        self.gpu = Gpu(decode, peers_memory, of_a_heap, cached=arch != "gfx90a", eight=eight, tick=tick)
        self.loaded = {}
        self.options = {}  # of the compiler, of the next launches
        # of the teams' barriers in kernels
        self.areas = shmem.zeros((AREAS_BYTES + self.scratch_bytes) // 8, dtype=torch.int64, device="cpu")
        self.begin()
        self.words = torch.zeros(WORDS, dtype=torch.int64)
        self.system, self.record = self.areas.data_ptr(), self.words.data_ptr()
        self.base, self.stride, self.deltas = cpu.base, cpu.stride, cpu.deltas
        self.far, self.far_deltas = cpu.far, cpu.far_deltas
        reached = cpu.far_deltas | cpu.deltas
        self.distances = torch.tensor([reached[pe] for pe in range(shmem.n_pes())])
        self.table = self.distances.data_ptr()

    def begin(self):
        """No barrier of kernels has been yet: pyshmem.memory.areas.begin."""
        self.areas.zero_()
        for index in range(areas.pool.size):
            self.areas.view(torch.uint8)[index * areas.area_bytes() :][areas.NUMBERS : areas.SYNC_BYTES].fill_(255)

    def enter(self):
        """Nothing has to be made current."""

    def synchronize(self):
        """A launch returns when its kernel has ended."""

    def with_options(self, options, step, *arguments):
        """Call ``step``, whose launches have these options of the compiler."""
        self.options = options
        try:
            return step(*arguments)
        finally:
            self.options = {}

    def launch(self, kernel, *args, grid, warmup=False, num_warps=4, **named):
        """Stands for JITFunction.run. Done on return. Errors: AssertionError where a wait gave up."""
        chosen = {"num_warps": num_warps} | self.options
        code, grid, threads, arguments = self.prepared(kernel, args, named, grid, chosen)
        self.gpu.run(code, grid, threads, ctypes.addressof(arguments))
        assert self.limits or not self.words.any(), f"a wait gave up: {self.words.tolist()}"

    def prepared(self, kernel, args, named, grid, options):
        """(code, grid, threads of a program, arguments in memory) of a launch with these options of the compiler."""
        bound = kernel.signature.bind(*args, **named)
        bound.apply_defaults()
        values, threads = bound.arguments.values(), options["num_warps"] * LANES
        source, compiled = specialise(kernel, self.arch, list(values), **options)
        code = self.load(source, compiled)
        grid = (*(grid(bound.arguments) if callable(grid) else grid), 1, 1)[:3]
        packed = pack(source.signature.values(), values, grid, threads)
        return code, grid, threads, (ctypes.c_char * len(packed)).from_buffer(packed)

    def load(self, source, options):
        """The kernel's code in memory; Triton's cache of compiled kernels is used."""
        key = source.hash(), str(options)
        if key not in self.loaded:
            compiled = compile(source, target=TARGETS[self.arch], options=options.__dict__)
            self.loaded[key] = Code(compiled.asm["hsaco"], compiled.metadata.name, compiled.metadata.shared)
        return self.loaded[key]


def peers_memory(addresses):
    """Which of these are in a peer's heap."""
    return of_a_heap(addresses) & ~((addresses >= cpu.base) & (addresses < cpu.base + cpu.stride))


def of_a_heap(addresses):
    """Which of these are in the heap of any PE."""
    distances = cpu.deltas.values()
    return (addresses >= cpu.base + min(distances)) & (addresses < cpu.base + max(distances) + cpu.stride)
