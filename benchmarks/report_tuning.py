"""Results of tuning in a page: a table per part of tuning.py.

Input: the record of tuning.py.  Output: tables.  Rows come from many runs: class of the device and
commit are in the title if all rows agree, else in columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from charts import cell, table

Record = dict[str, Any]
Row = Mapping[str, Any]

#: Title → key of what rows of one table may have in common.
_ORIGINS = {"class": "device", "commit": "commit"}

#: Part → (title, head, cells of a row).
_TUNING: Mapping[str, tuple[str, list[str], tuple[str, ...]]] = {
    "rounds": (
        "Kernels with poor and with good defaults; shares are of the speed of the optimum, which a "
        "sweep of the whole space found",
        ["kernel", "host", "default", "share at start", "rounds to 97 %", "share after 32 rounds",
         "share at the end", "rounds", "evaluation ms: median", "p95", "longest"],
        ("subject", "host", "start", "start_share", "rounds", "share", "last_share", "tried",
         "evaluation_ms", "evaluation_p95_ms", "evaluation_most_ms"),
    ),
    "known": (
        "A bundle with the winners of one device, for the next one of its class, compared with a "
        "bundle whose default is the optimum; medians and fastest of fresh browsers",
        ["kernel", "host", "default", "swaps", "first inference ms, as built: median", "fastest",
         "with the winners: median", "fastest", "with the optimum: median", "fastest",
         "share of the optimum's speed, first inference: median", "fastest",
         "of the same bundle again: median", "fastest", "warm", "browsers"],
        ("subject", "host", "start", "swaps", "built_first_ms", "built_fastest_ms", "first_ms",
         "fastest_ms", "optimum_first_ms", "optimum_fastest_ms", "first_share", "fastest_share",
         "first_noise", "fastest_noise", "share", "n"),
    ),
    "server": (
        "The server's part of a round",
        ["kernel", "candidates", "space ms", "a candidate ms: median", "longest",
         "processor ms: median", "longest", "module bytes: median", "largest"],
        ("subject", "candidates", "space_ms", "median_ms", "most_ms", "cpu_ms", "cpu_most_ms",
         "median_bytes", "most_bytes"),
    ),
    "model": (
        "Whole models, with all of the time for tuning; speed is relative to the model with good "
        "defaults",
        ["model", "host", "defaults", "kernels", "rounds", "swaps", "seconds allowed", "spent",
         "last swap at s", "speed: median", "lowest", "the session's own verdict", "ratio", "from",
         "to (95 %)", "pairs"],
        ("subject", "host", "start", "kernels", "rounds", "swaps", "seconds", "spent_s",
         "last_swap_s", "gain", "gain_least", "told", "told_ratio", "told_low", "told_high",
         "told_n"),
    ),
    "never": (
        "Sessions with good defaults: the tuned model compared with the default one",
        ["model", "host", "sessions", "seconds each", "sessions with a swap", "their gain: median",
         "lowest", "slower by 2 % or more", "lowest ratio without a swap (noise)"],
        ("subject", "host", "runs", "seconds", "changed", "gain_median", "gain_least", "slower",
         "same_least"),
    ),
    "p95": (
        "Inferences while a tuner works with its usual budget, from the page's call to its answer "
        "(rows without a p50: the driver's call alone)",
        ["model", "host", "p50 ms: without a tuner", "with one", "ratio", "p95 ms: without a tuner",
         "with one", "ratio", "from", "to (90 %)", "inferences", "trials", "seconds of tuning",
         "seconds in all"],
        ("subject", "host", "alone_median_ms", "tuning_median_ms", "median_ratio", "alone_ms",
         "tuning_ms", "ratio", "ratio_low", "ratio_high", "n", "trials", "tuning_s", "busy_s"),
    ),
    "memory": (
        "Megabytes of all processes of the browser, shared pages by their share: with a model that "
        "has run, while it is tuned with all of the time, and afterwards",
        ["model", "host", "weights", "before: median", "while tuning: median", "most",
         "after: median", "kernels", "trials", "seconds of tuning"],
        ("subject", "host", "weights_mb", "before_mb", "during_mb", "most_mb", "after_mb",
         "kernels", "rounds", "seconds"),
    ),
}  # fmt: skip


def tuning(record: Record) -> str:
    """One table per part that was measured."""
    text = []
    for part, (title, head, keys) in _TUNING.items():
        rows = [unchanged(r) for r in record["rows"] if r["part"] == part]
        if not rows:
            continue
        said, differing = origin(rows)
        shown = (*keys, *(_ORIGINS[name] for name in differing))
        cells = [[cell(r.get(k)) for k in shown] for r in rows]
        text += [f"{title}{said}:", "", table([*head, *differing], cells), ""]
    return "\n".join(text).rstrip()


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
