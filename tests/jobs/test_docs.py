"""What the reference is made of: docstrings say all that a page of it shows, and links lead to files that are there."""

import pathlib
import re
import sys

import pytest

import pyshmem
import pyshmem.device
from pyshmem.c_names.table import ROWS

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
import docstrings  # noqa: E402
import pages  # noqa: E402

APIS = {module.__name__: docstrings.api(module) for module in (pyshmem, pyshmem.device)}
# (section, routine without the prefix) of the specification's C interface
ROUTINES = {(row.page.split(" ")[0], row.name.replace("<TYPENAME>_", "").removeprefix("shmem_")) for row in ROWS}
SECTIONS = {routine: section for section, routine in ROUTINES}
# parameters that are symmetric memory, wherever there is one of that name; what a call does to it has an order and refusals
SYMMETRIC = {"target", "dest", "pointers", "ivar", "ivars", "signal", "sig_addr", "lock", "part"}
SHAPE = r"\b(one|block|contiguous|elements|array|pointers?|word)\b"
DTYPE = r"\b(dtype|pointee|u?int(32|64)|type|types|integers)\b"


def of(api, name):
    return docstrings.parts(APIS[api][name])


def said(api, name, label):
    """All that is said of a label, by the function and by those that it leaves it to."""
    return " ".join(text for _, text in docstrings.told(APIS[api], name, label))


def symmetric(api, name):
    return [each for each in docstrings.parameters(APIS[api][name]) if each in SYMMETRIC]


def lines(wrong):
    return "\n" + "\n".join(map(str, wrong))


def calls(api):
    return [name for name, each in APIS[api].items() if not isinstance(each, type)]


@pytest.mark.parametrize("api", APIS)
def test_everything_public_has_a_docstring_of_at_most_twelve_lines(api):
    lengths = {name: len(docstrings.document(each).splitlines()) for name, each in APIS[api].items()}
    wrong = [each for each in lengths.items() if not 1 <= each[1] <= 12]
    assert not wrong, lines(wrong)


@pytest.mark.parametrize("api", APIS)
def test_every_parameter_is_told_of(api):
    known = APIS[api]
    wrong = [
        (name, each)
        for name in calls(api)
        for each in docstrings.parameters(known[name])
        if not said(api, name, each) and not docstrings.mentioned(known, name, each)
    ]
    assert not wrong, lines(wrong)


@pytest.mark.parametrize("label", ["order", "errors"])
@pytest.mark.parametrize("api", APIS)
def test_what_is_done_to_symmetric_memory_has_an_order_and_refusals(api, label):
    wrong = [name for name in calls(api) if symmetric(api, name) and not said(api, name, label)]
    assert not wrong, lines(wrong)


@pytest.mark.parametrize("wanted", [SHAPE, DTYPE], ids=["shape", "dtype"])
@pytest.mark.parametrize("api", APIS)
def test_symmetric_operands_have_a_shape_and_an_element_type(api, wanted):
    wrong = []
    for name in calls(api):
        operands = symmetric(api, name)
        text = " ".join(said(api, name, each) for each in ("", *docstrings.parameters(APIS[api][name])))
        if operands and not re.search(wanted, text):
            wrong.append((name, text))
    assert not wrong, lines(wrong)


@pytest.mark.parametrize("api", APIS)
def test_a_routine_of_the_specification_names_it(api):
    routines = [name for name in calls(api) if name in SECTIONS]
    wrong = [name for name in routines if not any("spec" in each.labels for each in of(api, name))]
    assert not wrong, lines(wrong)


@pytest.mark.parametrize("api", APIS)
def test_a_routine_that_is_named_is_in_that_section_of_the_specification(api):
    wrong = []
    for name in calls(api):
        for each in of(api, name):
            if "spec" in each.labels:
                found = re.match(r"(?:OpenSHMEM 1\.6, )?([\d.]+) SHMEM_(\w+)", each.text)
                if each.text.startswith("none"):
                    continue
                if not found or SECTIONS.get(found[2].lower()) not in (found[1], "SHMEM_PCONTROL"):
                    wrong.append((name, each.text))
    assert not wrong, lines(wrong)


@pytest.mark.parametrize("api", APIS)
def test_what_is_left_to_another_function_is_said_there(api):
    """``Errors: put's``: there is a put, and it has Errors."""
    wrong = []
    for name in calls(api):
        for each in of(api, name)[1:]:
            left = re.match(r"(?:as )?([a-z]\w*)(?:'s\b|\.$|, but)", each.text)
            labels = [label for label in each.labels if label in ("order", "errors")]
            if left and labels and not (left[1] in APIS[api] and all(said(api, left[1], label) for label in labels)):
                wrong.append((name, each))
    assert not wrong, lines(wrong)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    pages.write(folder)
    return folder


@pytest.mark.parametrize("kind", pages.APIS)
def test_each_call_has_a_page_that_shows_what_is_told_of_it(reference, kind):
    """By its own docstring, or by that of another one that it leaves it to."""
    known, api = pages.KNOWN[kind], pages.APIS[kind].__name__
    assert {each.stem for each in (reference / kind).glob("*.rst")} == {*known, "index"}
    wrong = []
    for name in calls(api):
        text = (reference / kind / f"{name}.rst").read_text()
        marks = {each: f"``{each}``" for each in docstrings.parameters(known[name])}
        marks |= {"order": "**Order**", "errors": "**Errors**", "spec": "**Specification**"}
        wrong += [(name, mark) for label, mark in marks.items() if said(api, name, label) and mark not in text]
    assert not wrong, lines(wrong)


@pytest.mark.parametrize(("kind", "other"), [("host", "device"), ("device", "host")])
def test_a_page_names_the_c_routine_and_the_same_call_on_the_other_side(reference, kind, other):
    for name in calls(pages.APIS[kind].__name__):
        text = (reference / kind / f"{name}.rst").read_text().replace("<TYPENAME>_", "")
        assert (f" shmem_{name}(" in text or f" *shmem_{name}(" in text) == (name in SECTIONS), name
        assert (f"{pages.APIS[other].__name__}.{name}>" in text) == (name in pages.KNOWN[other]), name


PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LINKS = [(page, link) for page in PAGES for link in re.findall(r"\]\((?!https?:)([^)(#]+)\)", page.read_text())]


@pytest.mark.parametrize(("page", "link"), LINKS, ids=[f"{page.name}: {link}" for page, link in LINKS])
def test_links_lead_to_files_that_are_there(page, link):
    assert (page.parent / link).exists()
