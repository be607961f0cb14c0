"""Plain sockets between two nodes: what a request and its answer cost without any work.

A thread of PE 1 sleeps in recv and answers; PE 0 polls for the answer. Operations that are complete with an
acknowledgement get eight bytes.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from contextlib import suppress
from typing import Any

import numpy as np
from mpi4py import MPI

from benchmarks.peers.case import Case, Step, differ, pattern

_HEADER = struct.Struct("=QQ")  # the bytes that follow it, and the bytes of the answer


class Library:
    def __init__(self) -> None:
        self.comm, address = MPI.COMM_WORLD, os.environ["BENCHMARKS_ADDRESS"]  # of PE 1
        self.me, self.n_pes = self.comm.rank, self.comm.size
        self.notes: dict[str, str] = {}
        if self.me == 1:
            self.room = np.empty(4 << 20, np.uint8)
            with socket.create_server((address, 0)) as server:
                self.comm.send(server.getsockname()[1], 0)
                self.socket, _ = server.accept()
            threading.Thread(target=self._serve, daemon=True).start()
        else:
            self.socket = socket.create_connection((address, self.comm.recv(source=1)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def facts(self) -> dict[str, str]:
        return {"socket": "{}:{}".format(*self.socket.getsockname())}

    def case(self, operation: str, nbytes: int, *parameters: Any) -> Case | None:
        return self._far(nbytes, *parameters) if operation == "far" else None

    def barrier(self) -> None:
        """Do nothing: PE 1 only answers."""

    def forget(self) -> None:
        """Do nothing: there is one buffer."""

    def close(self) -> None:
        self.socket.close()

    def _far(self, nbytes: int, operation: str, state: str) -> Case | None:
        if operation == "flood":
            return None
        puts = operation in ("put", "p", "iput")
        sent, answer = (pattern(0, nbytes), np.zeros(1)) if puts else (np.zeros(0), np.zeros(nbytes // 8, np.int64))
        if self.me == 1 and not puts:
            self.room.view(np.int64)[: nbytes // 8] = pattern(1, nbytes)

        def check(step: Step) -> str:
            self.comm.Barrier()
            step()
            return differ(self.me, answer, pattern(1, nbytes)) if self.me == 0 and not puts else ""

        request = _HEADER.pack(sent.nbytes, answer.nbytes) + sent.tobytes()
        return Case("ask(request, answer)", {"ask": self._ask, "request": request, "answer": answer}, check)

    def _ask(self, request: bytes, answer: np.ndarray) -> None:
        self.socket.sendall(request)
        come = 0
        while not come:
            with suppress(BlockingIOError):
                come = self.socket.recv_into(answer, 0, socket.MSG_DONTWAIT)
                if not come:
                    raise ConnectionError("PE 1 has closed the socket")
        if come < answer.nbytes:
            self.socket.recv_into(answer.view(np.uint8)[come:], 0, socket.MSG_WAITALL)

    def _serve(self) -> None:
        header = bytearray(_HEADER.size)
        while self.socket.recv_into(header, 0, socket.MSG_WAITALL):
            come, wanted = _HEADER.unpack(header)
            if come:
                self.socket.recv_into(self.room, come, socket.MSG_WAITALL)
            self.socket.sendall(self.room[:wanted])
