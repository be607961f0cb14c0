"""The checker agrees with the enumeration of all executions of small programs. Whole jobs: docs/checking.md, by test_doc_programs."""

import json
import os
import pathlib
import random
import subprocess
import sys
from threading import Thread
from types import FunctionType

import labelled
import litmus
import litmus_all
import pyshmem
import pytest
import usual_mistakes
from jobs import python, warm
from pyshmem.check.analyse.agents import Agent, Streams
from pyshmem.check.analyse.analysis import Analysis
from pyshmem.check.analyse.clocks import Knowledge, Message
from pyshmem.check.analyse.findings import Findings
from pyshmem.check.analyse.memory import ATOMIC, FETCH, READ, WRITE, Memory
from pyshmem.check.analyse.places import Block, Blocks
from pyshmem.check.analyse.report import report
from pyshmem.launch.run.command import FOUND
from pyshmem.check.analyse.shadow import Op
from pyshmem.check.spans import overlap, parts
from pyshmem.check.trace import Reading, Trace
from pyshmem.check.analyse.words import Word
from usual_mistakes import RACES


BIN = pathlib.Path(sys.executable).parent


@pytest.mark.parametrize("n_pes", [2, 3])
def test_checker_finds_a_race_exactly_where_two_executions_differ(n_pes):
    agreed, wrong = litmus.disagreements(litmus.programs(250, seed=n_pes, n_pes=n_pes))
    assert not wrong and min(agreed.values()) > 20


@pytest.mark.parametrize("n_pes", [2, 3])
def test_a_wait_tells_only_what_it_tells_in_whichever_order_counted_signals_come(n_pes):
    agreed, wrong = litmus.disagreements(litmus.counted(400, seed=n_pes, n_pes=n_pes))
    assert not wrong and min(agreed.values()) > 20


def test_checker_agrees_about_all_programs_of_up_to_three_operations():
    agreed, wrong = litmus.disagreements(program for count in range(1, 4) for program in litmus.every(count))
    assert not wrong and min(agreed.values()) > 100


def test_checker_agrees_about_all_programs_of_four_operations_that_all_matter():
    agreed, wrong = litmus.disagreements(litmus_all.essential(4))
    assert not wrong and agreed[True] > 2000 and agreed[False] > 700


def test_what_is_forgotten_after_each_event_changes_no_finding(monkeypatch):
    chance = random.Random(1)
    traces = [_at_one_line(litmus.trace(_puts_and_signals(chance), chance)) for _ in range(600)]
    kept = [_found(trace) for trace in traces]
    monkeypatch.setattr(Memory, "is_full", lambda memory: True)
    monkeypatch.setattr("pyshmem.check.analyse.events._FEW", 1)
    assert [_found(trace) for trace in traces] == kept and 200 < sum(len(found) > 1 for found in kept) < 400


def _puts_and_signals(chance):
    """PE 0 puts two words, in any order with fences, quiets and two signals; PE 1 waits for one and reads a word."""
    ops = [("put", chance.choice("xy"), 1) for _ in range(3)]
    ops += [(chance.choice(["fence", "fence", "quiet"]), "", 0) for _ in range(3)]
    ops += [("signal", flag, 1) for flag in "fg"]
    chance.shuffle(ops)
    if chance.random() < 0.3:
        ops.append(("get", chance.choice("xy"), 1))
    return [ops, [("wait", chance.choice("fg"), 0), ("read", chance.choice("xy"), 0)]]


def _at_one_line(trace):
    """The puts are of one line, as in a loop, so that one can stand for another."""
    return [[(*row[:2], 1 if row[1] == "put" else row[2], *row[3:]) for row in rows] for rows in trace]


def _found(trace):
    return sorted((found.kind, *(site.line for site in found.sites)) for found in Analysis(trace).run())


