"""Runs torch's own tests of a backend of torch.distributed on pyshmem, those that gloo has to pass, and prints a table.

Run: python tests/suites/torch_distributed.py [TEST ...] [--pes 2 4] [--backend gloo] [--files test/distributed/tensor/*.py]
They are in the installed torch, and need expecttest; --files takes others, of a checkout of the same version of torch, whose
tests start processes themselves, as those of DTensor and FSDP2. With GPUs these run on them; --backend nccl compares. Without,
tests that want GPUs get CPUs. The processes of a test, which start without MPI, run the next one too; --jobs of them at a time.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import logging
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from functools import partial
from multiprocessing import connection
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

os.environ |= {"BACKEND": "gloo", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
os.environ |= {"PYSHMEM_WAIT_TIMEOUT": "20", "PYSHMEM_QUIET": "1"}
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # otherwise a process that asks for GPUs has used one
import torch
import torch.distributed as dist
from torch.testing._internal import common_distributed, common_fsdp
from torch.testing._internal.distributed import distributed_test
from torch.testing._internal.distributed._tensor import common_dtensor

import pyshmem.distributed  # noqa: F401  adds the backend

GPUS = torch.cuda.is_available()
if not GPUS:
    os.environ["SHMEM_SYMMETRIC_SIZE"] = "64m"
START = multiprocessing.get_context("forkserver" if GPUS else "fork")  # what has used a GPU cannot be forked
START.set_forkserver_preload(["torch.testing._internal.common_fsdp", distributed_test.__name__, "pyshmem.distributed"])
MANY = common_distributed.MultiProcessTestCase  # other tests are of one process
NAMED = ("test_get_backend",)  # which compares the name with BACKEND
SKIPPED = {each.exit_code for each in common_distributed.TEST_SKIPS.values()}


class Case(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """One test in one process: what torch's runner calls there."""


def cases(files: list[str]) -> list[tuple[Any, str]]:
    """Return the class and the name of each test: of Case, or of these files."""
    if not files:
        return [(Case, name) for name in dir(Case) if name.startswith("test_")]
    found = []
    for file in files:
        sys.path.insert(0, str(Path(file).parent))
        module = importlib.import_module(Path(file).stem)
        for each in vars(module).values():
            if isinstance(each, type) and each.__module__ == module.__name__ and issubclass(each, MANY):
                found += [(each, name) for name in dir(each) if name.startswith("test_")]
    return found


def on_cpus(pes: int) -> None:
    """Let tests that want ``pes`` GPUs take CPUs."""
    tests: Any = common_distributed
    accelerator: Any = torch.accelerator
    accelerator.current_accelerator = lambda check_available=False: torch.device("cpu")
    torch.cpu.device_count = lambda: pes
    common_fsdp.DEVICE_COUNT = pes
    tests.skip_if_lt_x_gpu = lambda x, allow_cpu=True: lambda test: test if x <= pes else skipped


def skipped(self: Any) -> None:
    sys.exit(next(iter(SKIPPED)))


