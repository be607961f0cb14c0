"""How 1, 2, 3 and 4 PEs share the cases of tests that have many."""

from typing import NamedTuple

from cases import MANY, PARTS, shared


class Item(NamedTuple):
    path: str
    originalname: str
    nodeid: str


def test_every_test_runs_on_all_numbers_of_pes_and_every_case_on_two_of_which_one_is_2_or_3():
    sizes = {"few": MANY - 1, "some": MANY, "more": MANY + 5, "many": 540}
    items = [Item("test_a.py", name, f"{name}[{case}]") for name, cases in sizes.items() for case in range(cases)]
    runs = {n: set(shared(items, n)[0]) for n in PARTS}
    assert list(PARTS) == [1, 2, 3, 4]
    for item in items:
        having = [n for n in PARTS if item in runs[n]]
        assert len(having) == (4 if item.originalname == "few" else 2) and {2, 3} & set(having)
    for n, parts in PARTS.items():
        assert {item.originalname for item in runs[n]} == set(sizes)
        assert len([item for item in runs[n] if item.originalname == "many"]) == 540 * len(parts) // 4


def test_shares_do_not_depend_on_the_names_of_cases():
    """A case named after a team has another name on each PE, and all PEs must run the same."""
    first, second = (
        [Item("test_a.py", "of_teams", f"of_teams[PE {pe} {case}]") for case in range(20)] for pe in (0, 1)
    )
    places = [[items.index(item) for item in shared(items, 3)[0]] for items in (first, second)]
    assert places[0] == places[1]


def test_shares_follow_no_parameter():
    """Two parameters of two and of many values: no run has one value of the first alone."""
    items = [Item("test_a.py", "pairs", f"pairs[{case // 2}-{case % 2}]") for case in range(80)]
    for n in PARTS:
        chosen = shared(items, n)[0]
        assert len(chosen) // 4 <= sum(items.index(item) % 2 for item in chosen) <= 3 * len(chosen) // 4
