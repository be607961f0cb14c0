"""What calls wrote to memory and later ones read again: by ranges that are known, and by programs whose bytes are counted by hand."""

import json
from itertools import count
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings, strategies as st
from jobs import mpiexec
from pyshmem.timelines.report import taxes as command
from pyshmem.ops.gemm.copy_engine import DEEP
from pyshmem.ops.gemm.problem import Operand, Options, Problem
from pyshmem.ops.gemm.plan import bytes_reread
from pyshmem.ops.gemm.scaling import NONE
from pyshmem.timelines import locality, reading, taxes
from pyshmem.timelines.events import ENDS, HOST, PLAN, READS, WRITES, Event

MEGA = 1 << 20


def calls_of(*steps, pe=0):
    """Events of calls of one thread, one after the other: (name, reads, writes, plans), with ranges as (start, end)."""
    events, time = [], count(1, 10)
    for name, reads, writes, *plans in steps:
        begin = next(time)
        events.append(event(name, begin, begin + 9, pe))
        events += [event(name, begin, begin, pe, READS, start, end - start) for start, end in reads]
        events += [event(name, begin, begin + 9, pe, WRITES, start, end - start) for start, end in writes]
        events += [event(plan, begin + 5, begin + 5, pe, PLAN, 0, nbytes) for plan, nbytes in plans]
    return sorted(events, key=lambda each: (each.begin, -each.end))


def event(name, begin, end, pe=0, op=0, place=0, nbytes=0, thread=7):
    return Event(pe, begin, end, nbytes, place, 0, 0, -1, name, thread, op, 0, HOST)


def found(events):
    """(name, plan, within, earlier) of the calls that read something again, in their order."""
    again = locality.read_again(events)
    return [(each.name, *again[id(each)]) for each in events if id(each) in again]


def test_bytes_count_where_ranges_overlap_and_for_the_last_call_that_wrote_them():
    events = calls_of(
        ("a", [], [(0, 100)]),
        ("b", [], [(50, 150)]),
        ("c", [(20, 130)], []),  # 30 bytes of a, 80 of b
        ("d", [(0, 200)], []),  # the rest: 20 of a, 20 of b
        ("e", [(0, 200)], []),
    )
    assert found(events) == [("c", "", 0, {"a": 30, "b": 80}), ("d", "", 0, {"a": 20, "b": 20})]


def test_a_range_that_is_overwritten_before_it_is_read_counts_once():
    assert found(calls_of(("a", [], [(0, 64)]), ("b", [], [(0, 64)]), ("c", [(0, 64)], []))) == [
        ("c", "", 0, {"b": 64})
    ]


def test_a_call_that_is_made_twice_reads_what_it_wrote_before_and_not_what_it_writes():
    events = calls_of(*[("step", [(0, 64)], [(0, 64)])] * 3, ("other", [(64, 128)], []))
    assert found(events) == [("step", "", 0, {"step": 64})] * 2


def test_memory_of_a_result_that_has_ended_is_not_that_calls_any_more():
    events = calls_of(("a", [], [(0, 64)]), ("b", [(0, 64)], []))
    ended = event("call 0", 10, 10, op=ENDS, place=0, nbytes=16)
    assert found(sorted([*events, ended], key=lambda each: (each.begin, -each.end))) == [("b", "", 0, {"a": 48})]


def test_calls_within_a_call_are_part_of_it_and_threads_and_pes_have_their_own():
    inner = [event("inner", 3, 5), event("inner", 3, 5, op=WRITES, place=0, nbytes=64), event("inner", 6, 8),
             event("inner", 6, 6, op=READS, place=0, nbytes=64)]  # fmt: skip
    later = [event("later", 20, 30, thread=8), event("later", 20, 20, op=READS, nbytes=32, thread=8),
             event("later", 20, 30, pe=1), event("later", 20, 20, pe=1, op=READS, place=32, nbytes=32)]  # fmt: skip
    assert found([event("outer", 1, 10), *inner, *later]) == [("later", "", 0, {"outer": 32})]


