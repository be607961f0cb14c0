"""The list of mutants fits the code. tests/mutants/run.py tries them."""

import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "mutants"))
from mutants import MUTANTS
from run import ROOT, command_of, place_of, pattern_of


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_applies_once_and_names_tests_that_there_are(mutant):
    path, text = place_of(mutant)
    assert text != path.read_text()
    command, _ = command_of(mutant.tests)
    names = re.findall(r"def (test_\w+)", (ROOT / command[-1]).read_text())
    words = command[command.index("-k") + 1].split(" and ")
    assert any(all(word in name for word in words) for name in names)


def test_names_of_mutants_are_different():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("text", ["a = f(b, c)  # d", "a = f(\n    b, c\n)  # d", "a = f(b, \\\n  c) # d"])
def test_a_text_is_found_however_it_is_broken_into_lines(text):
    assert pattern_of("a = f(b, c) # d").fullmatch(text)
