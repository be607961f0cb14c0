"""Collectives on tiles of 5, 6 and 7 PEs: the numbers that are no powers of two and that tests/pes does not have."""

import os
import pathlib
import subprocess
import sys

from jobs import warm

PROGRAM = pathlib.Path(__file__).with_name("tile_teams.py")


def test_tile_collectives_of_5_6_and_7_pes_give_what_numpy_does(tmp_path):
    launcher = pathlib.Path(sys.executable).with_name("pyshmemrun")
    environment = {**os.environ, "PYSHMEM_QUIET": "1", "SHMEM_SYMMETRIC_SIZE": "16m", "PYSHMEM_WAIT_TIMEOUT": "60"}
    command = [launcher, "-n", "7", *warm(), PROGRAM]
    job = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=tmp_path, env=environment)
    assert (job.returncode, job.stdout) == (0, "5, 6 and 7 PEs are done\n"), job.stdout + job.stderr
