"""Page: models that share one GPU, and how far a critical model's bound is kept.

Input: the record of corun.policies.  Output: the page, SVG frontiers.  A row is one run of a pair
of models under a policy: pair, policy, sms, seed, max_slowdown (None: the policy takes no bound),
p99 (latency of the critical model with waiting, over its latency alone), service_p99 (from its
begin), normal_share (of what is possible), bound_kept, n (critical requests); also kernels
("tuned", "naive"), clients, l2_persistence (the critical weights stay in the L2 cache), rate
(critical requests a second; 0: the workload's own) and load (the share of the device that open
arrivals ask for; None: what their rates make), where they vary.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.records import Record, Records, Stored, by, rows
from benchmarks.report.charts import COLOURS, frontier
from benchmarks.report.page import Answer, Page, Section, count, over
from benchmarks.report.tables import paragraphs, shown, table, told
from tilewright.elastic.policy.sequential_test import PROMISED

OURS = "tilewright"
#: The card of most runs, which lines do not name.
CARD = "NVIDIA H200"
#: What may differ between pictures, and between points of a series.
SETTING = ("gpu", "pair", "sms", "kernels", "clients", "l2_persistence", "rate", "load")
POINT = ("policy", "max_slowdown")
MEASURES = ("p99", "service_p99", "normal_share")
#: Policies beside ours in the tables.
OTHERS = ("priority", "streams", "miriam")
#: Columns of ours: under the least and under the largest bound.
OWN = ("setting", "refused at", "bound", "p99", "normal", "largest bound", "p99 there",
       "normal there")  # fmt: skip
#: Fewer points of ours make no frontier.
FRONTIER = 3


def runs(record: Record) -> list[Stored]:
    """Rows of runs; a row with an error is of a bound or policy that was refused."""
    return [{**row, "policy": _policy(row)} for row in record["rows"] if "error" not in row]


def _policy(row: Stored) -> str:
    """With how many normal models run at once, where that was asked for."""
    together = row.get("together")
    return str(row["policy"]) + ("" if together is None else f", {together or 'all'} at once")


def points(ran: Sequence[Stored]) -> list[Stored]:
    """Medians over the seeds; n is that of all runs together."""
    keys = (*SETTING, *POINT)
    found: list[Stored] = []
    for key, runs in by(ran, *keys).items():
        middle: dict[str, Any] = dict(zip(keys, key, strict=True))
        for name in MEASURES:
            known = [r[name] for r in runs if r.get(name) is not None]
            middle[name] = statistics.median(known) if known else None
        found.append(middle | {"n": sum(r["n"] for r in runs), "runs": len(runs)})
    return found


def named(setting: Sequence[Any]) -> str:
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


# ---- tables --------------------------------------------------------------------------------------


def corun(record: Record) -> str:
    """Tuned kernels, then the naive ones of Miriam's setting."""
    tuned, others, naive = list[list[str]](), list[list[str]](), list[list[str]]()
    for setting, (found, refused) in sorted(settings(record).items(), key=_order):
        if not ours(found) and not refused:
            continue
        said = dict(zip(SETTING, setting, strict=True))
        name, alone = _short(said), {r["policy"]: r for r in found}
        own = [name, *_own(found, refused)]
        if said["kernels"] == "naive":
            naive.append([*own, *_beside(alone, OTHERS)])
            continue
        tuned.append([*own, *_beside(alone, OTHERS[:1])])
        if any(policy in alone for policy in OTHERS[1:]):
            others.append([name, *_beside(alone, OTHERS[1:])])
    parts = [table(_head(OWN, OTHERS[:1]), tuned)] if tuned else []
    if others:
        parts += ["Policies that keep no bound, where they ran in the same setting:",
                  table(_head(OWN[:1], OTHERS[1:]), others)]  # fmt: skip
    if naive:
        parts += ["Naive kernels, as Miriam has them:", table(_head(OWN, OTHERS), naive)]
    return paragraphs(*parts)


def _head(own: Sequence[str], policies: Sequence[str]) -> list[str]:
    return [*own, *(f"{policy}: {what}" for policy in policies for what in ("p99", "normal"))]


def _order(setting: tuple[tuple[Any, ...], object]) -> tuple[Any, ...]:
    """By workload and multiprocessors; the usual card first."""
    said = dict(zip(SETTING, setting[0], strict=True))
    return said["gpu"] != CARD, said["pair"], said["sms"] or 0, *map(str, setting[0])


def settings(record: Record) -> dict[tuple[Any, ...], tuple[list[Stored], list[float]]]:
    """Points and bounds that were refused, by setting."""
    errors = [r for r in record["rows"] if "error" in r and r["policy"] == OURS]
    refused = by((r for r in errors if r["max_slowdown"]), *SETTING)
    return {
        setting: (found, sorted({r["max_slowdown"] for r in refused.get(setting, ())}))
        for setting, found in by(points(runs(record)), *SETTING).items()
    }


def ours(found: Sequence[Stored]) -> list[Stored]:
    """The points under our policy, from the least bound on."""
    own = (r for r in found if r["policy"].split(",")[0] == OURS and r["max_slowdown"])
    return sorted(own, key=lambda r: float(r["max_slowdown"]))


def _short(said: dict[str, Any]) -> str:
    """Without what the table says of all its lines: their kernels, and the usual card."""
    return named([*(said | {"kernels": "", "gpu": _other_card(said["gpu"])}).values()])


def _other_card(gpu: object) -> object:
    return "" if gpu == CARD else gpu


