"""The store, on SQLite and PostgreSQL alike: reports, standings, upkeep."""

from __future__ import annotations

import dataclasses

import pytest
import sqlalchemy as sa
from helpers.reports import AGREED, key, report

from tilewright.base.errors import InvalidReport, StoreClock
from tilewright.store import (
    KernelStore,
    Receipt,
    Standing,
    StoredGold,
    StoredReport,
    StoredVote,
    Thresholds,
)
from tilewright.store.schema import HEAD, reports

pytestmark = pytest.mark.by_turns

GOOD = {3: 1.5, 4: 1.4, 7: 1.2}
DAY = 86_400


def agree(store: KernelStore, count: int, top: dict[int, float] = GOOD, source: str = "s") -> None:
    for i in range(count):
        assert store.submit(report(top), f"{source}{i}") == Receipt(True)


def counted(store: KernelStore) -> tuple[int, int]:
    stats = store.stats()
    return stats.reports, stats.counted


def test_the_crowds_winner_goes_through_the_stages(url: str) -> None:
    with KernelStore.open(url) as store:
        assert store.standing(key()) == Standing(None, None, (), 0)
        agree(store, 4)
        assert (store.standing(key()).default, store.standing(key()).shadow) == (None, None)
        agree(store, 1, source="t")
        assert (store.standing(key()).default, store.standing(key()).shadow) == (None, 3)
        agree(store, 9, source="u")
        assert (store.standing(key()).default, store.standing(key()).shadow) == (None, 3)
        agree(store, 1, source="v")
        standing = store.standing(key())
        assert (standing.default, standing.shadow, standing.voices) == (3, None, 15)
        best = standing.ranked[0]
        assert (best.candidate, best.stage, best.reporters, best.score) == (3, "default", 15, 1.0)
        assert (best.low, best.ratio, best.high) == pytest.approx((1.5, 1.5, 1.5))
        assert [r.candidate for r in standing.ranked] == [3, 4, 7, 0]


def test_a_default_that_later_reports_contradict_is_rolled_back(url: str) -> None:
    with KernelStore.open(url) as store:
        agree(store, AGREED, {3: 1.5, 4: 1.4}, "early")
        assert store.standing(key()).default == 3
        agree(store, 14, {4: 1.4, 3: 0.7}, "later")
        assert store.standing(key()).default != 3
        agree(store, 40, {4: 1.4, 3: 0.7}, "much later")
        assert store.standing(key()).default == 4


def test_standings_survive_reopening_and_belong_to_their_key_alone(url: str) -> None:
    with KernelStore.open(url) as store:
        agree(store, AGREED)
    with KernelStore.open(url) as store:
        assert store.standing(key()).default == 3
        others = {
            "space": "f" * 16,
            "compiler": "0.2.0",
            "browser": "firefox",
            "device": "wasm-arm",
        }
        for name, value in others.items():
            assert store.standing(dataclasses.replace(key(), **{name: value})).default is None
        assert store.standing(dataclasses.replace(key(), kind="renamed")).default == 3


def test_a_report_that_comes_again_counts_once(url: str) -> None:
    sent = report(GOOD)
    with KernelStore.open(url) as store:
        assert [store.submit(sent, "s") for _ in range(3)] == [Receipt(True)] * 3
        assert store.submit(sent, "from elsewhere") == Receipt(True)
        assert counted(store) == (1, 1)
    with KernelStore.open(url) as store:
        assert store.submit(sent, "s") == Receipt(True)
        assert counted(store) == (1, 1)


def test_a_source_has_one_voice_per_key_and_day(url: str) -> None:
    now = [1000.0 * DAY]
    with KernelStore.open(url, clock=lambda: now[0]) as store:
        assert store.submit(report(GOOD), "s").accepted
        assert store.submit(report(GOOD), "s") == Receipt(False, "repeated")
        assert store.submit(report(GOOD, key("b" * 64)), "s").accepted
        assert store.submit(report(GOOD), "t").accepted
        now[0] += DAY
        assert store.submit(report(GOOD), "s").accepted
        assert counted(store) == (4, 4)


