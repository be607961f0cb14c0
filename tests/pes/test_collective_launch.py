"""shmem.launch: a kernel on all PEs of a team at once; and the barrier of all programs of all their grids."""

import uuid
from types import SimpleNamespace

import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from pyshmem.host.launching import tuning
from pyshmem.kernels.launch import _require_together
from pyshmem.base import interpreter
from pyshmem.memory.gpu.driver import Driver
from pyshmem.memory.gpu.heap import gpu
from support import guarded, interpreted, neighbours, refuses, untouched, work
from team_shapes import group  # noqa: F401

pytestmark = pytest.mark.usefixtures("beside_the_heap")


@triton.jit(do_not_specialize=["epoch"])
def note(ctx, out, value, epoch, BLOCK: tl.constexpr = 8):
    """Of each program: which, of how many, what it was given."""
    row = out + tl.program_id(0) * 4
    tl.store(row, tl.num_programs(0) + 0 * dev.my_pe(ctx))
    tl.store(row + 1, value)
    tl.store(row + 2, epoch)
    tl.store(row + 3, BLOCK)


def test_launch_counts_the_launches_of_a_team_and_takes_its_own_grid_on_each_pe(group, me):
    team, pes = group
    ours = shmem.launch(note, 1, torch.zeros(8, dtype=torch.int32), 0)
    if team:
        for epoch in range(3):
            out = torch.zeros(5 * 4, dtype=torch.int32)
            programs = 1 + (me + epoch) % 4
            assert shmem.launch(note, programs, out, 7, BLOCK=16, team=team, num_warps=2) == epoch
            assert out.tolist() == [programs, 7, epoch, 16] * programs + [0] * (20 - 4 * programs)
    assert shmem.launch(note, (1, 1, 1), torch.zeros(8, dtype=torch.int32), 0) == ours + 1


def test_launch_gives_what_is_named_to_the_kernel_and_an_epoch_only_where_none_is_given():
    out = torch.zeros(4, dtype=torch.int32)
    shmem.launch(note, 1, out, epoch=70, value=5)
    assert out.tolist() == [1, 5, 70, 8]
    shmem.launch(note, 1, out, 5, 71, 32)
    assert out.tolist() == [1, 5, 71, 32]


@triton.jit
def look(ctx, come, seen):
    for pe in range(dev.n_pes(ctx)):
        tl.store(seen + pe, dev.g(ctx, come, pe))


@pytest.mark.parametrize("round_", range(4))
def test_no_kernel_begins_before_all_pes_have_launched_theirs(round_, me, npes):
    come, seen = shmem.zeros(1, dtype=torch.int32), torch.zeros(npes, dtype=torch.int32)
    if me == round_ % npes:
        work(30_000)
    shmem.p(come, 1 + me, me)
    shmem.quiet()  # on a GPU the word is written on its stream
    shmem.launch(look, 1, come, seen)
    assert seen.tolist() == [1 + pe for pe in range(npes)]


