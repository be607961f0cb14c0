"""docs/instructions.md shows what the compiler emits."""

import difflib
import re

import emitted
import pytest
import triton

PINNED = re.search(r"(?m)^triton==(.+)$", (emitted.PAGE.parents[1] / "constraints.txt").read_text())[1]


def test_the_memory_model_names_the_triton_it_was_made_with():
    assert set(re.findall(r"\| Triton (\S+) \|", emitted.PAGE.read_text())) == {PINNED}


@pytest.mark.skipif(triton.__version__ != PINNED, reason=f"the page is for Triton {PINNED}")
def test_the_tables_of_the_memory_model_are_what_is_emitted():
    is_now, should_be = emitted.PAGE.read_text(), emitted.page()
    differences = difflib.unified_diff(is_now.splitlines(), should_be.splitlines(), "the page", "emitted", "", "", 0)
    assert is_now == should_be, "run make memory-model:\n" + "\n".join(differences)