def test_sources_of_different_days_make_no_quorum_alone(url: str) -> None:
    now = [1000.0 * DAY]
    with KernelStore.open(url, clock=lambda: now[0]) as store:
        for _ in range(30):
            store.submit(report({9: 3.0}), "always the same address")
            now[0] += DAY
        assert store.standing(key()).shadow is None
        assert store.standing(key()).ranked[0].candidate == 9


def test_a_source_that_sends_too_much_is_not_heard(url: str) -> None:
    kernels = [key(f"{i:064x}") for i in range(4)]
    sent = [report(GOOD, k) for k in kernels]
    with KernelStore.open(url, Thresholds(rate=3)) as store:
        receipts = [store.submit(r, "s") for r in sent]
        assert receipts == [Receipt(True)] * 3 + [Receipt(False, "rate")]
        assert store.submit(sent[0], "s") == Receipt(True)  # it is there already
        assert store.submit(sent[3], "t") == Receipt(True)
        assert counted(store) == (4, 4)


def test_a_source_with_a_wrong_gold_answer_is_not_counted_and_not_told(url: str) -> None:
    lie = StoredGold(a=0, b=5, ratio=0.5)
    with KernelStore.open(url) as store:
        assert store.submit(report(GOOD, key("b" * 64)), "liar").accepted
        assert store.submit(report(GOOD, None, lie), "liar") == Receipt(True)
        assert store.submit(report(GOOD, key("c" * 64)), "liar") == Receipt(True)
        assert store.submit(report(GOOD, None, StoredGold(0, 5, 1.8)), "honest") == Receipt(True)
        assert counted(store) == (4, 1)
        assert store.submit(report(GOOD, None, lie), "honest") == Receipt(False, "repeated")
        assert counted(store) == (4, 0)


def test_a_right_gold_answer_is_remembered_for_the_day(url: str) -> None:
    """And goes with a wrong one."""
    now = [1000.0 * DAY]
    right, wrong = StoredGold(0, 5, 1.8), StoredGold(0, 5, 0.5)

    def proven() -> list[bool]:
        return [bool(row["proven"]) for row in store.rows()]

    with KernelStore.open(url, clock=lambda: now[0]) as store:
        for name, gold in (("a", ()), ("b", (right,)), ("c", ())):
            assert store.submit(report(GOOD, key(name * 64), *gold), "s").accepted
        assert proven() == [True] * 3
        assert store.submit(report(GOOD), "another").accepted
        assert store.submit(report(GOOD, key("d" * 64), wrong), "s").accepted
        assert store.submit(report(GOOD, key("e" * 64)), "s").accepted
        assert proven() == [True] * 3 + [False] * 3
        assert counted(store) == (6, 1)
        now[0] += DAY
        assert store.submit(report(GOOD), "s").accepted
        assert proven()[-1] is False


def test_what_was_not_asked_makes_no_default(url: str) -> None:
    """However many say so: only answers to questions count in a trial."""
    with KernelStore.open(url) as store:
        for i in range(60):
            store.submit(dataclasses.replace(report({9: 3.0}), answers=()), f"{i}")
        assert (store.standing(key()).default, store.standing(key()).shadow) == (None, 9)


def test_nothing_beats_the_default(url: str) -> None:
    with KernelStore.open(url) as store:
        agree(store, 20, {})
        standing = store.standing(key())
        assert (standing.default, standing.shadow) == (None, None)
        assert [(r.candidate, r.reporters) for r in standing.ranked] == [(0, 20)]