@pytest.mark.parametrize("fences, races", [(True, 0), (False, 1)])
def test_calls_are_in_the_order_of_their_starts_whenever_they_were_written(fences, races):
    """PE 0 writes the place of its second put in the file before that put, at a time after PE 1 has seen its value."""
    sender = [(0, "init", 0, 0, 2), (2, "put", 0, "put", 0, 1, [(0, 16)], [], False, None)]
    sender += [(3, "fence", 0, 0)] if fences else []
    sender += [(9, "site", 1, "program.py", 1, "f"), (6, "put", 1, "p", 0, 1, [(64, 72)], [], False, 1)]
    reader = [(0, "init", 0, 1, 2), (1, "alloc", 0, 0, 128, 0, "zeros")]
    reader += [(8, "wait", 0, [(64, 8, False, 0, 1)], "wait_until"), (10, "acc", 0, "sum", "r", [(1, 0, 16)], None)]
    assert len(list(Analysis([sender, reader]).run())) == races


def test_what_a_pe_did_before_it_was_killed_in_a_barrier_is_known_to_those_who_have_left_it():
    killed = [(0, "init", 0, 0, 2), (2, "put", 0, "put", 0, 1, [(0, 16)], [], False, None)]
    left = [(0, "init", 0, 1, 2), (3, "met", 0, (0, 1, 2), "barrier_all", (), "barrier", -1, [], 4, [])]
    left.append((5, "acc", 0, "sum", "r", [(1, 0, 16)], None))
    assert not list(Analysis([killed, left]).run())


@pytest.mark.parametrize("kind, races", [("acc", 1), ("!acc", 0)])
def test_what_another_thread_does_while_a_kernel_runs_is_the_hosts(kind, races):
    here = [(0, 0, 8)]
    records = [(0, "init", 0, 0, 1), (1, "!launch", 0, "k", "0"), (2, kind, 0, "fill_", "w", here, 1)]
    records += [(3, "!acc", 0, "load", "r", here, None), (4, "!done", 0)]
    assert len(list(Analysis([records]).run())) == races


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_wait_that_gives_up_is_reported_if_the_program_does_not_go_on(goes_on):
    records = [(0, "init", 0, 0, 1), (1, "waits", 0, "wait_until", [(64, 8, False, 0, 1)])]
    records += [(2, "met", 0, (0, 1, 1), "barrier_all", (), "barrier", -1, [], 3, [])] if goes_on else []
    assert len(list(Analysis([records]).run())) == (not goes_on)


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_wait_of_a_kernel_that_gives_up_is_reported_if_its_host_does_not_go_on(goes_on):
    records = [
        (0, "init", 0, 0, 1),
        (1, "!launch", 0, "k", "0"),
        (2, "!waits", 0, "wait_until", [(64, 8, False, 0, 1)]),
    ]
    records += [(3, "!done", 0)]
    records += [(4, "met", 0, (0, 1, 1), "barrier_all", (), "barrier", -1, [], 5, [])] if goes_on else []
    assert len(list(Analysis([records]).run())) == (not goes_on)


@pytest.mark.parametrize("detail, mismatches", [(("float32",), 1), (None, 0)])
def test_a_collective_that_the_team_has_refused_keeps_its_turn(detail, mismatches):
    """PE 1 has been refused a broadcast of another size, and meets PE 0 in the barrier."""
    traces = [[(0, "init", 0, pe, 2), (1, "met", 1, (0, 1, 2), "broadcast", given, "root", -1, [], 2, [])]
              for pe, given in enumerate((("int8",), detail))]  # fmt: skip
    for trace in traces:
        trace.append((3, "met", 2, (0, 1, 2), "barrier_all", (), "barrier", -1, [], 4, []))
    assert len(list(Analysis(traces).run())) == mismatches


def _called(pe, site, begin, end, way, name):
    """A collective of 2 PEs: in "from_all" each writes its own half, in "from_root" PE 0 all of the targets."""
    wrote = [] if way == "sync" else [(pe, 8 * pe, 8 * pe + 8)] if way == "from_all" else [(pe, 0, 16)]
    root = 0 if way == "from_root" else -1
    return begin, "met", site, (0, 1, 2), name, (), way, root, [], end, wrote


