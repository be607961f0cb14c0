"""What carries requests and data between nodes, PYSHMEM_FAR: all carriers do the same, all PEs agree on one, and no lost PE is waited for."""

import re
import time

import pytest
from jobs import mpiexec

NODES = {"PYSHMEM_NODE_SIZE": "1", "PYSHMEM_WAIT_TIMEOUT": "60"}
KIB = 1024

CALLS = """
import sys
import torch
import pyshmem as shmem

shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
left, right = (me - 1) % n, (me + 1) % n


def all_of(nbytes):
    numbers = (torch.arange(nbytes) // 5).to(torch.uint8)

    def data(pe, turn):
        return numbers + (31 * pe + turn)

    page, arrived, taken = shmem.zeros(nbytes + 8, dtype=torch.uint8), *shmem.zeros(2, dtype=torch.uint64)
    found, wide = torch.zeros(nbytes, dtype=torch.uint8), torch.zeros(2, nbytes // 2, dtype=torch.uint8)

    def put(turn):
        shmem.put(page, data(me, turn), right)
        shmem.signal_set(arrived, turn, right)

    def put_nbi(turn):
        shmem.put_nbi(page, data(me, turn), right)
        shmem.fence()
        shmem.signal_set(arrived, turn, right)

    def put_signal(turn):
        shmem.put_signal(page, data(me, turn), right, arrived, turn, shmem.SIGNAL.SET)

    def ibput(turn):
        shmem.ibput(page, data(me, turn), right, nbytes // 2, nbytes // 2, nbytes // 2, 2)
        shmem.signal_set(arrived, turn, right)

    def get_nbi():
        shmem.get_nbi(found, page, left, size=nbytes)
        shmem.quiet()

    turn = 0
    for send in (put, put_nbi, put_signal, ibput):
        for _ in range(2):
            turn += 1
            send(turn)
            shmem.signal_wait_until(arrived, ">=", turn)
            assert torch.equal(page[:nbytes], data(left, turn)), (send.__name__, turn)
            assert not page[nbytes:].any()
            for get in (lambda: shmem.get(found, page, left, size=nbytes), get_nbi):
                found.zero_()
                shmem.barrier_all()
                get()
                assert torch.equal(found, data((left - 1) % n, turn)), get
            shmem.signal_set(taken, turn, left)  # left may write to page
            shmem.signal_wait_until(taken, ">=", turn)
            shmem.barrier_all()
    total = shmem.zeros(nbytes // 4, dtype=torch.int32)
    shmem.sum_reduce(total, shmem.full(nbytes // 4, me + 1, dtype=torch.int32))
    assert (total == n * (n + 1) // 2).all()
    shmem.barrier_all()


for each in sys.argv[1:]:
    all_of(int(each))
"""


@pytest.mark.parametrize("carrier", ["tcp", "mixed", "mpi"])
@pytest.mark.parametrize("npes, sizes", [(2, [16 * KIB - 8, 64 * KIB, 5 << 20]), (3, [65 * KIB + 8])])
def test_every_call_moves_the_same_by_every_carrier_and_signals_follow_their_data(carrier, npes, sizes, tmp_path):
    """64 KiB is the fewest that go as messages of their own (mpi: 16 KiB), 4 MiB the most of a message."""
    environment = NODES | {"PYSHMEM_FAR": carrier, "SHMEM_SYMMETRIC_SIZE": "64m"}
    status, _, err = mpiexec(npes, CALLS, *map(str, sizes), tmp_path=tmp_path, environment=environment)
    assert status == 0, err


WITHOUT_NAPS = """
from pyshmem.runtime import _native

opened = _native.far_open
_native.far_open = lambda *words: opened(*words[:12], False)  # as if each PE had two cores
"""


