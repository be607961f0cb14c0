"""What carries data and requests between nodes: a fabric does the same as TCP, PEs agree on one, and no lost PE is waited for."""

import re

import pytest
import standin_gpu
from jobs import mpiexec

NODES = {"PYSHMEM_NODE_SIZE": "1", "PYSHMEM_WAIT_TIMEOUT": "60"}
FABRIC = NODES | {"PYSHMEM_FAR": "fabric", "PYSHMEM_FABRIC": "tcp;ofi_rxm"}
MESSAGES = FABRIC | {"PYSHMEM_AMO": "fabric"}
CARRIERS = {"tcp": NODES | {"PYSHMEM_FAR": "tcp"}, "fabric": FABRIC, "messages": MESSAGES}
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


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("npes, sizes", [(2, [16, 8 * KIB, 8 * KIB + 8, 5 << 20]), (3, [65 * KIB + 8])])
def test_every_call_moves_the_same_by_every_carrier_and_signals_follow_their_data(carrier, npes, sizes, tmp_path):
    """8 KiB are the most that a put copies before it returns."""
    environment = CARRIERS[carrier] | {"SHMEM_SYMMETRIC_SIZE": "64m"}
    status, _, err = mpiexec(npes, CALLS, *map(str, sizes), tmp_path=tmp_path, environment=environment)
    assert status == 0, err


SMALL_MEANWHILE = """
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


def test_atomics_follow_the_data_of_several_pes_at_once(tmp_path):
    status, _, err = mpiexec(4, SMALL_MEANWHILE, tmp_path=tmp_path, environment=FABRIC)
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


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("how", [[], ["foreign"], ["finalize"]], ids="-".join)
def test_a_pe_that_ends_serves_the_others_until_they_end_too(how, carrier, tmp_path):
    status, out, err = mpiexec(3, ENDS, *how, tmp_path=tmp_path, environment=CARRIERS[carrier])
    assert status == 0 and out.split() == ["True"] * 2, err


INFO = """
import sys
import pyshmem as shmem

