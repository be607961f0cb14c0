"""shmem4py on the OpenSHMEM it was built for: symmetric and private arrays are NumPy's."""

from __future__ import annotations

import gc
import os
import platform
from importlib.metadata import version
from typing import Any

import numpy as np
from shmem4py import shmem

from benchmarks.peers.case import Case
from benchmarks.peers.openshmem import OLD, OpenShmem


class Library(OpenShmem):
    def __init__(self) -> None:
        super().__init__(shmem)
        self.signals: list[Any] = []
        self.notes |= {
            "p": "it has no p: one[0] = 5; put(word, one, pe)",
            "g": "it has no g: get(one, word, pe); one.item()",
            "ping_pong_p": "it has no p: one[0] = turn; put(flag, one, pe)",
        }

    def facts(self) -> dict[str, str]:
        major, minor = shmem.info_get_version()
        return {
            "library": f"shmem4py {version('shmem4py')}",
            "arrays": "numpy.ndarray",
            "versions": f"Python {platform.python_version()}, NumPy {np.__version__}",
            "SHMEM": f"{shmem.info_get_name()}, OpenSHMEM {major}.{minor}",
        }

    def symmetric(self, nelems: int, dtype: str = "int64") -> np.ndarray:
        self.live.append(shmem.zeros(nelems, dtype=dtype))
        return np.asarray(self.live[-1])

    def private(self, nelems: int) -> np.ndarray:
        return np.zeros(nelems, dtype=np.int64)

    def signal(self) -> Any:
        self.signals.append(shmem.new_signal())
        return self.signals[-1]

    def values(self, array: np.ndarray) -> np.ndarray:
        return array

    def reachable(self, array: np.ndarray, pe: int) -> np.ndarray:
        view = shmem.ptr(array, pe)
        return array if view is None else view

    def forget(self) -> None:
        for signal in self.signals:
            shmem.del_signal(signal)
        self.signals.clear()
        super().forget()

    def close(self) -> None:
        """shmem4py finalises when the interpreter ends, where Open MPI 4.1 crashes: end before that."""
        gc.collect()
        shmem.finalize()
        os._exit(0)

    def p(self, nbytes: int) -> Case:
        return self._word("one[0] = 5; put(word, one, pe)", 5, one=self.private(1))

    def g(self, nbytes: int) -> Case:
        return self._word("get(one, word, pe); one.item()", OLD, one=self.private(1))

    def ping_pong_p(self, nbytes: int) -> Case:
        return self.ping_pong_put(nbytes)

    def ping_pong_put_signal(self, nbytes: int) -> Case:
        try:
            shmem.put_signal(self.symmetric(1), self.private(1), self.me, self.signal(), 0, shmem.SIGNAL.SET)
        except NotImplementedError:
            self.notes["ping_pong_put_signal"] = "its OpenSHMEM has no put_signal: put; fence; atomic_set"
            target, source = self._pair(nbytes)
            return self._ping_pong(
                "put(target, source, pe); fence(); atomic_set(flag, turn, pe)", target=target, source=source
            )
        return super().ping_pong_put_signal(nbytes)

    def malloc_free(self, nbytes: int) -> Case:
        return self._case(f"free(alloc({nbytes}, clear=False))", self._between, pes=None)
