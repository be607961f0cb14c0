"""Numbers of requests to far PEs, which Python and _far.h share."""

SHIFT = 48  # a place is (PE + 1) << SHIFT, plus an offset
OPERATORS = ("fetch", "set", "swap", "add", "and", "or", "xor", "compare_swap")  # of atomics, by number
UINT64 = 3  # the number of this element type
