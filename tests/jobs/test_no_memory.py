"""Memory that the native module asks for and does not get: a call raises an error that says so, and the next ones work.

A library that is loaded before the C library lets any one allocation of the module fail.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from fabrics import PROVIDER
from jobs import mpiexec
from test_fabric_order import LIBRARY

HERE = pathlib.Path(__file__).parent
SECONDS = 60  # for one process; machines are slow and shared
FAILING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_memalign(size_t, size_t);
int wanted, made; /* the number of the allocation of the module that fails, from 1, or 0; those that it has made since */
static int fails(void *caller) {
    Dl_info at;
    if (!wanted || !dladdr(caller, &at) || !at.dli_fname || !strstr(at.dli_fname, "_native.abi3")) return 0;
    int fails = __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED) == wanted;
    if (fails) errno = ENOMEM;
    return fails;
}
void *malloc(size_t n) { return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(n, size); }
char *strdup(const char *text) {
    char *copy = fails(__builtin_return_address(0)) ? NULL : __libc_malloc(strlen(text) + 1);
    return copy ? strcpy(copy, text) : NULL;
}
int posix_memalign(void **memory, size_t alignment, size_t n) {
    if (fails(__builtin_return_address(0))) return ENOMEM;
    *memory = __libc_memalign(alignment, n);
    return *memory ? 0 : ENOMEM;
}
"""
# Does a part of this file in one process for each allocation, which fails there, and prints what is said.
EACH = """
import ctypes
import os
import sys
from itertools import count

shim = ctypes.CDLL(sys.argv[1])
sys.path[:0] = sys.argv[2:4]
import no_memory

wanted, made = (ctypes.c_int.in_dll(shim, name) for name in ("wanted", "made"))
part = getattr(no_memory, sys.argv[4])
for number in count(1):
    child = os.fork()
    if not child:
        no_memory.try_out(part, number, wanted, made)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        print("" if status == no_memory.LAST else f"number {number} has ended with {status}", flush=True)
        break
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    """The path of the library, which is to be preloaded."""
    folder = tmp_path_factory.mktemp("failing")
    (folder / "failing.c").write_text(FAILING)
    library = folder / "failing.so"
    subprocess.run(
        [shutil.which("cc") or "gcc", "-shared", "-fPIC", "-fno-builtin", folder / "failing.c", "-o", library, "-ldl"],
        check=True,
    )
    return library


# of which each opens a service first: the least allocations of the module
PARTS = {"calls": 20, "calls_by_messages": 28, "a_get_that_an_exception_ends": 10}


@pytest.mark.timeout(11 * SECONDS)
@pytest.mark.parametrize("part", PARTS)
def test_whatever_allocation_fails_the_process_says_so_and_goes_on(part, shim):
    if "messages" in part and not LIBRARY:
        pytest.skip("no libfabric with the provider of the tests")
    done = subprocess.run(
        [sys.executable, "-c", EACH, shim, HERE, HERE.parent / "pes", part],
        env={**os.environ, "LD_PRELOAD": str(shim)},
        capture_output=True,
        text=True,
        check=False,
        timeout=10 * SECONDS,
    )
    *said, last = done.stdout.splitlines()
    assert done.returncode == 0 and not last and not done.stderr, done.stdout + done.stderr
    assert len(said) >= PARTS[part] and "no memory" in said and set(said) <= {"no memory", "nothing was lost"}, said


CALL = """
import ctypes
import os
import torch
import pyshmem as shmem

wanted, made = (ctypes.c_int.in_dll(ctypes.CDLL(os.environ["LD_PRELOAD"]), name) for name in ("wanted", "made"))
shmem.init()
x, found = shmem.zeros(8), torch.zeros(4)
x[:] = torch.arange(8.0)
shmem.barrier_all()
if shmem.my_pe() == 1:
    shmem.iget(found, x, 0, 1, 2, 4)  # opens the connection
    for number in range(1, 20):  # the call, and tensors before it, have so many allocations or fewer
        found.zero_()
        wanted.value, made.value = number, 0
        try:
            shmem.iget(found, x, 0, 1, 2, 4)
        except shmem.HeapExhaustedError as error:
            print(error)
            wanted.value = 0
            shmem.iget(found, x, 0, 1, 2, 4)
        wanted.value = 0
        assert found.tolist() == [0, 2, 4, 6]
shmem.barrier_all()
"""
REFUSED = (
    r"iget: PE 1: pe: got PE 0 on \S+, and no memory for a request to it, which has not been sent; expected memory"
)


def test_a_call_without_memory_is_refused_and_the_connection_goes_on(shim, tmp_path):
    environment = {"PYSHMEM_NODE_SIZE": "1", "PYSHMEM_FAR": "tcp", "LD_PRELOAD": str(shim)}
    status, out, err = mpiexec(2, CALL, tmp_path=tmp_path, environment=environment)
    assert status == 0 and re.search(REFUSED, out), out + err


OPENING = """
import ctypes
import os
import pyshmem as shmem
from pyshmem.native import _native

wanted = ctypes.c_int.in_dll(ctypes.CDLL(os.environ["LD_PRELOAD"]), "wanted")
connect = _native.fabric_connect


def connect_without_memory(known):
    wanted.value = int(os.environ["PMI_RANK"] == "1")
    return connect(known)


_native.fabric_connect = connect_without_memory
shmem.init()
"""


@pytest.mark.skipif(not LIBRARY, reason="no libfabric with the provider of the tests")
def test_a_fabric_for_which_one_pe_has_no_memory_is_refused_on_all(shim, tmp_path):
    ways = {"PYSHMEM_FAR": "fabric", "PYSHMEM_FABRIC": PROVIDER}
    environment = {"PYSHMEM_NODE_SIZE": "1", "LD_PRELOAD": str(shim), **ways}
    status, _, err = mpiexec(2, OPENING, tmp_path=tmp_path, environment=environment)
    assert status != 0 and err.count("PYSHMEM_FAR: got fabric, but on PE 1 there is no memory; expected") >= 2, err