shmem.init(thread_level=int(sys.argv[1]))
shmem.barrier_all()
"""


@pytest.mark.parametrize(
    "environment, said",
    [
        (NODES, r"tcp: the nodes are pretended"),
        (CARRIERS["tcp"], r"tcp: requested"),
        (NODES | {"PYSHMEM_FABRIC": "none"}, r"tcp: on PE 0 libfabric \d+\.\d+ offers .*tcp.*, and no none"),
        (FABRIC, r"fabric: tcp;ofi_rxm, libfabric \d+\.\d+"),
    ],
)
def test_shmem_info_names_the_carrier_and_why(environment, said, tmp_path):
    status, out, err = mpiexec(2, INFO, "3", tmp_path=tmp_path, environment=environment | {"SHMEM_INFO": "1"})
    assert status == 0, err
    assert re.search(f"^Data to other nodes: {said}$", out, re.MULTILINE), out
    assert re.search(rf"^ +{said.partition(':')[0]}  PYSHMEM_FAR ", out, re.MULTILINE)


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"PYSHMEM_FAR": "mpi"}, "PYSHMEM_FAR: got 'mpi'; wants fabric, which carries data without MPI's messages, or tcp, or auto"),
        ({"PYSHMEM_FAR": "rdma"}, "PYSHMEM_FAR: got 'rdma'; wants auto or tcp or fabric"),
        ({"PYSHMEM_FABRIC": "none"}, "PYSHMEM_FAR: got fabric, but on PE 0 libfabric"),
        ({"PYSHMEM_FAR": "tcp", "PYSHMEM_AMO": "fabric"}, "PYSHMEM_AMO: got fabric, but PYSHMEM_FAR is tcp: requested; wants tcp, or auto"),
    ],
)  # fmt: skip
def test_a_carrier_that_cannot_be_is_refused_by_name_on_all_pes(changes, said, tmp_path):
    status, _, err = mpiexec(2, INFO, "3", tmp_path=tmp_path, environment=FABRIC | changes)
    assert status != 0 and err.count(said) >= 2, err


@pytest.mark.parametrize(
    "name, values", [("PYSHMEM_FAR", ["fabric", "tcp"]), ("PYSHMEM_FABRIC", ["tcp;ofi_rxm", "shm"])]
)
def test_different_values_are_refused_on_all_pes(name, values, tmp_path):
    program = f"import os\nos.environ['{name}'] = {values}[int(os.environ['PMI_RANK']) % 2]\n" + INFO
    status, _, err = mpiexec(3, program, "3", tmp_path=tmp_path, environment=FABRIC)
    said = f"{name}: got {values[0]} on PEs 0 and 2 and {values[1]} on PE 1; wants one value on all PEs"
    assert status != 0 and err.count(said) >= 2, err


FAULTS = {  # what is done to a fabric, and what is said of it
    "a provider that is early": ("_native.fabric_trial = lambda *words: False",
        "on PE 0 tcp;ofi_rxm, libfabric .* says that data are in place before they are"),
    "data that do not come": ("_native.far_get = lambda *words: None",
        "on PE 0 tcp;ofi_rxm, libfabric .* does not bring back what was written to PE 1"),
    "requests that are dropped": ("from pyshmem.transport.far import fabric\nfabric.FABRICS = ('tcp',)\nif os.environ['PMI_RANK'] == '1':\n    use, _native.fabric_use = _native.fabric_use, lambda least, trial, messaging: use(least, trial, 0)",
        "on PE 0 atomic: PE 0: pe: got no answer from PE 1 on .*; wants one that can be reached.*"),
    "a version that differs": ("providers, _native.fabric_providers = _native.fabric_providers, lambda path: (1, int(os.environ['PMI_RANK']), providers(path)[2])",
        "PEs have different fabrics: tcp;ofi_rxm, libfabric 1.0 on PE 0 and tcp;ofi_rxm, libfabric 1.1 on PE 1"),
}  # fmt: skip


@pytest.mark.parametrize(
    "fault, wish",
    [(fault, wish) for fault in FAULTS for wish in ("auto", "fabric") if (fault[:8], wish) != ("requests", "fabric")],
)
def test_a_fabric_that_fails_its_test_is_refused_or_tcp_takes_its_place_and_says_why(fault, wish, tmp_path):
    code, said = FAULTS[fault]
    start = f"import os\nfrom pyshmem.runtime import _native\nget = _native.far_get\n{code}\n"
    program = start + "import pyshmem\npyshmem.init()\n_native.far_get = get\n" + CALLS
    environment = FABRIC | {"PYSHMEM_FAR": wish, "SHMEM_INFO": "1"}
    status, out, err = mpiexec(2, program, str(16 * KIB), tmp_path=tmp_path, environment=environment)
    if wish == "auto":
        assert status == 0 and re.search(f"^Data to other nodes: tcp: {said}$", out, re.MULTILINE), (out, err)
    else:
        assert status != 0 and len(re.findall(f"PYSHMEM_FAR: got fabric, but {said}; wants", err)) >= 2, err


LATE = """
import os
import time
from pyshmem.transport.far.fabric import Fabric

test = Fabric._test
if os.environ["PMI_RANK"] == "1":
    Fabric._test = lambda fabric: time.sleep(1) or test(fabric)
