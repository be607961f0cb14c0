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
    from pyshmem.device.arch.interpreter_many import (
        copy_blocks,
        test_all,
        test_any,
        test_some,
        wait_all,
        wait_any,
        wait_some,
    )
    from pyshmem.device.arch.partition_refusals import check_partition, check_places, check_plane, check_tile_place
    from pyshmem.device.arch.refusals import (
        check,
        check_apart,
        check_atomic,
        check_blocks,
        check_choice,
        check_fetch,
        check_many,
        check_one,
        check_pes,
        expect,
    )
else:
    from pyshmem.device.arch.checks import (
        check,
        check_apart,
        check_atomic,
        check_blocks,
        check_choice,
        check_fetch,
        check_many,
        check_one,
        check_pes,
        expect,
    )
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
    from pyshmem.device.arch.partition_checks import check_partition, check_places, check_plane, check_tile_place
    from pyshmem.device.arch.strided import copy_blocks
    from pyshmem.device.arch.translation import distance, translate
    from pyshmem.device.arch.waiting_many import test_all, test_any, test_some, wait_all, wait_any, wait_some

__all__ = [
    "add_signal",
    "atomic",
    "await_all",
    "await_words",
    "check",
    "check_apart",
    "check_atomic",
    "check_blocks",
    "check_choice",
    "check_fetch",
    "check_many",
    "check_one",
    "check_partition",
    "check_pes",
    "check_places",
    "check_plane",
    "check_slot",
    "check_tile_place",
    "copy",
    "copy_blocks",
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
    "test_all",
    "test_any",
    "test_some",
    "translate",
    "wait",
    "wait_all",
    "wait_any",
    "wait_some",
]
