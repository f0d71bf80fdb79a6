"""Page: sweeps of whole spaces: defaults, orders, winners on other engines and shapes, families.

Input: the records of tuning.sweep (space, shapes) and families.  Output: the page, SVG bars.  A
share is a candidate's speed over that of the fastest.  Classes of devices have different spaces, so
each stands apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import geometric_mean
from typing import Any, TypeVar

from benchmarks.optimum import NEAR, near, trials_at_random
from benchmarks.records import Record, Records, Stored, by
from benchmarks.report.charts import grouped
from benchmarks.report.page import Answer, Page, Section, over
from benchmarks.report.tables import DASH, Columns, listed, paragraphs, table, told

#: Short names of a schedule's fields in tables, and values that are not shown.
_SHORT = {"order": "nm", "stage": False, "along": "n", "lanes": 4, "cache": "", "dot": "wide"}


def short(schedule: Mapping[str, Any]) -> str:
    """ "6x8 r8 tile 96x64 mn"."""
    words = [f"{schedule['x0']}x{schedule['y0']} r{schedule['r0']}"] if "x0" in schedule else []
    words.append("tile " + "x".join(str(schedule[n]) for n in ("x1", "y1") if n in schedule))
    if schedule.get("r1"):
        words.append(f"split {schedule['r1']}")
    words += [f"{k}={v}" for k, v in schedule.items() if k in _SHORT and v != _SHORT[k]]
    return " ".join(words).replace("order=", "").replace("stage=True", "staged")


# ---- the sweep -----------------------------------------------------------------------------------


def by_class(rows: Iterable[Stored]) -> dict[str, list[Stored]]:
    """Class of device → rows; rows of old files may lack it."""
    return {device or "unknown": of for (device,), of in by(rows, "device").items()}


def newest(rows: Iterable[Stored]) -> list[Stored]:
    """One row per kernel: of the class that was measured last if it has one, else the last row."""
    known = sorted(rows, key=lambda r: str(r.get("date", "")))
    found: dict[str, Stored] = {r["kernel"]: r for r in known}
    if known:
        last = known[-1].get("device")
        found |= {r["kernel"]: r for r in known if r.get("device") == last}
    return list(found.values())


def in_random_order(row: Stored) -> float | None:
    """Mean trials of a random order until a candidate is near the optimum; the default is none."""
    limit, others = near(row["times"]), row["times"][1:]
    return trials_at_random(len(others), sum(t <= limit for t in others))


def space(record: Record) -> str:
    """A line per class and host; then kernels whose default is not good; then the engines."""
    head = ["class", "browser", "kernels", "default's share: mean"]
    head += ["default's share: least", "best of the reduced space: mean"]
    head += ["best of powers of two: mean", "trials to 97 %, model's order: mean"]
    head += ["trials to 97 %, model's order: most", "trials to 97 %, random order: mean"]
    lines = []
    for (device, host), rows in by(record["rows"], "device", "host").items():
        rounds = [r["rounds_without_default"] for r in rows if r["rounds_without_default"]]
        random = [value for r in rows if (value := in_random_order(r))]
        default = _shares(rows, "default")
        lines.append([
            device or "unknown", host, str(len(rows)), _mean(default), told(min(default), ".0%"),
            _mean(_shares(rows, "lite")), _mean(_shares(rows, "powers")),
            told(geometric_mean(rounds), ".1f"), str(max(rounds)),
            told(geometric_mean(random), ".1f"),
        ])  # fmt: skip
    parts = [table(head, lines)]
    if poor := [r for r in record["rows"] if r["default"]["share"] < NEAR]:
        parts += [
            f"Kernels whose default has less than 97 % of the fastest ({len(poor)} of "
            f"{len(record['rows'])}):",
            listed(sorted(poor, key=lambda r: float(r["default"]["share"])), NOT_NEAR),
        ]
    rows = record["rows"]
    odd = sum(bool(r["powers"] and r["powers"]["share"] < 1) for r in rows)
    parts.append(
        f"In {odd} of {len(rows)} cases the optimum has a size that is not a power of two, which "
        "nnJIT's heuristic 2 excludes."
    )
    return paragraphs(*parts, _engines(rows))


NOT_NEAR: Columns = {
    "kernel": "kernel", "shape": lambda r: r["shape"].replace("x", "×"), "browser": "host",
    "class": "device", "candidates": "candidates", "default's share": "default.share:.0%",
    "trials to 97 %": "rounds", "optimum": lambda r: short(r["optimum"]["schedule"]),
}  # fmt: skip


def _shares(rows: Iterable[Stored], key: str) -> list[float]:
    return [r[key]["share"] for r in rows if r[key]]


def _mean(shares: Sequence[float]) -> str:
    return told(geometric_mean(shares), ".1%") if shares else DASH


# ---- other engines and shapes --------------------------------------------------------------------


def by_kernel(rows: Iterable[Stored]) -> dict[str, dict[str, Stored]]:
    """Kernel → host → row; only hosts whose space is the same, since numbers are compared."""
    found: dict[str, dict[str, Stored]] = {}
    for r in rows:
        known = found.setdefault(r["kernel"], {})
        if all(other["checksum"] == r["checksum"] for other in known.values()):
            known[r["host"]] = r
    return {kernel: hosts for kernel, hosts in found.items() if len(hosts) > 1}


def share_on(row: Stored, candidate: int) -> float:
    """The candidate's speed there over that of the optimum there."""
    return float(min(row["times"]) / row["times"][candidate])


