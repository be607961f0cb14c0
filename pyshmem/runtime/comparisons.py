"""The numbers of the comparisons: CMP on the host, dev.CMP_* in kernels, the native waits and time-out records use them."""

EQ, NE, GT, GE, LT, LE = range(6)
SIGNS = ("==", "!=", ">", ">=", "<", "<=")
NAMES = ("EQ", "NE", "GT", "GE", "LT", "LE")
