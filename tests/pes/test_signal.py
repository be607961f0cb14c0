"""9.10 signals, and put_signal above all: the signal never overtakes its payload."""

import pyshmem as shmem
import pytest
import torch
from support import GUARD, RMA_DTYPES, payload


@pytest.mark.parametrize("dtype", RMA_DTYPES, ids=str)
def test_put_signal_shows_the_signal_after_its_payload(device, dtype):
    """No barrier, fence or quiet between signal and data: those would hide the fault looked for."""
    me, left, right = shmem.my_pe(), (shmem.my_pe() - 1) % shmem.n_pes(), (shmem.my_pe() + 1) % shmem.n_pes()
    target = shmem.full(65, GUARD, dtype=dtype, device=device)
    arrived, taken = shmem.zeros(2, dtype=torch.uint64, device=device)
    for turn in range(1, 101):
        shmem.put_signal(target[:64], payload(me, turn, 64, dtype, device), right, arrived, turn, shmem.SIGNAL.SET)
        assert shmem.signal_wait_until(arrived, ">=", turn) == turn
        torch.testing.assert_close(target[:64].clone(), payload(left, turn, 64, dtype, device), rtol=0, atol=0)
        shmem.signal_set(taken, turn, left)  # left may overwrite target
        shmem.signal_wait_until(taken, ">=", turn)
    assert target[64].item() == GUARD


def test_put_signal_refuses_a_private_target_and_moves_nothing(device):
    signal = shmem.zeros(1, dtype=torch.uint64, device=device)
    with pytest.raises(
        shmem.NotSymmetricError, match=r"^put_signal: PE \d+: target: got .* private .*; wants .*shmem\.zeros"
    ):
        shmem.put_signal(torch.ones(8), torch.ones(8), 0, signal, 1, shmem.SIGNAL.SET)
    assert shmem.signal_fetch(signal) == 0
