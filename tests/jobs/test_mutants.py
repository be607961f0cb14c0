"""The list of mutants fits the code, and each compiles. tests/mutants/run.py tries them; here it tries tiny ones."""

import re
import sys
import types
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "mutants"))
import run
from mutants import MUTANTS, Mutant
from run import ENVIRONMENT, ROOT, command_of, pattern_of, place_of


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_applies_once_and_names_tests_that_there_are(mutant):
    path, text = place_of(mutant)
    assert text != path.read_text()
    command, _ = command_of(mutant.tests)
    content = (ROOT / command[-1]).read_text()
    names = re.findall(r"def (test_\w+)", content)
    words = command[command.index("-k") + 1].split(" and ")
    words = [word for word in words if f'"{word}"' not in content]  # the id of a case
    assert any(all(word in name for word in words) for name in names)


def test_names_of_mutants_are_different():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("text", ["a = f(b, c)  # d", "a = f(\n    b, c\n)  # d", "a = f(b, \\\n  c) # d"])
def test_a_text_is_found_however_it_is_broken_into_lines(text):
    assert pattern_of("a = f(b, c) # d").fullmatch(text)


TINY = {
    "pyshmem/native/module.c": '#include "base/one.h"\nint twice(void) { return 2 * one(); }\n',
    "pyshmem/native/base/one.h": "static int one(void) { return 1; }\n",
    "pyshmem/native/_native.abi3.so": "",
    "pyshmem/capi/libpyshmem.so": "",
    "pyshmem/one.py": "def one():\n    return 1\n",
    "setup.py": "import os, sys\n"
    "if 'return 9' in open('pyshmem/native/base/one.h').read():\n    os.kill(os.getpid(), 9)\n"
    "sys.exit('one.o: error: the linker fails')\n",
    "tests/jobs/test_tiny.py": "import runpy\n\n\ndef test_one():\n    assert runpy.run_path('pyshmem/one.py')['one']() > 0\n",
}
OUTCOMES = {  # of a change: whether it is as it must be
    ("pyshmem/*.py", "return 1", "return 0", "one"): ("caught", True),
    ("pyshmem/*.py", "return 1", "return 2", "one"): ("SURVIVED", False),
    ("pyshmem/*.py", "return 1", "return 0", "two"): ("ERROR: its tests end with no test of this name", False),
    ("pyshmem/*.py", "return 3", "return 0", "one"): ("ERROR: does not apply: its text is 0 times", False),
    ("pyshmem/*.py", "return 1", "return 1 +", "one"): ("DOES NOT COMPILE: invalid syntax", False),
    ("pyshmem/native/*.c", "2 * one()", "2 * two", "one"): ("DOES NOT COMPILE: .*module.c:2:.* error: .two. undeclared", False),
    ("pyshmem/native/*/*.h", "return 1;", "return 1", "one"): ("DOES NOT COMPILE: .*one.h:1:.* error: expected .;.", False),
    ("pyshmem/native/*/*.h", "return 1", "return two()", "one"): ("DOES NOT COMPILE: .* error: implicit declaration", False),
    ("pyshmem/native/*/*.h", "return 1", "return 2", "one"): ("DOES NOT COMPILE: one.o: error: the linker fails", False),
    ("pyshmem/native/*/*.h", "return 1", "return 9", "one"): ("ERROR: its build was ended by signal 9", False),
}  # fmt: skip


def tiny_tree(place):
    """A tree of a few lines, with this environment."""
    for name, text in TINY.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (place / ENVIRONMENT.name).symlink_to(ENVIRONMENT)
    return place


@pytest.mark.parametrize("change", OUTCOMES, ids=lambda change: " ".join(change[1:]))
def test_the_outcome_of_a_mutant_is_printed_and_only_one_that_is_caught_is_right(change, tmp_path, monkeypatch, capsys):
    files, old, new, word = change
    monkeypatch.setattr(run, "MUTANTS", [Mutant("tiny", files, old, new, f"jobs tiny {word}")])
    monkeypatch.setattr(run, "copied", tiny_tree)
    monkeypatch.setattr(run, "LOGS", tmp_path)
    monkeypatch.setattr(run, "shutil", types.SimpleNamespace(rmtree=lambda *_, **__: None))  # the copy is looked at
    monkeypatch.setattr(run.signal, "signal", lambda *_: None)
    said, right = OUTCOMES[change]
    assert run.main([]) == (0 if right else 1)
    assert re.match(f"tiny: {said}", out := capsys.readouterr().out), out
    assert {name: (tmp_path / "copy-0" / name).read_text() for name in TINY} == TINY
