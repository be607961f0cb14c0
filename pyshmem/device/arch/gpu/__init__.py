"""Device functions on NVIDIA's and AMD's GPUs, as Triton compiles them. The memory model is in instructions."""

from types import ModuleType as _ModuleType

from pyshmem.device.arch.gpu.array_waits import test_all, test_any, test_some, wait_all, wait_any, wait_some
from pyshmem.device.arch.gpu.blocks import along, apart, arange, blank, in_gluon, in_registers, laid_out
from pyshmem.device.arch.gpu.checks import (
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
from pyshmem.device.arch.gpu.copies import copy
from pyshmem.device.arch.gpu.events import (
    begin_call,
    begin_meeting,
    begin_span,
    begin_wait,
    begin_waits,
    begin_write,
    end_event,
)
from pyshmem.device.arch.gpu.instructions import threads
from pyshmem.device.arch.gpu.marked_words import await_parts, await_words, store_words
from pyshmem.device.arch.gpu.ordering import fence, join
from pyshmem.device.arch.gpu.partition_checks import (
    check_dimension,
    check_index,
    check_member,
    check_number,
    check_partition,
    check_places,
    check_tile_place,
    check_value_of_tile,
)
from pyshmem.device.arch.gpu.reaching import (
    add_signal,
    atomic,
    compare_swap,
    copy_blocks_from,
    copy_blocks_to,
    copy_from,
    copy_to,
    load_block,
    quiet,
    read,
    set_signal,
    store_block,
    store_number,
    store_single,
)
from pyshmem.device.arch.gpu.team_flags import await_all, await_member, check_slot, synchronise, tell_all, tell_member
from pyshmem.device.arch.gpu.translation import distance, translate
from pyshmem.device.arch.gpu.values import decoded, fit, jit, rounded
from pyshmem.device.arch.gpu.waits import fetch, test, wait

__all__ = sorted(
    name for name, value in globals().items() if not name.startswith("_") and not isinstance(value, _ModuleType)
)
