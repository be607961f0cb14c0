"""What differs between the places where kernels run: Triton's interpreter on the CPU heap, and GPUs."""

from pyshmem import interpreter

if interpreter.active():
    from pyshmem.device.arch.interpreted_exchange import (
        await_all,
        await_words,
        check_slot,
        distance,
        store_words,
        tell_all,
    )
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
    from pyshmem.device.arch.exchange import await_all, await_words, check_slot, store_words, tell_all
    from pyshmem.device.arch.translation import distance, translate

__all__ = [
    "add_signal",
    "atomic",
    "await_all",
    "await_words",
    "check",
    "check_apart",
    "check_atomic",
    "check_choice",
    "check_one",
    "check_slot",
    "copy",
    "describe",
    "distance",
    "expect",
    "fence",
    "fetch",
    "fit",
    "jit",
    "join",
    "read",
    "refuse_call",
    "set_signal",
    "store_words",
    "synchronise",
    "tell_all",
    "test",
    "translate",
    "wait",
]
