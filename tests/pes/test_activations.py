"""send_activations and recv_activations: what is sent comes in order, and nothing is overwritten before it is taken."""

import pyshmem as shmem
import pytest
import torch
from operands import random
from pyshmem import ops
from pyshmem.ops.training import activations
from pyshmem.ops.training.activations import SHARE
from support import DTYPES, FP8_DTYPES, assert_same, here, interpreted, payload, refuses, untouched, work

pytestmark = pytest.mark.usefixtures("plans_closed")

GPU = torch.cuda.is_available()


def ring():
    """(left, right) of this PE."""
    me, n = shmem.my_pe(), shmem.n_pes()
    return (me - 1) % n, (me + 1) % n


def content(pe, turn, *shape, dtype=torch.float32):
    return random(1000 * pe + turn, 1, *shape, dtype=dtype)[0]


@pytest.mark.parametrize("dtype", [each for each in DTYPES if each not in FP8_DTYPES[1:]])
def test_tensors_of_every_dtype_come_as_they_were_sent(dtype):
    left, right = ring()
    ops.send_activations(payload(shmem.my_pe(), 3, 77, dtype), pe=right)
    wanted = payload(left, 3, 77, dtype)
    got = torch.empty_like(wanted)
    assert ops.recv_activations(got, pe=left) is got
    assert_same(got, wanted)


