"""What tests of fabrics share: what carries data between pretended nodes, and programs that use it."""

PROVIDER = "tcp;ofi_rxm"  # MPICH brings a libfabric that has it, and it needs no hardware
NODES = {"PYSHMEM_NODE_SIZE": "1", "PYSHMEM_WAIT_TIMEOUT": "60"}
FABRIC = NODES | {"PYSHMEM_FAR": "fabric", "PYSHMEM_FABRIC": PROVIDER}
MESSAGES = FABRIC | {"PYSHMEM_AMO": "fabric"}
CARRIERS = {"tcp": NODES | {"PYSHMEM_FAR": "tcp"}, "fabric": FABRIC, "messages": MESSAGES}
KIB = 1024

INFO = """
import pyshmem as shmem

shmem.init(thread_level=3)
shmem.barrier_all()
"""

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
