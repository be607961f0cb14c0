"""The checker agrees with the enumeration of all executions of small programs. Whole jobs: docs/checking.md, by test_doc_programs."""

import random

import litmus
import pytest
from pyshmem.check.findings import Findings
from pyshmem.check.words import Word


@pytest.mark.parametrize("n_pes", [2, 3])
def test_checker_finds_a_race_exactly_where_two_executions_differ(n_pes):
    agreed = {True: 0, False: 0}
    for program in litmus.programs(250, seed=n_pes, n_pes=n_pes):
        results = litmus.results(program)
        found = litmus.finds(program, random.Random(0)) if results else None
        if found is not None:
            assert found == (len(results) > 1), program
            agreed[found] += 1
    assert min(agreed.values()) > 20


def word_after(changes):
    """A word with these changes, each of an agent of its own: (operator, operand)."""
    word = Word(8)
    word.value = word.before = 0
    for name, (operator, operand) in zip("abcdef", changes, strict=False):
        word.change(name, operator, operand)
    return word


@pytest.mark.parametrize(
    "least, acquired",
    [(0, []), (1, ["a"]), (2, ["a", "b"]), (7, ["c"]), (8, ["c", "d"]), (9, None)],
)
def test_wait_acquires_from_the_fewest_changes_with_which_its_condition_holds(least, acquired):
    """Additions are based on what was there; a set is not."""
    word = word_after([("add", 1), ("add", 1), ("set", 7), ("add", 1)])
    assert word.seen(lambda value: value >= least, lambda op: False) == acquired


def test_finding_is_suppressed_by_a_comment_with_a_reason_only(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("x = 1  # check: ignore, it is only printed\ny = 2  # check: ignore\n")
    findings = Findings()
    for line in (1, 2):
        findings.held(0, findings.site(str(program), line, "f"))
    assert [found.reason for found in findings] == ["it is only printed", ""]
