"""The HTML that `make docs` has built: what its start page shows, that its reference is whole, and that its search finds."""

import html
import json
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILT = ROOT / "docs" / "_build"
sys.path.insert(0, str(ROOT / "docs"))
import pages  # noqa: E402

CALLS = {**pages.KNOWN, **{kind: pages.api(module) for kind, (module, *_) in pages.ROOMS.items()}}


def page(name):
    return (BUILT / name).read_text()


def said(markup):
    """The text of a page, without its tags."""
    return html.unescape(re.sub(r"<[^>]*>", "", markup))


def test_the_start_page_shows_a_program_with_its_output_the_install_lines_and_a_picture():
    start = page("index.html")
    programs = [said(each) for each in re.findall(r"<pre>.*?</pre>", start, re.S)]
    for words in (
        "import pyshmem as shmem",
        "PE 0 of 4: 103 from the left",
        "make demo",
        "pip install -c constraints.txt",
    ):
        assert any(words in each for each in programs), words
    (picture,) = re.findall(r'<img[^>]* src="([^"]*pt2pt_put[^"]*)"', start)
    assert (BUILT / picture).is_file()


@pytest.mark.parametrize("kind", CALLS)
def test_each_call_has_a_page_with_its_signature_and_its_index_leads_there(kind):
    index = page(f"reference/{kind}/index.html")
    for name in CALLS[kind]:
        assert f'href="{name}.html' in index, name
        assert 'class="sig-name descname"' in page(f"reference/{kind}/{name}.html"), name
    assert said(index).count("import pyshmem as shmem") >= 1  # a program


def test_the_reference_names_the_words_that_a_call_takes():
    """Such as the six comparisons: not the name of their type alone."""
    wait = said(page("reference/host/wait_until.html"))
    assert all(f'"{sign}"' in wait or f"“{sign}”" in wait for sign in ("==", "!=", ">", ">=", "<", "<="))
    assert "Sign" not in re.search(r"wait_until\([^)]*\)", wait)[0]


@pytest.mark.parametrize("word", ["deadlock", "hang", "signal", "gradient"])
def test_the_search_finds(word):
    text = page("searchindex.js")
    index = json.loads(text[text.index("(") + 1 : text.rindex(")")])
    found = {**index["terms"], **index["titleterms"]}
    assert any(term.startswith(word[:6]) for term in found)


def test_no_line_of_a_program_runs_beyond_the_right_edge():
    style = page("_static/wrap.css")
    assert re.search(r"\.highlight pre\s*{[^}]*white-space: pre-wrap", style)
    for path in BUILT.rglob("*.html"):
        text = path.read_text()
        if "<pre>" in text:
            assert "wrap.css" in text, path


def test_no_column_of_a_table_is_cut_off():
    """Code in cells breaks anywhere, and no other word of a cell is too long for a column of a page's width."""
    style = page("_static/wrap.css")
    assert re.search(r"table\.docutils td code\.literal[^{]*{[^}]*overflow-wrap: anywhere", style)
    for path in BUILT.glob("*.html"):
        for row in re.findall(r"<tr.*?</tr>", path.read_text(), re.S):
            cells = re.findall(r"<t[dh][ >].*?</t[dh]>", row, re.S)
            bare = [said(re.sub(r"<code.*?</code>", "", cell, flags=re.S)) for cell in cells]
            longest = [max(map(len, re.split(r"[\s/-]", text)), default=0) for text in bare]
            assert sum(longest) <= 110, (path.name, bare)
