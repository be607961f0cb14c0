"""The reference: each docstring is complete by itself, each call has a page, and links lead to existing files."""

import inspect
import pathlib
import re
import sys
from types import SimpleNamespace

import pytest

from pyshmem.c_names.table import ROWS

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
import calls as listed  # noqa: E402
import pages  # noqa: E402
import progress  # noqa: E402

# (section, routine without the prefix) of the specification's C interface
ROUTINES = {(row.page.split(" ")[0], row.name.replace("<TYPENAME>_", "").removeprefix("shmem_")) for row in ROWS}
SECTIONS = {routine: section for section, routine in ROUTINES}
# parameters that are symmetric memory in every call; what a call does to it has an order and errors
SYMMETRIC = {"target", "dest", "pointers", "ivar", "ivars", "signal", "sig_addr", "lock", "part"}
SHAPE = r"\b(one|block|contiguous|elements?|array|pointers?|word)\b"
DTYPE = r"\b(dtype|pointee|u?int(32|64)|type|types|integers)\b"
# text that leaves something to another docstring
LEFT = r"""(?mx) (?:All\ else|Other\ arguments)\b
    | \b(?:Arguments|Order|Errors|order\ and\ errors)[^:]*:\ +(?:as\ )?[a-z_]\w*(?:'s\b|\.?$|\.\ |,\ but\b)"""
both = pytest.mark.parametrize("kind", pages.APIS)


def calls(kind):
    """The functions, by name."""
    return {name: each for name, each in pages.KNOWN[kind].items() if not isinstance(each, type)}


def docstring(called):
    return inspect.getdoc(pages.plain(called)) or ""


def parameters(called):
    return list(inspect.signature(pages.plain(called)).parameters)


def labels(text):
    return {label for part in pages.parts(text) for label in part.labels}


def on_symmetric_memory(kind):
    """The docstrings of the calls with a symmetric operand, by name."""
    return {name: docstring(each) for name, each in calls(kind).items() if SYMMETRIC & set(parameters(each))}


def lines(wrong):
    return "\n" + "\n".join(map(str, wrong))


@both
def test_everything_public_has_a_docstring_of_at_most_twelve_lines(kind):
    lengths = {name: len(docstring(each).splitlines()) for name, each in pages.KNOWN[kind].items()}
    wrong = [each for each in lengths.items() if not 1 <= each[1] <= 12]
    assert not wrong, lines(wrong)


@both
def test_no_docstring_leaves_anything_to_another(kind):
    texts = {name: docstring(each) for name, each in pages.KNOWN[kind].items()}
    wrong = [(name, found[0]) for name, text in texts.items() if (found := re.search(LEFT, text))]
    assert not wrong, lines(wrong)


@both
def test_every_parameter_is_described(kind):
    """By a label or in a sentence; ctx and pe of kernels, which every call takes, by the module."""
    common = labels(pages.APIS[kind].__doc__) if kind == "device" else set()
    wrong = []
    for name, called in calls(kind).items():
        words = set(re.findall(r"\w+", docstring(called))) | common
        wrong += [(name, each) for each in parameters(called) if each not in words]
    assert not wrong, lines(wrong)


def test_the_page_of_all_calls_has_their_arguments_of_now():
    assert listed.PAGE.read_text() == listed.page(), "run .venv/bin/python docs/calls.py"


@both
@pytest.mark.parametrize("label", ["Order", "Errors"])
def test_what_is_done_to_symmetric_memory_has_an_order_and_errors(kind, label):
    wrong = [name for name, text in on_symmetric_memory(kind).items() if label not in labels(text)]
    assert not wrong, lines(wrong)


@both
@pytest.mark.parametrize("wanted", [SHAPE, DTYPE], ids=["shape", "dtype"])
def test_symmetric_operands_have_a_shape_and_an_element_type(kind, wanted):
    wrong = [name for name, text in on_symmetric_memory(kind).items() if not re.search(wanted, text)]
    assert not wrong, lines(wrong)


@both
def test_a_routine_of_the_specification_names_it(kind):
    wrong = [name for name, each in calls(kind).items() if name in SECTIONS and "Spec" not in labels(docstring(each))]
    assert not wrong, lines(wrong)


@both
def test_a_routine_that_is_named_is_in_that_section_of_the_specification(kind):
    wrong = []
    for name, called in calls(kind).items():
        for text in [part.text for part in pages.parts(docstring(called)) if "Spec" in part.labels]:
            found = re.match(r"(?:OpenSHMEM 1\.6, )?([\d.]+) SHMEM_(\w+)", text)
            right = found and SECTIONS.get(found[2].lower()) in (found[1], "SHMEM_PCONTROL")
            if not right and not text.startswith("none"):
                wrong.append((name, text))
    assert not wrong, lines(wrong)


def test_each_call_has_a_page_with_its_c_routine_and_the_same_call_of_the_other_api(tmp_path):
    pages.write(tmp_path)
    for kind, other in (("host", "device"), ("device", "host")):
        known, folder = pages.KNOWN[kind], tmp_path / kind
        assert {each.stem for each in folder.glob("*.rst")} == {*known, "index"}
        for name in known:
            text = (folder / f"{name}.rst").read_text().replace("<TYPENAME>_", "")
            assert f":: {pages.APIS[kind].__name__}.{name}\n" in text
            assert (f" shmem_{name}(" in text or f" *shmem_{name}(" in text) == (name in SECTIONS), name
            assert (f"{pages.APIS[other].__name__}.{name}>" in text) == (name in pages.KNOWN[other]), name