@pytest.mark.parametrize("way, races", [("from_all", 1), ("from_root", 1), ("all", 0)])
@pytest.mark.parametrize("read_at", [3, 6])
@pytest.mark.parametrize("met", [False, True])
def test_a_target_that_its_pe_reads_is_written_by_the_next_call_of_others_unless_all_have_met(way, races, read_at, met):
    """PE 0 begins its second call at 5, or, after a sync, at 10. PE 1 reads its target at 3 or 6, and begins the call at 11."""
    traces = []
    for pe, again in enumerate((10 if met else 5, 11)):
        trace = [(0, "init", 0, pe, 2), *((0, "site", line, "a.py", line, "") for line in (1, 2, 3))]
        trace.append(_called(pe, 1, 1, 2, way, "move"))
        trace += [(read_at, "acc", 2, "sum", "r", [(1, 0, 16)], None)] if pe else []
        trace += [_called(pe, 3, 7, 9, "sync", "sync_all")] if met else []
        trace.append(_called(pe, 1, again, 12, way, "move"))
        traces.append(trace)
    found = list(Analysis(traces).run())
    assert len(found) == (0 if met else races)
    assert all(sorted(site.line for site in each.sites) == [1, 2] for each in found)


@pytest.mark.parametrize("by_flag", [False, True])
@pytest.mark.parametrize("answers_at, races", [(4, 0), (2.5, 1)])
def test_a_source_is_free_when_the_pe_that_has_seen_its_signal_has_answered(by_flag, answers_at, races):
    """PE 1 sees the signal at 3. PE 0 sees the answer at 6, and stores into the source at 7."""
    source = [(-1, 0, 64)]
    sender = [(0, "init", 0, 0, 2)]
    if by_flag:
        sender += [(2, "put", 0, "put_nbi", 0, 1, [(0, 64)], source, True, None), (2.1, "fence", 0, 0)]
        sender.append((2.2, "amo", 0, "signal_set", 0, 1, 64, 8, "set", 1, None, 8))
    else:
        sender.append((2, "putsig", 0, "put_signal_nbi", 0, 1, [(0, 64)], source, True, 64, 8, "set", 1))
    sender += [(6, "wait", 0, [(72, 8, False, 0, 1)], "wait_until"), (7, "acc", 0, "fill_", "w", source, None)]
    answer = answers_at, "amo", 0, "signal_set", 0, 0, 72, 8, "set", 1, None, 8
    reader = [(0, "init", 0, 1, 2), (3, "wait", 0, [(64, 8, False, 0, 1)], "wait_until"), answer]
    assert len(list(Analysis([sender, reader]).run())) == races


@pytest.mark.parametrize("operator, races", [("add", 1), ("set", 1)])
@pytest.mark.parametrize("fences", [False, True])
def test_a_wait_for_one_of_two_messages_tells_nothing_of_its_data_unless_a_fence_orders_them(operator, races, fences):
    """The second put_signal, after the wait in this run, may come before the first and end the wait in its place."""
    sender = [(0, "init", 0, 0, 2), (2, "putsig", 0, "put_signal", 0, 1, [(0, 64)], [], False, 192, 8, operator, 1)]
    sender += [(5, "fence", 0, 0)] if fences else []
    sender.append((6, "putsig", 0, "put_signal", 0, 1, [(64, 128)], [], False, 192, 8, operator, 2))
    reader = [(0, "init", 0, 1, 2), (1, "alloc", 0, 0, 256, 0, "zeros")]
    reader += [(3, "wait", 0, [(192, 8, False, 3, 1)], "wait_until"), (4, "acc", 0, "sum", "r", [(1, 0, 64)], None)]
    assert len(list(Analysis([sender, reader]).run())) == (0 if fences else races)


