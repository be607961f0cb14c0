"""Numbers of requests to far PEs, which Python and the C code share: those of far/protocol.h and far/proxy.h."""

from pyshmem.base import layout
from pyshmem.native import _native

SHIFT, GPU = layout.numbers(
    "FAR_SHIFT", "FAR_GPU"
)  # a place is (PE + 1) << SHIFT, plus an offset, plus GPU in the GPU heap
CHUNK, STAGE = layout.numbers("CHUNK", "STAGE")  # the most bytes that a kernel moves for a request, and the copy engine
PUT, GET, PUT_STRIDED, GET_STRIDED = layout.numbers("PUT", "GET", "PUT_STRIDED", "GET_STRIDED")  # operations
UPDATE, FETCH, POST, FLUSH = layout.numbers("UPDATE", "FETCH", "POST", "FLUSH")
OPERATORS, TYPES = tuple(_native.ATOMICS), _native.ATOMICS["fetch"]  # of atomics, by number: the tables of base/word.h
ATOMICS = {(op, kind): 16 * OPERATORS.index(op) + TYPES.index(kind) for op in OPERATORS for kind in _native.ATOMICS[op]}

# The ring of a process's kernels: SLOTS slots of SLOT_HEAD + PIECE bytes, words of 8 bytes at the head and data behind them.
SLOTS, SLOT_HEAD, PIECE = layout.numbers("SLOTS", "SLOT_HEAD", "PIECE")
READY, DONE, FREE, OP, DETAIL, PLACE, NBYTES, VALUE, COND, RESULT = (
    layout.place("slot_t", word) // 8
    for word in ("ready", "done", "free", "op", "detail", "place", "nbytes", "value", "cond", "result")
)