def test_of_an_operator_only_its_own_operands_and_results_count_and_the_plans_within_it():
    operator, later = "shmem.ops.f", "shmem.put"
    events = [event(operator, 1, 10), event("shmem.reduce_on_stream", 3, 5), event("shmem.reduce_on_stream", 3, 5, op=WRITES, nbytes=64),
              event("f by bulk", 6, 6, op=PLAN, nbytes=16), event(later, 20, 30), event(later, 20, 20, op=READS, nbytes=64)]  # fmt: skip
    assert found(events) == [(operator, "f by bulk", 16, {})]
    own = event(operator, 1, 10, op=WRITES, nbytes=32)
    assert found([events[0], own, *events[1:]]) == [(operator, "f by bulk", 16, {}), (later, "", 0, {"f by bulk": 32})]


def test_plans_name_their_calls_and_their_bytes_add_up():
    events = calls_of(
        ("shmem.ops.f", [], [(0, 64)], ("f by fused", 0)),
        ("shmem.ops.g", [(0, 64)], [], ("g by bulk", 8), ("g by bulk", 4)),
    )
    assert found(events) == [("shmem.ops.f", "f by fused", 0, {}), ("shmem.ops.g", "g by bulk", 12, {"f by fused": 64})]


ranges = st.tuples(st.integers(0, 40), st.integers(1, 12)).map(lambda each: (each[0], sum(each)))


@settings(max_examples=300)
@given(st.lists(st.tuples(st.lists(ranges, max_size=2), st.lists(ranges, max_size=2)), max_size=12))
def test_any_ranges_count_as_byte_by_byte(steps):
    who, expected = {}, []
    for number, (reads, writes) in enumerate(steps):
        earlier = {}
        for start, end in reads:
            for byte in range(start, end):
                if byte in who:
                    writer = who.pop(byte)
                    earlier[writer] = earlier.get(writer, 0) + 1
        for start, end in writes:
            who |= dict.fromkeys(range(start, end), f"call {number}")
        if earlier:
            expected.append((f"call {number}", "", 0, earlier))
    assert found(calls_of(*((f"call {number}", *step) for number, step in enumerate(steps)))) == expected


PROGRAM = """
import torch
import pyshmem as shmem
from pyshmem import ops
from pyshmem.ops import torch as tp

shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
a, b = torch.rand(64, 64), torch.rand(64, 64)
out, inbox = shmem.zeros(64 * n, 64), shmem.zeros(64, 64)
for schedule in "bulk_synchronous", "fused":
    with shmem.trace(schedule + ".json"):
        ops.gemm_all_gather(a, b, out=out, schedule=schedule)
        rows = ops.gemm_reduce_scatter(out, b, schedule=schedule)
        shmem.put(inbox, rows, (me + 1) % n, size=32 * 64)
        ops.gemm_all_gather(a, b, schedule=schedule)
plan = ops.plan("gemm_all_gather", a, b, schedule="bulk_synchronous")
with shmem.trace("plans.json"):
    for _ in range(2):
        plan(plan(a, b, out=out)[:64].T, b, out=out)
with shmem.trace("ended.json"):
    kept = ops.all_gather_gemm(a, b)
    other = ops.all_gather_gemm(a, b).data  # a tensor in the memory of a result that ends at once
    ops.gemm_reduce_scatter(other, b)
    view = kept.view(n, 64, 64)
    del kept
    ops.gemm_reduce_scatter(view.view(64 * n, 64), b)
with shmem.trace("collectives.json"):
    shmem.fcollect(out, inbox)
    shmem.sum_reduce(inbox, out[:64])
    shmem.sum_reduce(inbox, inbox, size=64)
    shmem.get(out[:64], inbox, (me + 1) % n)
    shmem.put(inbox[:4], out[:4], (me + 1) % n)
    shmem.put(inbox, out[:64], (me + 1) % n)
with shmem.trace("layer.json"):
    ops.all_gather_gemm(a.requires_grad_(), b).sum().backward()
    tp.all_gather_gemm(a, b)
x, residual, weight = torch.rand(64, 64), torch.rand(64, 64), torch.rand(64)
for schedule in "bulk_synchronous", "push":
    with shmem.trace("norm " + schedule + ".json"):
        y, h = ops.all_reduce_rms_norm(x, residual, weight, schedule=schedule)
        ops.all_reduce_rms_norm(y, h, weight, schedule=schedule)
for schedule in "bulk_synchronous", "push", "pull":
    with shmem.trace("shares " + schedule + ".json"):
        ops.reduce_scatter_rms_norm_all_gather(x, residual[: 64 // n], weight, schedule=schedule)
tokens = torch.rand(1, 64, 2, 16)
with shmem.trace("attention.json"):
    for schedule in "bulk_synchronous", "copy_engine", "library":
        ops.attention(tokens, tokens, tokens, causal=True, order="contiguous", schedule=schedule)
q, k, v = torch.rand(2, 4, 16), torch.rand(2, 128, 2, 16), torch.rand(2, 128, 2, 16)
with shmem.trace("decode.json"):
    for schedule in "bulk_synchronous", "fused":
        ops.flash_decode(q, k, v, schedule=schedule)
"""
WITH_TORCH = """
import torch
import pyshmem as shmem
from pyshmem import ops

shmem.init()
n = shmem.n_pes()
a, b, places = torch.rand(64, 64), torch.rand(64, 64), torch.arange(64 * n)
out = shmem.zeros(64 * n, 64)
ops.gemm_all_gather(a, b, out=out)
ops.gemm_reduce_scatter(out, b)
with shmem.trace("out.json"):
    ops.gemm_all_gather(a, b, out=out)
    hidden = torch.relu(out)  # reads all of it, and writes as much
    hidden.add_(1)  # both, too
    hidden[:64].copy_(a)  # which nobody wrote, into a half
    chosen = hidden[places]  # of hidden nothing is known
    rows = ops.gemm_reduce_scatter(hidden, b)
    del hidden
    again = torch.empty(64 * n, 64)
    torch.add(again, 1, out=out)
    ops.gemm_reduce_scatter(out, b)
hidden = torch.relu(rows)
with shmem.trace("next.json"):
    torch.sigmoid(rows)
"""
ITEM, N = 4, 2
BLOCK = 64 * 64 * ITEM  # of a PE
WRITTEN = "gemm_all_gather by bulk_synchronous"


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """What was read again in each timeline, by PE and name."""
    folder = tmp_path_factory.mktemp("locality")
    status, _, err = mpiexec(N, PROGRAM, tmp_path=folder)
    assert status == 0, err
    read = {path.stem: locality.by_calls(reading.read(path)[0]) for path in folder.glob("*.json")}
    metadata = {path.stem: json.loads(path.read_text())["metadata"] for path in folder.glob("*.json")}
    for name, each in metadata.items():
        totals = {str(pe): {call: row.nbytes for call, row in own.items()} for pe, own in read[name].items()}
        assert each["read_again_bytes"] == totals
    return read