class Processes:
    """One process for each PE, which run tests one after the other: importing and starting CUDA take longer than a test."""

    def __init__(self, pes: int, backend: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        for each in ("barrier", "test_dir", "init_dir"):
            (Path(self._folder.name) / each).mkdir()
        self._out = Path(self._folder.name) / "out"
        self._out.touch()
        self._pipes, ends = zip(*(START.Pipe() for _ in range(pes)), strict=True)
        given = [(rank, pes, self._folder.name, backend, end) for rank, end in enumerate(ends)]
        self._processes = [START.Process(target=serve, args=each) for each in given]
        for each in self._processes:
            each.start()
        for end in ends:
            end.close()

    def run(self, case: Any, name: str, seconds: float) -> tuple[set[str], str]:
        """Run a test. Return what came of it on the PEs, and the output."""
        printed, limit = self._out.stat().st_size, time.monotonic() + seconds
        outcomes = set()
        for pipe in self._pipes:
            pipe.send((case, name))
        waiting, ends = set(self._pipes), {each.sentinel for each in self._processes}
        while waiting:
            come = set(connection.wait([*waiting, *ends], max(0, limit - time.monotonic())))
            if not come or come & ends:
                outcomes.add("a process ended" if come else "not ended in time")
                break
            waiting -= come
            outcomes |= {pipe.recv() for pipe in come}
            if "fails" in outcomes:
                limit = min(limit, time.monotonic() + 2)  # the others may wait for the one that failed
        text = self._out.read_bytes()[printed:].decode(errors="replace")
        return outcomes, "\n".join([text, *(each for each in outcomes if "ended" in each)])

    def end(self) -> None:
        for each in self._processes:
            each.kill()
            each.join()
        self._folder.cleanup()


def serve(rank: int, pes: int, folder: str, backend: str, pipe: Any) -> None:
    """What one of Processes does."""
    file = os.open(f"{folder}/out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(file, number)
    os.environ |= {"WORLD_SIZE": str(pes), "TEMP_DIR": folder}
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    common_dtensor.NUM_DEVICES = pes
    start = dist.init_process_group  # which the tests call with a backend of their own
    dist.init_process_group = lambda *args, **given: start(**{**given, "backend": backend})
    for number in itertools.count():
        case, name = pipe.recv()
        distributed_test.BACKEND = backend if name in NAMED else "gloo"
        pipe.send(outcome(case, rank, name, f"{folder}/store{number}"))
        if dist.is_initialized():
            dist.destroy_process_group()


def outcome(case: Any, rank: int, name: str, store: str) -> str:
    _, pipe = multiprocessing.Pipe()
    try:
        case._run(rank, name, store, pipe)
    except SystemExit as end:
        return "passes" if not end.code else "skipped" if end.code in SKIPPED else "fails"
    except Exception:  # noqa: BLE001  it is the test that fails
        traceback.print_exc()
        return "fails"
    return "passes"


def chain(some: list[tuple[Any, str]], pes: int, wanted: Any, count: Counter[str]) -> None:
    """Run tests in the same processes, and in new ones after a test that did not end alike on all."""
    processes = None
    for case, name in some:
        found, text = {"skipped"}, ""
        os.environ["WORLD_SIZE"] = str(pes)
        if int(case(name).world_size) == pes:  # some classes have a number of their own
            processes = processes or Processes(pes, wanted.backend)
            found, text = processes.run(case, name, wanted.seconds)
            if len(found) > 1 or not found <= {"passes", "skipped", "fails"}:
                processes.end()
                processes = None
        what = "passes" if found == {"passes"} else "skipped" if found <= {"passes", "skipped"} else "fails"
        count[what] += 1
        lines = [f"{pes} {case.__name__}.{name}: {what}"] * (what != "skipped")
        lines += [f"    {line}" for line in text.splitlines()[-12:]] * (what == "fails")
        print("\n".join(lines), end="\n" * bool(lines), flush=True)
    if processes:
        processes.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="*", metavar="TEST", help="names; without any, all")
    parser.add_argument("--pes", nargs="+", type=int, default=[2])
    parser.add_argument("--files", nargs="+", default=[], metavar="FILE")
    parser.add_argument("--backend", default="pyshmem")
    parser.add_argument("--jobs", type=int, default=1, help="tests at a time")
    parser.add_argument("--seconds", type=float, default=100, help="of one test")
    wanted: Any = parser.parse_args()
    for pes in wanted.pes:
        common_dtensor.NUM_DEVICES = pes
        if not GPUS:
            on_cpus(pes)
        chosen = [each for each in cases(wanted.files) if not wanted.tests or each[1] in wanted.tests]
        count: Counter[str] = Counter()
        with ThreadPool(wanted.jobs) as pool:
            shares = [chosen[i :: wanted.jobs] for i in range(wanted.jobs)]
            pool.map(partial(chain, pes=pes, wanted=wanted, count=count), shares, 1)
        print(
            f"{wanted.backend} on {pes}: " + ", ".join(f"{n} {outcome}" for outcome, n in sorted(count.items())),
            flush=True,
        )
        if not count["passes"]:
            sys.exit("no test passes")
    sys.exit(0)


if __name__ == "__main__":
    main()
