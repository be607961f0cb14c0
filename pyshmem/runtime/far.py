"""Numbers of requests to far PEs, which Python and _far.h share."""

SHIFT = 48  # a place is (PE + 1) << SHIFT, plus an offset
GPU = 1 << 47  # of an offset: it is in the GPU heap
CHUNK, STAGE = 8192, 1 << 18  # the most bytes that a kernel moves for a request, and that the copy engine moves at once
OPERATORS = ("fetch", "set", "swap", "add", "and", "or", "xor", "compare_swap")  # of atomics, by number
UINT64 = 3  # the number of this element type