"""


def test_a_pe_that_is_late_for_the_test_of_a_fabric_is_ready_for_that_of_others(tmp_path):
    status, _, err = mpiexec(2, LATE + INFO, "3", tmp_path=tmp_path, environment=FABRIC)
    assert status == 0, err


@pytest.mark.parametrize("auto, requests", [("", "tcp"), ("fabric.FABRICS = ('tcp',)", "fabric")])
def test_a_fabric_carries_requests_if_it_is_of_hardware(auto, requests, tmp_path):
    """Of which there is none here."""
    program = f"from pyshmem.transport.far import fabric\n{auto}\n" + CALLS
    environment = FABRIC | {"PYSHMEM_FAR": "auto", "SHMEM_INFO": "1"}
    status, out, err = mpiexec(2, program, "16", str(16 * KIB), tmp_path=tmp_path, environment=environment)
    assert status == 0 and re.search(f"^ +{requests}  PYSHMEM_AMO ", out, re.MULTILINE), (out, err)


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


ON_GPU = """
import sys
sys.path.append(sys.argv[1])
import numpy as np
import torch
import pyshmem as shmem
from pyshmem.runtime import _native
from pyshmem.runtime.far import GPU, OPERATORS, SHIFT
from standin_gpu import NOT_READY, Gpu


class Slow(Gpu):
    asked = 0

    def query(self, stream):  # meanwhile the sender's next messages come
        self.asked += 1
        return super().query(stream) if self.asked % 100 == 0 else NOT_READY


shmem.init()
me, add = shmem.my_pe(), OPERATORS.index("add")
done, gpu = shmem.zeros(1, dtype=torch.int64), Slow()
assert gpu.open()[0] == 0
shmem.barrier_all()
if me == 0:
    place = (2 << SHIFT) + GPU
    sent, found = np.arange(20_000) % 251, np.zeros(20_000, np.uint8)
    sent = sent.astype(np.uint8)
    for turn in range(20):
        _native.far_update_uint64(add, place, 1)
        _native.far_put(place + 64, sent.ctypes.data, sent.size)
        _native.far_update_uint64(add, place, 1)
        _native.far_quiet()
        _native.far_get(found.ctypes.data, place + 64, found.size)
        assert (found == sent).all()
        assert _native.far_fetch_uint64(add, place, 0) == 2 * turn + 2
        found[:] = 0
    shmem.atomic_inc(done, 1)
else:
    shmem.wait_until(done, "==", 1)
shmem.barrier_all()
"""


def test_messages_that_come_while_the_gpu_is_busy_are_executed_after_it(tmp_path):
    folder = standin_gpu.__file__.rpartition("/")[0]
    status, _, err = mpiexec(2, ON_GPU, folder, tmp_path=tmp_path, environment=MESSAGES)
    assert status == 0, err


PROMISING = "from pyshmem.transport.far import fabric\nfabric.ORDER &= {}\n"
STOPPED = """
import os
import signal
import sys
import time
import torch
import pyshmem as shmem


class Waited(Exception):
    pass


def give_up(*_):
    raise Waited


shmem.init()
me = shmem.my_pe()
pid, word, page = shmem.zeros(1, dtype=torch.int64), shmem.zeros(1, dtype=torch.uint64), shmem.zeros(8192, dtype=torch.uint8)
shmem.signal_set(word, 1, 1 - me)
pid[0] = os.getpid()
shmem.barrier_all()
if me == 0:
    other = int(shmem.g(pid, 1))
    os.kill(other, signal.SIGSTOP)
    while " T " not in open(f"/proc/{other}/stat").read():
        time.sleep(0)
    shmem.put(page, torch.ones(8192, dtype=torch.uint8), 1)  # which cannot be in place now
    signal.signal(signal.SIGALRM, give_up)
    try:
        signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
        shmem.signal_set(word, 2, 1)
        print("the signal left", flush=True)
    except Waited:
        print("the signal waited", flush=True)
    os.kill(other, signal.SIGCONT)
    os._exit(1)