def test_similar_hardware(url: str) -> None:
    with KernelStore.open(url) as store:
        for device, best, browser in (
            ("x", 3, "firefox"),
            ("y", 4, "chromium"),
            ("x", 5, "chromium"),
        ):
            of = key(device=device, browser=browser, space=f"{device}{browser}")
            for i in range(AGREED):
                store.submit(report({best: 1.5, 9: 1.1}, of), f"{i}")
        store.submit(report({8: 1.5}, key(device="z")), "alone")
        new = key(device="new")
        found = store.similar(new, ["y", "x", "z"])
        assert [(r.device, r.browser, r.candidate) for r in found] == [
            ("y", "chromium", 4),
            ("y", "chromium", 9),
            ("x", "chromium", 5),
            ("x", "chromium", 9),
            ("x", "firefox", 3),
            ("x", "firefox", 9),
        ]
        assert found[0].stage == "default"
        assert store.similar(key("b" * 64, device="new"), ["y", "x"]) == ()
        assert store.similar(new, []) == ()


def test_overview_and_stats(url: str) -> None:
    with KernelStore.open(url, clock=lambda: 20_000.0 * DAY) as store:
        assert store.overview() == ()
        assert store.stats().reports == 0
        agree(store, AGREED)
        store.submit(report(GOOD, key(device="wasm-arm")), "s")
        entries = store.overview()
        assert [(e.key.device, e.standing.default, e.day) for e in entries] == [
            ("wasm-arm", None, "2024-10-04"),
            ("wasm-x86-relaxed-32k", 3, "2024-10-04"),
        ]
        assert store.overview("wasm-arm") == entries[:1]
        assert store.overview(start=1, limit=1) == entries[1:]
        assert store.overview(settled=True) == entries[1:]
        stats = store.stats()
        assert (stats.keys, stats.reports, stats.counted, stats.defaults) == (
            2,
            AGREED + 1,
            AGREED + 1,
            1,
        )
        assert (stats.devices, stats.schema, stats.first_day) == (2, HEAD, "2024-10-04")


def test_rows_are_reports_as_they_are_stored(url: str) -> None:
    with KernelStore.open(url, clock=lambda: 20_000.0 * DAY) as store:
        assert store.rows() == ()
        wrong = StoredGold(0, 9, 0.5)
        given = [report({3: 1.5, 0: 1.0}), report({}, key(device="wasm-arm"), wrong)]
        for each in given:
            store.submit(each, "abc")
        # one wrong answer spoils the source's day
        common = {"day": "2024-10-04", "source": "abc", "counts": False, "proven": False}
        tops = ([[3, 1.5], [0, 1.0]], [])
        assert store.rows() == tuple(
            {"nonce": each.nonce, "top": top, "answers": top, **common}
            | dataclasses.asdict(each.key)
            for each, top in zip(given, tops, strict=True)
        )


def sources(store: KernelStore) -> list[str | None]:
    with store.database.read() as connection:
        return list(connection.execute(sa.select(reports.c.source)).scalars())


def test_gc_forgets_sources_soon_and_reports_later(url: str) -> None:
    now = [1000.0 * DAY]
    with KernelStore.open(url, clock=lambda: now[0]) as store:
        agree(store, AGREED)
        now[0] += 2 * DAY
        assert store.submit(report({}, key("b" * 64)), "next").accepted  # no gc by hand
        assert set(sources(store)) == {None, "next"}
        assert store.standing(key()).default == 3
        assert store.gc() == {"sources": 0, "reports": 0, "keys": 0}
        now[0] += 89 * DAY
        assert store.gc(force=True) == {"sources": 1, "reports": AGREED, "keys": 1}
        assert store.standing(key()).voices == 0
        assert store.gc(days=1, force=True) == {"sources": 0, "reports": 1, "keys": 1}


def test_a_clock_that_goes_backwards_harms_nothing(url: str) -> None:
    now = [1000.0 * DAY]
    with KernelStore.open(url, clock=lambda: now[0]) as store:
        agree(store, 8)
        now[0] -= 400 * DAY
        agree(store, 8, source="t")
        assert counted(store) == (16, 16)
        assert store.standing(key()).default == 3


