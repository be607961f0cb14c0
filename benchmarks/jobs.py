"""A peer's job: started by its own mpiexec, told by sockets what to do, all jobs alive at the same time."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, TextIO

from benchmarks.peers import Peer

START_SECONDS, ANSWER_SECONDS = 60.0, 120.0
_ROOT = Path(__file__).parents[1]


class JobError(Exception):
    """The job said what went wrong, or ended, or is silent."""


class Job:
    """The PEs of one peer. Each command goes to all of them; what comes back is the list of their answers, by PE."""

    def __init__(self, peer: Peer, n_pes: int) -> None:
        self.peer = peer
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.streams: list[TextIO] = []
        token = secrets.token_hex(16)
        with socket.create_server(("localhost", 0)) as server:
            port = str(server.getsockname()[1])
            self.command = peer.command(n_pes, "-m", "benchmarks.pe")
            self.process = subprocess.Popen(
                [*self.command, port, peer.module, peer.path],
                cwd=_ROOT, env={**os.environ, "BENCHMARKS_TOKEN": token},
                stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            )  # fmt: skip
            try:
                arrived = [self._accept(server, token) for _ in range(n_pes)]
            except BaseException:
                self.process.kill()
                raise
        arrived.sort(key=lambda pair: pair[0]["pe"])
        self.streams = [stream for _, stream in arrived]
        self.facts: dict[str, str] = arrived[0][0]["facts"]

    def __call__(self, *command: Any) -> list[dict[str, Any]]:
        """Errors: JobError."""
        for stream in self.streams:
            stream.write(json.dumps(command) + "\n")
            stream.flush()
        return [self._answer(stream) for stream in self.streams]

    def close(self) -> None:
        for stream in self.streams:
            stream.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.terminate()
        self.log.close()

    def _accept(self, server: socket.socket, token: str) -> tuple[dict[str, Any], TextIO]:
        server.settimeout(0.5)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                connection, _ = server.accept()
            except TimeoutError:
                continue
            connection.settimeout(ANSWER_SECONDS)
            stream = connection.makefile("rw")
            hello = self._answer(stream)
            if hello.get("token") == token:
                return hello, stream
        raise JobError(self._last_words("did not start"))

    def _answer(self, stream: TextIO) -> dict[str, Any]:
        try:
            line = stream.readline()
        except TimeoutError:
            raise JobError(self._last_words(f"no answer in {ANSWER_SECONDS:.0f} s")) from None
        answer: dict[str, Any] = json.loads(line) if line else {"error": self._last_words("ended")}
        if "error" in answer:
            self.process.terminate()
            raise JobError(answer["error"])
        return answer

    def _last_words(self, what: str) -> str:
        self.process.terminate()
        self.log.seek(0)
        return f"{self.peer.name}: {what}: {' '.join(self.command)}\n" + "".join(self.log.readlines()[-30:])


def one_process(peer: Peer, program: str) -> float:
    """The number that ``program`` prints, run as a job of one PE. Errors: JobError."""
    root = peer.path or str(_ROOT)
    try:
        result = subprocess.run(
            peer.command(1, "-c", program),
            cwd=root, env={**os.environ, "PYTHONPATH": root},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise JobError(f"{peer.name}: {error}") from None
    try:
        return float(result.stdout.split()[-1])
    except (IndexError, ValueError):
        raise JobError(f"{peer.name}: no figure from a job of one PE:\n{result.stdout}{result.stderr}") from None
