"""Runs torch's own tests of a backend of torch.distributed on pyshmem, those that gloo has to pass, and prints a table.

Run: python tests/suites/torch_distributed.py [TEST ...] [--pes 2 4] [--backend gloo] [--files test/distributed/tensor/*.py]
They are in the installed torch, and need expecttest; --files takes others, of a checkout of the same version of torch, whose
tests start processes themselves, as those of DTensor. Each runs in processes forked from this one, without MPI.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ |= {"BACKEND": "gloo", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
os.environ |= {"PYSHMEM_WAIT_TIMEOUT": "20", "SHMEM_SYMMETRIC_SIZE": "64m", "PYSHMEM_QUIET": "1"}
import torch
import torch.distributed as dist
from torch.testing._internal import common_distributed
from torch.testing._internal.distributed import distributed_test
from torch.testing._internal.distributed._tensor import common_dtensor

import pyshmem.distributed  # noqa: F401  adds the backend

SECONDS = 100  # of one test
MANY = common_distributed.MultiProcessTestCase  # other tests are of one process
NAMED = ("test_get_backend",)  # which compares the name with BACKEND
SKIPPED = {each.exit_code for each in common_distributed.TEST_SKIPS.values()}


START.set_forkserver_preload(["torch"])  # torch.testing would use a GPU there
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


def one(case: Any, name: str, pes: int) -> tuple[str, str]:
    """Run a test on ``pes`` processes. Return what came of it, and the output."""
    fork = multiprocessing.get_context("fork")
    os.environ["WORLD_SIZE"] = str(pes)
    if case(name).world_size != pes:  # some classes have a number of their own
        return "skipped", ""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TEMP_DIR"] = folder
        for each in ("barrier", "test_dir", "init_dir"):
            (Path(folder) / each).mkdir()
        out = Path(folder) / "out"
        processes = [fork.Process(target=enter, args=(rank, case, name, folder, out)) for rank in range(pes)]
        for each in processes:
            each.start()
        limit = time.monotonic() + SECONDS
        while any(each.is_alive() for each in processes) and time.monotonic() < limit:
            failed = [each for each in processes if each.exitcode not in (None, 0, *SKIPPED)]
            for each in failed and processes:
                each.join(2)
                each.kill()
            processes[0].join(0.05)
        for each in processes:
            each.kill()
            each.join()
        codes = {each.exitcode for each in processes}
        text = out.read_text(errors="replace") if out.exists() else ""
    return "passes" if codes == {0} else "skipped" if codes <= {0, *SKIPPED} else "fails", text


def enter(rank: int, case: Any, name: str, folder: str, out: Path) -> None:
    file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(file, number)
    torch.set_num_threads(1)
    _, pipe = multiprocessing.Pipe()
    case._run(rank, name, f"{folder}/store", pipe)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="*", metavar="TEST", help="names; without any, all")
    parser.add_argument("--pes", nargs="+", type=int, default=[2])
    parser.add_argument("--files", nargs="+", default=[], metavar="FILE")
    parser.add_argument("--backend", default="pyshmem")
    wanted: Any = parser.parse_args()
    logging.disable(logging.WARNING)
    start = dist.init_process_group  # which the tests call with the backend of BACKEND
    dist.init_process_group = lambda **given: start(**{**given, "backend": wanted.backend})
    chosen = [each for each in cases(wanted.files) if not wanted.tests or each[1] in wanted.tests]
    for pes in wanted.pes:
        common_dtensor.NUM_DEVICES = pes
        count: Counter[str] = Counter()
        for case, name in chosen:
            distributed_test.BACKEND = wanted.backend if name in NAMED else "gloo"
            outcome, text = one(case, name, pes)
            count[outcome] += 1
            if outcome != "skipped":
                print(f"{pes} {name}: {outcome}", flush=True)
            if outcome == "fails":
                print("    " + "\n    ".join(text.splitlines()[-12:]), flush=True)
        print(
            f"{wanted.backend} on {pes}: " + ", ".join(f"{n} {outcome}" for outcome, n in sorted(count.items())),
            flush=True,
        )
    sys.exit(0)


if __name__ == "__main__":
    main()
