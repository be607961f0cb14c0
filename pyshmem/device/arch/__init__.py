"""What differs between the places where kernels run. So far there is one: Triton's interpreter on the CPU heap."""

from pyshmem.device.arch.interpreter import (
    copy,
    exchange,
    fence,
    fetch,
    fit,
    jit,
    lanes,
    synchronise,
    test,
    translate,
    wait,
)
from pyshmem.device.arch.refusals import check, check_apart, check_atomic, check_choice, check_one, expect

__all__ = [
    "check",
    "check_apart",
    "check_atomic",
    "check_choice",
    "check_one",
    "copy",
    "exchange",
    "expect",
    "fence",
    "fetch",
    "fit",
    "jit",
    "lanes",
    "synchronise",
    "test",
    "translate",
    "wait",
]