@triton.jit
def barriers(ctx, mine, seen, right, turns, PER_PROGRAM: tl.constexpr):
    """Every program's word goes to the right; after a barrier all of the left's are there."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    for turn in range(turns):
        dev.p(ctx, mine + program, dev.my_pe(ctx) * 1000 + turn, right)
        dev.barrier_all_grid(ctx)
        for place in range(PER_PROGRAM):
            word = place * programs + program
            tl.store(seen + turn * programs * PER_PROGRAM + word, dev.g(ctx, mine + word, dev.my_pe(ctx)))
        dev.barrier_all_grid(ctx)


def test_barrier_all_grid_completes_what_all_programs_have_put_turn_after_turn():
    """As many programs on each PE as put: one in the interpreter, where grids of more are refused."""
    programs = 1 if shmem.ones(1).device.type == "cpu" else 8
    left, _, right = neighbours()
    words, whole = guarded(programs, torch.int32)
    seen = torch.full((20, programs), -1, dtype=torch.int32)
    for turns in (3, 20):
        shmem.launch(barriers, programs, words, seen, right, turns, 1, cooperative=True)
        assert (seen[:turns] == left * 1000 + torch.arange(turns)[:, None]).all()
        shmem.barrier_all()
    assert untouched(whole[programs:])


@triton.jit
def both_barriers(ctx, count, right):
    for _ in range(10):
        dev.atomic_add(ctx, count, 1, right)
        dev.barrier_all_grid(ctx)
        dev.barrier_all(ctx)
        dev.sum_reduce(ctx, count, count, 1)
        dev.sync_all(ctx)


def test_barriers_of_grids_and_of_one_program_take_turns(npes):
    count, (_, _, right) = shmem.zeros(1, dtype=torch.int64), neighbours()
    shmem.launch(both_barriers, 1, count, right)
    wanted = 0
    for _ in range(10):
        wanted = (wanted + 1) * npes
    assert count.item() == wanted


@pytest.mark.parametrize(("vendor", "service", "turns"), [("cuda", 0, True), ("cuda", 1, False), ("hip", 0, False)])
def test_pes_that_divide_a_gpu_may_not_launch_cooperatively(vendor, service, turns, monkeypatch):
    """NVIDIA's driver gives each process all of the GPU in turn; its multi-process service and AMD's divide the GPU."""
    driver = SimpleNamespace(vendor=vendor, device=0, _number=lambda operation, attribute, device: service)
    assert Driver.takes_turns(driver) is turns
    monkeypatch.setattr(gpu, "shared", True)
    monkeypatch.setattr(gpu, "in_turn", turns)
    monkeypatch.setattr(interpreter, "active", lambda: False)
    if turns:
        _require_together(1)
        return
    words = "cooperative: got a GPU that several PEs share; expected a GPU for each PE, or an NVIDIA GPU without MPS"
    with refuses("launch", words, shmem.LaunchError):
        _require_together(1)


@interpreted
def test_grids_that_cannot_run_at_once_are_refused(me):
    count = shmem.zeros(1, dtype=torch.int64)
    words = (
        r"grid: got 2 programs; expected 1 in the interpreter, which runs the programs of a grid one after the other"
    )
    with refuses("launch", words, shmem.LaunchError):
        shmem.launch(both_barriers, 2, count, 0, cooperative=True)
    with pytest.raises(Exception, match=f"ArgumentError.*kernel both_barriers: barrier_all_grid: PE {me}: {words}"):
        shmem.launch(both_barriers, (1, 2), count, me)
    assert count.item() == 1  # what the first program did before its barrier


def configurations(*blocks):
    return [triton.Config({"BLOCK": block}, num_warps=2) for block in blocks]


@triton.autotune(configurations(16, 32, 64), key=["value"], reset_to_zero=["out"])
@triton.heuristics(
    {"DOUBLE": lambda given: 2 * given["BLOCK"], "TRIPLE": lambda given: given["DOUBLE"] + given["BLOCK"]}
)
@triton.jit
def tuned(ctx, out, flag, value, BLOCK: tl.constexpr, DOUBLE: tl.constexpr, TRIPLE: tl.constexpr):
    """Tell the right PE; then what the kernel was given, added to what there was."""
    dev.signal_add(ctx, flag, 1, (dev.my_pe(ctx) + 1) % dev.n_pes(ctx))
    dev.signal_wait_until(ctx, flag, dev.CMP_EQ, 1)
    tl.store(out, BLOCK)
    tl.store(out + 1, DOUBLE)
    tl.store(out + 2, TRIPLE)
    tl.store(out + 3, tl.load(out + 3) + value)


def run_tuned(value, **options):
    """What the kernel has stored, as a list."""
    out, flag = torch.zeros(4, dtype=torch.int32), shmem.zeros(1, dtype=torch.uint64)
    shmem.launch(tuned, lambda given: (given["BLOCK"] // given["BLOCK"],), out, flag, value, **options)
    return out.tolist()


@interpreted
def test_kernels_of_autotune_and_heuristics_take_the_first_configuration_where_there_is_no_gpu():
    assert run_tuned(5) == [16, 32, 48, 5]
    with refuses("launch", "options: got BLOCK; expected none that triton.autotune gives"):
        run_tuned(5, BLOCK=16)


@triton.autotune(configurations(16, 32), key=["value"])
@triton.heuristics({"DOUBLE": lambda given: 2 * given["BLOCK"]})
@shmem.jit
def tuned_without_context(out, flag, value, BLOCK: tl.constexpr, DOUBLE: tl.constexpr):
    dev.signal_add(flag, 1, (dev.my_pe() + 1) % dev.n_pes())
    dev.signal_wait_until(flag, dev.CMP_EQ, 1)
    tl.store(out, value + BLOCK + DOUBLE)


@interpreted
def test_a_device_grid_of_a_tuned_kernel_is_a_launch_on_all_pes(npes):
    out, flag = torch.zeros(1, dtype=torch.int32), shmem.zeros(1, dtype=torch.uint64)
    launches = shmem.TEAM_WORLD.launches
    grid = shmem.grid(lambda given: (given["DOUBLE"] // 32,))
    assert tuned_without_context[grid](out, flag, 5) == launches and out.item() == 53


@interpreted
def test_a_plain_grid_of_a_tuned_kernel_is_this_pes_own_launch_of_the_first_configuration():
    out, flag = torch.zeros(1, dtype=torch.int32), shmem.zeros(1, dtype=torch.uint64)
    tuned_without_context[lambda given: (given["DOUBLE"] // 32,)](shmem.device_context(), out, flag, 5)
    assert out.item() == 53


@interpreted
def test_tuned_kernels_that_are_not_of_shmem_jit_keep_tritons_own_launch(monkeypatch):
    given = []
    monkeypatch.setattr(type(tuned), "run", lambda self, *args, **options: given.append((args, options)))
    tuned[(1,)](5)
    assert given == [((5,), {"grid": (1,), "warmup": False})]


@interpreted
def test_the_configuration_whose_slowest_pe_is_fastest_is_taken_by_all_and_kept(monkeypatch, me, npes):
    """The first PE is slow with 16, the last one with 64. Trials leave neither signals nor sums."""
    trials = []

    def once(start, team):
        tuning._meet(team)
        start()
        tuning._meet(team)
        block, _, _, total = start.args[1].tolist()
        assert total == 7, "the sum of an earlier trial"
        trials.append(block)
        return {16: 9.0 if me == 0 else 1.0, 32: 3.0, 64: 9.0 if me == npes - 1 else 2.0}[block]

    folder = "".join(note.hex() for note in shmem.TEAM_WORLD.meeting.share("test", uuid.uuid4().bytes)[:2])
    monkeypatch.setattr(tuning, "interpreter", SimpleNamespace(active=lambda: False))
    monkeypatch.setattr(tuning, "_once", once)
    monkeypatch.setattr(tuning, "_place", lambda tuner, key, n_pes: folder)
    shmem.TEAM_WORLD.choices.clear()
    assert run_tuned(7) == [32, 64, 96, 7] and set(trials) == {16, 32, 64}
    measured = len(trials)
    assert run_tuned(7) == [32, 64, 96, 7]
    shmem.TEAM_WORLD.choices.clear()
    assert run_tuned(7) == [32, 64, 96, 7]  # from the file
    assert len(trials) == measured


REFUSED = [
    (lambda: shmem.launch(note, 0), "grid: got 0; expected one to three ints, each 1 or more"),
    (lambda: shmem.launch(note, (1, 1, 1, 1)), r"grid: got \(1, 1, 1, 1\); expected one to three"),
    (lambda: shmem.launch(note, True), "grid: got True; expected one to three"),
    (lambda: shmem.launch(print, 1), "kernel: got builtin_function_or_method; expected a function of triton.jit"),
    (
        lambda: shmem.launch(note, 1, 1),
        "args: got missing a required argument: 'value'; expected the arguments of note",
    ),
    (
        lambda: shmem.launch(note, 1, 1, 2, 3, 4, 5),
        "args: got too many positional arguments; expected the arguments of note",
    ),
    (
        lambda: shmem.launch(note, 1, 1, 2, num_wraps=3),
        "options: got 'num_wraps'; expected a parameter of note, or an option",
    ),
    (lambda: shmem.launch(note, 1, 1, 2, team=3), "team: got int; expected a Team"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED, ids=range(len(REFUSED)))
def test_launch_says_what_is_wrong_before_anybody_waits(call, words):
    before = shmem.launch(note, 1, torch.zeros(8, dtype=torch.int32), 0)
    with refuses("launch", words):
        call()
    assert shmem.launch(note, 1, torch.zeros(8, dtype=torch.int32), 0) == before + 1
