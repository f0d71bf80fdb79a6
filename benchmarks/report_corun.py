"""Tables and frontiers of models that share one GPU.

Input: records of results/corun.json, corun_floor.json, bound.json, elastic.json.  Output: Markdown
and SVG.  A row of the first is one run of a pair of models under a policy: pair, policy, sms, seed,
max_slowdown (None: the policy takes no bound), p50, p99, p999 (latency of the critical model with
waiting, over its latency alone), service_p50, service_p99 (from its begin), misses (share of
requests), normal_share (of what is possible), total_over_sequential, occupancy (None: not
recorded), n (critical requests); also kernels ("tuned", "naive"), clients, l2_persistence (the
critical weights stay in the L2 cache), rate (critical requests a second; 0: the workload's own) and
load (the share of the device that open arrivals ask for; None: what their rates make), where they
vary.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from charts import COLOURS, bars, cell, frontier, table

Record = dict[str, Any]
Row = Mapping[str, Any]

#: What may differ between pictures, and between points of a series.
SETTING = ("gpu", "pair", "sms", "kernels", "clients", "l2_persistence", "rate", "load")
POINT = ("policy", "max_slowdown")
#: Bounds of the critical model's slowdown at which policies are compared.
BOUNDS = (1.05, 1.1, 1.2, 1.4, 1.6)
MEASURES = (
    "p50", "p99", "p999", "service_p50", "service_p99", "misses", "normal_share",
    "total_over_sequential", "occupancy",
)  # fmt: skip


def _grouped(rows: Sequence[Row], keys: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    return groups


def runs(record: Record) -> list[Row]:
    """Rows of runs; a row with an error is of a bound or policy that was refused."""
    return [{**row, "policy": _policy(row)} for row in record["rows"] if "error" not in row]


def _policy(row: Row) -> str:
    """With how many normal models run at once, where that was asked for."""
    together = row.get("together")
    return row["policy"] + ("" if together is None else f", {together or 'all'} at once")


def points(rows: Sequence[Row]) -> list[Row]:
    """Medians over the seeds; n is that of all runs together."""
    keys = (*SETTING, *POINT)
    found = []
    for key, runs in _grouped(rows, keys).items():
        middle: dict[str, Any] = dict(zip(keys, key, strict=True))
        for name in MEASURES:
            known = [r[name] for r in runs if r.get(name) is not None]
            middle[name] = statistics.median(known) if known else None
        found.append(middle | {"n": sum(r["n"] for r in runs), "runs": len(runs)})
    return found


def _named(setting: Sequence[Any]) -> str:
    """Pair, multiprocessors, and what else was said of it, with the card at the end."""
    gpu, pair, sms, kernels, clients, l2_persistence, rate, load = setting
    words = [str(pair), f"{sms} SMs" if sms else "all SMs"]
    words += [f"{kernels} kernels"] if kernels else []
    words += [f"{clients} client" + "s" * (clients > 1)] if clients else []
    words += ["weights kept in L2"] if l2_persistence else []
    words += [f"{rate:g} requests a second"] if rate else []
    words += [f"open arrivals at a load of {load:.2f}"] if load else []
    words += [str(gpu)] if gpu else []
    return ", ".join(words)


def within(rows: Sequence[Row], bound: float) -> float | None:
    """The most normal share of points whose p99 is at most `bound` times the latency alone."""
    return max((r["normal_share"] for r in rows if r["p99"] <= bound), default=None)


def corun(record: Record) -> str:
    """What each policy leaves to normal models at a bound, then every point."""
    medians = points(runs(record))
    head = ["policy", "setting", *(f"p99 ≤ {bound:g}×" for bound in BOUNDS)]
    reached = [
        [policy, _named(setting), *(cell(within(rows, bound)) for bound in BOUNDS)]
        for (*setting, policy), rows in _grouped(medians, (*SETTING, "policy")).items()
    ]
    said = "Most normal work, as share of what is possible, at a bound of the critical model's p99:"
    columns = ["policy", "setting", "bound given", "p50", "p99", "p99.9"]
    columns += ["p50 from its begin", "p99 from its begin", "misses"]
    columns += ["normal share", "total over sequential", "occupancy", "requests", "runs"]
    each = [
        [
            str(r["policy"]), _named([r[key] for key in SETTING]), cell(r["max_slowdown"]),
            *(cell(r[name]) for name in MEASURES), str(r["n"]), str(r["runs"]),
        ]
        for r in medians
    ]  # fmt: skip
    return "\n\n".join(
        [said, table(head, reached), "Medians of the runs of each point:", table(columns, each)]
    )


def charts(record: Record) -> Iterator[tuple[str, str]]:
    """A frontier for each setting: the critical model's p99 over alone, and the normal share."""
    policies = list(dict.fromkeys(r["policy"] for r in record["rows"] if "error" not in r))
    # a policy has one colour in all pictures, and its further curves what is left in each
    further = range(len(policies), len(COLOURS))
    for setting, rows in _grouped(points(runs(record)), SETTING).items():
        series = [
            (policy, [(r["p99"], r["normal_share"]) for r in of])
            for (policy,), of in _grouped(rows, ("policy",)).items()
        ]
        spare = iter(further)
        colours = [policies.index(p) if p in policies else next(spare) for p, _ in series]
        name = re.sub(r"[^a-z0-9]+", "-", _named(setting).lower()).strip("-")
        yield (
            f"corun-{name}.svg",
            frontier(
                _named(setting),
                series,
                ("p99 of the critical model over alone", "normal work, share of possible"),
                colours,
            ),
        )


