"""The C names on the default heap, whichever it is, with tensors as addresses: what test_c_names does in CPU memory alone."""

import torch

from pyshmem import shmem as c
from support import assert_same, near_neighbours, neighbours, payload


def symmetric(values):
    """shmem_malloc's memory with these values."""
    array = c.shmem_malloc(values.numel() * values.element_size(), dtype=values.dtype)
    array.copy_(values)
    c.shmem_barrier_all()
    return array


def test_puts_and_gets_of_each_kind_of_name():
    left, me, right = neighbours()
    target = symmetric(torch.zeros(16, dtype=torch.int64))
    c.shmem_long_put(target, payload(me, 1, 4, torch.int64), 4, right)
    c.shmem_putmem(target[4:], payload(me, 2, 4, torch.int64), 32, right)
    c.shmem_put64(target[8:], payload(me, 3, 2, torch.int64), 2, right)
    c.shmem_ctx_int64_put_nbi(c.SHMEM_CTX_DEFAULT, target[10:], payload(me, 4, 2, torch.int64), 2, right)
    c.shmem_long_iput(target[12:], payload(me, 5, 4, torch.int64), 2, 1, 2, right)
    c.shmem_long_p(target[15:], 77 + me, right)
    c.shmem_quiet()
    c.shmem_barrier_all()
    sent = [payload(left, turn, count, torch.int64) for turn, count in ((1, 4), (2, 4), (3, 2), (4, 2))]
    assert target[:12].tolist() == torch.cat(sent).tolist()
    strided = payload(left, 5, 4, torch.int64).tolist()
    assert target[12:].tolist() == [strided[0], 0, strided[1], 77 + left]
    back = torch.zeros(4, dtype=torch.int64, device=target.device)
    c.shmem_long_get(back, target, 4, right)
    assert back.tolist() == payload(me, 1, 4, torch.int64).tolist()
    assert c.shmem_long_g(target[15:], right) == 77 + me
    c.shmem_free(target)


def test_atomics_signals_and_waits():
    left, me, right = neighbours()
    word, flag = symmetric(torch.zeros(2, dtype=torch.int64)), symmetric(torch.zeros(1, dtype=torch.int64))
    signal = symmetric(torch.zeros(1, dtype=torch.int64)).view(torch.uint64)
    assert c.shmem_long_atomic_fetch_add(word, 5, right) == 0
    c.shmem_int64_atomic_xor(word, 6, right)
    assert c.shmem_long_atomic_compare_swap(word, 3, 9, right) == 3
    assert c.shmem_long_atomic_fetch(word, right) == 9
    data = symmetric(torch.zeros(8, dtype=torch.int64))
    c.shmem_long_put_signal(data, payload(me, 1, 8, torch.int64), 8, signal, 3, c.SHMEM_SIGNAL_SET, right)
    assert c.shmem_signal_wait_until(signal, c.SHMEM_CMP_GE, 3) == 3
    assert data.tolist() == payload(left, 1, 8, torch.int64).tolist()
    c.shmem_long_p(flag, 4, right)
    c.shmem_long_wait_until(flag, c.SHMEM_CMP_EQ, 4)
    assert c.shmem_long_test(flag, c.SHMEM_CMP_NE, 4) == 0
    c.shmem_barrier_all()


def test_collectives_over_the_world(me, npes):
    source, target = symmetric(payload(me, 1, 6, torch.float32)), symmetric(torch.zeros(6 * npes))
    world = c.SHMEM_TEAM_WORLD
    assert c.shmem_float_sum_reduce(world, target, source, 6) == 0
    parts = torch.stack([payload(pe, 1, 6, torch.float32) for pe in range(npes)])
    assert_same(target[:6].clone(), parts.sum(0))
    c.shmem_barrier_all()
    assert c.shmem_float_fcollect(world, target, source, 6) == 0
    assert_same(target.clone(), parts.reshape(-1))
    c.shmem_barrier_all()
    assert c.shmem_float_broadcast(world, target, source, 6, npes - 1) == 0
    assert_same(target[:6].clone(), parts[npes - 1])


def test_ptr_gives_a_tensor_on_the_peers_memory():
    left, me, right = near_neighbours()
    array = symmetric(torch.zeros(3))
    c.shmem_ptr(array, right).fill_(me + 1)
    c.shmem_barrier_all()
    assert array.tolist() == [left + 1] * 3
