"""flash_decode: uneven and missing tokens, grouped heads and odd sizes against float64, with the same bits on all PEs."""

import pyshmem as shmem
import pytest
import torch
from operands import close_to, equal_on_all_pes, odd, of_the_caller, placed, random, refused_on_all_pes, replayed
from pyshmem import ops
from pyshmem.ops.attention import decode as attention_decode
from pyshmem.ops.attention import decode_schedules
from pyshmem.ops import plans as plans_of_models
from pyshmem.ops import workspace
from pyshmem.ops.attention.decode_schedules import SCHEDULES
from pyshmem.ops.attention.decode import reference
from pyshmem.base.job import job
from support import be_late, here, refuses, work

pytestmark = pytest.mark.usefixtures("plans_closed")

BOUNDS = {torch.float32: 1e-4, torch.float16: 2e-3, torch.bfloat16: 1e-2}
GPU = torch.cuda.is_available()
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)


class Case:
    """Sequences whose tokens lie on all PEs of a team, a different number on each, and what is wanted, in float64."""

    def __init__(
        self, batch=2, heads=4, kv_heads=2, dim=16, room=40, dtype=torch.float32, seed=1, team=None, lengths=None
    ):
        self.team = shmem.TEAM_WORLD if team is None else team
        self.q, self.dtype, every = random(seed, batch, heads, dim, dtype=dtype), dtype, []
        for pe in range(self.team.n_pes()):
            shape = (batch, room + 3 * pe, kv_heads, dim)
            k, v = (random(seed * 100 + 2 * pe + i, *shape, dtype=dtype) for i in (1, 2))
            counts = [(7 + 11 * i + 13 * pe * (i + 1)) % (shape[1] + 1) for i in range(batch)]
            counts = counts if lengths is None else [lengths(pe, i) for i in range(batch)]
            held = torch.tensor(counts, dtype=torch.int32, device=here())
            for i, count in enumerate(counts):  # what is behind the tokens must not be used
                k[i, count:], v[i, count:] = float("nan"), float("nan")
            every.append((k, v, held))
        self.k, self.v, self.lengths = every[self.team.my_pe()]
        self.wanted, self.table = reference(self.q, every), None

    def in_pages(self, size):
        """Deal the tokens to pages, in any order, among others; the table names no page behind the tokens."""
        batch, room, *rest = self.k.shape
        pages = -(-room // size)
        order = torch.randperm(batch * pages + 3, generator=torch.Generator().manual_seed(1))[: batch * pages]
        self.table = order.view(batch, pages).to(torch.int32).to(here())
        for name in "kv":
            whole = torch.full((batch, pages * size, *rest), float("nan"), dtype=self.dtype, device=here())
            whole[:, :room] = getattr(self, name)
            dealt = torch.full((batch * pages + 3, size, *rest), float("nan"), dtype=self.dtype, device=here())
            dealt[self.table.flatten().long()] = whole.view(-1, size, *rest)
            setattr(self, name, dealt)
        behind = torch.arange(pages, device=here()) * size >= self.lengths[:, None]
        self.table[behind] = 1 << 30
        return self

    def call(self, schedule="auto", **more):
        return ops.flash_decode(
            self.q, self.k, self.v, self.lengths, team=self.team, schedule=schedule, block_table=self.table, **more
        )

    def check(self, result, note=""):
        assert result.shape == self.wanted.shape and result.dtype == self.dtype
        close_to(result, self.wanted, BOUNDS[self.dtype], note)


@every_schedule
def test_every_schedule_gives_the_attention_of_uneven_tokens(schedule):
    for dtype in BOUNDS:
        case = Case(dtype=dtype)
        out = torch.full_like(case.q, float("nan"))
        assert case.call(schedule, out=out) is out
        case.check(out, dtype)


@every_schedule
@pytest.mark.parametrize("heads, kv_heads, dim, room", [(1, 1, 16, 1), (6, 2, 8, 33), (5, 5, 20, 17), (20, 1, 32, 16)])
def test_numbers_of_heads_and_their_widths_are_any(schedule, heads, kv_heads, dim, room):
    case = Case(1, heads, kv_heads, dim, room)
    case.check(case.call(schedule))


@pytest.mark.skipif(not GPU, reason="the interpreter is slow")
@every_schedule
def test_every_schedule_gives_the_attention_at_the_sizes_of_models(schedule):
    for batch, room in ((1, 5000), (8, 3000), (32, 700), (70, 100)):
        case = Case(batch, 32, 8, 128, room, torch.bfloat16)
        for _ in range(3):
            out = torch.full_like(case.q, float("nan"))
            case.check(case.call(schedule, out=out), (batch, room))


@every_schedule
def test_a_pe_or_all_may_hold_no_tokens_of_a_sequence(schedule):
    case = Case(lengths=lambda pe, i: 5 if (pe + i) % 2 else 0)
    case.check(case.call(schedule))
    case = Case(lengths=lambda pe, i: 0)
    assert not case.call(schedule).any()


@every_schedule
def test_room_for_no_tokens_is_allowed_on_some_pes(schedule):
    case = Case(room=0, lengths=lambda pe, i: 3 * pe)
    case.check(case.call(schedule))


@every_schedule
def test_a_pe_may_change_its_room_and_its_kind_of_cache_without_the_others(schedule):
    """As caches grow: the others go on with the plan that they have."""
    case = Case(room=20, lengths=lambda pe, i: 20 + 3 * pe - 2 * i)
    case.check(case.call(schedule), "first")
    if shmem.my_pe() == shmem.n_pes() - 1:
        grown = (torch.full_like(each[:, :5], float("nan")) for each in (case.k, case.v))
        case.k, case.v = (odd(torch.cat(pair, 1)) for pair in zip((case.k, case.v), grown, strict=True))
        case.q = odd(case.q)
    case.check(case.call(schedule), "grown")
    if shmem.my_pe() == 0:
        case.in_pages(16)
    case.check(case.call(schedule), "in pages")
    if shmem.my_pe() == 0:
        with pytest.raises(shmem.ArgumentError, match=r"^flash_decode: PE 0: v: got shape"):  # on this PE alone
            ops.flash_decode(case.q, case.k, case.v[:1], case.lengths, schedule=schedule, block_table=case.table)
    case.check(case.call(schedule), "after a refusal")
    assert len(plans_of_models._plans) == 1


@every_schedule
def test_without_lengths_all_tokens_count_and_lengths_are_cut_to_the_room(schedule):
    case = Case(room=20, lengths=lambda pe, i: 20 + 3 * pe)
    case.lengths = None
    case.check(case.call(schedule), "none")
    case.lengths = torch.full((2,), 1000, dtype=torch.int32, device=here())
    case.check(case.call(schedule), "too long")


@pytest.mark.parametrize("page, block, schedule", [(16, 32, "fused"), (32, 16, "bulk_synchronous"), (48, 32, "fused")])
def test_tokens_may_lie_in_pages_of_any_order(page, block, schedule, monkeypatch):
    """A block of the kernel is of several pages, a part of one, or of parts of two."""
    monkeypatch.setattr(decode_schedules, "INTERPRETED", (block, *decode_schedules.INTERPRETED[1:]))
    case = Case(room=150, lengths=lambda pe, i: 149 - 50 * i - 31 * (pe % 3)).in_pages(page)
    case.check(case.call(schedule))


@pytest.mark.skipif(not GPU, reason="the interpreter is slow")
@pytest.mark.parametrize("page", [16, 64, 256])
def test_pages_of_any_size_at_the_sizes_of_models(page):
    case = Case(8, 32, 8, 128, 3000, torch.bfloat16).in_pages(page)
    for _ in range(3):
        case.check(case.call(out=torch.full_like(case.q, float("nan"))))


@every_schedule
def test_scale_replaces_the_root_of_the_width(schedule):
    case = Case()
    usual = case.q
    case.q = usual / 4 * 0.5
    scaled = case.call(schedule)
    case.q = usual
    torch.testing.assert_close(case.call(schedule, scale=0.125 * 0.25), scaled, rtol=1e-5, atol=1e-5)


@every_schedule
def test_not_a_number_stays_with_its_sequence_and_the_heads_that_see_it(schedule):
    """A key's reaches the queries of its head of keys, on all PEs; a value's reaches one element of them."""
    case = Case(lengths=lambda pe, i: 20)
    if shmem.my_pe() == shmem.n_pes() - 1:
        case.k[0, 7, 1, 3], case.v[1, 19, 0, 5] = float("nan"), float("nan")
    found = case.call(schedule)
    wanted = torch.zeros(found.shape, dtype=torch.bool, device=here())
    wanted[0, 2:], wanted[1, :2, 5] = True, True
    assert torch.equal(found.isnan(), wanted)
    close_to(found[~wanted], case.wanted[~wanted], BOUNDS[torch.float32])


@every_schedule
def test_all_pes_get_the_same_bits(schedule):
    result = shmem.array(Case(dtype=torch.bfloat16).call(schedule))
    equal_on_all_pes(result)


@every_schedule
def test_calls_follow_each_other_without_a_barrier_though_one_pe_is_late(schedule):
    """Each call has other values in the same memory, overwritten as soon as the stream has done the call before."""
    cases = [Case(1, 2, 1, 16, 20, seed=seed) for seed in range(3)]
    q, k, v = (each.clone() for each in (cases[0].q, cases[0].k, cases[0].v))
    for turn in range(600 if GPU else 9):
        case = cases[turn % 3]
        if shmem.my_pe() == turn // 2 % shmem.n_pes():
            work(20000)
        for mine, its in ((q, case.q), (k, case.k), (v, case.v)):
            mine.copy_(its)
        result = ops.flash_decode(q, k, v, case.lengths, schedule=schedule, reuse=True)
        if turn < 10 or turn % 97 == 0:
            case.check(result, turn)


def test_results_are_the_callers_or_two_of_the_plan_in_turn():
    of_the_caller(Case().call)


@pytest.mark.skipif(shmem.n_pes() < 2, reason="one PE sends no parts")
def test_the_parts_of_two_calls_lie_in_different_slots():
    """A PE that is ahead sends those of its next call, of more sequences, while another one still reads these."""
    held = []
    for seed, batch in enumerate((3, 4)):
        Case(batch, seed=seed).call("fused")
        shmem.barrier_all()
        slots = next(iter(plans_of_models._plans.values())).space["slots"].clone()
        held.append(slots[:6].unbind(1))  # of the groups of three sequences
        shmem.barrier_all()
    assert torch.equal(held[0][1], held[1][1]) and held[0][1].any(), "the second call wrote what the first one had"
    assert not held[0][0].any() and held[1][0].any()


UP_AND_DOWN = 5, 6, 8, 7, 5, 2, 1, 3, 4, 3, 11, 9, 1, 8, 5  # those up to 8 have the memory of the first ones


@every_schedule
@pytest.mark.parametrize("paged", [False, True], ids=["", "pages"])
def test_batches_go_up_and_down_without_a_barrier_though_one_pe_is_late(schedule, paged):
    """Each call has other sequences, tokens and, in pages, another width of its table."""
    for turn, batch in enumerate(UP_AND_DOWN):
        case = Case(batch, 2, 1, 16, 20 + 3 * (turn % 4), seed=turn)
        case = case.in_pages(16) if paged else case
        if shmem.my_pe() == turn // 2 % shmem.n_pes():
            be_late(20000 if GPU else 100_000)
        case.check(case.call(schedule, reuse=True), f"{batch} sequences in turn {turn}")
    made = plans_of_models._plans.values()
    assert len(made) == 5, "one for each power of two"
    assert len({id(plan.space.room) for plan in made}) == 2, "smaller ones have the memory of the largest"


def ones(batch, room=20, width=0, pages=6):
    """Operands of ones, whose results are ones. room: for tokens; or in pages, with tables of this width."""
    like = {"dtype": torch.bfloat16, "device": here()}
    given = {"q": torch.ones(batch, 4, 16, **like), "out": torch.full((batch, 4, 16), float("nan"), **like)}
    given["lengths"] = torch.full((batch,), 9, dtype=torch.int32, device=here())
    given["k"] = torch.ones(pages, 16, 2, 16, **like) if width else torch.ones(batch, room, 2, 16, **like)
    if width:
        given["block_table"] = torch.zeros(batch, width, dtype=torch.int32, device=here())
    return given | {"v": given["k"]}


CHANGES = {
    "tokens": [{"batch": 7}, {"batch": 6, "room": 33}, {"batch": 8, "room": 150}, {"batch": 5, "room": 9}],
    "pages": [{"batch": 7, "width": 3}, {"batch": 6, "width": 2, "pages": 8}, {"batch": 8, "width": 30}],
}


@every_schedule
@pytest.mark.parametrize("cache", CHANGES)
def test_what_changes_between_steps_asks_no_pe_compiles_nothing_and_takes_no_memory(schedule, cache, monkeypatch):
    """The number of sequences up to a known power of two, the room for tokens, pages, and the width of the table."""
    first, *others = CHANGES[cache]
    ops.flash_decode(**ones(**first), schedule=schedule)
    for module, name in (
        (plans_of_models, "require_alike"), (workspace, "Room"), (decode_schedules, "Prepared"), (decode_schedules, "new"),
        (attention_decode, "_checked"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, None)
    for changed in (*others, first, *reversed(others)):
        found = ops.flash_decode(**ones(**changed), schedule=schedule)
        assert torch.equal(found, torch.ones_like(found)), changed
    assert len(plans_of_models._plans) == 1


WRONG = [
    ("k: got shape", {"k": lambda k: k[:-1], "v": lambda v: v[:-1]}),
    ("v: got shape", {"v": lambda v: v[:, 1:].contiguous()}),
    ("k: got strides", {"k": lambda k: k.repeat(1, 2, 1, 1)[:, ::2]}),
    ("lengths: got shape", {"lengths": lambda lengths: lengths[:-1]}),
    ("out: got shape", {"out": lambda out: out[:-1]}),
    ("block_table: got shape", {"block_table": lambda table: table[:-1]}),
    ("block_table: got strides", {"block_table": lambda table: table.repeat(1, 2)[:, ::2]}),
    ("k: got pages of 5 tokens", {"k": lambda k: k[:, :5].contiguous(), "v": lambda v: v[:, :5].contiguous()}),
]


@pytest.mark.parametrize("message, changed", WRONG, ids=[each[0] for each in WRONG])
def test_operands_of_another_batch_are_checked_on_their_own_pe(message, changed):
    width = 2 if "table" in message or "pages" in message else 0
    for batch in (8, 6):
        ops.flash_decode(**ones(batch, width=width))
    given = ones(7, width=width)
    for name, change in changed.items():
        given[name] = change(given[name])
    if shmem.my_pe() == 0:
        with refuses("flash_decode", message):
            ops.flash_decode(**given)
    ops.flash_decode(**ones(7, width=width))


def test_debug_mode_compares_the_number_of_sequences_of_all_pes(monkeypatch):
    ops.flash_decode(**ones(8))
    monkeypatch.setattr(job, "debug", True)
    ops.flash_decode(**ones(7))
    batch = 6 if shmem.my_pe() == 1 else 5
    if shmem.n_pes() > 1:
        with refuses("flash_decode", "q: got 5 sequences on PE 0 and 6 on PE 1"):
            ops.flash_decode(**ones(batch))


def test_a_sequence_with_more_tokens_than_kernels_count_is_refused():
    given = ones(2, width=3)
    given["block_table"] = torch.empty(2, 1 << 25, dtype=torch.int32, device=here())  # not touched: it takes no memory
    with refuses("flash_decode", "block_table: got room for 536870912 tokens; expected up to 268435456"):
        ops.flash_decode(**given)


def test_teams_of_some_pes_share_their_tokens(smaller_teams):
    for team in smaller_teams:
        for schedule in SCHEDULES if team else ():
            case = Case(team=team)
            for _ in range(3):
                case.check(case.call(schedule), schedule)


@every_schedule
def test_no_sequences_give_an_empty_result(schedule):
    assert Case(0).call(schedule).shape == (0, 4, 16)


def operands():
    k, v = (torch.ones(2, 5, 2, 16, device=here()) for _ in range(2))
    return {"q": torch.ones(2, 4, 16, device=here()), "k": k, "v": v}


REFUSED = [
    ("q: got int; expected a torch tensor", {"q": 1}),
    (r"q: got shape \(4, 16\); expected shape \(batch, heads, dim\)", {"q": torch.ones(4, 16)}),
    ("q: got torch.float64", {"q": torch.ones(2, 4, 16, dtype=torch.float64)}),
    (r"k: got shape \(3, 5, 2, 16\); expected shape \(batch 2, tokens, kv_heads, dim 16\)",
     {"k": torch.ones(3, 5, 2, 16)}),
    ("k: got torch.float16", {"k": torch.ones(2, 5, 2, 16, dtype=torch.float16)}),
    ("k: got 3 heads, with 4 of q", {"k": torch.ones(2, 5, 3, 16), "v": torch.ones(2, 5, 3, 16)}),
    (r"v: got shape \(2, 6, 2, 16\); expected shape \(2, 5, 2, 16\)", {"v": torch.ones(2, 6, 2, 16)}),
    (r"lengths: got shape \(3,\)", {"lengths": torch.ones(3, dtype=torch.int32)}),
    ("lengths: got torch.int64; expected one of torch.int32", {"lengths": torch.ones(2, dtype=torch.int64)}),
    (r"block_table: got shape \(3, 1\); expected shape \(batch 2, pages\)",
     {"block_table": torch.ones(3, 1, dtype=torch.int32)}),
    ("block_table: got torch.int64", {"block_table": torch.ones(2, 1, dtype=torch.int64)}),
    ("k: got pages of 5 tokens; expected a multiple of 16", {"block_table": torch.ones(2, 1, dtype=torch.int32)}),
    ("scale: got 'half'", {"scale": "half"}), ("out: got shape", {"out": torch.ones(2, 4, 8)}),
    ("out: got torch.bfloat16", {"out": torch.ones(2, 4, 16, dtype=torch.bfloat16)}),
    ("schedule: got 'words'; expected auto or fused", {"schedule": "words"}),
    ("team: got", {"team": shmem.TEAM_INVALID}),
]  # fmt: skip


@pytest.mark.parametrize("message, changed", REFUSED, ids=[each[0][:20] for each in REFUSED])
def test_wrong_arguments_are_refused_with_their_name(message, changed):
    given = placed(operands() | changed)
    with refuses("flash_decode", message, shmem.ShmemError):
        ops.flash_decode(**given)


def test_a_result_in_memory_of_q_is_refused():
    given = operands()
    with refuses("flash_decode", "out: got memory of q;"):
        ops.flash_decode(**given, out=given["q"])


def test_a_refusal_of_one_pe_is_raised_on_all():
    """The others would wait in a kernel for it."""
    refused_on_all_pes("flash_decode", operands(), "v")


@pytest.mark.skipif(not GPU, reason="there is no GPU to capture graphs")
@every_schedule
def test_graphs_capture_and_replay_every_schedule(schedule):
    case = Case(3, 32, 8, 128, 500, torch.bfloat16)
    for result in replayed(lambda: case.call(schedule)):
        case.check(result)
