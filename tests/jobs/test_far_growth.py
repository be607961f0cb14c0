"""A GPU heap that grows while threads of all PEs put to what there was of it, and get: nothing is lost, and what is new is reached.

CPU memory stands for a GPU's: the fabric registers it as such, and requests are executed by what stands for the driver.
"""

import pytest
import standin_gpu
from jobs import mpiexec
from fabrics import CARRIERS

PLACED = {"1+1": 2, "2+2": 4}  # PEs
GROWING = """
import sys
sys.path.append(sys.argv[1])
import threading
import types
import numpy as np
import pyshmem as shmem
from pyshmem.native import _native
from pyshmem.base.far import GPU, SHIFT
from pyshmem.transport.far import fabric as module
from standin_gpu import Gpu

PART, PARTS, SIZES = 1 << 17, 4, (64, 20_000)
sys.setswitchinterval(1e-4)  # what stands for the driver is Python
shmem.init(thread_level=3)
me, n = shmem.my_pe(), shmem.n_pes()
probe, fabric = shmem.zeros(1), module.fabric
gpu = Gpu(PART * PARTS, PART)
at, far = gpu.heap.ctypes.data, [pe for pe in range(n) if shmem.ptr(probe, pe) is None]
assert len(far) == n // 2
assert gpu.open()[0] == 0
places = {pe: (pe + 1) << SHIFT | GPU for pe in far}
deltas = {pe: place - at for pe, place in places.items()}
module.gpu = types.SimpleNamespace(system=at, base=at, size=PART, index=0, far_deltas=deltas)
shmem.barrier_all()
fabric.share(0, PART, 0)
assert fabric.name == "tcp" or fabric.gpu == "registered", fabric.gpu
shmem.barrier_all()

turns, wrong, over = 0, [], threading.Event()
allowed, turned = threading.Semaphore(0), threading.Semaphore(0)


def put_and_get():
    global turns
    found = np.zeros(max(SIZES), np.uint8)
    while allowed.acquire() and not over.is_set():
        turns += 1
        for nbytes in SIZES:
            source, offset = np.full(nbytes, turns % 251 + me, np.uint8), 4096 + 24_576 * me + nbytes % 4096
            for place in places.values():
                _native.far_put(place + offset, source.ctypes.data, nbytes)
            _native.far_quiet()
            for pe, place in places.items():
                _native.far_get(found.ctypes.data, place + offset, nbytes)
                if (found[:nbytes] != source).any():
                    wrong.append((turns, nbytes, pe))
        turned.release()


beside = threading.Thread(target=put_and_get)
beside.start()
right, left = (me + n // 2) % n, (me - n // 2) % n
for part in range(1, PARTS):
    allowed.release(20)  # few, because PEs share cores with those that wait for them
    turned.acquire()  # now the others are under way
    _native.far_extend_gpu(PART * (part + 1))
    fabric.share(PART * part, PART * (part + 1), 0)
    shmem.barrier_all()  # as shmem.malloc has at its end
    source = np.full(1000, 10 * part + me, np.uint8)
    _native.far_put(places[right] + PART * part - 500, source.ctypes.data, 1000)
    _native.far_quiet()
    shmem.barrier_all()
    grown = gpu.heap[PART * part - 500 : PART * part + 500]
    assert (grown == 10 * part + left).all(), f"what is new after growth {part} was not reached"
over.set()
allowed.release()
beside.join()
assert not wrong, wrong
assert fabric.name == "tcp" or fabric.gpu == "registered", fabric.gpu
shmem.barrier_all()
"""


@pytest.mark.parametrize("placed", PLACED)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_heap_grows_while_others_put_to_it(carrier, placed, tmp_path):
    n_pes = PLACED[placed]
    environment = CARRIERS[carrier] | {"PYSHMEM_NODE_SIZE": str(n_pes // 2)}
    folder = standin_gpu.__file__.rpartition("/")[0]
    status, _, err = mpiexec(n_pes, GROWING, folder, tmp_path=tmp_path, environment=environment)
    assert status == 0, err