shmem.signal_wait_until(word, "==", 3)
"""


@pytest.mark.parametrize("promise, seconds, said", [(-1, "60", "the signal left"), (1 << 8, "1", "the signal waited")])
def test_a_request_waits_for_writes_where_the_provider_may_let_it_pass_them(promise, seconds, said, tmp_path):
    """seconds: until it is given up. Waits have no other limit."""
    environment = MESSAGES | {"PYSHMEM_WAIT_TIMEOUT": "0"}
    _, out, err = mpiexec(2, PROMISING.format(promise) + STOPPED, seconds, tmp_path=tmp_path, environment=environment)
    assert out.startswith(f"{said}\n"), (out, err)


def test_messages_that_may_pass_each_other_carry_no_requests(tmp_path):
    status, _, err = mpiexec(2, PROMISING.format(1 << 7) + INFO, "3", tmp_path=tmp_path, environment=MESSAGES)
    said = r"PYSHMEM_AMO: got fabric, but tcp;ofi_rxm, libfabric [\d.]+ does not keep messages in order; wants tcp, or auto"
    assert status != 0 and len(re.findall(said, err)) >= 2, err


ORDER = """
import torch
import pyshmem as shmem

shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
words, pages = shmem.zeros(3001, dtype=torch.int64), shmem.zeros(48, 1000, dtype=torch.int64)
signal, taken = shmem.zeros(2, dtype=torch.uint64)
for turn in range(1, 11):
    if me == 0:
        for index in range(3001):  # requests, which take the target some time
            shmem.p(words[index], turn, 1)
        shmem.fence()
        shmem.put(pages[0], torch.full((1000,), turn), 1)  # by the fabric
        shmem.quiet()
        for page in pages:
            shmem.put(page, torch.full((1000,), turn), 1)  # they return before their data are in place
        shmem.signal_set(signal, turn, 1)
        shmem.signal_wait_until(taken, ">=", turn)
    if me == 1:
        shmem.wait_until(pages[0][999], ">=", turn)
        assert words[3000] == turn, "a put passed a fence"
        shmem.signal_wait_until(signal, ">=", turn)
        assert (pages == turn).all(), "a signal passed a put"
        found = torch.zeros(1000, dtype=torch.int64)
        shmem.p(words[0], 100 + turn, 0)
        shmem.get(found, words[:1000], 0)
        assert found[0] == 100 + turn, "a get passed a put"
        shmem.signal_set(taken, turn, 0)
"""


@pytest.mark.parametrize("promise", [-1, 1 << 8])
@pytest.mark.parametrize("carrier", ["fabric", "messages"])
def test_requests_and_what_the_fabric_carries_keep_their_order(carrier, promise, tmp_path):
    program = PROMISING.format(promise) + ORDER
    status, _, err = mpiexec(2, program, tmp_path=tmp_path, environment=CARRIERS[carrier])
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


SHARED = """
import types
import numpy as np
import pyshmem as shmem
from pyshmem.runtime import _native
from pyshmem.runtime.far import GPU, SHIFT
from pyshmem.transport.far import fabric as module

shmem.init()
me, part = shmem.my_pe(), 1 << 15
heap, source = np.zeros(2 * part, np.uint8), np.full(1000, me + 1, np.uint8)
there, at = (2 - me) << SHIFT | GPU, heap.ctypes.data
module.gpu = types.SimpleNamespace(system=at, base=at, size=part, index=0, far_deltas={1 - me: there - at})
fabric = module.fabric
fabric.share(0, part, 0)
assert fabric.gpu == "registered" and not heap.any(), fabric.gpu
fabric.share(part, 2 * part, 0)  # a growth
_native.far_put(there + part - 500, source.ctypes.data, 1000)
_native.far_quiet()
shmem.barrier_all()
assert (heap[part - 500 : part + 500] == 2 - me).all() and not heap[: part - 500].any() and not heap[part + 500 :].any()
fabric.share(0, part, 1)
print(fabric.gpu)
shmem.barrier_all()
"""


def test_gpu_heaps_are_registered_on_all_pes_and_tested_or_none_is_and_info_has_the_reason(tmp_path):
    """CPU memory stands for GPU memory, and is then said to be CUDA's, which no library here takes."""
    status, out, err = mpiexec(2, SHARED, tmp_path=tmp_path, environment=FABRIC)
    assert status == 0, err
    assert out.count("through pinned CPU memory: on PE 0 ") == 2, out
