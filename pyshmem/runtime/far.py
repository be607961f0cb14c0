"""Numbers of requests to far PEs, which Python and the C code share: _far.h, _messages.h, _wire.h, _proxy.h."""

SHIFT = 48  # a place is (PE + 1) << SHIFT, plus an offset
GPU = 1 << 47  # of an offset: it is in the GPU heap
CHUNK, STAGE = 8192, 1 << 18  # the most bytes that a kernel moves for a request, and that the copy engine moves at once
MESSAGE = 1 << 22  # the most bytes of a message of MPI
LARGE = {"mixed": 1 << 16, "mpi": 1 << 14}  # by carrier: the fewest bytes that go as messages of their own
PUT, GET, PUT_STRIDED, GET_STRIDED, UPDATE, FETCH, POST, FLUSH = range(1, 9)  # operations
OPERATORS = ("fetch", "set", "swap", "add", "and", "or", "xor", "compare_swap")  # of atomics, by number
TYPES = ("int32", "int64", "uint32", "uint64", "float32", "float64")  # of atomics, by number
UINT64 = TYPES.index("uint64")
ATOMICS = {(op, kind): 16 * OPERATORS.index(op) + number for op in OPERATORS for number, kind in enumerate(TYPES)}

# The ring of a process's kernels: SLOTS slots of SLOT_HEAD + PIECE bytes, words of 8 bytes at the head and data behind them.
SLOTS, SLOT_HEAD, PIECE = 32, 128, 1 << 18
READY, DONE, FREE, OP, DETAIL, PLACE, NBYTES, VALUE, COND, RESULT = range(10)  # the words: see slot_t in _proxy.h
