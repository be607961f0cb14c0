"""What differs between the places where kernels run. So far there is one: Triton's interpreter on the CPU heap."""

from pyshmem.device.arch.interpreter import (
    check,
    check_atomic,
    copy,
    exchange,
    expect,
    fence,
    fetch,
    fit,
    jit,
    synchronise,
    test,
    wait,
)

__all__ = [
    "check",
    "check_atomic",
    "copy",
    "exchange",
    "expect",
    "fence",
    "fetch",
    "fit",
    "jit",
    "synchronise",
    "test",
    "wait",
]
