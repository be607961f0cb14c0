"""What is measured: a row is an operation of the peers, a size, and the goal it is held to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

KIB, MIB = 1 << 10, 1 << 20
SIZES = (8, 64, KIB, 8 * KIB, 64 * KIB, MIB, 8 * MIB)
COLLECTIVE_SIZES = (8, 64 * KIB, 8 * MIB)


@dataclass(frozen=True)
class Goal:
    """The median is at most ``most`` times that of ``against``: a peer, "ceiling" (the row's own), or "", the unit."""

    most: float
    against: str
    text: str


HALF = Goal(0.5, "shmem4py", "≤ 0.5 shmem4py")
NO_SLOWER = Goal(1.0, "shmem4py", "≤ shmem4py")
COPY_SPEED = Goal(1.05, "ceiling", "≤ 1.05 memcpy")


@dataclass(frozen=True)
class Row:
    """``operation`` names the peers' method; each of them is given nbytes and returns the case to be timed."""

    group: str
    name: str
    operation: str
    nbytes: int = 0  # of payload; 0: the row has no size
    steps: int = 1  # how many of what is counted one step of the case does: a ping-pong has two ways
    bus: Callable[[int], float] | None = None  # n_pes to the bytes on the busiest link, per byte of payload
    goal: Goal | None = None
    unit: str = "s"

    @property
    def key(self) -> str:
        return f"{self.name} {self.nbytes}" if self.nbytes else self.name


def _once(n_pes: int) -> float:
    return 1.0


def _others(n_pes: int) -> float:
    return n_pes - 1


def _all_reduce(n_pes: int) -> float:
    return 2 * (n_pes - 1) / n_pes


def _copy_goal(nbytes: int) -> Goal | None:
    return HALF if nbytes <= 64 * KIB else COPY_SPEED if nbytes == 8 * MIB else None


AMOS = (
    "set", "inc", "add", "and", "or", "xor", "fetch", "swap", "compare_swap",
    "fetch_inc", "fetch_add", "fetch_and", "fetch_or", "fetch_xor",
)  # fmt: skip

ROWS = (
    *(Row("RMA", "put", "put", n, bus=_once, goal=_copy_goal(n)) for n in SIZES),
    *(Row("RMA", "get", "get", n, bus=_once, goal=_copy_goal(n)) for n in SIZES),
    *(Row("RMA", "put_nbi, quiet", "put_nbi_quiet", n, bus=_once) for n in (8, 64 * KIB)),
    Row("RMA", "p", "p"),
    Row("RMA", "g", "g"),
    *(Row("AMO", f"atomic_{name}", f"atomic_{name}", goal=HALF) for name in AMOS),
    Row("Ordering", "quiet", "quiet"),
    Row("Ordering", "fence", "fence"),
    Row("Waiting", "test, holds", "test"),
    Row("Waiting", "wait_until, holds", "wait_until"),
    Row("Waiting", "ping-pong: p", "ping_pong_p", steps=2, goal=HALF),
    Row("Waiting", "ping-pong: put", "ping_pong_put", steps=2, goal=HALF),
    Row("Waiting", "ping-pong: atomic_set", "ping_pong_atomic_set", steps=2, goal=HALF),
    *(Row("Waiting", "ping-pong: put_signal", "ping_pong_put_signal", n, 2, _once) for n in (8, 64 * KIB)),
    Row("Collective", "barrier_all", "barrier_all", goal=NO_SLOWER),
    Row("Collective", "sync_all", "sync_all"),
    *(
        Row("Collective", name, name, n, bus=bus, goal=HALF if n == 8 else NO_SLOWER)
        for name, bus in (
            ("broadcast", _once),
            ("fcollect", _others),
            ("alltoall", _others),
            ("sum_reduce", _all_reduce),
        )
        for n in COLLECTIVE_SIZES
    ),
    Row("Memory", "malloc, free", "malloc_free", KIB),
    Row("Process", "start-up", "start_up", goal=Goal(1.0, "", "< 1 s")),
    Row("Process", "heap metadata", "metadata", goal=Goal(100.0, "", "< 100 B"), unit="B"),
)
