"""What differs between the places where kernels run: Triton's interpreter on the CPU heap, and GPUs."""

from pyshmem import interpreter

if interpreter.active():
    from pyshmem.device.arch.interpreter import (
        add_signal,
        atomic,
        copy,
        fence,
        fetch,
        fit,
        jit,
        join,
        read,
        set_signal,
        synchronise,
        test,
        translate,
        wait,
    )
    from pyshmem.device.arch.refusals import check, check_apart, check_atomic, check_choice, check_one, expect
else:
    from pyshmem.device.arch.checks import check, check_apart, check_atomic, check_choice, check_one, expect
    from pyshmem.device.arch.compiled import (
        add_signal,
        atomic,
        copy,
        fence,
        fetch,
        fit,
        jit,
        join,
        read,
        set_signal,
        synchronise,
        test,
        wait,
    )
    from pyshmem.device.arch.translation import translate

__all__ = [
    "add_signal",
    "atomic",
    "check",
    "check_apart",
    "check_atomic",
    "check_choice",
    "check_one",
    "copy",
    "expect",
    "fence",
    "fetch",
    "fit",
    "jit",
    "join",
    "read",
    "set_signal",
    "synchronise",
    "test",
    "translate",
    "wait",
]
