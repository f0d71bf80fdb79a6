"""Page: what sessions of the tuner find, with and without the default, and what is left to tune.

Input: the records of tuning/: headroom, withheld and forecast.  Output: the page, SVG bars.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from statistics import geometric_mean

from benchmarks.optimum import NEAR, POOR
from benchmarks.records import Record, Records, Stored, by, rows, values
from benchmarks.report.charts import bars
from benchmarks.report.page import Answer, Page, Section, over
from benchmarks.report.spaces import short
from benchmarks.report.tables import DASH, Columns, listed, paragraphs, table, told

#: Rounds of a session that never reached its goal count as this many in a median: more than any.
NEVER = 10**9
#: Seconds of most sessions; how many of the worst defaults are shown.
USUAL, WORST = 30, 5


def _percent(share: float | None) -> str:
    return told(share, ".0%")


def _middle(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return round(statistics.median(known), 2) if known else None


# ---- what is left, and what sessions take of it --------------------------------------------------


def _placed(found: Sequence[Stored]) -> list[Stored]:
    """With browser and processor as one."""
    places = ([r["host"], r.get("cpu", "").split("(")[0]] for r in found)
    return [{**r, "place": ", ".join(filter(None, p))} for r, p in zip(found, places, strict=True)]


#: Heads of `_spread`.
SPREAD = ("models", "mean", "least", "most")


def _spread(ratios: Iterable[float]) -> list[str]:
    """How many, their geometric mean, the least and the most."""
    found = list(ratios)
    spread = (geometric_mean(found), min(found), max(found))
    return [str(len(found)), *(f"{ratio:.2f}" for ratio in spread)]


def headroom(record: Record) -> str:
    """Models, then sessions, then kernels whose default has less than 97 %."""
    text = []
    if models := _placed(rows(record, part="model")):
        lines = [
            [*place, *_spread(r["headroom"] for r in of)]
            for place, of in by(models, "place").items()
        ]
        text += [
            "How many times as fast models are with the fastest candidate of each kernel:",
            table(["browser", *SPREAD], sorted(lines)),
        ]
    if sessions := _placed(rows(record, part="session")):
        lines = [
            [place, f"{seconds:.0f}", *_spread(r["gain"] for r in of)]
            for (seconds, place), of in sorted(by(sessions, "seconds", "place").items())
        ]
        text += [
            "How many times as fast they are after a session:",
            table(["browser", "seconds", *SPREAD], lines),
        ]
    text += _poor(sessions)
    kernels = rows(record, part="kernel")
    below = sorted((r for r in kernels if r["share"] < NEAR), key=lambda r: float(r["share"]))
    if below:
        said = (
            f"{len(below)} of {len(kernels)} kernels have a default with less than 97 %; the "
            f"{min(WORST, len(below))} worst:"
        )
        text += [said, listed(below[:WORST], BELOW)]
    return paragraphs(*text)


BELOW: Columns = {
    "model": "model", "browser": "host", "class": "device",
    "kernel": lambda r: f"{r['kind']} {r['shape']}", "share of the time": "time_share:.0%",
    "default's share": "share:.0%", "default": lambda r: short(r["default"]),
    "optimum": lambda r: short(r["optimum"]),
}  # fmt: skip


def _poor(sessions: Sequence[Stored]) -> Iterator[str]:
    """By browser and length: of kernels whose default was poor beside the sweep's optimum, how
    many a session brought near the fastest."""
    head = ["browser", "seconds", "models", "kernels", "default's share", "after the session"]
    cells = []
    for (host, seconds), of in by(sessions, "host", "seconds").items():
        kernels = [k for r in of for k in r.get("below", []) if k["default"] < POOR]
        if not kernels:
            continue
        near = sum(k["share"] >= NEAR for k in kernels)
        shares = [geometric_mean(k[key] for k in kernels) for key in ("default", "share")]
        models = dict.fromkeys(
            r["model"] for r in of if any(k in kernels for k in r.get("below", []))
        )
        told_ = [host, f"{seconds:.0f}", ", ".join(models), str(len(kernels))]
        cells.append([*told_, *map(_percent, shares), f"{near} ({_percent(near / len(kernels))})"])
    if cells:
        yield f"Kernels whose default has less than {_percent(POOR)} of the fastest, timed again:"
        yield table([*head, f"{_percent(NEAR)} reached"], cells)


def charts(record: Record) -> Iterator[tuple[str, str]]:
    """What the longest session of a model in a browser took, before all that a sweep found."""
    longest: dict[tuple[str, str], Stored] = {}
    for r in sorted(rows(record, part="session"), key=lambda r: float(r["seconds"])):
        longest[r["model"], r["host"]] = r
    if longest:
        lines = [
            (f"{model} {host} {r['seconds']:.0f} s", _gained(r["gain"]), _gained(r["headroom"]))
            for (model, host), r in sorted(longest.items(), key=lambda item: -item[1]["headroom"])
        ]
        title = "Faster after a session by; light: with the best of every candidate"
        yield "tuning.headroom.sessions.svg", bars(title, lines, "%")


def _gained(ratio: float) -> float:
    """Percent; noise below nothing is nothing."""
    return max(0.0, 100 * (ratio - 1))


# ---- without the default -------------------------------------------------------------------------

#: The stages of a trial, as docs/tuner-api.md has them.
STAGES = ("prepare", "incumbent", "build", "look", "warm", "check", "pairs", "confirm", "undecided")


def withheld(record: Record) -> str:
    """By browser, start, order and budget: how many sessions came within 3 % of the best."""
    head = ["browser", "class", "start", "order", "time for tuning", "97 % reached by"]
    head += ["trials until then: median", "most", "seconds: median", "kB: median"]
    head += ["share at the start", "at the end: median", "least"]
    lines = []
    groups = by(record["rows"], "host", "device", "start", "order", "budget")
    for (*key, budget), found in sorted(groups.items()):
        done = [r for r in found if r["rounds"] is not None]
        lines.append([
            *key, _percent(budget), f"{len(done)} of {len(found)}",
            _rounds([r["rounds"] for r in found]),
            told(max((r["rounds"] for r in done), default=None)),
            told(_middle([r["reached_s"] for r in done])),
            told(_middle([r["bytes"] / 1000 for r in done])),
            _percent(statistics.median(r["start_share"] for r in found)),
            _percent(statistics.median(r["share"] for r in found)),
            _percent(min(r["share"] for r in found)),
        ])  # fmt: skip
    return paragraphs(table(head, lines), *_stages(record["rows"]))


def _rounds(values: Sequence[int | None]) -> str:
    found = statistics.median_high([NEVER if v is None else v for v in values])
    return "never" if found == NEVER else str(found)


def _stages(found: Sequence[Stored]) -> Iterator[str]:
    """Where the time of trials went; rows of older versions do not say."""
    known = [r for r in found if r.get("evaluation_stages")]
    if not known:
        return
    lines = []
    for (host,), own in by(known, "host").items():
        trials = sum(r["tried"] for r in own)
        cells = []
        for stage in STAGES:
            spent = sum(r["tried"] * (r["evaluation_stages"].get(stage) or 0) for r in own)
            longest = max(r["longest_stages"].get(stage) or 0 for r in own)
            most = f"{longest:.0f}" if longest else DASH
            cells.append(f"{spent / trials:.0f} / {most}" if spent else DASH)
        lines.append([host, str(trials), *cells])
    yield "Milliseconds of a trial by stage, in the mean, and most in the longest of a session:"
    yield table(["browser", "trials", *STAGES], lines)


# ---- trials that sessions need -------------------------------------------------------------------


def forecast(record: Record) -> str:
    """Per order and number of trials, what models have of their fastest, and then kernels with a
    poor default."""
    looks = record["rows"][0]["trials"]
    shares, poor = [], []
    for learning, order in ((False, "in the source's order"), (True, "as trials teach")):
        own = rows(record, learning=learning)
        means = (geometric_mean(r["share"][n] for r in own) for n in range(len(looks)))
        shares.append([order, str(len(own)), *(f"{m:.3f}" for m in means)])
        kernels = [[k for r in own for k in r["poor"][n]] for n in range(len(looks))]
        for least in (NEAR, 0.9):
            near = [sum(k >= least for k in found) for found in kernels]
            poor.append([order, _percent(least), str(len(kernels[0])), *map(str, near)])
    trials = [f"{n} trials" for n in looks]
    return paragraphs(
        table(["candidates", "sweeps of models", *trials], shares),
        f"Of kernels whose default has less than {_percent(POOR)} of the fastest, how many have "
        "reached a share of it after so many trials:",
        table(["candidates", "share", "kernels", *trials], poor),
    )


# ---- the page ------------------------------------------------------------------------------------


BROWSERS, OLD = ("chromium", "firefox"), ("node 20",)


def _gains(records: Records, key: str, hosts: tuple[str, ...]) -> list[float]:
    """Of the usual sessions in these hosts."""
    return values(records["tuning.headroom"], key, part="session", seconds=USUAL, host=hosts)


def verdict(records: Records) -> str:
    browsers, node = (_gains(records, "gain", hosts) for hosts in (BROWSERS, OLD))
    return (
        f"In Chromium and Firefox, {USUAL} seconds of tuning make public models "
        f"{geometric_mean(browsers):.2f} times as fast in the mean, at most {max(browsers):.2f} "
        f"times; in Node 20, whose compiler the defaults do not suit, {min(node):.2f} to "
        f"{max(node):.2f} times."
    )


def answers(records: Records) -> list[Answer]:
    record, withheld = records["tuning.headroom"], records["tuning.withheld"]
    found = [
        over(f"{name}: {what}", _gains(records, key, hosts), record)
        for name, hosts in (("Chromium, Firefox", BROWSERS), ("Node 20", OLD))
        for key, what in (("gain", f"after {USUAL} s of tuning"), ("headroom", "all optima"))
    ]
    ends = values(withheld, "share", order="model", budget=1)
    said = "sessions without the default: share of the best left"
    return [*found, over(said, ends, withheld, ".2f", statistics.median)]


PAGE = Page("headroom", "What tuning finds, and what is left", verdict, answers, (
    Section("tuning.headroom", "What is left to tune",
            "Models of public packages: each kernel with 2 % of the time against the fastest of "
            "its whole space, by turns.", headroom, charts),
    Section("tuning.withheld", "Tuning without the default",
            "The compiler's default and what has its code are no candidates. Shares are of the "
            "fastest of the others, timed beside what was in use.", withheld),
    Section("tuning.forecast", "Trials that sessions need",
            "The tuner's own order and choice of candidates on stored sweeps, with 2 % of noise: "
            "what a model has of its fastest after so many trials of its swept kernels (geometric "
            "means).", forecast),
))  # fmt: skip
