"""What several files of tests here share. These tests start jobs, in an environment that no outer job or user has set."""

# ruff: noqa: E402
import pathlib
import sys

from surroundings import LAUNCHERS, USERS, forget

forget(*LAUNCHERS, *USERS)
sys.path.append(str(pathlib.Path(__file__).parent.parent / "pes"))  # for what stands in for a GPU's driver

import hypothesis
import pytest
import standin
from launching import idle_launcher, launcher, program, start  # noqa: F401  fixtures

# Examples take as long as a busy machine takes, and are the same in each run.
slow = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("jobs", derandomize=True, database=None, deadline=None, suppress_health_check=slow)
hypothesis.settings.load_profile("jobs")


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """The stand-in for AMD's driver, compiled."""
    return standin.build(tmp_path_factory.mktemp("standin"))


@pytest.fixture(name="standin")
def standin_of_one_gpu(library):
    return standin.Standin(library)


@pytest.fixture(autouse=True)
def no_error_is_kept():
    """torch reports an error that it finds in HIP after its next launch as its own."""
    yield
    assert standin.errors_left() == 0, "a thread still has the error of a call that failed"


@pytest.fixture
def service():
    """The service of a PE in this process, without a job."""
    from far_peer import Service  # imports pyshmem

    running = Service()
    yield running
    running.close()


@pytest.fixture
def played():
    """PE 1, played by the test, to which PE 0's service in this process is connected: it has put, and been answered."""
    from far_peer import PUT, REPLY, Played  # imports pyshmem

    playing = Played()
    assert playing.connect() == (PUT, 0)
    playing.socket.sendall(REPLY.pack(2, 0, 0))
    yield playing
    playing.close()
