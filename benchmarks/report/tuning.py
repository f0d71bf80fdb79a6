"""Page: tuning in a page, a section per benchmark of sessions.

Input: the records of benchmarks in tuning/.  Output: the page.  Rows come from many runs: class of
the device and commit are in a sentence if all rows agree, else in columns.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks.records import Record, Records, Stored, values
from benchmarks.report.page import Answer, Page, Section, count, over
from benchmarks.report.tables import Column, listed, paragraphs, told

#: Title → key of what rows of one table may have in common.
_ORIGINS = {"class": "device", "commit": "commit"}

#: Benchmark → title, what was measured, columns.
_PARTS: Mapping[str, tuple[str, str, Mapping[str, Column]]] = {
    "rounds": (
        "Kernels from poor and from good defaults",
        "Kernels with poor and with good defaults; shares are of the speed of the optimum, which a "
        "sweep of the whole space found",
        {
            "kernel": "subject", "host": "host", "default": "start",
            "share at the start": "start_share", "trials to 97 %": "rounds",
            "share after 32 trials": "share", "trials": "tried",
            "a trial, median, ms": "evaluation_ms", "a trial, longest, ms": "evaluation_most_ms",
        },
    ),
    "next_device": (
        "The next device of a class",
        "A bundle with the winners of one device, for the next one of its class, compared with a "
        "bundle whose default is the optimum; medians of fresh browsers",
        {
            "kernel": "subject", "host": "host", "default": "start", "kernels replaced": "swaps",
            "first inference as built, ms": "built_first_ms",
            "first inference with the winners, ms": "first_ms",
            "first inference with the optimum, ms": "optimum_first_ms",
            "share of the optimum's speed": "first_share",
            "share of the same bundle again (noise)": "first_noise",
            "share when warm": "share", "browsers": "n",
        },
    ),
    "server_part": (
        "The server's part of a trial",
        "The server's part of a round",
        {
            "kernel": "subject", "candidates": "candidates", "listing the space, ms": "space_ms",
            "a candidate, median, ms": "median_ms", "a candidate, longest, ms": "most_ms",
            "module, median, bytes": "median_bytes", "module, largest, bytes": "most_bytes",
        },
    ),
    "whole_model": (
        "Whole models",
        "Whole models, with all of the time for tuning; speed is relative to the model with good "
        "defaults",
        {
            "model": "subject", "host": "host", "defaults": "start", "kernels": "kernels",
            "trials": "rounds", "kernels replaced": "swaps", "time allowed, s": "seconds",
            "time spent, s": "spent_s", "last replaced after, s": "last_swap_s",
            "speed, median": "gain", "speed, lowest": "gain_least",
            "the session's own verdict": "told", "its ratio": "told_ratio",
        },
    ),
    "good_defaults": (
        "Good defaults",
        "Sessions with good defaults: the tuned model compared with the default one",
        {
            "model": "subject", "host": "host", "sessions": "runs", "time of each, s": "seconds",
            "sessions that replaced a kernel": "changed", "their speed, median": "gain_median",
            "their speed, lowest": "gain_least", "slower by 2 % or more": "slower",
            "lowest speed without a change (noise)": "same_least",
        },
    ),
    "latency": (
        "Inferences beside a tuner",
        "Inferences while a tuner works with its usual budget, from the page's call to its answer",
        {
            "model": "subject", "host": "host", "p50 without a tuner, ms": "alone_median_ms",
            "p50 with one, ms": "tuning_median_ms", "p50, ratio": "median_ratio",
            "p95 without a tuner, ms": "alone_ms", "p95 with one, ms": "tuning_ms",
            "p95, ratio": "ratio", "its 90 % interval from": "ratio_low", "to": "ratio_high",
            "inferences": "n", "trials": "trials", "time of tuning, s": "tuning_s",
        },
    ),
    "memory": (
        "Memory",
        "Megabytes of all processes of the browser, shared pages by their share: with a model that "
        "has run, while it is tuned with all of the time, and afterwards",
        {
            "model": "subject", "host": "host", "weights, MB": "weights_mb",
            "before, MB": "before_mb",
            "while tuning, median, MB": "during_mb", "while tuning, most, MB": "most_mb",
            "after, MB": "after_mb", "trials": "rounds", "time of tuning, s": "seconds",
        },
    ),
}  # fmt: skip


def listing(columns: Mapping[str, Column], record: Record) -> str:
    """The rows, with what all have in common below, and columns for the rest."""
    rows = [unchanged(r) for r in record["rows"]]
    said, differing = origin(rows)
    more = {name: _ORIGINS[name] for name in differing}
    return paragraphs(listed(rows, {**columns, **more}), said)


def unchanged(row: Stored) -> Stored:
    """A session without swaps leaves the model of good defaults: there is no ratio."""
    same = row.get("start") == "good" and row.get("swaps") == 0 and "gain" in row
    return {**row, "gain": None, "gain_least": None} if same else row


def origin(rows: Sequence[Stored]) -> tuple[str, list[str]]:
    """What all rows have in common, for the title, and where they differ, for columns."""
    found = {name: {r.get(key) for r in rows} for name, key in _ORIGINS.items()}
    said = [f"{name} {value}" for name, (value, *more) in found.items() if value and not more]
    differing = [name for name, values in found.items() if len(values) > 1]
    return f"All rows: {', '.join(said)}." if said else "", differing


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
