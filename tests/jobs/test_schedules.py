"""pyshmemrun --check=schedules: calls take effect late and in any order, as the memory model allows."""

import os
import pathlib
import subprocess
import sys

import pytest
from jobs import warm

pytestmark = pytest.mark.timeout(600)  # for all jobs of a test
BIN, HERE = pathlib.Path(sys.executable).parent, pathlib.Path(__file__).parent

LATE = """
import pyshmem as shmem
import torch
from pyshmem.shmem import SHMEM_BARRIER_SYNC_SIZE, shmem_barrier

shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
word, sent, words = shmem.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), shmem.zeros(50, dtype=torch.int64)
shmem.p(word, 1, me)
first = word.item()
for turn in range(50):
    sent.fill_(turn)
    shmem.put_nbi(words[turn : turn + 1], sent, me)
order = True
data, signals = shmem.zeros(50, dtype=torch.int64), shmem.zeros(50, dtype=torch.uint64)
for turn in range(50):
    shmem.put_signal(data[turn : turn + 1], torch.ones(1, dtype=torch.int64), me, signals[turn], 1, shmem.SIGNAL.SET)
    order &= shmem.g(signals[turn], me) <= shmem.g(data[turn], me)
after, right = shmem.zeros(n, dtype=torch.int64), (me + 1) % n
for turn in range(20):
    shmem.p(after[me], turn, right)
    shmem.fence()
    order &= shmem.atomic_fetch_add(after[me], 1, right) == turn
with shmem.Lock():
    pass
total = shmem.zeros(1, dtype=torch.int64)
for pe in range(n):
    shmem.atomic_add(total, 1, pe)
ring = shmem.zeros(1, dtype=torch.uint64)
if me == 0:
    shmem.signal_set(ring, 1, 1 % n)
shmem.signal_wait_until(ring, "==", 1)  # while it waits, what this PE holds back arrives
if me:
    shmem.signal_set(ring, 1, (me + 1) % n)
of_set = shmem.zeros(SHMEM_BARRIER_SYNC_SIZE, dtype=torch.int64)
for turn in range(10):
    shmem_barrier(0, 0, n, of_set)
shmem.barrier_all()
print(f"PE {me}", first, words.sum().item() == sum(range(50)), total.item(), word.item(), order, flush=True)
"""


def scheduled(program, seed, n_pes, limit=60):
    command = [BIN / "pyshmemrun", "--check=schedules", "--seed", str(seed), "-n", str(n_pes), *warm(), program]
    environment = {
        **os.environ,
        "PYSHMEM_QUIET": "1",
        "SHMEM_SYMMETRIC_SIZE": "64m",
        "PYSHMEM_WAIT_TIMEOUT": str(limit),
    }
    environment["PYTHONUNBUFFERED"] = ""  # a line is one write: those of PEs do not mix
    done = subprocess.run(command, capture_output=True, text=True, timeout=140, env=environment)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def test_results_are_those_of_the_enumerated_executions_and_nearly_all_of_them():
    exist, came = map(int, scheduled(HERE / "scheduled.py", 3, 2)[0].split())
    assert 0.8 * exist < came <= exist


def test_programs_of_a_kernel_differ_exactly_where_the_checker_finds_a_race():
    """scheduled_kernels.py says so of each program; most results come up, and all races show themselves but a few."""
    exist, came, races, differ = map(int, scheduled(HERE / "scheduled_kernels.py", 3, 1)[0].split())
    assert 0.8 * exist < came <= exist and races > 15 and differ > 0.9 * races


def test_effects_are_late_until_quiet_and_a_seed_repeats_them(tmp_path):
    """Sources of put_nbi that change before quiet arrive changed; barriers and waits complete everything."""
    program = tmp_path / "late.py"
    program.write_text(LATE)
    alone = [scheduled(program, seed, 1)[0].split() for seed in (0, 1, 2, 0)]
    assert alone[0] == alone[3] and {first for _, _, first, *_ in alone} == {"0", "1"}
    assert [rest for _, _, _, *rest in alone] == [["False", "1", "1", "True"]] * 4
    assert [line.split()[3:] for line in scheduled(program, 1, 3)] == [["False", "3", "1", "True"]] * 3


UNFINISHED = """
import pyshmem as shmem
import pyshmem.device as dev
import torch
import triton

@triton.jit
def send(ctx, words, turn):
    dev.p(ctx, words + turn, 1, 0)

@triton.jit
def take(ctx, words, turn):
    dev.wait_until(ctx, words + turn, dev.CMP_EQ, 1)

shmem.init()
words = shmem.zeros(30, dtype=torch.int64)
for turn in range(30):
    (send if shmem.my_pe() else take)[(1,)](shmem.device_context(), words, turn)
    shmem.TEAM_WORLD.split_strided(0, 1, 2).destroy()
print(f"PE {shmem.my_pe()}: {words.sum().item()}")
"""


def test_what_a_kernel_has_sent_arrives_while_its_pe_waits_in_any_collective(tmp_path):
    """Also in one whose beginning orders nothing, as that of a team."""
    (tmp_path / "unfinished.py").write_text(UNFINISHED)
    assert "PE 0: 30" in scheduled(tmp_path / "unfinished.py", 1, 2)


AHEAD = """
import pyshmem as shmem
import torch
from pyshmem import ops

shmem.init()
me, came = shmem.my_pe(), []
for turn in range(150):
    if me == 0:
        ops.send_activations(torch.full((4,), float(turn)), pe=1, slots=3)
    else:
        came += ops.recv_activations(torch.full((4,), -1.0), pe=0, slots=3).tolist()
print(f"PE {me}", [turn for turn, each in enumerate(came) if each != turn // 4], flush=True)
shmem.barrier_all()
"""


def test_activations_are_those_of_their_flags_though_those_of_later_sends_come_first(tmp_path):
    """A sender is ahead by its slots, and nothing orders the puts of its kernels."""
    program = tmp_path / "ahead.py"
    program.write_text(AHEAD)
    assert [scheduled(program, seed, 2) for seed in (0, 1)] == [["PE 0 []", "PE 1 []"]] * 2


IN_TURN = """
import pyshmem as shmem
import torch
from pyshmem import ops

shmem.init()
came = []
for turn in range(0, 36, 3):
    for each in range(turn, turn + 3):
        ops.send_activations(torch.full((4,), float(each)), pe=0, slots=3)
    for each in range(3):
        came += ops.recv_activations(torch.full((4,), -1.0), pe=0, slots=3).tolist()
print([turn for turn, each in enumerate(came) if each != turn // 4], flush=True)
"""


def test_a_sender_counts_what_is_taken_though_news_of_it_come_in_any_order(tmp_path):
    """On one PE, which repeats itself under its seed."""
    program = tmp_path / "in_turn.py"
    program.write_text(IN_TURN)
    assert scheduled(program, 0, 1) == ["[]"]


ENDLESS = """
import pyshmem as shmem
import pyshmem.device as dev
import torch
import triton

@triton.jit
def wait(ctx, word):
    dev.wait_until(ctx, word, dev.CMP_EQ, 1)

shmem.init()
try:
    wait[(1,)](shmem.device_context(), shmem.zeros(1, dtype=torch.int64))
except Exception as error:
    print("expected a value == 1" in str(error), flush=True)
"""


def test_a_kernels_wait_that_nothing_ends_times_out(tmp_path):
    program = tmp_path / "endless.py"
    program.write_text(ENDLESS)
    assert scheduled(program, 1, 1, limit=2) == ["True"]
