"""The calls of the host API in one table: timelines, the checker and its schedules read from it what a call does.

A new public function of pyshmem needs a row here; tests/jobs/test_host_calls.py finds those without one.
"""

from __future__ import annotations

from typing import NamedTuple

SETS, ADDS, MEETS, WAITS = "sets a word", "adds to a word", "meets its team", "waits for a word"
LATE = "late"  # its effect on another PE may come after its return, until a fence or quiet orders it
AT_ONCE = "at once"  # it returns behind its effect, and behind what fences have ordered before it
ORDERS, BLOCKS = "orders", "blocks"  # earlier calls; until another PE has made a call
SETTLES = "settles"  # all earlier calls may have taken effect before it
ASKS = "asks"  # it reads what does not change, or no PE changes


class HostCall(NamedTuple):
    """family: of calls that access memory alike, for the checker.  effect: on a word or a team, or "", for timelines.

    timing: when it may take effect, for schedules.  query: whether it only asks, which timelines leave out.
    """

    family: str
    effect: str
    timing: str
    query: bool = False


_ROWS: dict[HostCall, str] = {
    HostCall("put", "", LATE): "put put_nbi",
    HostCall("p", SETS, LATE): "p",
    HostCall("get", "", AT_ONCE): "get",
    HostCall("get", "", LATE): "get_nbi",
    HostCall("g", "", AT_ONCE): "g",
    HostCall("blocks", "", LATE): "iput ibput",
    HostCall("blocks", "", AT_ONCE): "iget ibget",
    HostCall("put_signal", SETS, LATE): "put_signal put_signal_nbi",
    HostCall("signal_update", SETS, LATE): "signal_set",
    HostCall("signal_update", ADDS, LATE): "signal_add",
    HostCall("signal_fetch", "", AT_ONCE): "signal_fetch",
    HostCall("atomic", SETS, LATE): "atomic_set",
    HostCall("atomic", ADDS, LATE): "atomic_add atomic_inc atomic_fetch_add_nbi atomic_fetch_inc_nbi",
    HostCall("atomic", ADDS, AT_ONCE): "atomic_fetch_add atomic_fetch_inc",
    HostCall("atomic", "", LATE): (
        "atomic_and atomic_or atomic_xor atomic_fetch_nbi atomic_fetch_and_nbi atomic_fetch_or_nbi atomic_fetch_xor_nbi "
        "atomic_swap_nbi atomic_compare_swap_nbi"
    ),
    HostCall("atomic", "", AT_ONCE): (
        "atomic_fetch atomic_fetch_and atomic_fetch_or atomic_fetch_xor atomic_swap atomic_compare_swap"
    ),
    HostCall("wait", WAITS, BLOCKS): "signal_wait_until wait_until wait_until_all wait_until_any wait_until_some",
    HostCall("wait", "", BLOCKS): "wait_until_all_vector wait_until_any_vector wait_until_some_vector",
    HostCall("wait", "", AT_ONCE): "test test_all test_any test_some test_all_vector test_any_vector test_some_vector",
    HostCall("lock", "", BLOCKS): "set_lock",
    HostCall("lock", "", AT_ONCE): "test_lock",
    HostCall("lock", "", SETTLES): "clear_lock",
    HostCall("fence", "", ORDERS): "fence",
    HostCall("quiet", "", ORDERS): "quiet",
    HostCall("pe_quiet", "", ORDERS): "pe_quiet",
    HostCall("barrier", MEETS, BLOCKS): "sync sync_all",
    HostCall("barrier", MEETS, SETTLES): "barrier_all barrier_on_stream",
    HostCall("collective", MEETS, SETTLES): (
        "broadcast collect fcollect alltoall alltoalls alltoallv reduce sum_reduce prod_reduce min_reduce max_reduce "
        "and_reduce or_reduce xor_reduce sum_inscan sum_exscan broadcast_on_stream fcollect_on_stream alltoall_on_stream "
        "alltoallv_on_stream reduce_on_stream reduce_scatter_on_stream sum_inscan_on_stream sum_exscan_on_stream"
    ),
    HostCall("on_stream", "", SETTLES): "put_on_stream signal_on_stream quiet_on_stream",
    HostCall("on_stream", SETS, SETTLES): "put_signal_on_stream",
    HostCall("on_stream", WAITS, BLOCKS): "signal_wait_until_on_stream",
    HostCall("allocation", "", SETTLES): (
        "empty zeros ones full array as_symmetric arange linspace rand randn randint empty_like zeros_like ones_like "
        "full_like malloc calloc align malloc_with_hints realloc pool register unregister"
    ),
    HostCall("free", "", SETTLES): "free",
    HostCall("init", "", SETTLES): "init init_thread",
    HostCall("finalize", MEETS, SETTLES): "finalize",
    HostCall("", MEETS, SETTLES): "launch",
    HostCall("", "", SETTLES): "device_context from_dtensor global_exit grid jit partitioned pcontrol",
    HostCall("", "", ASKS, True): "is_symmetric my_pe n_pes ptr query_initialized",
    HostCall("", "", SETTLES, True): (
        "addr_accessible c_address from_address heap_bases info_get_name info_get_version pe_accessible peer_addresses "
        "query_thread team_ptr trace translate_pe get_config get_team"
    ),
}
CALLS = {name: call for call, names in _ROWS.items() for name in names.split()}  # by their names
OTHER = HostCall("", "", SETTLES)  # methods, operators and C's names, which have no rows
