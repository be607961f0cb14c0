"""The program of each PE of a job: it prepares a case, checks it and times it on command. Needs NumPy and the library.

Run by benchmarks.jobs: python -m benchmarks.pe CONTROL MODULE PATH.  Between commands a PE sleeps on its socket, so that the
job of another library has the cores to itself.
"""

from __future__ import annotations

import importlib
import json
import socket
import statistics
import sys
import traceback
from timeit import Timer
from typing import Any

from benchmarks.peers.case import Case, Library


class Worker:
    """Executes commands and returns answers, each a JSON object. All PEs of the job execute a command together."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.case: Case | None = None
        self.active = False

    def hello(self) -> dict[str, Any]:
        return {"pe": self.library.me, "facts": self.library.facts()}

    def prepare(self, operation: str, nbytes: int, *parameters: Any) -> dict[str, Any]:
        """Make the case and check it. found: whether the library has it.  wrong: the errors that this PE found.

        missing: what the library raised in its call.
        """
        self.case = None
        self.library.forget()
        self.case = case = self.library.case(operation, nbytes, *parameters)
        if case is None:
            return {"found": False}
        self.active = case.pes is None or self.library.me in case.pes
        try:
            wrong = case.check(lambda: self.steps(1))
        except Exception as error:  # noqa: BLE001  a library may raise anything
            traceback.print_exc()
            return {"found": True, "missing": f"{type(error).__name__}: {error}"}
        note = self.library.notes.get(operation, "")
        return {"found": True, "wrong": wrong, "statement": case.statement, "ceiling": case.ceiling, "note": note}

    def run(self, number: int, turn: int = 0, repeats: int = 1) -> dict[str, Any]:
        """Return the seconds of ``number`` steps on this PE, and of as many of the ceiling; None if this PE is not active.

        The seconds are the median of ``repeats``.

        A few steps run first, because the caches hold the data of another job.
        """
        self.library.barrier()
        taken = {}
        for ceiling in (turn % 2 == 0, turn % 2 == 1):
            self.steps(2 + number // 20, ceiling)
            times = [seconds for _ in range(repeats) if (seconds := self.steps(number, ceiling)) is not None]
            taken[ceiling] = statistics.median(times) if times else None
        if self.case is not None:
            (self.case.release if self.active else self.case.meanwhile)()
        self.library.barrier()
        return {"seconds": taken[False], "ceiling": taken[True]}

    def steps(self, number: int, ceiling: bool = False) -> float | None:
        assert self.case is not None
        statement = self.case.ceiling if ceiling else self.case.statement
        if not self.active or not statement:
            return None
        return Timer(statement, timer=self.case.timer, globals=self.case.names).timeit(number)


def main(control: str, module: str, path: str) -> None:
    if path:
        sys.path.insert(0, path)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(control)
        stream = connection.makefile("rw")

        def answer(**fields: Any) -> None:
            stream.write(json.dumps(fields) + "\n")
            stream.flush()

        try:
            worker = Worker(importlib.import_module(f"benchmarks.peers.{module}").Library())
            answer(**worker.hello())
            for line in stream:
                name, *arguments = json.loads(line)
                answer(**getattr(worker, name)(*arguments))
        except Exception:
            answer(error=traceback.format_exc())
            raise
        worker.case = None
        worker.library.forget()
    worker.library.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
