"""The clock of suites whose peers have a job each: jobs are controlled by sockets and alive at the same time."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from benchmarks.figures import Figure
from benchmarks.peers import Peer
from benchmarks.rows import Row
from benchmarks.runner import Contender, Effort

START_SECONDS, ANSWER_SECONDS = 60.0, 120.0
_ROOT = Path(__file__).parents[1]


class JobError(Exception):
    """The job reported an error, ended or did not answer."""


class Job:
    """The PEs of one peer, started by the peer's mpiexec. A call sends a command to all PEs and returns their answers."""

    def __init__(self, peer: Peer, n_pes: int) -> None:
        self.peer = peer
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.streams: list[TextIO] = []
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
            server.bind(f"{folder}/control")  # network namespaces share it, as files
            server.listen(n_pes)
            self.command = peer.command(n_pes, "-m", "benchmarks.pe")
            self.process = subprocess.Popen(
                [*self.command, f"{folder}/control", peer.module, peer.path],
                cwd=_ROOT, env={**os.environ, **peer.environment},
                stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            )  # fmt: skip
            try:
                arrived = [self._accept(server) for _ in range(n_pes)]
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

    def _accept(self, server: socket.socket) -> tuple[dict[str, Any], TextIO]:
        server.settimeout(0.5)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                connection, _ = server.accept()
            except TimeoutError:
                continue
            connection.settimeout(ANSWER_SECONDS)
            stream = connection.makefile("rw")
            return self._answer(stream), stream
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


class JobsClock:
    """Peers in separate jobs. The first job is ours. The ceiling of each peer is timed in its job, in the same memory."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = jobs
        self.peers = [job.peer.name for job in jobs]

    def prepare(self, row: Row, effort: Effort) -> list[Contender]:
        """Errors: JobError."""
        prepare = _process if row.group == "Process" else self._operation
        found = (prepare(row, job, effort) for job in self.jobs)
        return [contender for contender in found if contender]

    def release(self) -> None:
        """Does nothing: a job frees its last case when it prepares the next one."""

    def _operation(self, row: Row, job: Job, effort: Effort) -> Contender | None:
        try:
            answers = job("prepare", row.operation, row.nbytes, *row.parameters)
        except JobError as error:
            raise JobError(f"{row.key}, {job.peer.name}: {error}") from None
        first = answers[0]
        if not first["found"]:
            return None
        wrong = "".join(answer["wrong"] for answer in answers)
        names = {"seconds": job.peer.name}
        figures = {job.peer.name: Figure(first["statement"], first["note"], wrong)}
        if first["ceiling"]:
            names["ceiling"] = row.ceiling if job is self.jobs[0] else f"{row.ceiling} beside {job.peer.name}"
            figures[names["ceiling"]] = Figure(first["ceiling"])
        number, repeats = 0, effort.repeats
        if row.unit != "s":
            number, repeats = 1, 1
        elif not wrong:
            number = _number(job, effort.seconds)
        return Contender(job.peer.name, figures, partial(_sample, job, number, repeats, names))


def _sample(job: Job, number: int, repeats: int, names: Mapping[str, str], turn: int) -> dict[str, float]:
    answers = job("run", number, turn, repeats)
    return {name: _slowest(answers, key) / number for key, name in names.items()}


def _number(job: Job, seconds: float) -> int:
    """Return the number of steps that take about ``seconds``."""
    number = 1
    while (took := _slowest(job("run", number), "seconds")) < seconds / 4 and number < 1 << 24:
        number = max(2 * number, min(10 * number, int(number * seconds / (took or 1e-9) / 3)))
    return max(1, round(number * seconds / took))


def _slowest(answers: Sequence[Mapping[str, Any]], key: str) -> float:
    return float(max(answer[key] for answer in answers if answer[key] is not None))


def _process(row: Row, job: Job, effort: Effort) -> Contender | None:
    """Measure a whole process. Each sample is a new job of one PE."""
    program = job.peer.programs.get(row.operation)
    if not program:
        return None
    name = job.peer.name
    return Contender(name, {name: Figure(program)}, lambda turn: {name: one_process(job.peer, program)})


def one_process(peer: Peer, program: str) -> float:
    """Run ``program`` as a job of one PE and return the number that it prints. Errors: JobError."""
    root = peer.path or str(_ROOT)
    try:
        result = subprocess.run(
            peer.command(1, "-c", program),
            cwd=root, env={**os.environ, **peer.environment, "PYTHONPATH": root},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise JobError(f"{peer.name}: {error}") from None
    try:
        return float(result.stdout.split()[-1])
    except (IndexError, ValueError):
        raise JobError(f"{peer.name}: no figure from a job of one PE:\n{result.stdout}{result.stderr}") from None
