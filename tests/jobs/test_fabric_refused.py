"""What keeps one PE from a fabric keeps all: `fabric` is refused with the reason, `auto` takes TCP with it. Handlers in its waits."""

import re
import shutil
import subprocess

import pytest
from jobs import mpiexec
from test_fabric import CALLS, FABRIC, MESSAGES

START = """
import os
import resource
from pyshmem.runtime import _native
from pyshmem.transport.far import fabric

get = _native.far_get
if os.environ["PMI_RANK"] == "1":
    {code}
import pyshmem

pyshmem.init()
_native.far_get = get
"""
LIMITED = """def fail(*words):
        raise OSError("fi_mr_reg: Cannot allocate memory")
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
    _native.fabric_open = fail"""
FAULTS = {  # what PE 1 of two lacks, and what is said of it
    "a library": ("fabric.library = lambda: '/nowhere/libfabric.so.1'", "on PE 1 no libfabric from 1.9 on can be loaded"),
    "a library that is new enough": ("fabric.library = lambda: os.environ['OLD']", "on PE 1 no libfabric from 1.9 on can be loaded"),
    "memory that it may lock": (LIMITED, r"on PE 1 fi_mr_reg: Cannot allocate memory \(ulimit -l: 65536 bytes may be locked\)"),
    "data that it reads": ("_native.far_get = lambda *words: None", "on PE 1 tcp;ofi_rxm, libfabric .* does not bring back what was written to PE 0"),
}  # fmt: skip


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """A library whose functions have no versions."""
    folder = tmp_path_factory.mktemp("old")
    (folder / "old.c").write_text("void fi_freeinfo(void) {}\nvoid fi_getinfo(void) {}\n")
    library = folder / "libold.so"
    subprocess.run([shutil.which("cc") or "gcc", "-shared", "-fPIC", folder / "old.c", "-o", library], check=True)
    return str(library)


@pytest.mark.parametrize("wish", ["auto", "fabric"])
@pytest.mark.parametrize("fault", FAULTS)
def test_what_one_pe_lacks_is_the_reason_on_all(fault, wish, old, tmp_path):
    code, said = FAULTS[fault]
    environment = FABRIC | {"PYSHMEM_FAR": wish, "SHMEM_INFO": "1", "OLD": old}
    status, out, err = mpiexec(
        2, START.format(code=code) + CALLS, "16", "20000", tmp_path=tmp_path, environment=environment
    )
    if wish == "auto":
        assert status == 0 and re.search(f"^Data to other nodes: tcp: {said}$", out, re.MULTILINE), (out, err)
    else:
        assert status != 0 and len(re.findall(f"PYSHMEM_FAR: got fabric, but {said}; wants", err)) >= 2, err


HANDLED = """
import os
import signal
import sys
import time
import torch
import pyshmem as shmem


class Raised(Exception):
    pass


def handler(*_):
    raise Raised


shmem.init()
me = shmem.my_pe()
pid, page = shmem.zeros(1, dtype=torch.int64), shmem.zeros(1 << 20, dtype=torch.uint8)
pid[0] = os.getpid()
shmem.barrier_all()
if me == 0:
    other = int(shmem.g(pid, 1))
    os.kill(other, signal.SIGSTOP)
    while " T " not in open(f"/proc/{other}/stat").read():
        time.sleep(0)
    signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        if sys.argv[1] == "put":
            shmem.put(page, torch.ones(1 << 20, dtype=torch.uint8), 1)
        else:
            shmem.put(page[:4096], torch.ones(4096, dtype=torch.uint8), 1)
            shmem.quiet()
    except Raised:
        print("raised", flush=True)
    os.kill(other, signal.SIGCONT)
    os._exit(1)
shmem.wait_until(pid, "==", 0)
"""


@pytest.mark.parametrize("carrier", [FABRIC, MESSAGES], ids=["fabric", "messages"])
@pytest.mark.parametrize("call", ["put", "quiet"])
def test_a_handler_ends_a_call_whose_target_stands_still(call, carrier, tmp_path):
    """Waits have no limit, so only the handler's exception ends it."""
    environment = carrier | {"PYSHMEM_WAIT_TIMEOUT": "0"}
    _, out, err = mpiexec(2, HANDLED, call, tmp_path=tmp_path, environment=environment)
    assert out.startswith("raised\n"), (out, err)
