"""The comparisons of waits and tests, numbered once: CMP on the host, dev.CMP_* in kernels, the native waits, time-outs."""

EQ, NE, GT, GE, LT, LE = range(6)
SIGNS = ("==", "!=", ">", ">=", "<", "<=")
NAMES = ("EQ", "NE", "GT", "GE", "LT", "LE")
