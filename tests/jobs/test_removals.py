"""The checker reports an order that a program lacks: of what tests/mutants/removals.py tries, a part that takes little time."""

import pathlib
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "mutants"))
from removals import ROOT, outcome, removals

RING = ROOT / "examples" / "ring.py"


@pytest.mark.parametrize("removal", list(removals(RING.read_text())), ids=lambda removal: removal.what)
def test_each_order_of_the_ring_is_missed(removal, tmp_path):
    assert outcome(removal, RING.name, tmp_path, 3, "").startswith("reported: ")


CALLS = {
    "shmem.fence()": "pass",
    "c.shmem_quiet()": "pass",
    "team.sync()": "pass",
    "shmem.barrier_all()": "pass",
    "shmem.wait_until_all(flags, '==', 1)": "pass",
    "dev.signal_add(ctx, arrived, 1, pe)": "pass",
    "shmem.set_lock(lock)": "pass",
    "shmem.put_signal(x, y, pe, arrived, 1, ADD, size=4)": "shmem.put(x, y, pe, size=4)",
    "dev.put_signal_nbi(ctx, x, y, n, arrived, 1, ADD, pe)": "dev.put_nbi(ctx, x, y, n, pe)",
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_orders_is_removed_in_its_place_and_of_put_signal_the_put_is_left(call):
    text = f"def f():\n    x.fill_(1)\n    {call}\n    shmem.put(x, y, pe)\n"
    [removal] = removals(text)
    assert removal.text == text.replace(call, CALLS[call])
