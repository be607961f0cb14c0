"""Teams of which a member has left a collective call before its end, by an exception or a time-out.

Its next call would meet the others' present one, and results would be made of two calls. So the team makes no more: the
member has marked itself and all others (team/broken.h), and each refuses the call that it is in, and all later ones.
"""

from __future__ import annotations

import time
from typing import Any, NoReturn

from pyshmem.base.errors import (
    ArgumentError,
    BrokenTeamError,
    DtypeError,
    HeapExhaustedError,
    OutOfRangeError,
    c_name,
    refuse,
)
from pyshmem.base.job import job
from pyshmem.native import _native

_PATIENCE = 0.2  # seconds until the member that has left a call has said why
# errors that all members raise in the same call, or that say that the team is broken
ALIKE = (ArgumentError, DtypeError, OutOfRangeError, HeapExhaustedError, BrokenTeamError)


def leave(wires: Any, routine: str, cause: str) -> None:
    """Mark the team. wires: what the native module knows of it.  cause: why this PE's call of ``routine`` has ended."""
    _native.leave(wires, job.timeout, job.spins, f"{c_name() or routine}\n{cause}".encode())


def leave_by(wires: Any, routine: str, error: BaseException) -> None:
    """Mark the team, unless ``error`` has ended the call on all members alike."""
    if not isinstance(error, ALIKE):
        leave(wires, routine, type(error).__name__)


def is_broken(wires: Any) -> bool:
    return bool(_native.breaker(wires, job.timeout, job.spins)[0] >= 0)


def refuse_broken(wires: Any, team: str, routine: str) -> NoReturn:
    """Refuse a call of a team that makes no more, and say why. Errors: BrokenTeamError."""
    limit = time.monotonic() + _PATIENCE
    while True:
        member, text = _native.breaker(wires, job.timeout, job.spins)
        if text or time.monotonic() > limit:
            break
        time.sleep(0.001)
    call, _, cause = text.decode(errors="replace").partition("\n")
    got = f"{team}, whose {call or 'call'} has ended on PE {member} by {cause or 'an exception'}"
    refuse(BrokenTeamError, routine, "team", got, "a team whose calls have ended alike on all its PEs")
