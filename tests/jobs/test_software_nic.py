"""Calls over fabrics that keep what their providers promise and nothing else: software_nic.c has a profile for each."""

import re

import pytest
import software_nic
from fabrics import CALLS, FABRIC, INFO, KIB
from jobs import mpiexec
from software_nic import HEAD, PROFILES
from test_fabric_waits import ORDER


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return software_nic.build(tmp_path_factory.mktemp("nic"))


def run(npes, program, *arguments, library, profile, tmp_path, **changes):
    environment = FABRIC | software_nic.environment(library, profile) | changes
    return mpiexec(npes, HEAD + program, *arguments, tmp_path=tmp_path, environment=environment)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("npes, sizes", [(2, [16, 8 * KIB, 8 * KIB + 8, 3 << 20]), (3, [65 * KIB + 8])])
def test_every_call_moves_the_same_on_every_fabric(npes, sizes, profile, library, tmp_path):
    status, _, err = run(npes, CALLS, *map(str, sizes), library=library, profile=profile, tmp_path=tmp_path)
    assert status == 0, err


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("requests", ["tcp", "fabric"])
def test_requests_and_data_keep_their_order_where_a_fabric_keeps_none(requests, profile, library, tmp_path):
    status, _, err = run(2, ORDER, library=library, profile=profile, tmp_path=tmp_path, PYSHMEM_AMO=requests)
    assert status == 0, err


FENCED = """
import torch
import pyshmem as shmem

shmem.init()
me = shmem.my_pe()
pages, flag, taken = shmem.zeros(8, 8, dtype=torch.int64), *shmem.zeros(2, 1, dtype=torch.int64)
for turn in range(1, 101):
    if me == 0:
        for page in pages:
            shmem.put(page, torch.full((8,), turn), 1)
        shmem.fence()
        shmem.put(flag, torch.full((1,), turn), 1)
        shmem.wait_until(taken, ">=", turn)
    if me == 1:
        shmem.wait_until(flag, ">=", turn)
        assert (pages == turn).all(), f"turn {turn}: a put passed a fence"
        shmem.put(taken, torch.full((1,), turn), 0)
shmem.barrier_all()
"""


@pytest.mark.parametrize("profile", PROFILES)
def test_a_put_after_a_fence_passes_no_put_before_it(profile, library, tmp_path):
    status, _, err = run(2, FENCED, library=library, profile=profile, tmp_path=tmp_path)
    assert status == 0, err


REFUSED = """
import pyshmem as shmem
import torch

shmem.init()
page = shmem.zeros(1000)
shmem.barrier_all()
for turn in range(100):
    if shmem.my_pe() == 0:
        shmem.put(page, torch.ones(1000), 1)
        shmem.quiet()
shmem.barrier_all()
"""


@pytest.mark.parametrize("profile", ["cxi", "efa"])
def test_a_write_that_the_target_refuses_ends_the_job_with_its_call_and_pe(profile, library, tmp_path):
    status, _, err = run(2, REFUSED, library=library, profile=profile, tmp_path=tmp_path, NIC_REFUSES="60")
    assert status != 0 and re.search(r"(put|quiet): PE 0: pe: got .*PE 1", err), err


def test_a_key_is_of_no_more_bits_than_the_provider_has(library, tmp_path):
    """Keys of the program: cxi has 32 bits for them, and refuses longer ones."""
    status, out, err = run(2, INFO, library=library, profile="cxi;keys", tmp_path=tmp_path, SHMEM_INFO="1")
    assert status == 0 and "Data to other nodes: fabric: cxi;keys" in out, err


ENDS = """
import pyshmem as shmem

for _ in range(12):
    shmem.init(heap_size="8m")
    shmem.barrier_all()
    shmem.finalize()
"""


@pytest.mark.parametrize("profile", ["cxi", "efa", "verbs;ofi_rxm"])
def test_a_pe_ends_when_its_last_messages_have_come(profile, library, tmp_path):
    changes = {"NIC_LATE": "3000", "PYSHMEM_AMO": "fabric"}
    status, _, err = run(3, ENDS, library=library, profile=profile, tmp_path=tmp_path, **changes)
    assert status == 0, err
