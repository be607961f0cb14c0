"""The record of a kernel wait that timed out, and its message. Those of the host are in host_timeouts.

Each PE has one record; the first wait that times out fills it. A record is WORDS words of int64 in memory that the GPU and
the host share. ROUTINE is written last, with release order: if it is not 0, the other words are complete. Later waits of
that PE return as soon as they see the record.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence

from pyshmem.base.comparisons import SIGNS

WORDS = 16
ROUTINE, CLAIM, PE, OFFSET, SIGN, WANTED, SEEN, UNSIGNED, MISSING, LIMIT, AREA = range(11)
# ROUTINE: one of CODES.  CLAIM: 1 once a program fills the record.  PE: the PE that waited, by its number in the team.
# OFFSET: the word's offset in the heap, in bytes.  SIGN: a number of pyshmem.base.comparisons.
# WANTED, SEEN: the value that the wait compared with, and the value of the word.  UNSIGNED: 1 for uint32 and uint64.
# MISSING: in barriers, a PE of the team that did not arrive.  LIMIT: the time limit in nanoseconds.
# AREA: the address of the team's area, see DeviceContext.sync_area.

ROUTINES = (
    "wait_until", "signal_wait_until", "barrier_all", "sync_all",
    "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "send", "recv", "sendrecv",
    "collect", "fcollect", "alltoall", "alltoalls", "and_reduce", "or_reduce", "xor_reduce", "sum_reduce", "prod_reduce",
    "min_reduce", "max_reduce", "sum_inscan", "sum_exscan", "barrier_all_grid",
    "wait_until_all", "wait_until_any", "wait_until_some",
    "wait_until_all_vector", "wait_until_any_vector", "wait_until_some_vector",
    "scan", "reduce_on_stream", "fcollect_on_stream", "alltoall_on_stream", "broadcast_on_stream", "barrier_on_stream",
    "alltoallv_on_stream", "reduce_scatter_on_stream", "sum_inscan_on_stream", "sum_exscan_on_stream",
    "signal_wait_until_on_stream", "request",
)  # fmt: skip
NO_SLOT = -1  # the OFFSET if a program has no scratch slot: SEEN is its number, WANTED the number of slots
LOST = -2  # the OFFSET if a request to a far PE has failed: MISSING is the world PE, SEEN the errno; see far/proxy.h
CODES = {name: code for code, name in enumerate(ROUTINES, 1)}
ARGUMENTS = {name: "ivars" for name in ROUTINES if name.startswith("wait_until_")}  # others: ctx
ARGUMENTS.update(wait_until="ivar", signal_wait_until="sig_addr", signal_wait_until_on_stream="signal")


def collective_of(words: Sequence[int]) -> str:
    """Return the collective whose wait has filled a record, "" for other waits."""
    routine = ROUTINES[words[ROUTINE] - 1]
    return "" if routine in ARGUMENTS or routine == "request" else routine


def describe_record(words: Sequence[int], place: Callable[[int], str] = "heap offset {}".format) -> str:
    """Return the message of WaitTimeoutError for a filled record. place: names an offset of the heap."""
    routine = ROUTINES[words[ROUTINE] - 1]
    seconds = f"{words[LIMIT] / 1e9:g} s"
    variable = "PYSHMEM_WAIT_TIMEOUT sets the seconds, 0 for no limit"
    if words[OFFSET] == NO_SLOT:
        got, slots = f"program {max(words[SEEN], 0)}", f"at most {max(words[WANTED], 0)} programs"
        more = "set PYSHMEM_SCRATCH or device_context(scratch=) for more"
        return f"kernel: {routine}: PE {words[PE]}: grid: got {got}; expected {slots}: {more}"
    if routine == "request":
        return _describe_request(words, seconds, variable)
    if routine not in ARGUMENTS:
        who = f"no call from PE {words[MISSING]} of its team in {seconds}"
        if words[OFFSET]:  # the word on which the programs of barrier_all_grid wait
            who = f"not all programs of the grids here and of its team's other PEs in {seconds}"
        return f"kernel: {routine}: PE {words[PE]}: ctx: got {who}; expected all of them to call it; {variable}"
    seen, wanted = (words[at] % 2**64 if words[UNSIGNED] else words[at] for at in (SEEN, WANTED))
    none = "none, but " if "_any" in routine or "_some" in routine else ""
    got = f"{none}{seen} at {place(words[OFFSET])} in {seconds}"
    sign = SIGNS[words[SIGN]]
    wants = f"a value {sign} {wanted}; {variable}"
    return f"kernel: {routine}: PE {words[PE]}: {ARGUMENTS[routine]}: got {got}; expected {wants}"


def _describe_request(words: Sequence[int], seconds: str, variable: str) -> str:
    if words[OFFSET] == LOST and words[SEEN] == errno.EBADR:
        got = f"an atomic on world PE {words[MISSING]}, at an address that is not aligned to the size of the word"
        return f"kernel: request: PE {words[PE]}: pointers: got {got}; expected an aligned one"
    if words[OFFSET] == LOST:
        got = f"error {words[SEEN]} ({os.strerror(words[SEEN])}) for world PE {words[MISSING]}, on another node"
        return f"kernel: request: PE {words[PE]}: pe: got {got}; expected a PE that can be reached"
    got = f"no end of a request to another node in {seconds}"
    return f"kernel: request: PE {words[PE]}: pe: got {got}; expected one that is executed; {variable}"
