"""Tests do not depend on how they were started: this runs before all other code of the tests, and before pyshmem."""

import gc
import os
import signal

from surroundings import SETTINGS, forget

# A job in the background of a shell ignores some of these, and nohup others; the programs of tests would inherit that.
DISPOSITIONS = dict.fromkeys(
    (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD), signal.SIG_DFL
)
for number, action in {**DISPOSITIONS, signal.SIGINT: signal.default_int_handler}.items():
    signal.signal(number, action)
signal.pthread_sigmask(signal.SIG_SETMASK, ())
try:
    os.fstat(0)
except OSError:
    # closed: the next file that a test opens would be the standard input of its programs
    os.open(os.devnull, os.O_RDONLY)
forget(*SETTINGS)
os.environ["PYSHMEM_CONFIG"] = ""  # no defaults of the site

# Two processes share the files of tests/jobs and of tests/codegen, in this order: what takes longest is not left for the end.
FIRST = (
    "test_examples.py", "test_hangs.py", "test_figures.py", "test_schedules.py", "test_doctor.py", "test_types.py",
    "test_models.py", "test_ops.py", "test_on_stream.py", "test_tiles.py", "test_attention.py", "test_gluon.py", "test_reach.py",
)  # fmt: skip


def pytest_collection_modifyitems(items):
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST))


def pytest_collection_finish():
    """Python's collections during tests do not look at what is imported by now: torch alone would take a third of their time."""
    gc.collect()
    gc.freeze()
