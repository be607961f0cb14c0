"""Runs every test on all PEs of one job: `pyshmemrun -n 4 -m pytest tests/pes`.

A test that fails on one PE ends the job there and then: the others may wait for that PE for ever. The test's name, the PE
and the report go to stderr. A watchdog in C ends a PE that waits without letting Python run.
"""

import faulthandler
import gc
import os
import sys

import hypothesis
import torch
import pyshmem as shmem
import pytest
from pyshmem.host import pool as pools
from pyshmem.base import interpreter
from pyshmem.memory.heap import heaps
from pyshmem.base.job import job
from pyshmem.memory.areas import pool
import several_nodes
import software_nic
from cases import PARTS, shared
from support import here, live

SECONDS = 300  # of one test, as in pyproject.toml; generous, machines are slow and shared
EARLIER = 10  # seconds before pytest-timeout, which a worker of xdist does not let speak

errors = pytest.StashKey[int]()  # where the watchdog writes

# All PEs must draw the same examples, so nothing random and nothing remembered.
hypothesis.settings.register_profile("pes", derandomize=True, database=None, deadline=None, max_examples=50)
hypothesis.settings.load_profile("pes")


def pytest_configure(config):
    config.stash[errors] = os.dup(2)  # while nothing is captured
    on_gpu = torch.cuda.is_available() and not interpreter.active()
    if interpreter.active():
        import quick_interpreter  # imports Triton

        quick_interpreter.install()
    software_nic.use()
    shmem.init(heap_size=None if on_gpu else "64m")  # a GPU's heap grows, up to all of its memory


def pytest_collection_modifyitems(config, items):
    """Without a GPU, 1, 2, 3 and 4 PEs share the cases of a test, of types for example: see cases.

    PYSHMEM_TEST_ALL_CASES=1 runs all everywhere; pretended nodes and other numbers of PEs have other cases, and run all.
    """
    several_nodes.skip_tiles(items)
    n = shmem.n_pes()
    of_all = n not in PARTS or torch.cuda.is_available() or bool(os.environ.get("PYSHMEM_NODE_SIZE"))
    if not of_all and not os.environ.get("PYSHMEM_TEST_ALL_CASES"):
        items[:], others = shared(items, n)
        config.hook.pytest_deselected(items=others)


def pytest_sessionstart(session):
    if shmem.my_pe():  # PE 0 reports; the others only when a test of theirs fails
        session.config.pluginmanager.unregister(name="terminalreporter")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        several_nodes.note_refusal(item, call.excinfo.value, report)
    return report


def pytest_runtest_logreport(report):
    if report.failed and shmem.n_pes() > 1:
        sys.__stderr__.write(
            f"\nPE {shmem.my_pe()} of {shmem.n_pes()}: FAILED {report.nodeid} ({report.when})\n{report.longreprtext}\n"
        )
        sys.__stderr__.flush()
        shmem.global_exit(1)


def pytest_sessionfinish(session, exitstatus):
    if shmem.query_initialized():
        shmem.finalize()


@pytest.fixture(autouse=True)
def isolated(request):
    """A watchdog around the test, and neither team, pool nor symmetric memory left from it; all PEs begin the next together."""
    marked = request.node.get_closest_marker("timeout")
    seconds = marked.args[0] if marked else SECONDS
    faulthandler.dump_traceback_later(seconds - EARLIER, exit=True, file=request.config.stash[errors])
    before, teams, generation = live(), set(pool.teams.values()), job.generation
    yield
    if pools._pools:
        gc.collect()
        shmem.barrier_all()
        pools._forget(False)
    shmem.barrier_all()
    several_nodes.require_alike(request.node)
    kept = before if job.generation == generation else []  # the test ended this init and began another
    for name, start, _ in set(live()).difference(kept):
        if start not in heaps[name].owned:  # by torch's symmetric memory, which frees it
            heaps[name].allocator.release(start)
    for team in set(pool.teams.values()) - teams:
        team.destroy()
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def device():
    """The kind of the default heap: a run of the tests is about one. `make test-gpu` runs them for each."""
    return job.device


@pytest.fixture
def beside_the_heap():
    """Private tensors that name no device are where kernels reach them: beside the default heap."""
    with here():
        yield


@pytest.fixture
def me():
    return shmem.my_pe()


@pytest.fixture
def npes():
    return shmem.n_pes()


@pytest.fixture
def few_pes():
    """What does not depend on the number of PEs, and is slow on CPUs, runs there on one and two PEs."""
    if shmem.n_pes() > 2 and not torch.cuda.is_available():
        pytest.skip("slow without a GPU: it runs on 1 and 2 PEs")


@pytest.fixture
def fresh():
    """No test finds the plans, staging memory, compiled code or names of teams of another one."""
    from pyshmem.ops import torch as operators_of_torch

    torch.compiler.reset()
    yield
    operators_of_torch.clear()


@pytest.fixture
def plans_closed():
    """Plans that a test makes end with it."""
    from pyshmem import ops  # imports Triton

    yield
    ops.clear()


@pytest.fixture
def reserve(monkeypatch):
    """The memory of plans of smaller teams; an earlier test's is freed."""
    from pyshmem import ops
    from pyshmem.ops import workspace

    monkeypatch.setattr(workspace, "_reserve", workspace.Reserve())
    ops.reserve(1 << 20)
    yield workspace._reserve
    ops.clear()


@pytest.fixture
def smaller_teams(reserve):
    """Teams of some of the PEs, in turn; a false one where this PE is no member. Plans that use a team end with it.

    Where PEs are on several nodes, each node has such teams.
    """
    from pyshmem import ops

    if shmem.n_pes() < 2:
        pytest.skip("there is no smaller team")

    def teams():
        near = shmem.TEAM_SHARED
        n = near.n_pes()
        for first, step, size in ((min(1, n - 1), 1, max(n - 1, 1)), (0, 2, (n + 1) // 2)):
            yield near.split_strided(first, step, size)
            shmem.barrier_all()
            ops.clear()

    return teams()
