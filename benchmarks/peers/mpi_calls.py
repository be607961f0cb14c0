"""mpi4py: one-sided calls whose target is inside MPI, which is their best case; messages; collectives."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from mpi4py import MPI

from benchmarks.peers.case import FLOOD, WINDOW, Case, Step, differ, pattern

Held = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def _put(own: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return own, own


def _get(own: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return there, there


def _swap(own: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return own * 0 + 5, there


# operation: (statement, what the window holds after a step on what the two sides held, and what the origin's array holds)
OPERATIONS: dict[str, tuple[str, Held]] = {
    "put": ("win.Put(own, pe, there); win.Flush(pe)", _put),
    "p": ("word[0] = 5; win.Put(own, pe, there); win.Flush(pe)", lambda own, there: (own * 0 + 5, own * 0 + 5)),
    "flood": (f"for _ in range({FLOOD}): win.Put(own, pe, there)\nwin.Flush(pe)", _put),
    "put_window": (f"for _ in range({WINDOW}): win.Put(own, pe, there)\nwin.Flush(pe)", _put),
    "get": ("win.Get(own, pe, there); win.Flush(pe)", _get),
    "g": ("win.Get(own, pe, there); win.Flush(pe); word.item()", _get),
    "atomic_add": ("win.Accumulate(five, pe, there, SUM); win.Flush(pe)", lambda own, there: (there + 5, own)),
    "atomic_fetch_add": (
        "win.Fetch_and_op(five, own, pe, 0, SUM); win.Flush(pe); word.item()",
        lambda own, there: (there + 5, there),
    ),
    "atomic_swap": ("win.Fetch_and_op(five, own, pe, 0, REPLACE); win.Flush(pe); word.item()", _swap),
    "atomic_compare_swap": ("win.Compare_and_swap(five, held, own, pe, 0); win.Flush(pe); word.item()", _swap),
}


class Library:
    def __init__(self) -> None:
        self.comm = MPI.COMM_WORLD
        self.me, self.n_pes = self.comm.rank, self.comm.size
        self.peer = 1 if self.me == 0 else 0
        self.notes = {"ping_pong_put_signal": "MPI has no put_signal: Send; Recv"}
        self.windows: list[MPI.Win] = []

    def facts(self) -> dict[str, str]:
        return {"MPI": MPI.Get_library_version().split("\n", 1)[0].strip(" \0")}

    def case(self, operation: str, nbytes: int, *parameters: Any) -> Case | None:
        if operation in OPERATIONS:
            return self._one_sided(nbytes or 8, operation)
        method = getattr(self, operation, None)
        return method(nbytes, *parameters) if method else None

    def barrier(self) -> None:
        self.comm.Barrier()

    def forget(self) -> None:
        for window in self.windows:
            window.Unlock_all()
            window.Free()
        self.windows.clear()

    def close(self) -> None:
        """Do nothing: mpi4py finalises MPI when the interpreter ends."""

    # -- one-sided calls

    def far(self, nbytes: int, operation: str, state: str) -> Case | None:
        """Return the case of a one-sided call. Its target waits in MPI's barrier, whatever ``state`` is."""
        return self._one_sided(nbytes, operation) if operation in OPERATIONS else None

    def put_quiet(self, nbytes: int) -> Case:
        return self._one_sided(nbytes, "put")

    def put_both(self, nbytes: int) -> Case:
        return self._one_sided(nbytes, "put", (0, 1))

    def pair(self, nbytes: int, origin: int, dest: int) -> Case:
        return self._one_sided(nbytes, "put", (origin,), dest)

    def _one_sided(self, nbytes: int, operation: str, pes: Collection[int] = (0,), dest: int | None = None) -> Case:
        """Return the case of ``pes`` that act on ``dest``, or each on the other."""
        statement, after = OPERATIONS[operation]
        pe = self.peer if dest is None else dest
        origins = [each for each in pes if (1 - each if dest is None else dest) == self.me]
        window = MPI.Win.Allocate(nbytes, 8, comm=self.comm)
        self.windows.append(window)
        window.Lock_all()
        words, own, mine = (
            np.frombuffer(window.tomemory(), np.int64),
            pattern(self.me, nbytes),
            pattern(self.me, nbytes),
        )
        words[:] = mine
        wanted = after(pattern(origins[0], nbytes), mine)[0] if origins else mine
        held = after(mine, pattern(pe, nbytes))[1] if self.me in pes else mine

        def check(step: Step) -> str:
            window.Sync()
            self.barrier()
            step()
            self.barrier()
            window.Sync()
            return differ(self.me, own, held) + differ(self.me, words, wanted)

        names = {
            "win": window,
            "pe": pe,
            "word": own,
            "own": [own, nbytes // 8, MPI.INT64_T],
            "there": [0, nbytes // 8, MPI.INT64_T],
            "five": [np.full(1, 5, np.int64), 1, MPI.INT64_T],
            "held": [pattern(pe, 8), 1, MPI.INT64_T],
            "SUM": MPI.SUM,
            "REPLACE": MPI.REPLACE,
        }
        return Case(statement, names, check, pes)

    # -- messages and collectives

    def ping_pong_put_signal(self, nbytes: int) -> Case:
        """Return the case of two messages: MPI has no put_signal."""
        sent, received = pattern(self.me, nbytes), pattern(self.me, nbytes)
        turns = ("comm.Send(sent, pe)", "comm.Recv(received, pe)")

        def check(step: Step) -> str:
            step()
            return differ(self.me, received, pattern(self.peer if self.me < 2 else self.me, nbytes))

        names = {"comm": self.comm, "pe": self.peer, "sent": sent, "received": received}
        return Case("; ".join(turns if self.me == 0 else turns[::-1]), names, check, (0, 1))

    def barrier_all(self, nbytes: int) -> Case:
        def check(step: Step) -> str:
            step()
            return ""

        return Case("comm.Barrier()", {"comm": self.comm}, check, None)

    def broadcast(self, nbytes: int) -> Case:
        return self._collective("comm.Bcast(source, 0)", nbytes, lambda: (pattern(0, nbytes), "source"))

    def fcollect(self, nbytes: int) -> Case:
        every = (pattern(pe, nbytes) for pe in range(self.n_pes))
        return self._collective("comm.Allgather(source, target)", nbytes, lambda: (np.concatenate([*every]), "target"))

    def alltoall(self, nbytes: int) -> Case:
        whole, first = nbytes * self.n_pes, self.me * nbytes // 8
        every = (pattern(pe, whole)[first : first + nbytes // 8] for pe in range(self.n_pes))
        return self._collective("comm.Alltoall(source, target)", whole, lambda: (np.concatenate([*every]), "target"), 1)

    def sum_reduce(self, nbytes: int) -> Case:
        every = (pattern(pe, nbytes) for pe in range(self.n_pes))
        return self._collective("comm.Allreduce(source, target)", nbytes, lambda: (sum(every), "target"), 1)

    def _collective(
        self, statement: str, nbytes: int, wanted: Callable[[], tuple[Any, str]], blocks: int | None = None
    ) -> Case:
        """Return the case of a collective. blocks: how many times as large as the source the target is, None: n_pes."""
        arrays = {"source": pattern(self.me, nbytes)}
        arrays["target"] = np.zeros(nbytes // 8 * (blocks or self.n_pes), np.int64)

        def check(step: Step) -> str:
            step()
            expected, name = wanted()
            return differ(self.me, arrays[name], expected)

        return Case(statement, {"comm": self.comm, **arrays}, check, None)