def test_a_service_with_a_core_of_its_own_moves_the_same(tmp_path):
    environment = NODES | {"PYSHMEM_FAR": "mpi", "SHMEM_SYMMETRIC_SIZE": "64m"}
    status, _, err = mpiexec(2, WITHOUT_NAPS + CALLS, str(64 * KIB), tmp_path=tmp_path, environment=environment)
    assert status == 0, err


SMALL_MEANWHILE = """
import threading
import time
import torch
import pyshmem as shmem

shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
pages, word, done = shmem.zeros(n, 1 << 20, dtype=torch.uint8), shmem.zeros(1, dtype=torch.int64), shmem.zeros(1, dtype=torch.int64)
source = torch.full((1 << 20,), me, dtype=torch.uint8)
if me == 0:  # its service serves all the others at once
    shmem.wait_until(done, ">=", n - 1)
    assert word.item() == 40 * (n - 1)
    assert all((pages[pe] == pe).all() for pe in range(1, n))
else:
    for _ in range(40):
        shmem.put(pages[me], source, 0)
        shmem.atomic_inc(word, 0)
        back = torch.zeros(1 << 20, dtype=torch.uint8)
        shmem.get(back, pages[me], 0)
        assert torch.equal(back, source)
    shmem.atomic_inc(done, 0)
shmem.barrier_all()
"""


@pytest.mark.parametrize("carrier", ["mixed", "mpi"])
def test_a_service_moves_the_data_of_several_pes_at_once(carrier, tmp_path):
    status, _, err = mpiexec(4, SMALL_MEANWHILE, tmp_path=tmp_path, environment=NODES | {"PYSHMEM_FAR": carrier})
    assert status == 0, err


FLOOD = """
import torch
import pyshmem as shmem

shmem.init()
me, n, count = shmem.my_pe(), shmem.n_pes(), 20000
numbers, word = shmem.arange(count), shmem.zeros(1, dtype=torch.int64)
found = torch.zeros(count, dtype=torch.int64)
shmem.barrier_all()
for index in range(count):  # every PE to every other one
    shmem.get_nbi(found[index:], numbers[index:], (me + 1 + index) % n, size=1)
    shmem.atomic_add(word, 1, (me + 1 + index) % n)
shmem.quiet()
assert torch.equal(found, torch.arange(count))
shmem.barrier_all()
assert word.item() == count
"""


@pytest.mark.parametrize("carrier", ["tcp", "mpi"])
def test_a_flood_of_requests_without_a_wait_is_executed(carrier, tmp_path):
    status, _, err = mpiexec(3, FLOOD, tmp_path=tmp_path, environment=NODES | {"PYSHMEM_FAR": carrier})
    assert status == 0, err


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


@pytest.mark.parametrize("carrier", ["tcp", "mpi"])
@pytest.mark.parametrize("how", [[], ["foreign"], ["finalize"]], ids="-".join)
def test_a_pe_that_ends_serves_the_others_until_they_end_too(how, carrier, tmp_path):
    status, out, err = mpiexec(3, ENDS, *how, tmp_path=tmp_path, environment=NODES | {"PYSHMEM_FAR": carrier})
    assert status == 0 and out.split() == ["True"] * 2, err


INFO = """
import sys
import pyshmem as shmem

shmem.init(thread_level=int(sys.argv[1]))
shmem.barrier_all()
"""


@pytest.mark.parametrize(
    "carrier, level, said",
    [
        ("auto", 3, "tcp: the nodes are pretended"),
        ("mixed", 3, "mixed: requested"),
        ("auto", 1, "tcp: on PE 0 MPI has no THREAD_MULTIPLE"),
    ],
)
def test_shmem_info_names_the_carrier_and_why(carrier, level, said, tmp_path):
    environment = NODES | {"PYSHMEM_FAR": carrier, "SHMEM_INFO": "1"}
    status, out, err = mpiexec(2, INFO, str(level), tmp_path=tmp_path, environment=environment)
    assert status == 0, err
    assert f"Data to other nodes: {said}\n" in out
    assert re.search(rf"^ +{said.partition(':')[0]}  PYSHMEM_FAR ", out, re.MULTILINE)


