"""The clock of suites whose peers have a job each: jobs are controlled by sockets and alive at the same time."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from benchmarks.figures import Figure
from benchmarks.peers import Peer
from benchmarks.rows import Row
from benchmarks.runner import Contender, Effort

START_SECONDS, ANSWER_SECONDS = 60.0, 120.0
ROOT = Path(__file__).parents[1]


class JobError(Exception):
    """The job reported an error, ended or did not answer."""


class Job:
    """The PEs of one peer, started by the peer's mpiexec. A call sends a command to all PEs and returns their answers."""

    def __init__(self, peer: Peer, n_pes: int) -> None:
        self.peer, self.failed = peer, ""
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.streams: list[TextIO] = []
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
            server.bind(f"{folder}/control")  # network namespaces share it, as files
            server.listen(n_pes)
            self.command = peer.command(n_pes, "-m", "benchmarks.pe")
            self.process = subprocess.Popen(
                [*self.command, f"{folder}/control", peer.module, peer.path],
                cwd=ROOT, env={**os.environ, **peer.environment},
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
        found = (self._prepared(row, job, effort) for job in self.jobs)
        return [contender for contender in found if contender]

    def release(self) -> None:
        """Does nothing: a job frees its last case when it prepares the next one."""

    def _prepared(self, row: Row, job: Job, effort: Effort) -> Contender | None:
        """A peer whose job fails is missing from then on. Ours must not fail."""
        if job.failed:
            return _missing(job.peer.name, job.failed)
        try:
            return self._operation(row, job, effort)
        except JobError as error:
            if job is self.jobs[0]:
                raise
            job.failed = f"its job ended: {error}"
            return _missing(job.peer.name, job.failed)

    def _operation(self, row: Row, job: Job, effort: Effort) -> Contender | None:
        try:
            answers = job("prepare", row.operation, row.nbytes, *row.parameters)
        except JobError as error:
            raise JobError(f"{row.key}, {job.peer.name}: {error}") from None
        first = answers[0]
        if not first["found"]:
            return None
        missing = next((answer["missing"] for answer in answers if "missing" in answer), "")
        if missing and job is self.jobs[0]:
            raise JobError(f"{row.key}, {job.peer.name}: {missing}")
        if missing:
            return _missing(job.peer.name, missing)
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


class GroupsClock:
    """Starts the jobs of a row when they are others than those of the row before, and ends those.

    jobs_of: the peers and PEs of a row, ours first.  lacks: why they cannot be started, or "".
    facts: gets those of each peer. A peer other than ours whose job does not start is missing in its rows.
    """

    def __init__(
        self,
        peers: Sequence[str],
        jobs_of: Callable[[Row], Iterable[tuple[Peer, int]]],
        facts: dict[str, Any],
        lacks: Callable[[Row], str] = lambda row: "",
    ) -> None:
        self.peers, self.jobs_of, self.facts, self.lacks = peers, jobs_of, facts, lacks
        self.wanted: list[tuple[Peer, int]] = []
        self.clock, self.stack = JobsClock([]), ExitStack()
        self.failed: dict[str, str] = {}

    def prepare(self, row: Row, effort: Effort) -> list[Contender]:
        """Errors: JobError if our job does not start or a job ends."""
        reason = self.lacks(row)
        if reason:
            return [_missing(self.peers[0], reason)]
        wanted = list(self.jobs_of(row))
        if wanted != self.wanted:
            self.stack.close()
            self.wanted, self.failed = wanted, {}
            with ThreadPoolExecutor() as pool:  # they start at the same time
                self.clock = JobsClock([job for job in pool.map(self._start, *zip(*wanted, strict=True)) if job])
            for job in self.clock.jobs:
                self.facts.setdefault(job.peer.name, {**job.facts, "command": " ".join(job.command)})
        return self.clock.prepare(row, effort) + [_missing(*pair) for pair in self.failed.items()]

    def release(self) -> None:
        """Do nothing: a job frees its last case when it prepares the next one."""

    def _start(self, peer: Peer, n_pes: int) -> Job | None:
        try:
            job = Job(peer, n_pes)
        except JobError as error:
            if peer.name == self.peers[0]:
                raise
            self.failed[peer.name] = str(error)
            return None
        self.stack.callback(job.close)
        return job


def _missing(peer: str, reason: str) -> Contender:
    return Contender(peer, {peer: Figure(missing=reason)}, lambda turn: {})
