"""How 3 and 4 PEs share the cases of tests that have many."""

from typing import NamedTuple

from cases import MANY, shared


class Item(NamedTuple):
    path: str
    originalname: str
    nodeid: str


def test_every_case_runs_on_3_or_on_4_pes_and_every_test_on_both():
    sizes = {"few": MANY - 1, "some": MANY, "more": MANY + 5, "many": 540}
    items = [Item("test_a.py", name, f"{name}[{case}]") for name, cases in sizes.items() for case in range(cases)]
    of_3, of_4 = (shared(items, n)[0] for n in (3, 4))
    assert set(of_3) | set(of_4) == set(items)
    assert {item.originalname for item in set(of_3) & set(of_4)} == {"few"}
    for name, cases in sizes.items():
        half = [len([item for item in each if item.originalname == name]) for each in (of_3, of_4)]
        assert sum(half) == (2 * cases if name == "few" else cases) and abs(half[0] - half[1]) <= 1


def test_shares_do_not_depend_on_the_names_of_cases():
    """A case named after a team has another name on each PE, and all PEs must run the same."""
    first, second = (
        [Item("test_a.py", "of_teams", f"of_teams[PE {pe} {case}]") for case in range(20)] for pe in (0, 1)
    )
    places = [[items.index(item) for item in shared(items, 3)[0]] for items in (first, second)]
    assert places[0] == places[1]


def test_shares_follow_no_parameter():
    """Two parameters of two and of many values: neither run has one value of the first alone."""
    items = [Item("test_a.py", "pairs", f"pairs[{case // 2}-{case % 2}]") for case in range(40)]
    for n in (3, 4):
        seconds = [items.index(item) % 2 for item in shared(items, n)[0]]
        assert 5 <= sum(seconds) <= 15