MEASURED = """
import pyshmem as shmem
from pyshmem.transport.far import carriers

carriers.read = lambda name: "auto" if name == "PYSHMEM_FAR" else 0  # as if the nodes were real
shmem.init()
page = shmem.zeros(1 << 17)
assert not page.any()
shmem.barrier_all()
if shmem.my_pe() == 0:
    print(carriers.carrier.why)
"""


def test_auto_measures_both_ways_and_leaves_the_heap_clear(tmp_path):
    status, out, err = mpiexec(2, MEASURED, tmp_path=tmp_path, environment=NODES)
    assert status == 0, err
    assert re.fullmatch(r"1048576 bytes take [\d.]+ ms by MPI and [\d.]+ ms over TCP\n", out), out


def test_different_carriers_are_refused_on_all_pes(tmp_path):
    program = "import os\nos.environ['PYSHMEM_FAR'] = ['tcp', 'mixed'][int(os.environ['PMI_RANK']) % 2]\n" + INFO
    status, _, err = mpiexec(3, program, "3", tmp_path=tmp_path, environment=NODES)
    said = "PYSHMEM_FAR: got tcp on PEs 0 and 2 and mixed on PE 1; wants one value on all PEs"
    assert status != 0 and err.count(said) >= 2, err


def test_messages_alone_need_no_network(tmp_path):
    program = "import socket\nsocket.create_server = None\n" + CALLS
    status, _, err = mpiexec(2, program, "8192", tmp_path=tmp_path, environment=NODES | {"PYSHMEM_FAR": "mpi"})
    assert status == 0, err


@pytest.mark.parametrize("npes, environment", [(1, {}), (2, NODES)])
def test_an_unknown_carrier_is_refused_by_name_on_one_node_too(npes, environment, tmp_path):
    status, _, err = mpiexec(npes, INFO, "3", tmp_path=tmp_path, environment=environment | {"PYSHMEM_FAR": "rdma"})
    assert status != 0 and "PYSHMEM_FAR: got 'rdma'; wants auto or tcp or mixed or mpi" in err


@pytest.mark.parametrize("carrier", ["mixed", "mpi"])
def test_messages_without_thread_multiple_are_refused_by_name(carrier, tmp_path):
    status, _, err = mpiexec(2, INFO, "2", tmp_path=tmp_path, environment=NODES | {"PYSHMEM_FAR": carrier})
    wants = (
        f"PYSHMEM_FAR: got {carrier}, but on PE 0 MPI has no THREAD_MULTIPLE; wants MPI with THREAD_MULTIPLE, or tcp"
    )
    assert status != 0 and f"PE 1: LaunchError: init: {wants}" in err


LOST = """
import os
import signal
import sys
import torch
import pyshmem as shmem

shmem.init()
me = shmem.my_pe()
page, source = shmem.zeros(16 << 20, dtype=torch.uint8), torch.ones(16 << 20, dtype=torch.uint8)
shmem.barrier_all()
if me == int(sys.argv[2]):
    import threading

    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
while True:
    shmem.put(page, source, 1 - me) if sys.argv[1] == "put" else shmem.get(source, page, 1 - me)
"""


@pytest.mark.parametrize("carrier", ["mixed", "mpi"])
@pytest.mark.parametrize("call, killed", [("put", 1), ("get", 0)])
def test_a_pe_killed_while_its_data_go_as_messages_ends_the_job(call, killed, carrier, tmp_path):
    begun = time.monotonic()
    environment = NODES | {"PYSHMEM_FAR": carrier, "SHMEM_SYMMETRIC_SIZE": "32m"}
    status, _, _ = mpiexec(2, LOST, call, str(killed), tmp_path=tmp_path, environment=environment)
    assert status != 0 and time.monotonic() - begun < 60
