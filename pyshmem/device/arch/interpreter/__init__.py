"""Device functions for interpreted kernels. A kernel runs as Python, so the host's copies and waits are used."""

from types import ModuleType as _ModuleType

from pyshmem.device.arch.interpreter.array_waits import test_all, test_any, test_some, wait_all, wait_any, wait_some
from pyshmem.device.arch.interpreter.atomics import atomic, compare_swap
from pyshmem.device.arch.interpreter.checks import (
    check,
    check_alone,
    check_apart,
    check_atomic,
    check_axis,
    check_blocks,
    check_choice,
    check_combined,
    check_context,
    check_fetch,
    check_here,
    check_local,
    check_many,
    check_one,
    check_pe,
    check_pes,
    check_reach,
    check_reduced,
    check_tile,
    expect,
    fits,
)
from pyshmem.device.arch.interpreter.copies import (
    copy,
    copy_blocks_from,
    copy_blocks_to,
    copy_from,
    copy_to,
    load_block,
    read,
    store_block,
    store_number,
    store_single,
)
from pyshmem.device.arch.interpreter.events import (
    begin_call,
    begin_meeting,
    begin_span,
    begin_wait,
    begin_waits,
    begin_write,
    end_event,
)
from pyshmem.device.arch.interpreter.marked_words import await_parts, await_words, store_words
from pyshmem.device.arch.interpreter.ordering import fence, join, quiet
from pyshmem.device.arch.interpreter.partition_checks import (
    check_dimension,
    check_index,
    check_member,
    check_number,
    check_partition,
    check_places,
    check_tile_place,
    check_value_of_tile,
)
from pyshmem.device.arch.interpreter.signals import add_signal, set_signal
from pyshmem.device.arch.interpreter.team_flags import (
    await_all,
    await_member,
    check_slot,
    synchronise,
    tell_all,
    tell_member,
)
from pyshmem.device.arch.interpreter.translation import distance, translate
from pyshmem.device.arch.interpreter.values import (
    along,
    apart,
    arange,
    blank,
    decoded,
    fit,
    in_gluon,
    in_registers,
    jit,
    laid_out,
    rounded,
    threads,
)
from pyshmem.device.arch.interpreter.waits import fetch, test, wait

__all__ = sorted(
    name for name, value in globals().items() if not name.startswith("_") and not isinstance(value, _ModuleType)
)
