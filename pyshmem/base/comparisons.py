"""The numbers of the comparisons: CMP on the host, dev.CMP_* in kernels, the native waits and time-out records use them."""

from typing import Literal, get_args

from pyshmem.base.layout import numbers

Sign = Literal["==", "!=", ">", ">=", "<", "<="]
EQ, NE, GT, GE, LT, LE = numbers("EQ", "NE", "GT", "GE", "LT", "LE")
SIGNS: tuple[Sign, ...] = get_args(Sign)
NAMES = ("EQ", "NE", "GT", "GE", "LT", "LE")