@pytest.mark.parametrize("full", [False, True])
def test_a_signal_of_a_later_kernel_ends_no_wait_of_one_that_all_know_to_have_ended(full, monkeypatch):
    """Two kernels of two programs, a barrier between them; the second signal has a value that ends the first wait, too."""
    monkeypatch.setattr(Memory, "is_full", lambda memory: full)
    records = [(0, "init", 0, 0, 1), (1, "alloc", 0, 0, 256, 0, "zeros")]
    for time, epoch in ((10, 1), (20, 2)):
        records += [(time, "!launch", 0, "k", "0"), (time + 1, "!acc", 0, "store", "w", [(0, 0, 64)], None)]
        records += [(time + 2, "!signal", 0, "signal_set", 0, 192, "set", epoch), (time + 3, "!launch", 0, "k", "1")]
        records.append((time + 4, "!wait", 0, [(192, 8, False, 3, epoch)], "signal_wait_until"))
        records += [(time + 5, "!acc", 0, "load", "r", [(0, 0, 64)], None), (time + 6, "!done", 0)]
        records.append((time + 7, "met", 0, (0, 1, 1), "barrier_all", (), "barrier", -1, [], time + 8, []))
    assert not list(Analysis([records]).run())


def test_what_messages_say_in_common_includes_what_the_end_of_a_kernel_tells():
    """Stream 5 has ended at number 3 of stream 1."""
    streams = Streams()
    streams.ended[5] = 1, 3
    first = Message({5: 2, 7: 4, 9: 1}, {5: {4}, 8: {1}})
    second = Message({1: 3, 7: 2}, {8: {1, 2}, 9: {1}})
    for told in streams.common(first, second), streams.common(second, first):
        assert told == Message({5: 2, 7: 2}, {5: {4}, 8: {1}, 9: {1}})


def test_threads_write_their_records_whole_while_the_file_grows(tmp_path):
    trace = Trace(str(tmp_path))
    writers = [
        Thread(target=lambda who=who: [trace.write((who, each, "x" * 97)) for each in range(4000)]) for who in range(4)
    ]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    trace.write((4, 0, "x" * 3_000_000))  # more than the file grows by at once
    records = [record[:2] for record in Reading(trace.path)]
    assert sorted(records) == [*((who, each) for who in range(4) for each in range(4000)), (4, 0)]


SPANS = [(0, 64), (8, 24), (0, 4, 16, 4), (4, 8, 16, 3), (0, 100), (60, 61), (2, 6, 8, 8), (0, 16, 8, 4)]


@pytest.mark.parametrize("seed", range(20))
def test_memory_reports_the_pairs_that_a_memory_of_single_bytes_reports(seed):
    """Ranges and rows, accessed by two agents that learn of each other at times."""
    chance, reports = random.Random(seed), {"ranges": [], "bytes": []}
    memories = {
        name: Memory(lambda old, new, *rest, found=found: found.append((old, new))) for name, found in reports.items()
    }
    agents = [Agent(streams, pe, "", Knowledge({}, {})) for streams in [Streams()] for pe in range(2)]
    for turn in range(60):
        agent, span = chance.choice(agents), chance.choice(SPANS)
        kind = chance.choice([READ, READ, WRITE, ATOMIC, FETCH])
        op = Op(agent.own.id, agent.clock, kind, agent, turn, "", 8 if kind in (ATOMIC, FETCH) else 0)
        memories["ranges"].access(op, agent, 0, span)
        for place in sorted({place for start, end in parts(span) for place in range(start, end)}):
            memories["bytes"].access(op, agent, 0, (place, place + 1))
        agent.touched = True
        if chance.random() < 0.3:
            agents[1 - agent.pe].acquire(agent.release(-1, all_stores=True))
        if chance.random() < 0.05:
            for memory in memories.values():
                memory.spaces[0].sweep(
                    lambda op: all(agent.knows(op.stream, op.number) for agent in agents), lambda op: op
                )
    assert set(reports["ranges"]) == set(reports["bytes"]) and reports["ranges"]


