"""What stands for a GPU and its driver, for the service thread: copies and kernels take effect when their stream is found idle."""

import ctypes
import mmap

import numpy as np
from pyshmem.native import _native
from pyshmem.base.far import OPERATORS, STAGE
from standin_driver import LAUNCH

COPY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_uint64)
HIP_COPY = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int, ctypes.c_uint64
)
CALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64)
RELAX = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int))
TYPES = ("int32", "int64", "uint32", "uint64", "float32", "float64")
STREAM, DEVICE, PERFORM, MOVE, NOT_READY = 5, 0x1234, 100, 200, 600


class Gpu:
    """Memory of ``nbytes``, of which the heap has the first ``length``. ``done``: the calls, in order. ``fails``: calls that do.

    busy: the stream has work that does not end.
    """

    def __init__(self, nbytes=1 << 20, length=None, is_hip=False):
        self.done, self.fails, self.is_hip, self.length = [], {}, is_hip, length or nbytes
        self.on_idle, self.busy = lambda: None, False
        self._maps = [mmap.mmap(-1, nbytes), mmap.mmap(-1, STAGE + 4096), mmap.mmap(-1, 4096)]
        self.heap, self.staging, self.scratch = (np.frombuffer(each, np.uint8) for each in self._maps)
        self.words = self.heap.view(np.uint64)
        self._waiting = []
        self._functions = (
            CALL(self.attach), RELAX(self.relax), (HIP_COPY if is_hip else COPY)(self.copy), CALL(self.query), LAUNCH(self.launch),
        )  # fmt: skip

    def open(self):
        """Let the service serve it. Return the driver's code, and the calls so far, which ``done`` does not keep."""
        code = _native.far_open_gpu(*self._arguments())
        calls, self.done = self.done, []
        return code, calls

    def _arguments(self):
        attach, relax, copy, query, launch = (ctypes.cast(each, ctypes.c_void_p).value for each in self._functions)
        heads = [(launch, PERFORM, 1, 1, 1, 32, 0, 0)]
        heads += [(launch, MOVE + size, 8 // size, 1, 1, 128, 0, 0) for size in (1, 2, 4, 8)]
        plans = np.array(heads, np.uint64).tobytes()
        return (
            self.heap.ctypes.data, self.length, self.is_hip, attach, DEVICE, relax, copy, query, STREAM,
            self.staging.ctypes.data, self.scratch.ctypes.data, plans,
        )  # fmt: skip

    # ---- the driver ----

    def attach(self, device):
        assert device == DEVICE
        return self._answer("attach")

    def relax(self, mode):
        assert mode[0] == 2
        return self._answer("relax")

    def copy(self, dest, source, nbytes, *rest):
        assert rest == ((4, STREAM) if self.is_hip else (STREAM,))
        self._waiting.append(lambda: ctypes.memmove(dest, source, nbytes))
        return self._answer(f"copy {nbytes}")

    def launch(self, kernel, x, y, z, threads, block_y, block_z, shared, stream, parameters, extra):
        assert (y, z, block_y, block_z, stream) == (1, 1, 1, 1, STREAM)
        words = [ctypes.c_uint64.from_address(parameters[place]).value for place in range(8)]
        self._waiting.append(lambda: self._perform(*words) if kernel == PERFORM else self._move(kernel - MOVE, *words))
        return self._answer("perform" if kernel == PERFORM else f"move {kernel - MOVE}")

    def query(self, stream):
        assert stream == STREAM
        if self.busy:
            return NOT_READY
        self.on_idle()
        for work in self._waiting:
            work()
        self._waiting.clear()
        return self._answer("idle")

    def _answer(self, call):
        self.done.append(call)
        return self.fails.get(call.split()[0], 0)

    # ---- the kernels of pyshmem.kernels.requests ----

    def _perform(self, address, operand, cond, result, detail, *_):
        dtype = np.dtype(TYPES[detail % 16])
        word = np.frombuffer((ctypes.c_char * dtype.itemsize).from_address(address), dtype)
        old = word[0].copy()
        value, wanted = (np.array([bits], np.uint64).view(dtype)[0] for bits in (operand, cond))
        operator = OPERATORS[detail // 16]
        if operator in ("set", "swap") or (operator == "compare_swap" and old == wanted):
            word[0] = value
        elif operator == "add":
            word[0] = old + value
        elif operator in ("and", "or", "xor"):
            bits = word.view(f"u{dtype.itemsize}")
            bits[0] = getattr(np, f"bitwise_{operator}")(bits[0], bits.dtype.type(operand % (1 << 8 * dtype.itemsize)))
        bits = int.from_bytes(old.tobytes(), "little")
        ctypes.c_uint64.from_address(result).value = bits | (0xABCD << 48 if dtype.itemsize == 4 else 0)

    def _move(self, size, target, target_step, source, source_step, item, count, *_):
        assert (target | source | target_step | source_step) % size == 0 and item * size * count <= 8192
        for each in range(count):
            ctypes.memmove(target + each * target_step, source + each * source_step, item * size)