Name = TypeVar("Name")


def one_for_all(shares: Sequence[Mapping[Name, float]]) -> tuple[Name, float, float]:
    """What is best for all together; its least and geometric mean share."""
    means = {name: geometric_mean(s[name] for s in shares) for name in shares[0]}
    best = max(means, key=lambda name: means[name])
    return best, min(s[best] for s in shares), means[best]


def single(rows: Sequence[Stored]) -> tuple[int, float]:
    """The candidate that is best for all rows together, and its geometric mean share."""
    shares = [{n: share_on(r, n) for n in range(len(r["times"]))} for r in rows]
    best, _, together = one_for_all(shares)
    return best, together


ONE = ["one for all: lowest", "mean", "gain from separate ones"]


def _gained(least: float, mean: float) -> list[str]:
    """One choice for all: its least share, its mean share, and the gain of separate choices."""
    return [told(least, ".0%"), told(mean, ".0%"), f"{1 / mean:.3f}×"]


def _engines(swept: Sequence[Stored]) -> str:
    """Per class: each engine's winner on another engine, and the best single choice for all."""
    head = ["class", "kernels", "another engine's winner: mean", "lowest", *ONE]
    lines = []
    for device, rows in by_class(swept).items():
        kernels = by_kernel(rows)
        if not kernels:
            continue
        other = [
            share_on(there, here["optimum"]["candidate"])
            for found in kernels.values()
            for here in found.values()
            for there in found.values()
            if here is not there
        ]
        chosen = [(single([*found.values()]), found) for found in kernels.values()]
        least = min(share_on(r, best) for (best, _), found in chosen for r in found.values())
        together = geometric_mean(share for (_, share), _ in chosen)
        lines.append([device, str(len(kernels)), _mean(other), told(min(other), ".0%"),
                      *_gained(least, together)])  # fmt: skip
    said = "The winner of one engine on another, and the best single candidate for all engines:"
    return paragraphs(said, table(head, lines)) if lines else ""


def shapes(record: Record) -> str:
    """The best of the winners for all shapes of an engine and class, over each shape's own."""
    head = ["shapes", "best single schedule: the winner of", *ONE]
    lines = []
    for device, of_class in by_class(record["rows"]).items():
        for (host,), rows in by(of_class, "host").items():
            for names in dict.fromkeys(tuple(r["shares"]) for r in rows):
                group = [r["shares"] for r in rows if tuple(r["shares"]) == names]
                best, least, together = one_for_all(group)
                title = f"{host}, class {device}: {', '.join(names)}"
                lines.append([title, best, *_gained(least, together)])
    return table(head, lines)


