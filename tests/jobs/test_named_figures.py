"""A figure of speed in README or docs stands beside the name of the row, or of the command, that shows it again."""

import pathlib
import re
import sys
from importlib import import_module

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/learn").glob("*.md"))]
FIGURE = re.compile(r"\d\s?(?:us|µs|ms|[GMT]B/s|Tflop/s)\b|\d times (?:as (?:long|fast)|faster|slower)")
NAME = re.compile(r"\brows? \"|benchmarks\.[a-z]|performance\.md|\bno\s+row\b")


def prose(text):
    """(line, paragraph) of a page, without tables and code."""
    text = re.sub(r"^```.*?^```", _blank, text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)
    for found in re.finditer(r"(?:^.*\S.*\n?)+", text, flags=re.MULTILINE):
        yield text[: found.start()].count("\n") + 1, found[0]


def _blank(found):
    return "\n" * found[0].count("\n")


def unnamed(text, whole_sections=False):
    """The lines of paragraphs with a figure and no name; where ``whole_sections``, a name serves its section."""
    wrong, named = [], False
    for line, paragraph in prose(text):
        named = (named and whole_sections and not paragraph.startswith("#")) or bool(NAME.search(paragraph))
        if FIGURE.search(paragraph) and not named:
            wrong.append(line)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_figures_of_speed_name_the_row_that_shows_them(page):
    """performance.md has a section for each command, which its first paragraphs name."""
    lines = unnamed(page.read_text(), whole_sections=page.stem == "performance")
    assert not lines, f"{page.name}, lines {lines}: name the row or the command, or say that there is no row"


def test_what_counts_as_a_figure_and_as_a_name():
    text = 'A put takes 0.4 us.\n\nA put takes 0.4 us (row "put 8").\n\n| 3 us | |\n\n```\n3 us\n```\n\nIt is 2 times as long.\n'
    assert unnamed(text) == [1, 11]
    assert unnamed("## Of benchmarks.pt2pt\n\nIt takes 3 ms.\n\n## Other\n\nIt takes 4 ms.\n", True) == [7]


ROWS = re.compile(r'\brows? ((?:"[^"]+"(?:, | and )?)+) of\s`benchmarks\.(\w+)`')
NAMED = [
    (page, suite, name)
    for page in PAGES
    for names, suite in ROWS.findall(page.read_text())
    for name in re.findall(r'"([^"]+)"', names)
]


@pytest.mark.parametrize(("page", "suite", "name"), NAMED, ids=[f"{page.stem}: {name}" for page, _, name in NAMED])
def test_rows_that_a_page_names_are_rows_of_the_suite(page, suite, name):
    rows = import_module(f"benchmarks.{suite}").SUITE.rows
    assert any(name in f"{row.group} {row.key}" for row in rows)
