"""Runs pytest on all PEs of a job, whose processes are forked from one that has imported torch and Triton.

`python tests/together.py -n 4 tests/pes -q` does what `pyshmemrun -n 4 -m pytest tests/pes -q` does, in less time.
"""

import pathlib
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).with_name("jobs")))
from jobs import warm

BIN = pathlib.Path(sys.executable).parent

if __name__ == "__main__":
    _, option, n_pes, *arguments = sys.argv
    sys.exit(subprocess.run([BIN / "pyshmemrun", option, n_pes, *warm(), BIN / "pytest", *arguments]).returncode)
