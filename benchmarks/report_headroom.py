"""Results of experiments that could fail: tuning without the default, and what is left to tune.

Input: the records of withheld.py, headroom.py and forecast.py.  Output: tables, a summary first; a
picture.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from charts import bars, cell, table
from report_space import geometric, rounded, short

Record = dict[str, Any]
Row = Mapping[str, Any]

#: Shares of the fastest: below it a default is poor; from it on a session has done its work.
POOR, REACHED = 0.92, 0.97
#: Rounds of a session that never reached its goal count as this many in a median: more than any.
NEVER = 10**9


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share * 100:.0f} %"


def _rounds(values: Sequence[int | None]) -> str:
    found = statistics.median_high([NEVER if v is None else v for v in values])
    return "never" if found == NEVER else str(found)


def withheld(record: Record) -> str:
    """By browser, start, order and budget: how many sessions came within 3 % of the best."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for r in record["rows"]:
        key = (r["host"], r["device"], r["start"], r["order"], _percent(r["budget"]))
        groups.setdefault(key, []).append(r)
    head = ["browser", "class", "start", "order", "time for tuning", "kernels", "sessions"]
    head += ["97 % reached by", "rounds: median", "longest", "seconds: median", "kB: median"]
    head += [
        "share at the start",
        "at the end: median",
        "least",
        "from page to page: median spread",
    ]
    head += ["unmeasured first choice: least"]
    lines = []
    for key, rows in sorted(groups.items()):
        done = [r for r in rows if r["rounds"] is not None]
        lines.append([
            *key, str(len({r["kernel"] for r in rows})), str(len(rows)),
            f"{len(done)} of {len(rows)}", _rounds([r["rounds"] for r in rows]),
            str(max(r["rounds"] for r in done)) if done else "–",
            cell(_middle([r["reached_s"] for r in done])),
            cell(_middle([r["bytes"] / 1000 for r in done])),
            _percent(statistics.median(r["start_share"] for r in rows)),
            _percent(statistics.median(r["share"] for r in rows)),
            _percent(min(r["share"] for r in rows)),
            _percent(_middle([_spread(r) for r in rows])),
            _percent(min(r["guess_share"] for r in rows)),
        ])  # fmt: skip
    each = ["kernel", "browser", "class", "start", "order", "candidates", "within 3 %"]
    each += ["share at the start", "first choice", "at the end", "by page", "rounds"]
    each += ["random, by arithmetic", "seconds"]
    each += ["evaluation ms: median", "p95", "longest"]
    keys = ("evaluation_ms", "evaluation_p95_ms", "evaluation_most_ms")
    details = [
        [
            r["kernel"], r["host"], r["device"], r["start"], r["order"], str(r["candidates"]),
            str(r["good"]),
            *(_percent(r[k]) for k in ("start_share", "guess_share", "share")),
            ", ".join(_percent(share) for share in r.get("share_pages", ())) or "–",
            cell(r["rounds"]), cell(rounded(r.get("random_rounds"))), cell(r["reached_s"]),
            *(cell(r[k]) for k in keys),
        ]
        for r in record["rows"]
    ]  # fmt: skip
    text = [table(head, lines), "Each session:", table(each, details)]
    return "\n\n".join([*text, *_stages(record["rows"])])


def _spread(row: Row) -> float | None:
    """How far the share of one kernel differs from page to page; older rows have one page."""
    pages = row.get("share_pages")
    return max(pages) - min(pages) if pages else None


#: The stages of a trial, as docs/tuning-loop.md has them.
STAGES = ("prepare", "incumbent", "build", "look", "warm", "check", "pairs", "confirm", "undecided")


def _stages(rows: Sequence[Row]) -> list[str]:
    """Where the time of trials went; rows of older versions do not say."""
    told = [r for r in rows if r.get("evaluation_stages")]
    if not told:
        return []
    cells = [
        [r["kernel"], r["host"], r["start"], r["order"], str(r["tried"]),
         *(_both(r["evaluation_stages"].get(s), r["longest_stages"].get(s)) for s in STAGES)]
        for r in told
    ]  # fmt: skip
    head = ["kernel", "browser", "start", "order", "trials", *STAGES]
    title = "Milliseconds of a trial by stage, of the mean trial and of the longest:"
    return [title, table(head, cells)]


def _both(mean: float | None, longest: float | None) -> str:
    return " / ".join("–" if ms is None else f"{ms:.0f}" for ms in (mean, longest))


