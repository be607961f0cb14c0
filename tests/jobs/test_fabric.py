"""What moves data between nodes: a fabric does the same as TCP, for all calls, several PEs at once, and memory of GPUs."""

import pytest
import standin_gpu
from fabrics import CALLS, CARRIERS, FABRIC, KIB, MESSAGES
from jobs import mpiexec


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


ON_GPU = """
import sys
sys.path.append(sys.argv[1])
import numpy as np
import torch
import pyshmem as shmem
from pyshmem.native import _native
from pyshmem.base.far import GPU, OPERATORS, SHIFT
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


SHARED = """
import types
import numpy as np
import pyshmem as shmem
from pyshmem.native import _native
from pyshmem.base.far import GPU, SHIFT
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
