"""The rows in OpenSHMEM's calls, for Python libraries with shmem4py's names and argument order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from itertools import count
from typing import Any

import numpy as np

from benchmarks.peers.case import WINDOW, Case, Step, differ, pattern

CEILING_BYTES = 1 << 16  # below, NumPy's own overhead hides the copy
OLD = 12  # the initial value of an AMO's word
# name: (arguments between the word and the PE, whether it fetches, what the word holds after)
AMOS: dict[str, tuple[tuple[int, ...], bool, int]] = {
    "atomic_set": ((5,), False, 5),
    "atomic_inc": ((), False, OLD + 1),
    "atomic_add": ((5,), False, OLD + 5),
    "atomic_and": ((5,), False, OLD & 5),
    "atomic_or": ((5,), False, OLD | 5),
    "atomic_xor": ((5,), False, OLD ^ 5),
    "atomic_fetch": ((), True, OLD),
    "atomic_swap": ((5,), True, 5),
    "atomic_compare_swap": ((OLD, 5), True, 5),
    "atomic_fetch_inc": ((), True, OLD + 1),
    "atomic_fetch_add": ((5,), True, OLD + 5),
    "atomic_fetch_and": ((5,), True, OLD & 5),
    "atomic_fetch_or": ((5,), True, OLD | 5),
    "atomic_fetch_xor": ((5,), True, OLD ^ 5),
}


class OpenShmem(ABC):
    """One library. ``shmem`` is its module; PEs 0 and 1 talk to each other, more PEs stand by. Elements are int64,
    words of bitwise AMOs uint64: shmem4py has those operators for NumPy's unsigned types only."""

    def __init__(self, shmem: Any) -> None:
        self.shmem = shmem
        self.notes: dict[str, str] = {}  # operation: the substitute that is timed if the library lacks the call
        self.me, self.n_pes = shmem.my_pe(), shmem.n_pes()
        self.peer = 1 if self.me == 0 else 0
        self.live: list[Any] = []

    @abstractmethod
    def facts(self) -> dict[str, str]:
        """Versions and settings, for the reader of the table."""

    @abstractmethod
    def symmetric(self, nelems: int, dtype: str = "int64") -> Any:
        """A symmetric array of zeros, freed by ``forget``."""

    @abstractmethod
    def private(self, nelems: int) -> Any:
        """An array of the library's natural kind in private memory."""

    @abstractmethod
    def signal(self) -> Any:
        """A signal word that holds 0."""

    @abstractmethod
    def values(self, array: Any) -> np.ndarray:
        """A NumPy view of an array of any of these kinds."""

    @abstractmethod
    def reachable(self, array: Any, pe: int) -> np.ndarray:
        """Return a NumPy view of ``pe``'s copy of a symmetric array, or of this PE's if the other cannot be loaded."""

    def forget(self) -> None:
        """Free the memory of the last case. Collective."""
        for array in self.live:
            self.shmem.free(array)
        self.live.clear()

    def barrier(self) -> None:
        self.shmem.barrier_all()

    def close(self) -> None:
        self.shmem.finalize()

    def case(self, operation: str, nbytes: int, *parameters: Any) -> Case | None:
        """Return the case for a row, or None if the library has no such call. Collective."""
        if operation in AMOS:
            return self.amo(operation)
        method: Callable[..., Case] | None = getattr(self, operation, None)
        return method(nbytes, *parameters) if method else None

    # -- RMA and AMO: PE 0 acts; the others wait in a barrier of the library, so that it can make progress

    def put(self, nbytes: int) -> Case:
        return self._put(nbytes, "put(target, source, pe)")

    def put_quiet(self, nbytes: int) -> Case:
        return self._put(nbytes, "put(target, source, pe); quiet()")

    def put_of_numpy(self, nbytes: int) -> Case:
        return self._of_numpy(self.put_quiet(nbytes), "source")

    def get_to_numpy(self, nbytes: int) -> Case:
        return self._of_numpy(self.get(nbytes), "target")

    def _of_numpy(self, case: Case, private: str) -> Case:
        """The case with NumPy's view of its private array."""
        return case._replace(names=case.names | {private: self.values(case.names[private])})

    def put_window(self, nbytes: int) -> Case:
        """Make the case of a stream of puts that are completed together."""
        return self._put(nbytes, f"for _ in range({WINDOW}): put(target, source, pe)\nquiet()")._replace(ceiling="")

    def put_both(self, nbytes: int) -> Case:
        """Make the case of two PEs that put to each other at once."""
        return self._put(nbytes, "put(target, source, pe); quiet()", (0, 1))

    def pair(self, nbytes: int, origin: int, dest: int) -> Case:
        """Make the case of a put from PE ``origin`` to PE ``dest``."""
        return self._put(nbytes, "put(target, source, pe); quiet()", (origin,), dest)

    def _put(self, nbytes: int, statement: str, pes: Collection[int] = (0,), dest: int | None = None) -> Case:
        """Make the case of ``pes`` that put to ``dest``, or each to the other."""
        target, source = self._pair(nbytes)
        pe = self.peer if dest is None else dest
        origins = [each for each in pes if (1 - each if dest is None else dest) == self.me]

        def check(step: Step) -> str:
            self._between(step)
            return differ(self.me, self.values(target), pattern(origins[0], nbytes) if origins else 0)

        views = {"to": self.reachable(target, pe), "of": self.values(source)}
        return self._case(statement, check, pes, target=target, source=source, pe=pe, **views)

    def get(self, nbytes: int) -> Case:
        source, target = self._pair(nbytes)
        self.values(source)[:] = pattern(self.me, nbytes)
        self.values(target)[:] = -1

        def check(step: Step) -> str:
            self._between(step)
            return differ(self.me, self.values(target), pattern(1, nbytes) if self.me == 0 else -1)

        statement = "get(target, source, pe)"
        return self._case(
            statement, check, target=target, source=source, to=self.values(target), of=self.reachable(source, self.peer)
        )

    def p(self, nbytes: int) -> Case:
        return self._word("p(word, 5, pe)", 5)

    def g(self, nbytes: int) -> Case:
        return self._word("g(word, pe)", OLD, lambda word: self.shmem.g(word, self.peer))

    def amo(self, name: str) -> Case:
        arguments, fetches, after = AMOS[name]
        text = "".join(f"{argument}, " for argument in arguments)

        def fetch(word: Any) -> Any:
            return getattr(self.shmem, name)(word, *arguments, self.peer)

        bitwise = name.endswith(("and", "or"))  # xor too
        dtype = "uint64" if bitwise else "int64"
        return self._word(f"{name}(word, {text}pe)", after, fetch if fetches else None, dtype)

    def _word(
        self, statement: str, after: int, fetch: Callable[[Any], Any] | None = None, dtype: str = "int64", **names: Any
    ) -> Case:
        """A case on one word that holds OLD on all PEs. One step later PE 1's is ``after``, and ``fetch`` gives that."""
        word = self.symmetric(1, dtype)
        self.values(word)[:] = OLD

        def check(step: Step) -> str:
            self._between(step)
            wrong = differ(self.me, self.values(word), after if self.me == 1 else OLD)
            self.shmem.barrier_all()
            if self.me == 0 and fetch:
                wrong += differ(self.me, np.array([fetch(word)]), after)
            return wrong

        return self._case(statement, check, word=word, **names)

    # -- ordering and waiting

    def quiet(self, nbytes: int) -> Case:
        return self._case("quiet()", self._between)

    def fence(self, nbytes: int) -> Case:
        return self._case("fence()", self._between)

    def test(self, nbytes: int) -> Case:
        return self._holds("test")

    def wait_until(self, nbytes: int) -> Case:
        return self._holds("wait_until")

    def _holds(self, name: str) -> Case:
        return self._word(f"{name}(word, EQ, 12)", OLD, EQ=self.shmem.CMP.EQ)

    def test_some(self, nbytes: int) -> Case:
        return self._hold("test_some", 8)

    def wait_until_all(self, nbytes: int) -> Case:
        return self._hold("wait_until_all", 8)

    def _hold(self, name: str, nelems: int) -> Case:
        words = self.symmetric(nelems)
        self.values(words)[:] = OLD
        return self._case(f"{name}(words, EQ, 12)", self._between, words=words, EQ=self.shmem.CMP.EQ)

    def ping_pong_p(self, nbytes: int) -> Case:
        return self._ping_pong("p(flag, turn, pe)")

    def ping_pong_put(self, nbytes: int) -> Case:
        one = self.private(1)
        return self._ping_pong("view[0] = turn; put(flag, one, pe)", one=one, view=self.values(one))

    def ping_pong_atomic_set(self, nbytes: int) -> Case:
        return self._ping_pong("atomic_set(flag, turn, pe)")

    def ping_pong_put_signal(self, nbytes: int) -> Case:
        target, source = self._pair(nbytes)
        send = "put_signal(target, source, pe, flag, turn, SET)"
        wait = "signal_wait_until(flag, GE, turn)"
        sides = {"target": target, "source": source, "SET": self.shmem.SIGNAL.SET}
        return self._ping_pong(send, wait, self.signal(), self.shmem.signal_fetch, **sides)

    def _ping_pong(
        self,
        send: str,
        wait: str = "wait_until(flag, GE, turn)",
        flag: Any = None,
        read: Callable[[Any], int] | None = None,
        **names: Any,
    ) -> Case:
        """A step is one turn there and back. Every turn has its own value, so no word is reset."""
        if flag is None:
            flag = self.symmetric(1)
        seen = read or (lambda word: int(self.values(word)[0]))

        def check(step: Step) -> str:
            self._between(step)
            return differ(self.me, np.array([seen(flag)]), 1 if self.me < 2 else 0)

        first, second = (send, wait) if self.me == 0 else (wait, send)
        names |= {"flag": flag, "next_turn": count(1).__next__, "GE": self.shmem.CMP.GE}
        return self._case(f"turn = next_turn(); {first}; {second}", check, (0, 1), **names)

    # -- collectives: all PEs act

    def barrier_all(self, nbytes: int) -> Case:
        return self._barrier("barrier_all()")

    def sync_all(self, nbytes: int) -> Case:
        return self._barrier("sync_all()")

    def _barrier(self, statement: str) -> Case:
        word = self.symmetric(1)

        def check(step: Step) -> str:
            wrong = self._between(lambda: None)  # all words are there
            for turn in range(1, 51):
                self.shmem.atomic_set(word, turn, (self.me + 1) % self.n_pes)
                self.shmem.quiet()
                step()
                wrong = wrong or differ(self.me, self.values(word), turn)
                step()
            return wrong

        return self._case(statement, check, pes=None)

    def broadcast(self, nbytes: int) -> Case:
        return self._collective("broadcast(target, source, 0)", nbytes, lambda: pattern(0, nbytes))

    def sum_reduce(self, nbytes: int) -> Case:
        def total() -> np.ndarray:
            return sum((pattern(pe, nbytes) for pe in range(1, self.n_pes)), start=pattern(0, nbytes))

        return self._collective("sum_reduce(target, source)", nbytes, total)

    def fcollect(self, nbytes: int) -> Case:
        def gathered() -> np.ndarray:
            return np.concatenate([pattern(pe, nbytes) for pe in range(self.n_pes)])

        return self._collective("fcollect(target, source)", nbytes, gathered, blocks=(self.n_pes, 1))

    def alltoall(self, nbytes: int) -> Case:
        """Make the case of alltoall. nbytes: the bytes from one PE to another."""
        whole, count = nbytes * self.n_pes, nbytes // 8

        def received() -> np.ndarray:
            first = self.me * count
            return np.concatenate([pattern(pe, whole)[first : first + count] for pe in range(self.n_pes)])

        return self._collective(f"alltoall(target, source, {count})", nbytes, received, blocks=(self.n_pes, self.n_pes))

    def _collective(
        self, statement: str, nbytes: int, expected: Callable[[], np.ndarray], blocks: tuple[int, int] = (1, 1)
    ) -> Case:
        """Make the case of a collective. blocks: the sizes of target and source in units of nbytes."""
        target, source = (self.symmetric(nbytes * number // 8) for number in blocks)
        self.values(source)[:] = pattern(self.me, nbytes * blocks[1])
        views = {"to": self.values(target), "of": self.values(self.private(nbytes * blocks[0] // 8))}

        def check(step: Step) -> str:
            self._between(step)
            return differ(self.me, self.values(target), expected())

        return self._case(statement, check, pes=None, target=target, source=source, **views)

    def malloc_free(self, nbytes: int) -> Case:
        return self._case(f"free(malloc({nbytes}))", self._between, pes=None)

    # -- shared functions

    def _case(
        self, statement: str, check: Callable[[Step], str], pes: Collection[int] | None = (0,), **names: Any
    ) -> Case:
        """A case of ``names`` and the library's functions. NumPy's views ``to`` and ``of``, if given, make the ceiling."""
        calls = {name: getattr(self.shmem, name) for name in dir(self.shmem) if callable(getattr(self.shmem, name))}
        large = "to" in names and names["to"].nbytes >= CEILING_BYTES
        variables = {**calls, "pe": self.peer, "copyto": np.copyto, **names}
        return Case(statement, variables, check, pes, "copyto(to, of)" if large else "")

    def _between(self, step: Step) -> str:
        self.shmem.barrier_all()
        step()
        self.shmem.barrier_all()
        return ""

    def _pair(self, nbytes: int) -> tuple[Any, Any]:
        """A symmetric array of zeros and a private one that holds this PE's pattern."""
        symmetric, private = self.symmetric(nbytes // 8), self.private(nbytes // 8)
        self.values(private)[:] = pattern(self.me, nbytes)
        return symmetric, private
