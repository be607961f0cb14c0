"""Numbers of requests to far PEs, which Python and the C code share: _links.h, _proxy.h."""

from pyshmem.runtime import _native

SHIFT = 48  # a place is (PE + 1) << SHIFT, plus an offset
GPU = 1 << 47  # of an offset: it is in the GPU heap
CHUNK, STAGE = 8192, 1 << 18  # the most bytes that a kernel moves for a request, and that the copy engine moves at once
PUT, GET, PUT_STRIDED, GET_STRIDED, UPDATE, FETCH, POST, FLUSH = range(1, 9)  # operations
OPERATORS, TYPES = tuple(_native.ATOMICS), _native.ATOMICS["fetch"]  # of atomics, by number: the tables of _words.h
ATOMICS = {(op, kind): 16 * OPERATORS.index(op) + TYPES.index(kind) for op in OPERATORS for kind in _native.ATOMICS[op]}

# The ring of a process's kernels: SLOTS slots of SLOT_HEAD + PIECE bytes, words of 8 bytes at the head and data behind them.
SLOTS, SLOT_HEAD, PIECE = 32, 128, 1 << 18
READY, DONE, FREE, OP, DETAIL, PLACE, NBYTES, VALUE, COND, RESULT = range(10)  # the words: see slot_t in _proxy.h
