"""PEs that end, fork, run threads or are killed while others reach them between nodes: none waits for a lost one."""

import pytest
from fabrics import CARRIERS, MESSAGES
from jobs import mpiexec

ENDS = """
import atexit
import ctypes
import fcntl
import os
import sys

if "foreign" in sys.argv:
    import mpi4py.MPI  # starts MPI, and ends it
import torch
import pyshmem as shmem

shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
word = shmem.zeros(1, dtype=torch.int64)
running = os.open("running", os.O_CREAT | os.O_RDWR)
os.dup2(running, 0)
os.close(running)
if me == 0:  # holds the lock until it is about to end MPI
    fcntl.flock(0, fcntl.LOCK_SH)
    if "foreign" in sys.argv:
        atexit.register(os.close, 0)
    else:  # calls close(exit status, NULL)
        ctypes.CDLL(None).on_exit(ctypes.CDLL(None).close, None)
shmem.barrier_all()
if me == 0 and "finalize" in sys.argv:
    fcntl.flock(0, fcntl.LOCK_UN)
if me:
    fcntl.flock(0, fcntl.LOCK_EX)
    for turn in range(1000):
        shmem.atomic_fetch_add(word, 1, 0)
    print(shmem.atomic_fetch(word, 0) >= 1000, flush=True)
    fcntl.flock(0, fcntl.LOCK_UN)
if "finalize" in sys.argv:
    shmem.finalize()
    shmem.init()
    word = shmem.zeros(1, dtype=torch.int64)
    shmem.barrier_all()
    shmem.atomic_inc(word, (me + 1) % n)
    shmem.barrier_all()
    assert word.item() == 1
    shmem.finalize()
"""


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("how", [[], ["foreign"], ["finalize"]], ids="-".join)
def test_a_pe_that_ends_serves_the_others_until_they_end_too(how, carrier, tmp_path):
    status, out, err = mpiexec(3, ENDS, *how, tmp_path=tmp_path, environment=CARRIERS[carrier])
    assert status == 0 and out.split() == ["True"] * 2, err


BESIDE = """
import os
import threading
import time
import torch
import pyshmem as shmem

shmem.init(thread_level=3)
me = shmem.my_pe()
(word, done), page = shmem.zeros(2, dtype=torch.int64), shmem.zeros(4, 16384, dtype=torch.uint8)
def act(row):
    for _ in range(200):
        shmem.atomic_fetch_add(word, 1, 1), shmem.put(row, row + 1, 1), shmem.get(row, row, 1)
shmem.atomic_inc(done, 1 - me)  # now there is a connection
shmem.barrier_all()
child = os.fork()
if not child:
    try:
        shmem.atomic_inc(word, 1 - me)
    except shmem.UnreachableError as error:
        os._exit("forked" not in str(error))
    os._exit(2)
assert os.waitpid(child, 0)[1] == 0
if me == 0:
    threads = [threading.Thread(target=act, args=(row,)) for row in page]
    [each.start() for each in threads], [each.join() for each in threads]
    shmem.atomic_inc(done, 1)
else:
    while done.item() < 2:  # its service alone serves
        time.sleep(0.001)
    assert word.item() == 800
assert (page == 200).all()
shmem.barrier_all()
"""


@pytest.mark.parametrize("carrier", CARRIERS)
def test_threads_and_forks_share_a_connection_while_the_target_sleeps(carrier, tmp_path):
    status, _, err = mpiexec(2, BESIDE, tmp_path=tmp_path, environment=CARRIERS[carrier])
    assert status == 0, err


LOST = """
import os
import signal
import sys
import threading
import torch
import pyshmem as shmem

shmem.init()
me = shmem.my_pe()
page, source = shmem.zeros(16 << 20, dtype=torch.uint8), torch.ones(16 << 20, dtype=torch.uint8)
shmem.barrier_all()
if me == int(sys.argv[2]):
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
calls = {
    "put": lambda: shmem.put(page, source, 1 - me),
    "get": lambda: shmem.get(source, page, 1 - me),
    "add": lambda: shmem.atomic_fetch_add(page.view(torch.int64)[0], 1, 1 - me),
}
while True:
    calls[sys.argv[1]]()
"""


@pytest.mark.parametrize("call, killed", [("put", 1), ("get", 0), ("add", 1)])
def test_a_pe_killed_while_a_fabric_carries_its_data_ends_the_job(call, killed, tmp_path):
    """Waits have no limit, so only the loss ends the job."""
    environment = MESSAGES | {"SHMEM_SYMMETRIC_SIZE": "32m", "PYSHMEM_WAIT_TIMEOUT": "0"}
    status, _, _ = mpiexec(2, LOST, call, str(killed), tmp_path=tmp_path, environment=environment)
    assert status != 0