@pytest.mark.parametrize(
    "first, second, common",
    [((0, 8), (4, 12), (4, 8)), ((0, 8), (8, 16), None), ((0, 8), (0, 8), None), ((0, 4, 8, 4), (4, 8, 8, 4), None),
     ((0, 4, 8, 4), (6, 10, 8, 3), (24, 26))],
)  # fmt: skip
def test_overlap_names_bytes_of_both_spans(first, second, common):
    assert overlap(first, second) == common


@pytest.mark.parametrize("signal, races", [("kernel", 0), ("host", 2)])
def test_signals_of_kernels_release_what_the_program_has_stored_here_and_there(signal, races):
    """PE 1 reads data on both PEs behind the signal. Data that the program has put on a third PE is not covered."""
    words = {
        "kernel": ("signal", 0, "signal_set", 1, 64, "set", 1),
        "host": ("amo", 0, "signal_set", 0, 1, 64, 8, "set", 1, None, 8),
    }
    sender = [
        (0, "init", 0, 0, 3),
        (1, "site", 1, "a.py", 1, ""),
        (1, "site", 2, "a.py", 2, ""),
        (1, "site", 3, "a.py", 3, ""),
    ]
    sender += [(2, "put", 1, "put", 0, 1, [(0, 16)], [], False, None), (3, "acc", 2, "store", "w", [(0, 0, 16)], None)]
    sender += [(4, "put", 3, "put", 0, 2, [(0, 16)], [], False, None), (5, *words[signal])]
    reader = [(0, "init", 0, 1, 3), (8, "wait", 0, [(64, 8, False, 0, 1)], "wait_until")]
    reader += [(9 + pe, "get", 0, "get", 0, pe, [(0, 16)], [], False) for pe in range(3)]
    found = [found.sites[0].line for found in Analysis([sender, reader, [(0, "init", 0, 2, 3)]]).run()]
    assert sorted(found) == [1, 2, 3][-1 - races :]


def test_a_new_block_takes_the_place_of_all_that_it_overlaps():
    blocks = Blocks()
    for start, end in ((0, 64), (64, 128), (256, 320), (0, 100)):
        blocks.add(Block(start, end, 1, "zeros"))
    assert [blocks.fault(span) for span in ((90, 100), (90, 101), (100, 101), (256, 260), (0, 4, 50, 2), (0, 4, 50, 3))] == [
        "", "across", "freed", "", "", "across"
    ]  # fmt: skip


def word_after(changes):
    """A word with these changes, each of an agent of its own: (operator, operand)."""
    word = Word(8)
    word.value = word.before = 0
    for name, (operator, operand) in zip("abcdef", changes, strict=False):
        word.change(name, operator, operand)
    return word


@pytest.mark.parametrize(
    "least, acquired", [(0, []), (1, ["a"]), (2, ["a", "b"]), (7, ["c"]), (8, ["c", "d"]), (9, None)]
)
def test_wait_acquires_from_the_fewest_changes_with_which_its_condition_holds(least, acquired):
    """Additions are based on what was there; a set is not."""
    word = word_after([("add", 1), ("add", 1), ("set", 7), ("add", 1)])
    assert word.seen(lambda value: value >= least, lambda op: False) == acquired


def test_wait_after_a_wait_acquires_only_what_has_come_since():
    word = word_after([("add", 1), ("add", 1), ("add", 1), ("add", 1)])
    assert word.seen(lambda value: value >= 2, lambda op: False, 7) == ["a", "b"]
    assert word.seen(lambda value: value >= 3, lambda op: False, 7) == ["c"]
    word.forget(lambda op: op in "ab")
    assert word.seen(lambda value: value >= 4, lambda op: False, 7) == ["d"]
    assert word.seen(lambda value: value >= 4, lambda op: False, 8) == ["c", "d"]


def test_wait_acquires_no_addition_that_its_condition_does_not_need():
    """2 alone is enough, whichever came first."""
    word = word_after([("add", 1), ("add", 2), ("add", 1)])
    assert word.seen(lambda value: value >= 2, lambda op: False, 7) == ["b"]
    assert word.seen(lambda value: value >= 3, lambda op: op == "b", 7) == ["a", "b"]


