"""Page: what a crowd with liars attains: simulated, against a real server, and on the page.

Input: the records of serving/: crowd, crowd_shares, liars and recovery.  Output: the page.
"""

from __future__ import annotations

from benchmarks.records import Record, Records, by, values
from benchmarks.report.page import Answer, Page, Section, count, over
from benchmarks.report.tables import Columns, listed, paragraphs, told

ASSUMED = (
    "That no wrong kernel is adopted is an assumption, not a result: the check of the simulated "
    "devices detects every wrong kernel."
)


def percent(part: float, whole: float) -> str:
    return told(part / max(1, whole), ".1%")


CROWD: Columns = {
    "scenario": "scenario", "keys": "keys",
    "default within 3 % of the best": lambda r: percent(r["within"], r["keys"]),
    "by the paper's vote": lambda r: percent(r["paper_within"], r["keys"]),
    "bad defaults": "bad", "bad ones by the paper's vote": "paper_bad",
    "kernels adopted": "adopted:,",
    "slower or wrong ones": lambda r: f"{r['adopted_slower'] + r['adopted_wrong']}",
    "proposals that were slower or wrong": lambda r: percent(r["offered_bad"], r["offered"]),
}  # fmt: skip
COUNTED = ("keys", "within", "bad", "paper_within", "paper_bad", "adopted", "adopted_slower",
           "adopted_wrong", "offered_bad", "offered")  # fmt: skip
SHARES: Columns = {
    "liars": "malicious:.0%", "scenario": "scenario", "keys": "keys", "bad defaults": "bad",
    "good defaults": "good", "bad defaults by the paper's vote": "paper_bad",
    "good defaults by the paper's vote": "paper_good",
    "visits that were offered a slower or wrong one": lambda r: percent(
        r["offered_bad"], r["clients"] * (1 - r["malicious"]) * r["keys"]
    ),
}  # fmt: skip
LIARS: Columns = {
    "liars": "share:.0%", "they come": "tactic", "voices": "voices", "keys": "keys",
    "bad defaults at the end": "bad", "bad defaults at any time": "ever_bad",
    "good defaults at the end": "good",
    "honest visits that were given a bad one": lambda r: percent(
        r["given_bad"], (r["voices"] - r["liars"]) * r["keys"]
    ),
}  # fmt: skip
RECOVERY: Columns = {
    "bundle": "subject", "browser": "browser",
    "visits": lambda r: f"{r['recovered']} of {r['visits']}", "bad kernels replaced": "kernels:g",
    "first kernel, median, ms": "first_ms:.0f", "first kernel, longest, ms":
    "first_most_ms:.0f", "last kernel, median, ms": "last_ms:.0f",
    "last kernel, longest, ms": "last_most_ms:.0f",
}  # fmt: skip


def crowd(record: Record) -> str:
    """One line per scenario, all classes and seeds together."""
    scenarios = by(record["rows"], "scenario")
    summed = [
        {"scenario": name, **{key: sum(r[key] for r in found) for key in COUNTED}}
        for (name,), found in scenarios.items()
    ]
    return paragraphs(listed(summed, CROWD), ASSUMED)


def verdict(records: Records) -> str:
    simulated, real = records["serving.crowd"], records["serving.liars"]
    adopted, slower = (sum(values(simulated, k)) for k in ("adopted", "adopted_slower"))
    bad, good, keys = (sum(values(real, k)) for k in ("bad", "good", "keys"))
    least, most = (told(f(values(real, "share")), ".0%") for f in (min, max))
    return (
        f"In a simulated crowd with liars, honest clients adopted {adopted:,} kernels, {slower} of "
        f"them slower than before; against a real server with {least} to {most} liars, {bad} of "
        f"{keys} keys ended with a bad default and {good} with a good one."
    )


def answers(records: Records) -> list[Answer]:
    simulated, real, pages = (records[f"serving.{name}"] for name in ("crowd", "liars", "recovery"))
    adopted, slower = (sum(values(simulated, k)) for k in ("adopted", "adopted_slower"))
    bad, good, keys = (sum(values(real, k)) for k in ("bad", "good", "keys"))
    return [
        count("simulated: adoptions that were slower", slower, adopted, simulated),
        count("real server: keys with a bad default at the end", bad, keys, real),
        count("real server: keys with a good default at the end", good, keys, real),
        over("bad defaults on a page: ms until all own kernels are back", values(pages, "last_ms"),
             pages, ".0f"),
    ]  # fmt: skip


PAGE = Page("crowd", "Votes with liars among them", verdict, answers, (
    Section("serving.crowd", "Simulated crowd",
            "Clients that report to the kernel database; in all scenarios but the first a part of "
            "them lies. A default is bad if it is the one that the liars wanted.", crowd),
    Section("serving.crowd.shares", "Simulated crowd by share of liars",
            "All liars name one bad kernel, answer every question for it and against any other, "
            "and answer gold questions right; `early`: they come before the first honest client.",
            lambda record: listed(reversed(record["rows"]), SHARES)),
    Section("serving.liars", "Liars against a real server",
            "One WebSocket per voice. A default is bad if it is slower than the bundle's own "
            "kernel.", LIARS),
    Section("serving.recovery", "Recovery from bad defaults",
            "Pages that do not tune, given a bundle with the slowest candidates: milliseconds from "
            "their first run until own kernels are back.", RECOVERY),
))  # fmt: skip
