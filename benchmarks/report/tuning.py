"""Page: tuning in a page, a section per benchmark of sessions.

Input: the records of benchmarks in tuning/.  Output: the page.  Rows come from many runs; their
commits are in the records.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import partial

from benchmarks.records import Record, Records, Stored, values
from benchmarks.report.page import Answer, Page, Section, count, over
from benchmarks.report.tables import Columns, listed, paragraphs, told

#: Rows of a table are in the order of these.
_ORDER = ("subject", "host", "start")

#: Benchmark → title, what was measured, columns.
_PARTS: Mapping[str, tuple[str, str, Columns]] = {
    "rounds": (
        "Kernels from poor and from good defaults",
        "Shares are of the speed of the optimum, which a sweep of the whole space found",
        {
            "kernel": "subject", "browser": "host", "default": "start",
            "share at the start": "start_share:.2f", "trials to 97 %": "rounds",
            "share after 32 trials": "share:.2f", "trials": "tried",
            "a trial, median, ms": "evaluation_ms:.0f", "a trial, longest, ms":
            "evaluation_most_ms:,.0f",
        },
    ),
    "next_device": (
        "The next device of a class",
        "A bundle with the winners of one device, for the next one of its class, compared with a "
        "bundle whose default is the optimum; medians of fresh browsers. Noise: the share of the "
        "same bundle again",
        {
            "kernel": "subject", "browser": "host", "default": "start",
            "first inference with the winners, ms": "first_ms:.1f",
            "with the optimum, ms": "optimum_first_ms:.1f",
            "share of the optimum's speed": "first_share:.2f", "noise": "first_noise:.2f",
            "share when warm": "share:.2f", "browsers": "n",
        },
    ),
    "server_part": (
        "The server's part of a trial",
        "Milliseconds of a server to list the candidates of a kernel, and to compile one of them",
        {
            "kernel": "subject", "candidates": "candidates", "listing, ms": "space_ms",
            "a candidate, median, ms": "median_ms", "a candidate, longest, ms": "most_ms",
            "module, median, bytes": "median_bytes:,", "module, largest, bytes": "most_bytes:,",
        },
    ),
    "whole_model": (
        "Whole models",
        "All of the time is for tuning; speed is relative to the model with good defaults, and a "
        "model of good defaults in which no kernel was replaced has none",
        {
            "model": "subject", "browser": "host", "defaults": "start", "trials": "rounds",
            "kernels replaced": "swaps", "last replaced after, s": "last_swap_s:.1f",
            "session, s": "seconds:.0f", "speed, median": "gain:.2f", "speed, lowest":
            "gain_least:.2f",
        },
    ),
    "good_defaults": (
        "Good defaults",
        "Sessions with good defaults: the tuned model compared with the default one. Noise: the "
        "lowest speed of a model in which no kernel was replaced",
        {
            "model": "subject", "browser": "host", "sessions": "runs", "seconds of each":
            "seconds:.1f", "sessions that replaced a kernel": "changed",
            "their speed, median": "gain_median:.3f", "slower by 2 % or more": "slower",
            "noise": "same_least:.3f",
        },
    ),
    "latency": (
        "Inferences beside a tuner",
        "Inferences while a tuner works with its usual budget, from the page's call to its answer; "
        "a ratio is the time with a tuner over that without, and its interval holds 90 %",
        {
            "model": "subject", "browser": "host", "p50, ratio": "median_ratio:.2f",
            "p95 without a tuner, ms": "alone_ms:.1f", "p95 with one, ms": "tuning_ms:.1f",
            "p95, ratio": "ratio:.2f",
            "its interval": lambda r: f"{r['ratio_low']:.2f} to {r['ratio_high']:.2f}",
            "inferences": "n", "trials": "trials",
        },
    ),
    "memory": (
        "Memory",
        "Megabytes of all processes of the browser, shared pages by their share: with a model that "
        "has run, while it is tuned with all of the time, and afterwards",
        {
            "model": "subject", "browser": "host", "weights, MB": "weights_mb",
            "before, MB": "before_mb",
            "while tuning, median, MB": "during_mb", "while tuning, most, MB": "most_mb",
            "after, MB": "after_mb", "trials": "rounds", "time of tuning, s": "seconds",
        },
    ),
}  # fmt: skip


def listing(columns: Columns, record: Record) -> str:
    """The rows in order; their class of devices is a sentence if all agree, else a column."""
    rows = sorted(record["rows"], key=lambda r: [str(r.get(key)) for key in _ORDER])
    rows = [unchanged(r) for r in rows]
    classes = {r.get("device") for r in rows}
    if len(classes) > 1:
        return listed(rows, {**columns, "class": "device"})
    (device,) = classes
    return paragraphs(listed(rows, columns), f"All rows: class {device}." if device else "")


def unchanged(row: Stored) -> Stored:
    """A session without swaps leaves the model of good defaults: there is no ratio."""
    same = row.get("start") == "good" and row.get("swaps") == 0 and "gain" in row
    return {**row, "gain": None, "gain_least": None} if same else row


# ---- the page ------------------------------------------------------------------------------------


def verdict(records: Records) -> str:
    least = min(values(records["tuning.rounds"], "share", start="poor"))
    sessions = records["tuning.good_defaults"]
    runs, changed, slower = (sum(values(sessions, key)) for key in ("runs", "changed", "slower"))
    return (
        f"From a poor default, a kernel has {told(least, '.0%')} or more of the optimum's speed "
        f"after 32 trials; of {runs} sessions with good defaults, {changed} changed anything and "
        f"{slower} made a model slower by 2 % or more."
    )


def answers(records: Records) -> list[Answer]:
    rounds, sessions = records["tuning.rounds"], records["tuning.good_defaults"]
    poor = values(rounds, "share", start="poor")
    slower, runs = (sum(values(sessions, key)) for key in ("slower", "runs"))
    latency = records["tuning.latency"]
    return [
        over("poor defaults: share of the optimum after 32 trials", poor, rounds, ".2f"),
        over("a trial, ms", values(rounds, "evaluation_ms"), rounds, ".0f", statistics.median),
        count("good defaults: sessions that ended slower by 2 %", slower, runs, sessions),
        over("p95 of inferences with a tuner over without", values(latency, "ratio"), latency),
    ]


PAGE = Page("tuning", "Tuning in the page", verdict, answers, tuple(
    Section(f"tuning.{name}", title, f"{about}.", partial(listing, columns))
    for name, (title, about, columns) in _PARTS.items()
))  # fmt: skip
