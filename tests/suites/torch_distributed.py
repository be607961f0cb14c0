"""Runs torch's own tests of a backend of torch.distributed on pyshmem, those that gloo has to pass, and prints a table.

Run: python tests/suites/torch_distributed.py [TEST ...] [--pes 2 4] [--backend gloo] [--files test/distributed/tensor/*.py]
They are in the installed torch, and need expecttest; --files takes others, of a checkout of the same version of torch, whose
tests start processes themselves, as those of DTensor and FSDP2. With GPUs these run on them; --backend nccl compares. Without,
tests that want GPUs get CPUs. Each test runs in processes of its own, without MPI; --jobs many at a time.
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


def one(case: Any, name: str, pes: int, backend: str, seconds: float) -> tuple[str, str]:
    """Run a test on ``pes`` processes. Return what came of it, and the output."""
    os.environ["WORLD_SIZE"] = str(pes)
    if case(name).world_size != pes:  # some classes have a number of their own
        return "skipped", ""
    with tempfile.TemporaryDirectory() as folder:
        for each in ("barrier", "test_dir", "init_dir"):
            (Path(folder) / each).mkdir()
        out = Path(folder) / "out"
        processes = [START.Process(target=enter, args=(rank, case, name, pes, folder, backend)) for rank in range(pes)]
        for each in processes:
            each.start()
        limit = time.monotonic() + seconds
        while any(each.is_alive() for each in processes) and time.monotonic() < limit:
            failed = [each for each in processes if each.exitcode not in (None, 0, *SKIPPED)]
            for each in failed and processes:
                each.join(2)
                each.kill()
            processes[0].join(0.05)
        late = any(each.is_alive() for each in processes)
        for each in processes:
            each.kill()
            each.join()
        codes = {each.exitcode for each in processes}
        text = out.read_text(errors="replace") if out.exists() else ""
    text += f"\nended after {seconds} s" * late
    return "passes" if codes == {0} else "skipped" if codes <= {0, *SKIPPED} else "fails", text


def enter(rank: int, case: Any, name: str, pes: int, folder: str, backend: str) -> None:
    file = os.open(f"{folder}/out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(file, number)
    os.environ |= {"WORLD_SIZE": str(pes), "TEMP_DIR": folder}
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    common_dtensor.NUM_DEVICES = pes
    distributed_test.BACKEND = backend if name in NAMED else "gloo"
    start = dist.init_process_group  # which the tests call with a backend of their own
    dist.init_process_group = lambda *args, **given: start(**{**given, "backend": backend})
    _, pipe = multiprocessing.Pipe()
    case._run(rank, name, f"{folder}/store", pipe)


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

        def run(each: tuple[Any, str], pes: int = pes, count: Counter[str] = count) -> None:
            outcome, text = one(*each, pes, wanted.backend, wanted.seconds)
            count[outcome] += 1
            lines = [f"{pes} {each[0].__name__}.{each[1]}: {outcome}"] * (outcome != "skipped")
            lines += [f"    {line}" for line in text.splitlines()[-12:]] * (outcome == "fails")
            print("\n".join(lines), end="\n" * bool(lines), flush=True)

        with ThreadPool(wanted.jobs) as pool:
            pool.map(run, chosen, 1)
        print(
            f"{wanted.backend} on {pes}: " + ", ".join(f"{n} {outcome}" for outcome, n in sorted(count.items())),
            flush=True,
        )
    sys.exit(0)


if __name__ == "__main__":
    main()