@pytest.mark.parametrize("pe", range(N))
def test_bulk_synchronous_reads_its_product_again_and_fused_only_the_result_that_is_copied(rows, pe):
    bulk, fused = (rows[schedule][pe] for schedule in ("bulk_synchronous", "fused"))
    # a product of 64 rows is sent; the result of both PEs' rows is copied in the second call
    assert bulk[WRITTEN] == (2, BLOCK + (BLOCK + N * BLOCK), {})
    assert fused["gemm_all_gather by fused"] == (2, N * BLOCK, {})
    # parts of all rows, and a slot of the peer's part; what the first product wrote is the operand of the second one
    assert bulk["gemm_reduce_scatter by bulk_synchronous"] == (1, N * BLOCK + BLOCK, {WRITTEN: N * BLOCK})
    assert fused["gemm_reduce_scatter by fused"] == (1, 0, {"gemm_all_gather by fused": N * BLOCK})
    for name, each in ("bulk_synchronous", bulk), ("fused", fused):
        assert each["put"] == (1, None, {f"gemm_reduce_scatter by {name}": BLOCK // 2})


def test_a_plan_that_is_called_again_reads_what_its_last_call_wrote(rows):
    # each call but the first reads the first 64 rows of the result before, or b, which nobody wrote
    assert rows["plans"][0] == {WRITTEN: (4, 4 * BLOCK, {WRITTEN: 2 * BLOCK})}


def test_memory_that_another_tensor_has_got_is_not_read_again_and_a_view_of_a_result_is(rows):
    writer = "all_gather_gemm by bulk_synchronous"
    assert rows["ended"][0]["gemm_reduce_scatter by bulk_synchronous"].writers == {writer: N * BLOCK}


def test_collectives_gets_and_puts_read_and_write_whole_arrays_of_4_kib_or_more(rows):
    # fcollect wrote out; sum_reduce read 64 rows of it and wrote inbox; get wrote these rows, which puts read
    assert rows["collectives"][0] == {"sum_reduce": (1, None, {"fcollect": BLOCK}), "put": (1, None, {"get": BLOCK})}


def test_a_differentiable_call_and_one_within_a_call_of_ops_torch_have_their_plan_once(rows):
    name = "all_gather_gemm by bulk_synchronous"
    assert rows["layer"][0][name][:2] == (2, 2 * N * BLOCK)


def test_norms_by_bulk_synchronous_read_the_copy_of_x_and_its_sum_again_and_by_push_nothing(rows):
    name = "all_reduce_rms_norm by"
    assert rows["norm bulk_synchronous"][0] == {
        f"{name} bulk_synchronous": (2, 2 * 2 * BLOCK, {f"{name} bulk_synchronous": 2 * BLOCK})}  # fmt: skip
    assert rows["norm push"][0] == {f"{name} push": (2, 0, {f"{name} push": 2 * BLOCK})}


def test_norms_of_shares_read_what_is_gathered_and_copied_again(rows):
    share, name = BLOCK // N, "reduce_scatter_rms_norm_all_gather by"
    # x is copied; then the share's sum, its normalised rows, all rows that are gathered
    assert rows["shares bulk_synchronous"][0][f"{name} bulk_synchronous"].within == BLOCK + share + share + BLOCK
    assert rows["shares push"][0][f"{name} push"].within == BLOCK  # the result is copied out of the plan's memory
    assert rows["shares pull"][0][f"{name} pull"].within == 2 * BLOCK  # x, too


def test_attention_reads_the_keys_and_values_that_its_queries_see_again_and_what_it_merges(rows):
    own = 2 * 64 * 2 * 16 * ITEM  # keys and values of 64 tokens with 2 heads of 16
    within = [
        {name.removeprefix("attention by "): row.within for name, row in rows["attention"][pe].items()}
        for pe in range(N)
    ]
    assert within[0] == {"bulk_synchronous": 2 * own, "copy_engine": own, "library": 0}  # its queries come first
    merged = N * 64 * 2 * (16 + 1) * ITEM  # two results, and the sum of weights of each row
    assert within[1] == {"bulk_synchronous": 3 * own, "copy_engine": 2 * own, "library": own + merged}


def test_decoding_in_one_kernel_leaves_nothing_and_in_four_its_parts(rows):
    values = 17 * ITEM  # of a head: 16 elements, and the logarithm of the sum of weights
    splits, heads = 5, 2 * 4  # the interpreter has room for 5 programs, and 4 groups of heads
    within = {name: row.within for name, row in rows["decode"][0].items()}
    assert within == {"flash_decode by bulk_synchronous": (splits + 1 + N) * heads * values, "flash_decode by fused": 0}


def test_with_torch_its_operators_are_calls_that_read_and_write_and_compute(tmp_path):
    status, _, err = mpiexec(N, WITH_TORCH, tmp_path=tmp_path, environment={"PYSHMEM_TRACE_TORCH": "1"})
    assert status == 0, err
    calls, _, _ = reading.read(tmp_path / "out.json")
    row = locality.by_calls(calls)[0]
    half, product = N * BLOCK // 2, "gemm_reduce_scatter by bulk_synchronous"
    assert row["torch.relu"] == (1, None, {WRITTEN: N * BLOCK})
    assert row["torch.add_"] == (1, None, {"torch.relu": N * BLOCK})
    assert row[product].writers == {"torch.add_": half, "torch.copy_": half, "torch.add": N * BLOCK}
    assert set(row) == {"torch.relu", "torch.add_", WRITTEN, product}
    (relu,) = (each for each in calls if each.pe == 0 and each.name == "torch.relu")
    parts = taxes.divided(calls).parts[0]
    assert relu.kind == "torch" and parts["computing"] >= relu.end - relu.begin
    calls, _, _ = reading.read(tmp_path / "next.json")
    assert [each.name for each in calls] == ["torch.sigmoid"] * N


# elements of this PE's memory, of two PEs: M 10, N 6, K 8, this PE's share of M is 5, of N 3, of K 4
REREAD = {
    ("gemm_all_gather", "rows", "bulk_synchronous"): 5 * 6,  # the product's rows, which are sent
    ("gemm_all_gather", "rows", "copy_engine"): 5 * 6,
    ("gemm_all_gather", "rows", "fused"): 0,
    ("gemm_all_gather", "columns", "bulk_synchronous"): 10 * 3,
    ("all_gather_gemm", "rows", "bulk_synchronous"): 10 * 8,  # all rows are copied, then multiplied
    ("all_gather_gemm", "rows", "copy_engine"): 5 * 8,  # those of the peer
    ("all_gather_gemm", "rows", "fused"): 0,
    ("gemm_reduce_scatter", "rows", "bulk_synchronous"): 10 * 6 + 5 * 6,  # parts, and the slot of the peer's
    ("gemm_reduce_scatter", "rows", "copy_engine"): 10 * 6 + 5 * 6,
    ("gemm_reduce_scatter", "rows", "fused"): 0,
    ("gemm_all_reduce", "rows", "bulk_synchronous"): 10 * 6,
    ("gemm_all_reduce", "rows", "fused"): 0,
}


def problem(operator, split, schedule, **more):
    m = 5 if (operator, split) == ("gemm_all_gather", "rows") or operator == "all_gather_gemm" else 10
    k = 4 if operator in ("gemm_reduce_scatter", "gemm_all_reduce") else 8
    n = 3 if split == "columns" or operator == "all_gather_gemm" else 6
    operand = Operand(True, k, True, torch.float16)
    team = SimpleNamespace(size=2, me=0)
    made = Problem(
        operator, 10, 6, 8, m, n, k, torch.float16, operand, operand, NONE, team, split, Options(schedule), True
    )
    return made._replace(**more)


@pytest.mark.parametrize("known", REREAD, ids=" ".join)
def test_what_the_kernels_of_a_product_leave_for_each_other_is_known_by_its_schedule(known):
    assert bytes_reread(problem(*known)) == REREAD[known] * torch.float16.itemsize


def test_a_product_that_adds_to_the_slot_of_its_peer_reads_no_part_of_its_own():
    assert bytes_reread(problem("gemm_reduce_scatter", "rows", "copy_engine", k=DEEP)) == 2 * (5 * 6 + 5 * 6)


def test_the_sum_of_an_all_reduce_with_an_epilogue_is_read_again():
    options = Options("bulk_synchronous", epilogue=print)
    assert bytes_reread(problem("gemm_all_reduce", "rows", "", options=options)) == 2 * 2 * 10 * 6


def test_a_pe_alone_sends_nothing_but_copies_columns_and_operands():
    for (operator, split), elements in {("gemm_all_gather", "rows"): 0, ("gemm_all_gather", "columns"): 10 * 6,
                                        ("all_gather_gemm", "rows"): 10 * 8, ("gemm_reduce_scatter", "rows"): 10 * 6,
                                        ("gemm_all_reduce", "rows"): 0}.items():  # fmt: skip
        alone = problem(operator, split, "bulk_synchronous", m=10, n=6, k=8, team=SimpleNamespace(size=1, me=0))
        assert bytes_reread(alone) == 2 * elements


def test_the_command_prints_bytes_and_the_time_that_they_take_at_a_rate_of_memory(tmp_path, capsys):
    path, metadata = (
        tmp_path / "out.json",
        {"lost_events": {}, "unfinished_pes": [], "missing_pes": [], "clock_error_us": {}},
    )
    details = {"plan": "f by bulk", "read_again_within": 3 * MEGA, "read_again": {"g": MEGA, "h": 2 * MEGA}}
    slices = [{"name": name, "cat": "operator", "ph": "X", "pid": pe, "tid": 4, "ts": at, "dur": 5, "args": args}
              for pe, at, name, args in ((0, 0, "shmem.ops.f", details), (0, 9, "shmem.put", {"read_again": {"f by bulk": MEGA}}),
                                         (1, 0, "shmem.ops.f", {"plan": "f by bulk"}))]  # fmt: skip
    path.write_text(json.dumps({"metadata": metadata, "traceEvents": slices}))
    assert command.main([str(path), "--memory-rate", "1.048576"]) == 0
    lines = capsys.readouterr().out.splitlines()
    cells = {
        line.split("│")[1].strip(): [each.strip() for each in line.split("│")[2:-1]] for line in lines if "│" in line
    }
    assert cells["f by bulk"] == ["1", "3.15 MB", "3.15 MB", "h", "6000.0"]
    assert cells["put"] == ["1", "-", "1.05 MB", "f by bulk", "1000.0"]
    assert cells["all"] == ["", "3.15 MB", "4.19 MB", "", "7000.0"]
    assert command.main([str(path)]) == 0
    assert "us at" not in capsys.readouterr().out
    with pytest.raises(SystemExit):
        command.main([str(path), "--memory-rate", "0"])
    assert "expected a number above 0" in capsys.readouterr().err
