"""Cases that go by turns: a run takes a share on every host, and in time each case on each host."""

from __future__ import annotations

from math import ceil
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.turns import (
    EACH_TEST,
    FOLDERS,
    LONG_PERIOD,
    PAIRS,
    PERIOD,
    SELDOM_PERIOD,
    SHARES,
    choose,
    left_out,
    told,
)

CASES = [f"case{n}" for n in range(12)]


class Item:
    """What `choose` reads and writes of a collected test."""

    def __init__(
        self, test: str, params: dict[str, Any], *marks: pytest.MarkDecorator, file: str = "x.py"
    ) -> None:
        self.nodeid = f"{file}::{test}[{'-'.join(map(str, params.values()))}]"
        self.callspec = SimpleNamespace(params=params)
        self.marks = [mark.mark for mark in marks]

    def iter_markers(self, name: str | None = None) -> Any:
        return (mark for mark in self.marks if name in (None, mark.name))

    def get_closest_marker(self, name: str) -> Any:
        return next(self.iter_markers(name), None)

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark.mark)


def taken(turn: int, hosts: tuple[str, ...], *marks: pytest.MarkDecorator) -> list[tuple[str, str]]:
    """Host and case of what this turn takes."""
    items = [Item("t", {"host": host, "case": c}, *marks) for host in hosts for c in CASES]
    choose(items, turn)  # type: ignore[arg-type]
    return [
        (i.callspec.params["host"], i.callspec.params["case"])
        for i in items
        if not i.get_closest_marker("nightly")
    ]


@pytest.mark.parametrize(("pair", "turns"), PAIRS)
def test_a_case_is_for_one_of_a_pair_and_in_time_for_the_other(
    pair: tuple[str, str], turns: int
) -> None:
    seen = [taken(turn, pair, pytest.mark.by_turns) for turn in range(turns)]
    for found in seen:
        assert [c for _, c in sorted(found, key=lambda f: CASES.index(f[1]))] == CASES
        assert {host for host, _ in found} == set(pair)
    assert {case for found in seen for case in found} == {(h, c) for h in pair for c in CASES}


def test_a_share_is_taken_on_every_host_and_in_time_all() -> None:
    mark, hosts = pytest.mark.one_in(3, "dawn", "cuda-cpu"), ("dawn", "cuda-cpu", "native")
    seen = [taken(turn * PERIOD, hosts, mark) for turn in range(3)]
    for found in seen:
        count = {host: sum(host == h for h, _ in found) for host in hosts}
        assert count == {"dawn": 4, "cuda-cpu": 4, "native": 12}
    assert {case for found in seen for case in found} == {(h, c) for h in hosts for c in CASES}


def test_both_marks_leave_no_case_out_for_ever() -> None:
    (pair, turns), *_ = PAIRS
    marks = (pytest.mark.by_turns, pytest.mark.one_in(2))
    seen = {case for n in range(turns) for half in range(2)
            for case in taken(half * PERIOD + n, pair, *marks)}  # fmt: skip
    assert seen == {(h, c) for h in pair for c in CASES}


def test_the_closest_mark_counts() -> None:
    found = taken(0, ("native",), pytest.mark.one_in(6), pytest.mark.one_in(2))
    assert len(found) == 2


def test_what_is_named_is_always_taken() -> None:
    marks = pytest.mark.one_in(6, but=["case5"])
    for turn in range(6):
        assert ("native", "case5") in taken(turn * PERIOD, ("native",), marks)


def test_of_fewer_cases_than_the_share_one_is_taken() -> None:
    items = [Item("t", {"case": n}, pytest.mark.one_in(9)) for n in range(2)]
    choose(items, 7 * PERIOD)  # type: ignore[arg-type]
    assert sum(item.get_closest_marker("nightly") is None for item in items) == 1


def test_what_another_reason_leaves_out_is_not_counted() -> None:
    marks = (pytest.mark.one_in(2), pytest.mark.nightly)
    items = [Item("t", {"case": n}, *marks[: 1 + (n > 1)]) for n in range(4)]
    choose(items, 0)  # type: ignore[arg-type]
    assert sum(item.get_closest_marker("nightly") is None for item in items) == 1


