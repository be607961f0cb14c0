"""What waits for what a fabric carries, in the order that its provider promises; and what ends a wait."""

import re

import pytest
from fabrics import CARRIERS, FABRIC, INFO, MESSAGES
from jobs import mpiexec

PROMISING = "from pyshmem.transport.far import fabric\nfabric.ORDER &= {}\n"
# PE 1 stands still; PE 0 calls what returns all the same, then what an alarm interrupts if it does not return
STANDSTILL = """
import os
import signal
import sys
import time
import torch
import pyshmem as shmem


class Interrupted(Exception):
    pass


def interrupt(*_):
    raise Interrupted


shmem.init()
me = shmem.my_pe()
pid, word = shmem.zeros(1, dtype=torch.int64), shmem.zeros(1, dtype=torch.uint64)
page, source = shmem.zeros(1 << 20, dtype=torch.uint8), torch.ones(1 << 20, dtype=torch.uint8)
shmem.signal_set(word, 1, 1 - me)
pid[0] = os.getpid()
shmem.barrier_all()
if me == 1:
    shmem.signal_wait_until(word, "==", 3)  # its end
other = int(shmem.g(pid, 1))
os.kill(other, signal.SIGSTOP)
while " T " not in open("/proc/%d/stat" % other).read():
    time.sleep(0)
{returning}
signal.signal(signal.SIGALRM, interrupt)
try:
    signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
    {call}
    print("returned", flush=True)
except Interrupted:
    print("interrupted", flush=True)
os.kill(other, signal.SIGCONT)
os._exit(1)
"""
PUT = "shmem.put(page, source, 1, size={})"  # of at most 8 KiB it returns before its data are in place


@pytest.mark.parametrize("promise, seconds, said", [(-1, "60", "returned"), (1 << 8, "1", "interrupted")])
def test_a_request_waits_for_writes_where_the_provider_may_let_it_pass_them(promise, seconds, said, tmp_path):
    """seconds: until it is given up. Waits have no other limit."""
    program = STANDSTILL.format(returning=PUT.format(8192), call="shmem.signal_set(word, 2, 1)")
    environment = MESSAGES | {"PYSHMEM_WAIT_TIMEOUT": "0"}
    _, out, err = mpiexec(2, PROMISING.format(promise) + program, seconds, tmp_path=tmp_path, environment=environment)
    assert out.startswith(f"{said}\n"), (out, err)  # then what mpiexec says of the end


@pytest.mark.parametrize("carrier", [FABRIC, MESSAGES], ids=["fabric", "messages"])
@pytest.mark.parametrize(
    "returning, call", [("", PUT.format(1 << 20)), (PUT.format(4096), "shmem.quiet()")], ids=["put", "quiet"]
)
def test_a_handler_ends_a_call_whose_target_stands_still(returning, call, carrier, tmp_path):
    """Waits have no limit, so only the handler's exception ends it."""
    program = STANDSTILL.format(returning=returning, call=call)
    environment = carrier | {"PYSHMEM_WAIT_TIMEOUT": "0"}
    _, out, err = mpiexec(2, program, "0.1", tmp_path=tmp_path, environment=environment)
    assert out.startswith("interrupted\n"), (out, err)


def test_messages_that_may_pass_each_other_carry_no_requests(tmp_path):
    status, _, err = mpiexec(2, PROMISING.format(1 << 7) + INFO, tmp_path=tmp_path, environment=MESSAGES)
    said = r"PYSHMEM_AMO: got fabric, but tcp;ofi_rxm, libfabric [\d.]+ does not keep messages in order; expected tcp, or auto"
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