def test_fetch_after_a_fetch_acquires_only_what_has_come_since():
    word = word_after([("add", 1), ("add", 1), ("set", 7), ("fetch_add", 1)])
    assert word.found(2, None, 7) == ["a", "b"]
    assert word.found(8, word.changes[3].op, 7) == [] and word.found(8, None, 7) == ["c", "d"]
    assert word.found(8, None, 7) == [] and word.found(8, None, 8) == ["c", "d"]


@pytest.mark.parametrize("seen, acquired", [(2, ["a", "b"]), (9, ["a", "b", "c"]), (5, [])])
def test_fetch_beside_a_compare_swap_that_has_not_returned(seen, acquired):
    """What the swap would have left comes from it, else what was there before it does."""
    word = word_after([("add", 1), ("add", 1), ("compare_swap", 9)])
    assert word.found(seen, None) == acquired


def test_fetch_takes_no_older_value_where_another_one_has_come_between():
    """The swap has taken effect and not returned; the word held its value before, and then another one."""
    assert word_after([("set", 9), ("set", 0), ("compare_swap", 9)]).found(9, None) == ["b", "c"]


def test_a_fetching_operation_tells_the_value_of_the_word_again():
    word = word_after([("update", None), ("fetch_add", 1)])
    assert word.value is None
    word.settle(word.changes[1].op, word.result("fetch_add", 1, 4))
    assert word.value == 5 and word.found(5, None) == ["a", "b"]


def test_a_swap_that_has_changed_nothing_hides_no_later_change():
    """What an agent has caught stays what it was when a change before it turns out to be none."""
    word = word_after([("compare_swap", 9), ("set", 1)])
    assert word.found(1, None, 7) == ["b"]
    word.settle("a", None)
    word.change("c", "set", 0)
    assert word.found(0, None, 7) == ["c"]


@pytest.mark.parametrize("everything, counted", [(False, 1), (True, 2)])
def test_findings_inside_operators_count_for_check_all_only(everything, counted, tmp_path, capsys):
    """A trace with two locks that are held at the end: one by the program, one by a line of pyshmem.ops."""
    records = [
        (0, "init", 0, 0, 1),
        (1, "site", 1, "/home/program.py", 1, "f"),
        (1, "site", 2, "/lib/pyshmem/ops/a.py", 1, "g"),
    ]
    records += [(2, "lock", 1, 64), (3, "lock", 2, 128)]
    trace = Trace(str(tmp_path))
    for record in records:
        trace.write(record)
    assert report(tmp_path, str(tmp_path / "found.json"), everything) == counted
    assert ("; 1 between lines of pyshmem's operators" in capsys.readouterr().out) is not everything
    assert sorted(found["inside_pyshmem"] for found in json.loads((tmp_path / "found.json").read_text())) == [
        False,
        True,
    ]