def _own(found: Sequence[Stored], refused: Sequence[float]) -> list[str]:
    """Bounds that are refused; ours under the least and under the largest other one."""
    own = ours(found)
    below = [f"{b:g}" for b in refused if not own or b < own[0]["max_slowdown"]]
    cells = [", ".join(below)]
    for point in ((*own, {})[0], (own[-1] if own[1:] else {})):
        cells += [shown(point, "max_slowdown:.4g"), *_measured(point)]
    return cells


def _beside(alone: Mapping[str, Stored], policies: Sequence[str]) -> list[str]:
    """Policies that take no bound."""
    return [cell for policy in policies for cell in _measured(alone.get(policy, {}))]


def _measured(point: Stored) -> list[str]:
    return [shown(point, "service_p99:.2f"), shown(point, "normal_share:.2f")]


def charts(record: Record) -> Iterator[tuple[str, str]]:
    """A frontier where ours ran under several bounds: the critical model's p99 over alone, and the
    normal share."""
    policies = list(dict.fromkeys(r["policy"] for r in record["rows"] if "error" not in r))
    # a policy has one colour in all pictures, and its further curves what is left in each
    further = range(len(policies), len(COLOURS))
    for setting, found in by(points(runs(record)), *SETTING).items():
        series = [
            (policy, [(r["p99"], r["normal_share"]) for r in of])
            for (policy,), of in by(found, "policy").items()
        ]
        if max(len(found) for _, found in series) < FRONTIER:
            continue
        spare = iter(further)
        colours = [policies.index(p) if p in policies else next(spare) for p, _ in series]
        title = named(setting)
        name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
        axes = ("p99 of the critical model over alone", "normal work, share of possible")
        yield f"corun.policies.{name}.svg", frontier(title, series, axes, colours)


# ---- the page ------------------------------------------------------------------------------------


def _latest(records: Records) -> Record:
    """What was measured on the card of the last run."""
    record = records["corun.policies"]
    return {**record, "rows": rows(record, gpu=record["machine"].get("gpu"))}


def _compared(record: Record) -> list[tuple[Stored, Stored]]:
    """Tuned kernels: ours under its least bound, and priorities, in the same setting."""
    found = []
    for setting, (own, _) in settings(record).items():
        theirs = [r for r in own if r["policy"] == "priority"]
        if ours(own) and theirs and setting[SETTING.index("kernels")] == "tuned":
            found.append((ours(own)[0], theirs[0]))
    return found


def _bounded(record: Record) -> list[Stored]:
    return [r for r in runs(record) if r["policy"].split(",")[0] == OURS]


def _kept(record: Record) -> tuple[int, int]:
    """From the counts: rows stored before 2026-11-28 call a bound kept by another rule."""
    found = _bounded(record)
    kept = [r["bound_kept"] and r["over_bound"] <= PROMISED * r["n"] for r in found]
    return sum(kept), len(kept)


def verdict(records: Records) -> str:
    record = _latest(records)
    kept, ran = _kept(record)
    refused = sum(r.get("error", {}).get("code") == "admission-refused" for r in record["rows"])
    pairs = _compared(record)
    (own, other), (work, more) = (
        [statistics.median(pair[n][key] for pair in pairs) for n in (0, 1)]
        for key in ("service_p99", "normal_share")
    )
    return (
        f"A critical model's bound was kept in {kept} of {ran} runs; {refused} bounds were refused "
        f"beforehand. Under the tightest accepted bound its p99 is {own:.2f} times the time alone "
        f"(median of {len(pairs)} settings), while normal models do {work:.2f} of the possible "
        f"work; with stream priorities it is {other:.2f} times, while they do {more:.2f}."
    )


def kept(records: Records) -> str:
    """What counts as kept, and how many requests exceeded their bound in all."""
    record = _latest(records)
    over_bound, requests = (sum(r[key] for r in _bounded(record)) for key in ("over_bound", "n"))
    return (
        "A run keeps its bound if at most one request in a hundred exceeds it, so a run of fewer "
        f"than 100 requests fails by a single one. Over all runs {over_bound:,} of {requests:,} "
        f"requests exceeded it ({told(over_bound / requests, '.1%')})."
    )


def answers(records: Records) -> list[Answer]:
    record = _latest(records)
    pairs = _compared(record)
    lines = [count("runs that kept their bound", *_kept(record), record)]
    for key, what in (("service_p99", "p99 from the begin, over alone"),
                      ("normal_share", "normal work, share of what is possible")):  # fmt: skip
        for n, who in enumerate(("under the tightest bound", "with stream priorities")):
            found = [pair[n][key] for pair in pairs]
            lines.append(over(f"{what}, {who}", found, record, ".2f", statistics.median))
    return lines


PAGE = Page("corun", "Models that share a GPU", verdict, answers, (
    Section("", "When a bound is kept", "Of the runs on the card that was measured last.", kept),
    Section("corun.policies", "Every setting",
            "A critical model and normal ones ([workloads](../../docs/workloads.md)). p99: the "
            "critical model's time from its begin, as a multiple of its time alone, which was "
            "measured with the same pauses. Normal: the work of normal models as a share of what "
            "the critical model leaves possible; above 1, both use parts of the GPU that the "
            "other one leaves idle. Ours is shown under its least and its largest bound. "
            "`tilewright` knows the least gap between requests where the workload says one (MDTB-B "
            "and D, DISB-A, LGSVL; not Poisson arrivals). Pictures: p99 with waiting.",
            corun, charts),
))  # fmt: skip