def known(value: float | None) -> str:
    return "" if value is None else cell(round(value, 4))


def bound(record: Record) -> str:
    """Variants of holding back on the simulated GPU, by workload and bound."""
    head = ["workload", "variant", "bound", "least", "over the bound", "over it by waiting"]
    head += ["the same alone", "p99", "normal share", "over it later", "normal work ended"]
    head += ["requests"]
    keys = ("over", "waited", "waited_alone", "p99", "normal_share", "later", "ended")
    rows = [
        [
            r["workload"], r["variant"], cell(r["max_slowdown"]), cell(round(r["least"], 3)),
            *(["refused", *6 * [""]] if r["refused"] else (known(r.get(k)) for k in keys)),
            str(r.get("n", "")),
        ]
        for r in record["rows"]
    ]  # fmt: skip
    return table(head, rows)


def elastic(record: Record) -> str:
    """The second form alone, then how soon it makes room: the preemption latency."""
    alone = [r for r in record["rows"] if r["what"] == "alone"]
    room = [r for r in record["rows"] if r["what"] == "room"]
    forms = [[r["case"], cell(r["ratio"])] for r in alone]
    figures = [(kind, q) for kind in ("idle_us", "busy_us", "more_us") for q in ("p50", "p99")]
    latencies = [
        [
            r["case"], str(r["blocks"]), *(cell(r[kind][q]) for kind, q in figures),
            str(r["n"]),
        ]
        for r in room
    ]  # fmt: skip
    head = ["kernel that makes room", "blocks that need it", "idle p50", "p99", "busy p50", "p99"]
    return "\n\n".join(
        [
            table(["kernel", "elastic over plain"], forms),
            "Microseconds from the write of the budget to the end of a probe that needs room, on "
            "an idle GPU, beside a kernel that fills it, and what that is more:",
            table([*head, "more p50", "p99", "requests"], latencies),
        ]
    )


def latencies(record: Record) -> Iterator[tuple[str, str]]:
    """How much longer a probe takes where a kernel must make room: p99, in microseconds."""
    rows = [
        (f"{r['case']}, {r['blocks']} blocks", r["more_us"]["p99"], 0.0)
        for r in record["rows"]
        if r["what"] == "room"
    ]
    yield "elastic-room.svg", bars("Microseconds until there is room, p99", rows, "")


def floor(record: Record) -> str:
    """Requests alone and beside normal work that may not stay, by two clocks."""
    shares = ("p50", "p90", "p99", "p995")
    head = ["workload", "SMs", "beside", "µs alone"]
    head += [f"{clock} {s}" for clock in ("host", "GPU") for s in ("p50", "p90", "p99", "p99.5")]
    rows = [
        [
            r["pair"], str(r["sms"]), r["beside"], cell(r["host_alone_us"]),
            *(cell(r[f"{clock}_{share}"]) for clock in ("host", "gpu") for share in shares),
            str(r["n"]),
        ]
        for r in record["rows"]
    ]  # fmt: skip
    return table([*head, "requests"], rows)


def turns(record: Record) -> str:
    """A request on the host beside threads of normal models."""
    head = ["normal models", "at once", "p50 µs", "p90 µs", "p99 µs", "started in vain", "runs"]
    head += ["a decision, µs"]
    keys = ("p50", "p90", "p99", "in_vain", "runs", "decision_us")
    rows = [
        [
            str(r["models"]), str(r["together"] or r["models"]),
            *(cell(r[key]) for key in keys), str(r["n"]),
        ]
        for r in record["rows"]
    ]  # fmt: skip
    return table([*head, "requests"], rows)


TABLES: dict[str, Callable[[Record], str]] = {
    "corun": corun, "corun_floor": floor, "corun_turns": turns, "bound": bound, "elastic": elastic,
}  # fmt: skip
#: Headings, and a sentence about what was measured.
ABOUT: dict[str, tuple[str, str]] = {
    "corun": (
        "Models that share a GPU",
        "A critical model and normal ones under each policy. Latencies of the critical model "
        "have waiting in them, or are from its begin, and are multiples of those alone, which were "
        "measured with the same pauses. `tilewright` knows the least gap between requests where "
        "the workload says one (MDTB-B and D, DISB-A, LGSVL; not Poisson arrivals).",
    ),
    "corun_floor": (
        "The floor of every bound",
        "Critical requests alone and beside a normal model that may keep no worker meanwhile, over "
        "the median of those with short pauses and nothing beside them: by the host's clock, from "
        "the call to the answer, and by the GPU's, from the model's first to its last kernel.",
    ),
    "corun_turns": (
        "A critical request and the threads of normal models, on the host",
        "Without a GPU: a request of 1600 µs that lets nobody stay, from its begin to when its "
        "thread has seen the end. Runs of normal kernels for each request, and those of them that "
        "were started while it ran.",
    ),
    "bound": (
        "The bound on the simulated GPU",
        "Critical requests over their bound: by interference, counted from their begin, and of the "
        "others by waiting for requests before them, beside a queue with nothing else on the GPU. "
        "Least: the slowdown with a budget of 0 by the measured curve; a bound below is refused. "
        "Later: in the second half of each run, when curves that promise too much have been "
        "noticed; of 15 runs those in which nothing kept the bound, so normal work ended.",
    ),
    "elastic": (
        "Elastic kernels on a real GPU",
        "What the second form costs where nobody asks for room, and how soon there is room.",
    ),
}
