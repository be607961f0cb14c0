"""Kernels that know nothing of pyshmem translate addresses themselves, as those for Iris and torch's symmetric memory do."""

import pytest
import torch

import pyshmem as shmem
import triton
import triton.language as tl
from pyshmem import device as dev
from pyshmem.memory.heap import default
from support import here, refuses

pytestmark = pytest.mark.usefixtures("beside_the_heap")
BLOCK = 8


@triton.jit
def moved(pointer, from_rank, to_rank, heap_bases):
    """In Iris's style: the pointer's distance from its heap's base, on another heap."""
    from_base = tl.load(heap_bases + from_rank)
    to_base = tl.load(heap_bases + to_rank)
    offset = pointer.to(tl.int64, bitcast=True) - from_base
    return (to_base + offset).to(pointer.dtype, bitcast=True)


@triton.jit
def push_by_bases(source, inbox, me, right, heap_bases, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    values = tl.load(source + lanes)
    tl.store(moved(inbox, me, right, heap_bases) + lanes, values)


@triton.jit
def count_by_bases(counter, me, heap_bases):
    """At PE 0, by all."""
    tl.atomic_add(moved(counter, me, 0, heap_bases), 1, sem="acq_rel", scope="sys")


def test_kernel_that_translates_by_heap_bases(me, npes):
    source, inbox = shmem.arange(BLOCK, dtype=torch.float32) + me, shmem.zeros(BLOCK, dtype=torch.float32)
    counter, bases = shmem.zeros(1, dtype=torch.int32), shmem.heap_bases()
    push_by_bases[(1,)](source, inbox, me, (me + 1) % npes, bases, BLOCK=BLOCK)
    count_by_bases[(1,)](counter, me, bases)
    shmem.barrier_all()
    assert inbox.tolist() == [i + (me - 1) % npes for i in range(BLOCK)]
    assert shmem.g(counter, 0) == npes


@triton.jit
def meet(pads, rank, size: tl.constexpr):
    """All PEs have come: each sets a word in every pad, and takes away those of its own. The pads are zero again then."""
    pads = pads.to(tl.pointer_type(tl.uint64))
    for peer in range(size):
        pad = tl.load(pads + peer).to(tl.pointer_type(tl.uint32))
        while (
            tl.atomic_cas(pad + rank, tl.full((), 0, tl.uint32), tl.full((), 1, tl.uint32), sem="release", scope="sys")
            != 0
        ):
            pass
    own = tl.load(pads + rank).to(tl.pointer_type(tl.uint32))
    for peer in range(size):
        while (
            tl.atomic_cas(own + peer, tl.full((), 1, tl.uint32), tl.full((), 0, tl.uint32), sem="acquire", scope="sys")
            != 1
        ):
            pass


@triton.jit
def one_shot(buffers, pads, output, rank, size: tl.constexpr, BLOCK: tl.constexpr):
    """In the style of torch's symmetric memory: addresses of buffers and of pads come as numbers; the sum of all buffers."""
    meet(pads, rank, size)
    lanes = tl.arange(0, BLOCK)
    table = buffers.to(tl.pointer_type(tl.uint64))
    total = tl.zeros((BLOCK,), tl.float32)
    for peer in range(size):
        total += tl.load(tl.load(table + peer).to(tl.pointer_type(tl.float32)) + lanes)
    tl.store(output + lanes, total)
    meet(pads, rank, size)


def check_one_shot(team):
    """Twice: the pads are as they were before."""
    pads = shmem.zeros(shmem.n_pes(), dtype=torch.uint32)
    buffer = shmem.zeros(BLOCK, dtype=torch.float32)
    if team:
        output, me, n = torch.zeros(BLOCK, device=here()), team.my_pe(), team.n_pes()
        tables = shmem.peer_addresses(buffer, team), shmem.peer_addresses(pads, team)
        for turn in (1, 2):
            buffer[:] = torch.arange(BLOCK) * turn + me
            one_shot[(1,)](*(table.data_ptr() for table in tables), output, me, n, BLOCK=BLOCK)
            assert output.tolist() == [n * i * turn + n * (n - 1) // 2 for i in range(BLOCK)]
    shmem.barrier_all()


def test_kernel_with_tables_of_buffers_and_signal_pads():
    check_one_shot(shmem.TEAM_WORLD)


def test_tables_of_a_team_count_in_the_team(npes):
    for start, stride, size in ((npes - 1, -1, npes), (0, 2, (npes + 1) // 2)):
        team = shmem.TEAM_WORLD.split_strided(start, stride, size)
        check_one_shot(team)
        team.destroy()


@triton.jit
def number_of_members(ctx, word, found, n):
    for pe in range(n):
        tl.store(found + pe, tl.load(dev.ptr(ctx, word, pe)))


@pytest.mark.parametrize("shape", [(0, 1), (0, 2), (-1, -1)])
def test_a_kernel_finds_a_teams_members_in_a_table_of_distances(shape, me, npes):
    """As it does where the driver has placed the heaps; the table has the distances to all PEs."""
    start, stride = shape
    word, heap = shmem.full(1, 10 + me, dtype=torch.int64), default()
    team = shmem.TEAM_WORLD.split_strided(start % npes, stride)
    shmem.barrier_all()
    if team:
        table = torch.tensor([heap.deltas.get(pe, 0) for pe in range(npes)], device=word.device)
        ctx = shmem.device_context(team)._replace(table=table.data_ptr(), by_table=tl.constexpr(True))
        found = torch.zeros(team.n_pes(), dtype=torch.int64, device=word.device)
        number_of_members[(1,)](ctx, word, found, team.n_pes())
        assert found.tolist() == [10 + team.translate_pe(pe, shmem.TEAM_WORLD) for pe in range(team.n_pes())]
        team.destroy()
    shmem.barrier_all()


def test_tables_agree_with_ptr(me, npes):
    x = shmem.zeros(3, 4)
    bases, addresses = shmem.heap_bases(), shmem.peer_addresses(x[1])
    for table in (bases, addresses):
        assert (table.dtype, table.shape, table.device.type) == (torch.int64, (npes,), x.device.type)
        assert not shmem.is_symmetric(table)
    for pe in range(npes):
        there = shmem.ptr(x[1], pe)
        assert addresses[pe] == (0 if there is None else there.data_ptr())
        assert bases[pe] == (0 if there is None else there.data_ptr() - x[1].data_ptr() + bases[me])
    assert bases[me] == default().base and shmem.heap_bases("cpu").device.type == "cpu"


def test_tables_follow_heaps_at_any_distances(me, npes, monkeypatch):
    """As the driver places heaps that IPC handles map; loads and stores do not reach the PE on the right."""
    x, heap = shmem.zeros(3), default()
    away = {pe: 0 if pe == me else (pe + 1) * (1 << 40) + 64 * pe * pe - 12345 * 4096 for pe in range(npes)}
    if npes > 1:
        away.pop((me + 1) % npes)
    with monkeypatch.context() as patched:
        patched.setattr(heap, "deltas", away)
        bases, addresses = shmem.heap_bases(), shmem.peer_addresses(x[1:])
    for table, own in ((bases, heap.base), (addresses, x[1:].data_ptr())):
        assert table.tolist() == [own + away[pe] if pe in away else 0 for pe in range(npes)]
    shmem.barrier_all()


def test_what_has_no_address_on_peers_is_refused():
    with refuses("peer_addresses", "target: got ", shmem.NotSymmetricError):
        shmem.peer_addresses(torch.zeros(3))
    with refuses("peer_addresses", "team: got "):
        shmem.peer_addresses(shmem.zeros(3), shmem.TEAM_INVALID)
    with refuses("heap_bases", "device: got 'tpu'"):
        shmem.heap_bases("tpu")
    shmem.barrier_all()