@pytest.mark.parametrize("kind", pages.APIS)
def test_each_chapter_of_the_reference_shows_a_program(kind):
    """tests/pes/test_chapter_programs.py runs them."""
    shown = re.findall(r"literalinclude:: /(chapters/.*)", pages.index(kind))
    assert sorted(shown) == sorted(
        f"chapters/{kind}/{each.name}" for each in (ROOT / "docs/chapters" / kind).glob("*.py")
    )
    chapters = {pages.chapter(each) for each in pages.KNOWN[kind].values()}
    assert len(shown) == len(chapters - {pages.ERRORS})


def test_parts_of_a_docstring_become_a_definition_list():
    text = [
        "Copy ``n`` elements.",
        "",
        "dest, source: as put_nbi.",
        "    More *text*.",
        "Errors: A.  Spec: 9.6 SHMEM_PUT.",
    ]
    pages.show(None, "function", "pyshmem.x", None, {}, text)
    assert text == [
        "Copy ``n`` elements.",
        "",
        "``dest``, ``source``",
        r"   as :py:func:`put_nbi <pyshmem.put_nbi>`\ . More \*text\*.",
        "",
        "**Errors**",
        "   A.",
        "",
        "**Specification**",
        r"   OpenSHMEM 1.6, 9.6 SHMEM_PUT.",
        "",
    ]


PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs/learn").glob("*.md")])
LINKS = [
    (page, link)
    for page in PAGES
    for link in re.findall(
        r"\]\((?!https?:)([^)(#]+)[^)(]*\)", re.sub(r"(?s)^```.*?^```", "", page.read_text(), flags=re.M)
    )
]


@pytest.mark.parametrize(("page", "link"), LINKS, ids=[f"{page.name}: {link}" for page, link in LINKS])
def test_links_lead_to_files_that_are_there(page, link):
    assert (page.parent / link).exists()


NAMED = r"`((?:pyshmem|benchmarks|tests|launch|docs|examples)/[a-z0-9_/.-]+\.(?:py|pyi|h|c|json|sh|md))`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_are_there(page):
    assert not [name for name in re.findall(NAMED, page.read_text()) if not (ROOT / name).exists()]


@pytest.mark.parametrize("kind", pages.ROOMS)
def test_each_operator_has_a_page_and_its_index_a_program(kind, tmp_path):
    pages.write(tmp_path)
    module = pages.ROOMS[kind][0]
    known, folder = pages.api(module), tmp_path / kind
    assert {each.stem for each in folder.glob("*.rst")} == {*known, "index"}
    index = (folder / "index.rst").read_text()
    for name in known:
        assert f":: {module.__name__}.{name}\n" in (folder / f"{name}.rst").read_text()
        assert index.count(f"   {name}\n") == 2  # the table, and the table of contents
    program = re.search(r"literalinclude:: /(.*)", index)[1]
    assert f"import {kind}\n" in (ROOT / "docs" / program).read_text()


def test_what_the_start_page_takes_from_readme_is_a_program_and_the_install_lines():
    readme, index = ((ROOT / name).read_text() for name in ("README.md", "docs/index.md"))
    taken = [
        readme.split(start, 1)[1].split(end, 1)[0]
        for start, end in re.findall(r':start-after: "(.*)"\n:end-before: "(.*)"', index)
    ]
    assert len(taken) == 2 and "shmem.init()" in taken[0] and "pip install" in taken[1]
    assert not re.findall(r"\]\(", "".join(taken))  # links would lead nowhere from docs


SHELVES = ("Learn", "Do", "Look up", "Understand", "Measured")


def test_the_side_bar_has_shelves_of_at_most_twenty_titles_and_every_page_is_below_one():
    trees = {page: re.findall(r"^```\{toctree\}\n(.*?)^```", page.read_text(), re.S | re.M) for page in PAGES}
    index = ROOT / "docs/index.md"
    assert tuple(re.findall(r"^:caption: (.*)$", "".join(trees[index]), re.M)) == SHELVES
    entries = {
        page: [line for tree in found for line in tree.splitlines() if line and line[0] != ":"]
        for page, found in trees.items()
    }
    assert len(entries[index]) <= 20
    below = {ROOT / "docs" / f"{entry}.md" for found in entries.values() for entry in found}
    assert {page for page in PAGES if page.is_relative_to(ROOT / "docs")} - below == {index}


def test_link_texts_are_titles():
    """Not names of files, which say nothing to a reader."""
    named = [(page.name, text) for page in PAGES for text in re.findall(r"\[([\w/-]+\.md)\]\(", page.read_text())]
    assert not [each for each in named if each[0] not in ("CHANGELOG.md", "CONTRIBUTING.md")]


def test_a_build_of_the_pages_says_how_far_it_is(capsys):
    """For each tenth of the pages a line, while they are read and while they are written."""
    handlers = {}
    names = [f"page{number}" for number in range(40)]
    app = SimpleNamespace(connect=handlers.__setitem__, env=SimpleNamespace(found_docs=set(names)))
    progress.connect(app)
    handlers["env-before-read-docs"](app, app.env, names)
    for event, done in (("source-read", "read"), ("html-page-context", "written")):
        for name in [*names, "search"]:
            handlers[event](app, name, None)
        wanted = [f"make docs: {count} of 40 pages {done}" for count in range(4, 41, 4)]
        assert capsys.readouterr().out.splitlines() == wanted