@pytest.mark.parametrize("days", [20, 200])
def test_a_clock_that_is_ahead_once_deletes_nothing(url: str, days: int) -> None:
    """Also by other processes that see the first one's reports; and it forgets sources as ever."""
    now = [1000.0 * DAY]
    with (
        KernelStore.open(url, clock=lambda: now[0]) as one,
        KernelStore.open(url, clock=lambda: now[0]) as two,
    ):
        agree(one, AGREED)
        now[0] += days * DAY
        for store in (one, two):
            agree(store, 1, source=f"ahead {id(store)}")
        now[0] -= days * DAY
        agree(two, 1, source="back")
        assert counted(one) == (AGREED + 3, AGREED + 3)
        assert one.standing(key()).default == 3
        for day in range(4):
            now[0] += DAY
            agree(one, 1, source=f"day {day} ")
        assert counted(one) == (AGREED + 7, AGREED + 7)
        assert sorted(filter(None, sources(one))) == ["day 2 0", "day 3 0"]


@pytest.mark.parametrize("every", [1, 7])
def test_reports_go_by_themselves_where_somebody_reports_now_and_then(url: str, every: int) -> None:
    now = [1000.0 * DAY]
    with KernelStore.open(url, clock=lambda: now[0]) as store:
        for _ in range(100):
            now[0] += every * DAY
            agree(store, 1)
        left = 90 // every + 1
        assert counted(store) == (left, left)


def test_gc_asks_before_it_believes_that_nobody_reported(url: str) -> None:
    now = [1000.0 * DAY]
    with KernelStore.open(url, clock=lambda: now[0]) as store:
        agree(store, 2)
        now[0] += 50 * DAY
        assert store.gc() == {"sources": 2, "reports": 0, "keys": 0}
        now[0] += 50 * DAY
        with pytest.raises(StoreClock, match="--force") as raised:
            store.gc()
        facts = {"today": "1973-01-05", "newest": "1972-09-27", "would_delete": 2}
        assert raised.value.facts == facts
        assert counted(store) == (2, 2)
        assert store.gc(force=True) == {"sources": 0, "reports": 2, "keys": 1}


BAD: dict[str, StoredReport] = {
    "short nonce": report(GOOD, nonce="x"),
    "strange nonce": report(GOOD, nonce="nonce with spaces"),
    "six": report(dict.fromkeys(range(1, 7), 1.5)),
    "twice": StoredReport("nonce-twice", key(), (StoredVote(1, 1.5), StoredVote(1, 1.5))),
    "order": StoredReport("nonce-order", key(), (StoredVote(1, 1.1), StoredVote(2, 1.5))),
    "negative": report({-1: 1.5}),
    "huge number": report({1 << 40: 1.5}),
    "no number": StoredReport("nonce-words", key(), (StoredVote("1", 1.5),)),  # type: ignore[arg-type]
    "boolean": StoredReport("nonce-booly", key(), (StoredVote(True, 1.5),)),
    "zero": report({1: 0.0}),
    "infinite": report({1: float("inf")}),
    "not a number": report({1: float("nan")}),
    "text": StoredReport("nonce-text0", key(), (StoredVote(1, "fast"),)),  # type: ignore[arg-type]
    "three answers": StoredReport("nonce-three", key(), (), (), (StoredVote(1, 1.5),) * 3),
    "answer": StoredReport("nonce-answr", key(), (), (), (StoredVote(1, 0.0),)),
    "gold": report(GOOD, None, StoredGold(0, 1, float("nan"))),
    "gold candidate": report(GOOD, None, StoredGold(-1, 1, 1.0)),
    "long key": report(GOOD, key(browser="x" * 201)),
    "empty key": report(GOOD, key(browser="")),
    "unprintable key": report(GOOD, key(browser="a\x00b")),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_malformed_reports_are_refused_and_leave_nothing(url: str, bad: StoredReport) -> None:
    with KernelStore.open(url) as store:
        with pytest.raises(InvalidReport) as raised:
            store.submit(bad, "s")
        assert raised.value.hint
        assert store.stats().keys == store.stats().reports == 0
