"""``%load_ext pyshmem`` in IPython and Jupyter: cells that run on all PEs of a job that pyshmemrun starts."""

from __future__ import annotations

import atexit
import json
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

from . import PYSHMEMRUN
from .run.interactive import END

USAGE = "%pyshmem -n 4, with more options of pyshmemrun, starts PEs, and %pyshmem off ends them"


class Session:
    """The PEs that run cells. One per process, named ``session``."""

    def __init__(self) -> None:
        self._job: subprocess.Popen[str] | None = None

    def control(self, line: str) -> None:
        """%pyshmem: start PEs, in place of earlier ones, or end them."""
        words = shlex.split(line)
        if not words:
            print(USAGE if self._job is None else f"{USAGE}; some run")
            return
        self.close()
        if words == ["off"]:
            return
        self._job = subprocess.Popen(
            [*PYSHMEMRUN, *words, "--cells"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # an interrupt of the notebook then reaches the PEs once, from here
        )
        self._show()

    def run(self, line: str, cell: str) -> None:
        """%%pes: run a cell on all PEs, and show what they print until all have run it."""
        if self._job is None or self._job.stdin is None:
            print(f"no PEs: {USAGE}", file=sys.stderr)
            return
        with suppress(BrokenPipeError):  # the job has ended, of which its output tells
            self._job.stdin.write(json.dumps(cell) + "\n")
            self._job.stdin.flush()
        self._show()

    def close(self) -> None:
        """End the PEs as the end of their input does."""
        job, self._job = self._job, None
        if job is not None:
            job.communicate()

    def _show(self) -> None:
        """Show what comes until END. An interrupt goes to the PEs, whose cell it ends."""
        job = self._job
        assert job is not None
        assert job.stdout is not None
        while True:
            try:
                for line in iter(job.stdout.readline, ""):
                    print(line.removesuffix(END), end="", flush=True)
                    if line.endswith(END):
                        return
            except KeyboardInterrupt:
                job.send_signal(signal.SIGINT)
                continue
            print(f"the PEs have ended with status {job.wait()}", file=sys.stderr)
            self._job = None
            return


session = Session()


def register(shell: Any) -> None:
    """Add %pyshmem and %%pes to an IPython shell."""
    shell.register_magic_function(session.control, "line", "pyshmem")
    shell.register_magic_function(session.run, "cell", "pes")
    atexit.register(session.close)