# ---- families of schedules -----------------------------------------------------------------------

DEFAULT = "default"


def families(record: Record) -> str:
    """The default's shares of the optimum, those of the family that is best at a place, and those
    of each kernel's own.  A family that was not swept counts as the default."""
    head = ["place", "kernels", DEFAULT, "best family in hindsight", "which"]
    lines = []
    known = [r for r in record["rows"] if DEFAULT in r["families"]]
    for place, found in by(known, "host", "machine").items():
        kernels = [r["families"] for r in found]
        names = dict.fromkeys([DEFAULT, *(name for k in kernels for name in k)])
        shares = {name: geometric_mean(k.get(name, k[DEFAULT]) for k in kernels) for name in names}
        best = max(shares, key=lambda name: shares[name])
        own = geometric_mean(max(kernel.values()) for kernel in kernels)
        default, most, each = (f"{share:.3f}" for share in (shares[DEFAULT], shares[best], own))
        lines.append([", ".join(place), str(len(found)), default, most, best, each])
    return table([*head, "each kernel its own"], lines)


# ---- the page ------------------------------------------------------------------------------------


def charts(record: Record) -> Iterator[tuple[str, str]]:
    """Per host: default, best lite and best of powers of two, in percent of the optimum."""
    keys = {"default": "default", "best lite": "lite", "best of powers of two": "powers"}
    for (host,), of_host in by(record["rows"], "host").items():
        drawn = newest(of_host)
        rows = [
            (r["kernel"], [100 * r[key]["share"] if r[key] else None for key in keys.values()])
            for r in drawn
        ]
        title = f"{host}, {', '.join(by_class(drawn))}: percent of the optimum's speed"
        yield f"tuning.sweep.{host}.svg", grouped(title, [*keys], rows)


def _rounds(record: Record) -> tuple[list[float], list[float]]:
    """To a good candidate without the default: in the model's order, and in a random one."""
    both = [(r["rounds_without_default"], in_random_order(r)) for r in record["rows"]]
    known = [(model, random) for model, random in both if model and random]
    return [model for model, _ in known], [random for _, random in known]


def verdict(records: Records) -> str:
    rows = records["tuning.sweep"]["rows"]
    model, random = map(geometric_mean, _rounds(records["tuning.sweep"]))
    good = sum(r["default"]["share"] >= NEAR for r in rows)
    return (
        f"The compiler's default has 97 % or more of the fastest candidate's speed in {good} of "
        f"{len(rows)} sweeps of kernels in browsers; without it, the cost model's order comes to "
        f"such a candidate after {model:.1f} trials, a random order after {random:.1f}."
    )


def answers(records: Records) -> list[Answer]:
    record = records["tuning.sweep"]
    model, random = _rounds(record)
    return [
        over("default: share of the fastest", _shares(record["rows"], "default"), record, ".2f"),
        over("best with sizes of powers of two only", _shares(record["rows"], "powers"), record,
             ".2f"),
        over("trials to 97 %, in the model's order", model, record, ".1f"),
        over("trials to 97 %, in a random order (arithmetic)", random, record, ".1f"),
    ]  # fmt: skip


PAGE = Page("spaces", "Sweeps of whole spaces", verdict, answers, (
    Section("tuning.sweep", "Defaults, orders and engines",
            "Every candidate of a kernel was timed, on one thread. A share is a candidate's speed "
            "over that of the fastest one, the optimum; means are geometric. The reduced space is "
            "nnJIT's. Trials are those of candidates other than the default.", space, charts),
    Section("tuning.sweep.shapes", "Winners on other shapes",
            "Every shape was timed with the winner of every other shape: the best of these "
            "schedules for all, as a share of the speed with each shape's own winner.", shapes),
    Section("tuning.families", "Families of schedules",
            "What a probe at load could bring at most that chooses one rule per engine and "
            "processor ([decision 41](../../docs/decisions/0041-no-probe-for-defaults.md)): shares "
            "of the optimum, geometric means.", families),
))  # fmt: skip