@pytest.mark.parametrize(("place", "share"), SHARES.items())
def test_of_a_long_place_a_share_is_taken_and_in_time_all(place: str, share: int) -> None:
    mark, seen = pytest.mark.one_in(2, but=["case0"]), set[str]()
    for turn in range(share):
        for half in range(2):
            items = [Item("t", {"case": c}, mark, file=f"{place}x.py") for c in CASES]
            items += [Item("alone", {}, file=f"{place}y.py")]
            choose(items, turn * LONG_PERIOD + half * PERIOD)  # type: ignore[arg-type]
            found = {i.nodeid for i in items if not i.get_closest_marker("nightly")}
            assert {f"{place}x.py::t[case0]", f"{place}y.py::alone[]"} <= found
            assert len(found) <= 2 + ceil(len(CASES) / 2 / share)
            seen |= found
    assert len(seen) == len(CASES) + 1


@pytest.mark.parametrize(("place", "share"), FOLDERS.items())
def test_of_a_folder_each_case_is_taken_once_in_its_turns(place: str, share: int) -> None:
    seen = list[str]()
    for turn in range(share):
        items = [Item("t", {"case": c}, file=f"{place}{n}.py") for n in range(9) for c in CASES]
        kept = pytest.mark.one_in(2, but=["kept"])
        items.append(Item("t", {"case": "kept"}, kept, file=f"{place}x.py"))
        choose(items, turn * LONG_PERIOD)  # type: ignore[arg-type]
        *found, always = (i.nodeid for i in items if not i.get_closest_marker("nightly"))
        assert "kept" in always
        assert 0 < len(found) < 9 * len(CASES) / 4
        seen += found
    assert len(seen) == len(set(seen)) == 9 * len(CASES)


def test_what_is_seldom_is_taken_in_one_run_of_so_many() -> None:
    """Also of a file of which a run takes a share."""
    mark, seen = pytest.mark.seldom(3), list[str]()
    place = next(iter(SHARES))
    for turn in range(3 * SHARES[place]):
        items = [Item(f"t{n}", {}, mark, file="tests/unit/x.py") for n in range(30)]
        items += [Item("t", {"case": c}, mark, file=f"{place}x.py") for c in CASES]
        choose(items, turn % 3 * SELDOM_PERIOD + turn // 3 * LONG_PERIOD)  # type: ignore[arg-type]
        seen += [i.nodeid for i in items if not i.get_closest_marker("nightly")]
    assert len(set(seen)) == 30 + len(CASES)
    assert len([name for name in seen if "unit/x.py" in name]) == 30 * SHARES[place]


@pytest.mark.parametrize(("place", "share"), EACH_TEST.items())
def test_elsewhere_a_share_of_each_test_is_taken_and_in_time_all(place: str, share: int) -> None:
    tests, seen = ("one", "other", "third"), set[str]()
    for turn in range(share):
        items = [Item(t, {"case": c}, file=f"{place}x.py") for t in tests for c in CASES]
        choose(items, turn * LONG_PERIOD)  # type: ignore[arg-type]
        found = [i.nodeid for i in items if not i.get_closest_marker("nightly")]
        for test in tests:
            assert sum(f"::{test}[" in name for name in found) == len(CASES) / share
        seen |= set(found)
    assert len(seen) == len(CASES) * len(tests)


def test_a_run_says_what_it_left_out() -> None:
    hosts, file = ("chromium", "firefox"), "tests/golden/x.py"
    marks = pytest.mark.by_turns, pytest.mark.one_in(2)
    items = [
        Item("t", {"host": host, "case": case}, *marks, file=file)
        for host in hosts
        for case in CASES
    ]
    items.append(Item("t", {}, pytest.mark.nightly, file="tests/browser/x.py"))
    choose(items, 0)  # type: ignore[arg-type]
    left = left_out(items)  # type: ignore[arg-type]
    assert left == {
        "tests/browser": {"nightly": 1},
        "tests/golden": {"by_turns": 12, "one_in": 6},
    }
    assert told(left) == [
        "tests/browser: 1 cases (nightly 1)",
        "tests/golden: 18 cases (by_turns 12, one_in 6)",
        "scripts/test --nightly runs these as well",
    ]
