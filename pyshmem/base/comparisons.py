"""The numbers of the comparisons: CMP on the host, dev.CMP_* in kernels, the native waits and time-out records use them."""

from typing import Literal, get_args

Sign = Literal["==", "!=", ">", ">=", "<", "<="]
EQ, NE, GT, GE, LT, LE = range(6)
SIGNS: tuple[Sign, ...] = get_args(Sign)
NAMES = ("EQ", "NE", "GT", "GE", "LT", "LE")