def _middle(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return round(statistics.median(known), 2) if known else None


def headroom(record: Record) -> str:
    """Models first, then sessions, then kernels whose default has less than 97 %."""
    of = {part: [r for r in record["rows"] if r["part"] == part] for part in ("model", "session")}
    text = []
    if of["model"]:
        head = ["model", "browser", "class", "CPU", "kernels", "share of the time"]
        head += ["all optima over built, as kernels promise", "measured", "lowest", "turns"]
        keys = ("model", "host", "device", "cpu", "kernels", "swept_share", "expected")
        lines = [[cell(r[k]) for k in (*keys, "headroom", "least", "n")] for r in of["model"]]
        for host in dict.fromkeys(r["host"] for r in of["model"]):
            mean = geometric(r["headroom"] for r in of["model"] if r["host"] == host)
            lines.append(["geometric mean", host, *[""] * 5, f"{mean:.3f}", "", ""])
        text.append(table(head, lines))
    if of["session"]:
        head = ["model", "browser", "class", "seconds", "rounds", "swaps", "speed over built"]
        head += ["lowest", "with all optima", "share of that taken", "turns"]
        keys = ("model", "host", "device", "seconds", "rounds", "swaps", "gain")
        keys += ("least", "headroom", "taken", "n")
        lines = [[cell(r.get(k)) for k in keys] for r in of["session"]]
        text += ["What sessions take of it:", table(head, lines)]
        text += _poor(of["session"])
    below = [r for r in record["rows"] if r["part"] == "kernel" and r["share"] < REACHED]
    if below:
        head = ["model", "browser", "class", "kernel", "share of the time", "default's share"]
        head += ["default", "optimum"]
        lines = [
            [
                r["model"], r["host"], r["device"], f"{r['kind']} {r['shape']}",
                _percent(r["time_share"]), _percent(r["share"]),
                short(r["default"]), short(r["optimum"]),
            ]
            for r in sorted(below, key=lambda r: r["share"])
        ]  # fmt: skip
        all_ = sum(r["part"] == "kernel" for r in record["rows"])
        said = f"Kernels whose default has less than 97 % ({len(below)} of {all_}):"
        text += [said, table(head, lines)]
    return "\n\n".join(text)


def _poor(sessions: Sequence[Row]) -> Iterator[str]:
    """By browser and length: of kernels whose default was poor beside the sweep's optimum, how
    many a session brought near the fastest."""
    cells = []
    for host, seconds in dict.fromkeys((r["host"], r["seconds"]) for r in sessions):
        of = [r for r in sessions if (r["host"], r["seconds"]) == (host, seconds)]
        kernels = [k for r in of for k in r.get("below", []) if k["default"] < POOR]
        if not kernels:
            continue
        near = sum(k["share"] >= REACHED for k in kernels)
        shares = [geometric(k[key] for k in kernels) for key in ("default", "share")]
        models = ", ".join(r["model"] for r in of if any(k in kernels for k in r.get("below", [])))
        told = [host, f"{seconds:.0f}", models, str(len(kernels)), *map(_percent, shares)]
        cells.append([*told, f"{near} ({near / len(kernels):.0%})"])
    if cells:
        head = ["browser", "seconds", "models", "kernels", "default's share", "after the session"]
        yield f"Kernels whose default has less than {_percent(POOR)} of the fastest, timed again:"
        yield table([*head, f"{_percent(REACHED)} reached"], cells)


def forecast(record: Record) -> str:
    """Per sweep and number of trials, what the model has of its fastest; then kernels with a poor
    default."""
    rows = record["rows"]
    looks = rows[0]["trials"]
    ways = {False: "in the source's order", True: "as trials teach"}
    lines = [
        [r["model"], r["host"], r["device"], ways[r["learning"]], *(f"{s:.3f}" for s in r["share"])]
        for r in sorted(rows, key=lambda r: (r["host"], r["model"], r["learning"]))
    ]
    poor = []
    for learning, way in ways.items():
        own = [r for r in rows if r["learning"] is learning]
        means = [geometric(r["share"][n] for r in own) for n in range(len(looks))]
        lines.append(["geometric mean", "", "", way, *(f"{m:.3f}" for m in means)])
        by_look = [[k for r in own for k in r["poor"][n]] for n in range(len(looks))]
        for least in (REACHED, 0.9):
            near = [sum(k >= least for k in kernels) for kernels in by_look]
            poor.append([way, _percent(least), str(len(by_look[0])), *map(str, near)])
    trials = [f"{n} trials" for n in looks]
    head = ["model", "browser", "class", "candidates", *trials]
    said = (
        f"Of kernels whose default has less than {_percent(POOR)} of the fastest, how many have "
        "reached a share of it after so many trials:"
    )
    text = [table(head, lines), said]
    return "\n\n".join([*text, table(["candidates", "share", "kernels", *trials], poor)])


def charts(record: Record) -> Iterator[tuple[str, str]]:
    """What the longest session of a model in a browser took, before all that a sweep found."""
    longest: dict[tuple[str, str], Row] = {}
    for r in sorted(record["rows"], key=lambda r: r["seconds"]):
        if r["part"] == "session":
            longest[r["model"], r["host"]] = r
    if longest:
        rows = [
            (f"{model} {host} {r['seconds']:.0f} s", *(_gained(r[k]) for k in ("gain", "headroom")))
            for (model, host), r in sorted(longest.items(), key=lambda item: -item[1]["headroom"])
        ]
        title = "Faster after a session by; light: with the best of every candidate"
        yield "sessions.svg", bars(title, rows, "%")


def _gained(ratio: float) -> float:
    """Percent; noise below nothing is nothing."""
    return max(0.0, 100 * (ratio - 1))


TABLES: Mapping[str, Callable[[Record], str]] = {
    "withheld": withheld,
    "headroom": headroom,
    "forecast": forecast,
}
ABOUT: Mapping[str, tuple[str, str]] = {
    "withheld": (
        "Tuning without the default",
        "The compiler's default and what has its code are no candidates. Shares are of the fastest "
        "of the others, timed beside what was in use.",
    ),
    "headroom": (
        "What is left to tune",
        "Models of public packages: each kernel with 2 % of the time against the fastest of its "
        "whole space.",
    ),
    "forecast": (
        "Trials that sessions need",
        "The tuner's own order and choice of candidates on stored sweeps, with 2 % of noise: what "
        "a model has of its fastest after so many trials of its swept kernels.",
    ),
}
