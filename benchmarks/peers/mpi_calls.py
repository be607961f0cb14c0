"""mpi4py between two nodes: one-sided calls whose target is inside MPI, which is their best case; messages; barriers."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from benchmarks.peers.case import FLOOD, Case, Step, differ, pattern

# operation: (statement, what the window holds after a step on what the two sides held, and what PE 0's array holds)
OPERATIONS = {
    "put": ("win.Put(own, pe, there); win.Flush(pe)", lambda own, there: (own, own)),
    "p": ("word[0] = 5; win.Put(own, pe, there); win.Flush(pe)", lambda own, there: (own * 0 + 5, own * 0 + 5)),
    "flood": (f"for _ in range({FLOOD}): win.Put(own, pe, there)\nwin.Flush(pe)", lambda own, there: (own, own)),
    "get": ("win.Get(own, pe, there); win.Flush(pe)", lambda own, there: (there, there)),
    "g": ("win.Get(own, pe, there); win.Flush(pe); word.item()", lambda own, there: (there, there)),
    "atomic_fetch_add": (
        "win.Fetch_and_op(five, own, pe, 0, SUM); win.Flush(pe); word.item()",
        lambda own, there: (there + 5, there),
    ),
}


class Library:
    def __init__(self) -> None:
        self.comm = MPI.COMM_WORLD
        self.me, self.n_pes = self.comm.rank, self.comm.size
        self.peer = 1 - self.me
        self.notes: dict[str, str] = {}
        self.windows: list[MPI.Win] = []

    def facts(self) -> dict[str, str]:
        return {"MPI": MPI.Get_library_version().split("\n", 1)[0].strip(" \0")}

    def case(self, operation: str, nbytes: int, *parameters: Any) -> Case | None:
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

    def far(self, nbytes: int, operation: str, state: str) -> Case:
        """Return the case of a one-sided call. Its target waits in MPI's barrier, whatever ``state`` is."""
        statement, after = OPERATIONS[operation]
        window = MPI.Win.Allocate(nbytes, 8, comm=self.comm)
        self.windows.append(window)
        window.Lock_all()
        words, own = np.frombuffer(window.tomemory(), np.int64), pattern(0, nbytes)
        words[:] = pattern(1, nbytes)
        wanted = after(pattern(0, nbytes), pattern(1, nbytes))

        def check(step: Step) -> str:
            self.barrier()
            step()
            self.barrier()
            window.Sync()
            return differ(self.me, own, wanted[1]) if self.me == 0 else differ(self.me, words, wanted[0])

        five = [np.full(1, 5, np.int64), 1, MPI.INT64_T]
        there = [0, nbytes // 8, MPI.INT64_T]
        names = {
            "win": window,
            "pe": 1,
            "word": own,
            "own": [own, nbytes // 8, MPI.INT64_T],
            "there": there,
            "five": five,
        }
        return Case(statement, names | {"SUM": MPI.SUM}, check, 1)

    def ping_pong_put_signal(self, nbytes: int) -> Case:
        """Return the case of two messages: MPI has no put_signal."""
        sent, received = pattern(self.me, nbytes), pattern(self.me, nbytes)
        turns = ("comm.Send(sent, pe)", "comm.Recv(received, pe)")

        def check(step: Step) -> str:
            step()
            return differ(self.me, received, pattern(self.peer, nbytes))

        names = {"comm": self.comm, "pe": self.peer, "sent": sent, "received": received}
        return Case("; ".join(turns if self.me == 0 else turns[::-1]), names, check, 2)

    def barrier_all(self, nbytes: int) -> Case:
        def check(step: Step) -> str:
            step()
            return ""

        return Case("comm.Barrier()", {"comm": self.comm}, check, None)