def test_finding_is_suppressed_by_a_comment_with_a_reason_only(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("x = 1  # check: ignore, it is only printed\ny = 2  # check: ignore\n")
    findings = Findings()
    for line in (1, 2):
        findings.held(0, findings.site(str(program), line, "f"))
    assert [found.reason for found in findings] == ["it is only printed", ""]


@pytest.mark.parametrize("n_pes", ["2", "3"])
def test_checker_finds_the_races_of_labelled_programs_and_no_others(n_pes, tmp_path):
    command = [BIN / "pyshmemrun", "--check", "--check-file", "found.json", "-n", n_pes, *warm(), labelled.__file__]
    environment = {**os.environ, "PYSHMEM_QUIET": "1", "SHMEM_SYMMETRIC_SIZE": "64m", "PYSHMEM_WAIT_TIMEOUT": "60"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, cwd=tmp_path, env=environment)
    assert done.returncode == FOUND, done.stderr
    found = labelled.found(json.loads((tmp_path / "found.json").read_text()))
    programs = {name: program for name, program in labelled.PROGRAMS.items() if len(program.parts) == int(n_pes)}
    assert {name: name in found for name in programs} == {name: program.race for name, program in programs.items()}
    assert len(programs) > 20


REFUSED_WAIT = """
import pyshmem as shmem
shmem.init()
shmem.wait_until(shmem.zeros(1), "==", 0.5)  # float32, of which there are no waits
"""


def test_a_wait_that_is_refused_is_none_that_never_ended(tmp_path):
    launcher = (BIN / "pyshmemrun", "--check", "-n", "2")
    status, out, err = python(REFUSED_WAIT, tmp_path=tmp_path, launcher=launcher)
    assert status == 1 and "DtypeError: wait_until" in err and "no findings" in out + err, out + err


def test_checker_finds_usual_mistakes_and_is_silent_about_what_is_right(tmp_path):
    command = [BIN / "pyshmemrun", "--check", "--check-file", "found.json", "-n", "3", *warm(), usual_mistakes.__file__]
    environment = {**os.environ, "PYSHMEM_QUIET": "1", "SHMEM_SYMMETRIC_SIZE": "64m", "PYSHMEM_WAIT_TIMEOUT": "60"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, cwd=tmp_path, env=environment)
    assert done.returncode == FOUND, done.stderr
    rows = json.loads((tmp_path / "found.json").read_text())
    found = {site["function"].removesuffix("_kernel") for row in rows for site in row["sites"]}
    assert found & RACES.keys() == {name for name, race in RACES.items() if race} and len(RACES) == 41


RACY = """import numpy as np
import pyshmem as shmem

shmem.init()
peer = (shmem.my_pe() + 1) % shmem.n_pes()
data = shmem.zeros(8, dtype=np.float64).numpy()
flag = shmem.zeros(1, dtype=np.int64).numpy()
shmem.put(data, np.ones(8), peer)
shmem.p(flag, 1, peer)
shmem.wait_until(flag, "==", 1)
data.sum()
"""


def test_lines_of_a_program_in_numpy_are_named_in_a_folder_called_as_a_library_too(tmp_path):
    program = tmp_path / "numpy" / "torch" / "race.py"
    program.parent.mkdir(parents=True)
    program.write_text(RACY)
    command = [BIN / "pyshmemrun", "--check", "-n", "2", *warm(), program]
    environment = {**os.environ, "PYSHMEM_QUIET": "1", "SHMEM_SYMMETRIC_SIZE": "64m", "PYSHMEM_WAIT_TIMEOUT": "60"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, cwd=tmp_path, env=environment)
    assert done.returncode == FOUND, done.stderr
    lines = [each for each in done.stdout.splitlines() if " at " in each]
    assert any("put to PE" in line and "race.py:8" in line for line in lines), done.stdout
    assert any("(reads) at " in line and "race.py:11" in line for line in lines), done.stdout


def test_without_check_all_calls_are_the_functions_of_the_api():
    files = {
        name: call.__code__.co_filename
        for name in pyshmem.__all__
        if isinstance(call := getattr(pyshmem, name), FunctionType)
    }
    assert len(files) > 100 and not [name for name, file in files.items() if "/pyshmem/check/" in file]


def test_a_signal_ends_the_analysis_and_leaves_no_traces(tmp_path):
    """It writes its findings to a pipe that nobody reads, and so would never end."""
    os.mkfifo(tmp_path / "findings")
    (tmp_path / "program.py").write_text("import pyshmem as shmem\nshmem.init()\n")
    command = [BIN / "pyshmemrun", "-n", "1", "--check", "--check-file", tmp_path / "findings", tmp_path / "program.py"]
    variables = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) as job:
        assert "pyshmemrun --check: no findings\n" in iter(job.stdout.readline, "")
        job.terminate()
        try:
            assert job.wait(timeout=60) == 143
        finally:
            job.kill()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["findings", "program.py"]