@pytest.mark.parametrize("shape", [(), (0, 4), (1,), (3, 5, 7), (SHARE // 4,), (2 * SHARE // 4 + 33,), (1 << 18,)])
def test_tensors_of_every_size_come_as_they_were_sent(shape):
    left, right = ring()
    for turn in range(3):
        ops.send_activations(content(shmem.my_pe(), turn, *shape), pe=right)
        got = torch.empty(shape, device=here())
        ops.recv_activations(got, pe=left)
        assert_same(got, content(left, turn, *shape))


def test_parts_of_programs_come_in_chunks(monkeypatch):
    monkeypatch.setattr(activations, "CHUNK", 4096)
    left, right = ring()
    for turn in range(5):
        count = 2 * SHARE // 4 + 1500
        ops.send_activations(content(shmem.my_pe(), turn, count), pe=right)
        got = torch.empty(count, device=here())
        ops.recv_activations(got, pe=left)
        assert_same(got, content(left, turn, count))


@interpreted
def test_a_receiver_waits_for_each_chunk_of_a_sender_that_is_late_between_them(monkeypatch):
    if shmem.n_pes() < 2:
        pytest.skip("there is no other PE")
    monkeypatch.setattr(activations, "CHUNK", 4096)
    part_of = activations.part_of

    def slow(*given):
        work(60000 if shmem.my_pe() == 0 else 0)
        return part_of(*given)

    monkeypatch.setattr(activations, "part_of", slow)
    left, right = ring()
    for turn in range(3):
        ops.send_activations(content(shmem.my_pe(), turn, 5000), pe=right)
        got = torch.empty(5000, device=here())
        ops.recv_activations(got, pe=left)
        assert_same(got, content(left, turn, 5000))


def test_tensors_at_any_address_are_sent_and_nothing_beside_is_written():
    left, right = ring()
    for first in (0, 1, 3):
        source, whole = torch.zeros(60, dtype=torch.uint8, device=here()), torch.full((60,), 77, dtype=torch.uint8)
        source[first : first + 50] = payload(shmem.my_pe(), first, 50, torch.uint8)
        whole = whole.to(here())
        ops.send_activations(source[first : first + 50], pe=right)
        ops.recv_activations(whole[3 - first : 53 - first], pe=left)
        assert_same(whole[3 - first : 53 - first], payload(left, first, 50, torch.uint8))
        assert untouched(whole[: 3 - first]) and untouched(whole[53 - first :])


def test_several_tensors_go_together():
    left, right = ring()
    shapes = ((4, 6), (3,), (50,))
    ops.send_activations(*(content(shmem.my_pe(), i, *shape) for i, shape in enumerate(shapes)), pe=right)
    given = [torch.empty(shape, device=here()) for shape in shapes]
    got = ops.recv_activations(*given, pe=left)
    assert len(got) == 3
    for i, shape in enumerate(shapes):
        assert got[i] is given[i]
        assert_same(got[i], content(left, i, *shape))


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_a_sender_may_be_ahead_by_its_slots(slots):
    """On one stream: more sends before a receive would wait for ever."""
    left, right = ring()
    got = torch.empty(20, device=here())
    for turn in range(0, 4 * slots, slots):
        for ahead in range(slots):
            ops.send_activations(content(shmem.my_pe(), turn + ahead, 20), pe=right, slots=slots)
        for ahead in range(slots):
            ops.recv_activations(got, pe=left, slots=slots)
            assert_same(got, content(left, turn + ahead, 20))


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("late", [0, 1])
def test_a_sender_waits_for_a_late_receiver_and_a_receiver_for_a_late_sender(slots, late):
    """The first PE only sends, the last one only receives, as stages do. late: the parity of the PEs that are."""
    me, n = shmem.my_pe(), shmem.n_pes()
    if n < 2:
        pytest.skip("there is no other PE")
    held = torch.empty(2 * SHARE // 4, device=here())
    for turn in range(200 if GPU else 12):
        if me % 2 == late:
            work(20000)
        if me == 0:
            held.copy_(content(0, turn % 7, held.numel()))
        else:
            ops.recv_activations(held, pe=me - 1, slots=slots)
            assert_same(held, content(0, turn % 7, held.numel()))
        if me < n - 1:
            ops.send_activations(held, pe=me + 1, slots=slots)
        held.fill_(-1)  # the stream has done the call


def test_two_stages_exchange_activations_and_gradients_of_one_shape():
    """Microbatches go forward, and as many gradients back, as two stages do in turn (1F1B)."""
    me = shmem.my_pe()
    if shmem.n_pes() != 2:
        pytest.skip("a pipeline of two stages")
    held = torch.empty(30, device=here())
    for turn in range(6):
        if me == 0:
            ops.send_activations(content(0, turn, 30), pe=1)
            if turn:
                assert_same(ops.recv_activations(held, pe=1), content(1, turn - 1, 30))
        else:
            assert_same(ops.recv_activations(held, pe=0), content(0, turn, 30))
            ops.send_activations(content(1, turn, 30), pe=0)
    if me == 0:
        assert_same(ops.recv_activations(held, pe=1), content(1, 5, 30))


def test_teams_number_their_pes(smaller_teams):
    for team in smaller_teams:
        me, size = team.my_pe(), team.n_pes()
        for turn in range(3 if team else 0):
            ops.send_activations(content(me, turn, 40), pe=(me + 1) % size, team=team)
            got = torch.empty(40, device=here())
            assert_same(ops.recv_activations(got, pe=(me - 1) % size, team=team), content((me - 1) % size, turn, 40))


REFUSED = [
    ("send_activations", "pe: got 99; expected a PE from 0 to", (torch.ones(3),), {"pe": 99}),
    ("recv_activations", "pe: got 'next'; expected a PE", (torch.ones(3),), {"pe": "next"}),
    ("send_activations", "pe: got True; expected a PE", (torch.ones(3),), {"pe": True}),
    ("send_activations", "tensors: got none; expected one", (), {"pe": 0}),
    ("recv_activations", "tensor 1: got int; expected a torch tensor", (torch.ones(3), 1), {"pe": 0}),
    ("send_activations", r"tensor 0: got strides \(1, 3\); expected a contiguous", (torch.ones(3, 3).t(),), {"pe": 0}),
    ("recv_activations", "slots: got 0; expected a number, 1 or more", (torch.ones(3),), {"pe": 0, "slots": 0}),
    ("send_activations", "tensor 0: got a tensor on meta", (torch.ones(3, device="meta"),), {"pe": 0}),
]


@pytest.mark.parametrize("routine, message, tensors, options", REFUSED, ids=[each[1][:20] for each in REFUSED])
def test_wrong_arguments_are_refused_with_their_name(routine, message, tensors, options):
    given = [each.to(here()) if getattr(each, "is_cpu", False) else each for each in tensors]
    with refuses(routine, message, shmem.ShmemError):
        getattr(ops, routine)(*given, **options)


def test_shapes_that_differ_are_refused_on_all_pes():
    if shmem.n_pes() < 2:
        pytest.skip("there is no other PE")
    left, right = ring()
    with pytest.raises(shmem.ArgumentError, match=r"\(5,\) in .*on PE 0 and \(6,\) in .* on PE 1; expected the same"):
        if shmem.my_pe():
            ops.recv_activations(torch.ones(6, device=here()), pe=left)
        else:
            ops.send_activations(torch.ones(5, device=here()), pe=right)


@pytest.mark.skipif(not GPU, reason="there is no GPU to capture graphs")
def test_graphs_capture_and_replay_both():
    left, right = ring()
    mine, got = content(shmem.my_pe(), 0, 1 << 16), torch.zeros(3, 1 << 16, device=here())
    ops.send_activations(mine, pe=right)
    ops.recv_activations(got[0], pe=left)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for row in got:
            ops.send_activations(mine, pe=right)
            ops.recv_activations(row, pe=left)
            mine += 1
    for _ in range(20):
        graph.replay()
    torch.cuda.synchronize()
    wanted = content(left, 0, 1 << 16)
    for _ in range(57):
        wanted += 1
    for row in got:
        assert_same(row, wanted)
        wanted += 1
