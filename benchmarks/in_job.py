"""The clock of suites whose peers share one job: all PEs run the same rows in step, and PE 0 prints.

A suite's operations are a class with a method for each operation of its rows. The method returns the peers' ways to do it,
each a Case, or the reason why the peer is missing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import chain
from typing import Any, NamedTuple, Protocol

from benchmarks import command, record
from benchmarks.figures import Figure, Report
from benchmarks.rows import MIB, Row
from benchmarks.runner import Contender, Effort

ATTEMPTS = 5
REPLAYS = 3  # of a graph in one sample
EVENTS, GRAPH, ISSUE, ITSELF = "events", "graph", "issue", "itself"
NO_FIGURES = (
    "There is no GPU: kernels are interpreted on the CPU heap. This tries the harness; the numbers are no figures."
)


class Case(NamedTuple):
    """One peer's way to do an operation. All PEs make it, check it and time it together.

    step: one call.  check: does steps on all PEs and returns what this PE found wrong, or "".
    how: EVENTS times the GPU's work of ``calls`` steps, GRAPH that of a CUDA graph of them, ISSUE the host's time for them;
    the steps of ITSELF return their seconds.  per: how many operations a step has.
    pes: those that are timed, None: all.  lead: untimed steps in front of each sample.
    ahead: seconds of untimed steps in front of each sample, for all PEs as many; at least ``lead`` steps.
    warm: steps before the first sample: enough for every kernel and context among which steps alternate.
    """

    statement: str
    step: Callable[[], object]
    check: Callable[[], str]
    how: str = EVENTS
    calls: int = 1
    per: int = 1
    pes: Collection[int] | None = None
    lead: int = 0
    ahead: float = 0.0
    warm: int = 1


class Operations(Protocol):
    """Made after init with the accelerator and whether to leave other libraries out."""

    peers: Sequence[str]
    facts: Mapping[str, Any]

    def release(self) -> None:
        """Free what the last row used. Collective."""

    def close(self, status: int) -> None:
        """Leave the job. May end the process."""


class InJobClock:
    def __init__(self, operations: Operations, accelerator: Any, alone: bool) -> None:
        from mpi4py import MPI  # after init, which chooses the library and the thread level

        import pyshmem as shmem

        self.operations, self.accelerator, self.alone = operations, accelerator, alone
        self.peers = operations.peers
        self.comm, self.most = MPI.COMM_WORLD, MPI.MAX
        self.me = shmem.my_pe()

    def prepare(self, row: Row, effort: Effort) -> list[Contender]:
        operation = getattr(self.operations, row.operation)
        ways: Mapping[str, Case | str] = operation(row.nbytes, *row.parameters)
        wanted = {name: way for name, way in ways.items() if not self.alone or name == self.peers[0]}
        return [self._contender(name, way) for name, way in wanted.items()]

    def release(self) -> None:
        self.operations.release()

    def _contender(self, name: str, case: Case | str) -> Contender:
        if isinstance(case, str):
            return Contender(name, {name: Figure(missing=case)}, lambda turn: {})
        figure = self._checked(name, case)
        if figure.wrong or figure.missing:
            return Contender(name, {name: figure}, lambda turn: {})
        case = case._replace(calls=self.accelerator.cut(case.calls, 2))
        for _ in range(case.warm):
            self._together()
            if self._active(case):
                case.step()
        self._together()
        if case.how == GRAPH:
            if active := self._active(case):
                case = case._replace(step=self.accelerator.captured(case.step, case.calls))
            case = case._replace(calls=REPLAYS, per=case.per * case.calls)
            self._together()
            if active:
                case.step()
            self._together()
        if case.ahead:
            self._together()
            taken = self.comm.allreduce(self.accelerator.seconds(case.step, 1), self.most)
            case = case._replace(lead=max(case.lead, round(case.ahead / taken)))
        return Contender(name, {name: figure}, partial(self._sample, name, figure, case))

    def _checked(self, name: str, case: Case) -> Figure:
        """A peer whose check raises on a PE is missing. Ours must not raise."""
        wrong, reason = "", ""
        try:
            wrong = case.check()
        except RuntimeError as error:
            if name == self.peers[0]:
                raise
            reason = str(error).split("\n", 1)[0]
        found = self.comm.allgather((wrong, reason))
        return Figure(case.statement, wrong="".join(each for each, _ in found), missing=max(each for _, each in found))

    def _sample(self, name: str, figure: Figure, case: Case, turn: int) -> dict[str, float]:
        """Take the sample again where a compilation fell into it on any PE."""
        for _ in range(ATTEMPTS):
            before = len(self.accelerator.compilations)
            taken = self._seconds(case)
            compiled = sorted(set(chain(*self.comm.allgather(self.accelerator.compilations[before:]))))
            if not compiled:
                break
            figure.note = f"samples were repeated because {', '.join(compiled)} compiled in them"
        return {name: self.comm.allreduce(taken, self.most)}

    def _seconds(self, case: Case) -> float:
        """Return the seconds of one call on this PE; 0 if it takes no part in the case."""
        active = self._active(case)
        self._together()
        for _ in range(case.lead if active else 0):
            case.step()
        self._together()
        taken = self._timed(case) if active else 0.0
        self._together()
        return taken / case.calls / case.per

    def _timed(self, case: Case) -> float:
        if case.how == ITSELF:
            return sum(float(case.step()) for _ in range(case.calls))  # type: ignore[arg-type]
        if case.how == ISSUE:
            from benchmarks.accelerator import issued

            return issued(case.step, case.calls)
        return float(self.accelerator.seconds(case.step, case.calls))

    def _active(self, case: Case) -> bool:
        return case.pes is None or self.me in case.pes

    def _together(self) -> None:
        self.accelerator.synchronize()
        self.comm.Barrier()


def main(suite: command.Suite, description: str | None, arguments: list[str] | None = None) -> int:
    """The command of a suite whose operations are in the module of its name. All PEs of a job run it."""
    options = suite.parser(description).parse_args(arguments)
    if options.list:
        return suite.print_list(options.only)
    command.check_files(options, suite.name)
    facts = record.facts()
    import pyshmem as shmem

    shmem.init()
    from benchmarks.accelerator import Accelerator

    accelerator = Accelerator()
    module = import_module(f"benchmarks.operations.{suite.name}")
    operations = module.Operations(accelerator, options.alone)
    facts |= {"pyshmem": accelerator.facts() | {"commit": record.commit(os.path.dirname(shmem.__file__))}}
    report = Report(suite.name, list(operations.peers), shmem.n_pes(), facts | dict(operations.facts))
    if accelerator.interpreted:
        report.no_figures = NO_FIGURES
        rows = [replace(row, nbytes=min(row.nbytes, MIB), ceiling="") for row in suite.rows]
        suite = replace(suite, rows=rows, full=suite.quick)
    clock = InJobClock(operations, accelerator, options.alone)
    status = suite.run(clock, options, report, shmem.my_pe() == 0, clock.comm.bcast)
    sys.stdout.flush()
    operations.close(status)
    return status
