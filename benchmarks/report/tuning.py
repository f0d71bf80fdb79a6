"""Page: tuning in a page, a table per part of tuning.page_tuner.

Input: the record of tuning.page_tuner.  Output: the page.  Rows come from many runs: class of the
device and commit are in the title if all rows agree, else in columns.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.records import Record, Records, Row, values
from benchmarks.report.page import Answer, Page, Section, count, over
from benchmarks.report.tables import Column, listed, paragraphs, told

#: Title → key of what rows of one table may have in common.
_ORIGINS = {"class": "device", "commit": "commit"}

#: Part → (title, columns).
_PARTS: Mapping[str, tuple[str, Mapping[str, Column]]] = {
    "rounds": (
        "Kernels with poor and with good defaults; shares are of the speed of the optimum, which a "
        "sweep of the whole space found",
        {
            "kernel": "subject", "host": "host", "default": "start",
            "share at start": "start_share", "rounds to 97 %": "rounds",
            "share after 32 rounds": "share", "rounds": "tried",
            "evaluation ms: median": "evaluation_ms", "longest": "evaluation_most_ms",
        },
    ),
    "known": (
        "A bundle with the winners of one device, for the next one of its class, compared with a "
        "bundle whose default is the optimum; medians of fresh browsers",
        {
            "kernel": "subject", "host": "host", "default": "start", "swaps": "swaps",
            "first inference ms, as built": "built_first_ms", "with the winners": "first_ms",
            "with the optimum": "optimum_first_ms", "share of the optimum's speed": "first_share",
            "of the same bundle again": "first_noise", "warm": "share", "browsers": "n",
        },
    ),
    "server": (
        "The server's part of a round",
        {
            "kernel": "subject", "candidates": "candidates", "space ms": "space_ms",
            "a candidate ms: median": "median_ms", "longest": "most_ms",
            "module bytes: median": "median_bytes", "largest": "most_bytes",
        },
    ),
    "model": (
        "Whole models, with all of the time for tuning; speed is relative to the model with good "
        "defaults",
        {
            "model": "subject", "host": "host", "defaults": "start", "kernels": "kernels",
            "rounds": "rounds", "swaps": "swaps", "seconds allowed": "seconds",
            "spent": "spent_s", "last swap at s": "last_swap_s", "speed: median": "gain",
            "lowest": "gain_least", "the session's own verdict": "told", "ratio": "told_ratio",
        },
    ),
    "never": (
        "Sessions with good defaults: the tuned model compared with the default one",
        {
            "model": "subject", "host": "host", "sessions": "runs", "seconds each": "seconds",
            "sessions with a swap": "changed", "their gain: median": "gain_median",
            "lowest": "gain_least", "slower by 2 % or more": "slower",
            "lowest ratio without a swap (noise)": "same_least",
        },
    ),
    "p95": (
        "Inferences while a tuner works with its usual budget, from the page's call to its answer",
        {
            "model": "subject", "host": "host", "p50 ms without a tuner": "alone_median_ms",
            "with one": "tuning_median_ms", "p50: ratio": "median_ratio",
            "p95 ms without a tuner": "alone_ms", "with one, p95": "tuning_ms",
            "p95: ratio": "ratio", "from": "ratio_low", "to (90 %)": "ratio_high",
            "inferences": "n", "trials": "trials", "seconds of tuning": "tuning_s",
        },
    ),
    "memory": (
        "Megabytes of all processes of the browser, shared pages by their share: with a model that "
        "has run, while it is tuned with all of the time, and afterwards",
        {
            "model": "subject", "host": "host", "weights": "weights_mb", "before": "before_mb",
            "while tuning: median": "during_mb", "most": "most_mb", "after": "after_mb",
            "trials": "rounds", "seconds of tuning": "seconds",
        },
    ),
}  # fmt: skip


def tuning(record: Record) -> str:
    """One table per part that was measured."""
    text = []
    for part, (title, columns) in _PARTS.items():
        if rows := [unchanged(r) for r in record["rows"] if r["part"] == part]:
            said, differing = origin(rows)
            more = {name: _ORIGINS[name] for name in differing}
            text += [f"{title}{said}:", listed(rows, {**columns, **more})]
    return paragraphs(*text)


def unchanged(row: Row) -> Row:
    """A session without swaps leaves the model of good defaults: there is no ratio."""
    same = row["part"] == "model" and row.get("start") == "good" and row.get("swaps") == 0
    return {**row, "gain": None, "gain_least": None} if same else row


def origin(rows: Sequence[Row]) -> tuple[str, list[str]]:
    """What all rows have in common, for the title, and where they differ, for columns."""
    found = {name: {r.get(key) for r in rows} for name, key in _ORIGINS.items()}
    said = [f"{name} {value}" for name, (value, *more) in found.items() if value and not more]
    differing = [name for name, values in found.items() if len(values) > 1]
    return f" ({', '.join(said)})" if said else "", differing


# ---- the page ------------------------------------------------------------------------------------


def verdict(records: Records) -> str:
    record = records["tuning.page_tuner"]
    least = min(values(record, "share", part="rounds", start="poor"))
    runs, changed, slower = (
        sum(values(record, k, part="never")) for k in ("runs", "changed", "slower")
    )
    return (
        f"From a poor default, a kernel has {told(least, '.0%')} or more of the optimum's speed "
        f"after 32 trials; of {runs} sessions with good defaults, {changed} changed anything and "
        f"{slower} made a model slower by 2 % or more."
    )


def answers(records: Records) -> list[Answer]:
    record = records["tuning.page_tuner"]
    poor = values(record, "share", part="rounds", start="poor")
    slower, runs = (sum(values(record, key, part="never")) for key in ("slower", "runs"))
    return [
        over("poor defaults: share of the optimum after 32 trials", poor, record, ".2f"),
        over("a trial, ms", values(record, "evaluation_ms", part="rounds"), record, ".0f",
             statistics.median),
        count("good defaults: sessions that ended slower by 2 %", slower, runs, record),
        over("p95 of inferences with a tuner over without", values(record, "ratio", part="p95"),
             record),
    ]  # fmt: skip


PAGE = Page("tuning", "Tuning in the page", verdict, answers, (
    Section("tuning.page_tuner", "Parts of a session",
            "Sessions of the page's own tuner, one table a question. A share of 1 is the speed of "
            "the fastest candidate of a whole space.",
            tuning),
))  # fmt: skip
