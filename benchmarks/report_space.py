"""Results of sweeps: candidates, winners on other engines and other shapes, primitives.

Classes of devices have different spaces, so each has separate tables.

Input: the records of space.py, and the package's findings on primitives.  Output: tables and
charts.  A share is a candidate's speed over that of the fastest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from charts import cell, grouped, ratios, table

from lab.primitives import findings
from lab.primitives.table import FINDINGS, MEASURED, NAMED
from tilewright.targets.simd.sizes import ENOUGH_TILES

Record = dict[str, Any]
Row = Mapping[str, Any]

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


def _percent(told: Row | None) -> str:
    return "–" if told is None else f"{told['share'] * 100:.0f} %"


def geometric(values: Iterable[float]) -> float:
    found = list(values)
    return math.exp(sum(map(math.log, found)) / len(found))


# ---- the sweep -----------------------------------------------------------------------------------


def by_class(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Class of device → rows; rows of old files may lack it."""
    found: dict[str, list[Row]] = {}
    for r in rows:
        found.setdefault(r.get("device", "unknown"), []).append(r)
    return found


def newest(rows: Iterable[Row]) -> list[Row]:
    """One row per kernel: of the class that was measured last if it has one, else the last row."""
    known = sorted(rows, key=lambda r: str(r.get("date", "")))
    found: dict[str, Row] = {r["kernel"]: r for r in known}
    if known:
        last = known[-1].get("device")
        found |= {r["kernel"]: r for r in known if r.get("device") == last}
    return list(found.values())


def space(record: Record) -> str:
    """A table per class, one line per kernel and host."""
    found = by_class(record["rows"])
    parts = [
        f"Class {device}:\n\n{_swept(rows)}\n\n{_orders(rows)}" for device, rows in found.items()
    ]
    return "\n\n".join(parts)


def random_rounds(count: int, good: int) -> float | None:
    """Rounds until a random order of so many candidates comes to one of the good ones, in the mean;
    None if there are none."""
    return (count + 1) / (good + 1) if good else None


def in_random_order(row: Row, share: float = 0.97) -> float | None:
    """The same of a row's candidates but the default."""
    limit = min(row["times"]) / share
    others = row["times"][1:]
    return random_rounds(len(others), sum(t <= limit for t in others))


def _orders(rows: Sequence[Row]) -> str:
    """The order of the cost model against a random one."""
    known = [(r["rounds_without_default"], in_random_order(r)) for r in rows]
    both = [(model, random) for model, random in known if model and random]
    model, random = (geometric(values) for values in zip(*both, strict=True))
    least = sum(random >= 2 * model for model, random in both)
    return (
        f"Without the default, the cost model's order comes to 97 % of the optimum after "
        f"{model:.1f} rounds (geometric mean; most: {max(m for m, _ in both)}), a random one after "
        f"{random:.1f} (expected, by arithmetic), which is at least twice as many for {least} of "
        f"{len(both)} kernels and browsers."
    )


def _swept(swept: Sequence[Row]) -> str:
    head = ["kernel", "shape", "host", "candidates", "lite ones", "share: default", "best lite"]
    head += ["best of powers of two", "rounds to 97 %", "rounds without the default"]
    head += ["in random order", "optimum"]
    rows = [
        [
            r["kernel"], r["shape"].replace("x", "×"), r["host"], str(r["candidates"]),
            str(r["lite_candidates"]), _percent(r["default"]), _percent(r["lite"]),
            _percent(r["powers"]), cell(r["rounds"]), cell(r["rounds_without_default"]),
            cell(rounded(in_random_order(r))), short(r["optimum"]["schedule"]),
        ]
        for r in swept
    ]  # fmt: skip
    return table(head, rows)


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def by_kernel(rows: Iterable[Row]) -> dict[str, dict[str, Row]]:
    """Kernel → host → row; only hosts whose space is the same, since numbers are compared."""
    found: dict[str, dict[str, Row]] = {}
    for r in rows:
        known = found.setdefault(r["kernel"], {})
        if all(other["checksum"] == r["checksum"] for other in known.values()):
            known[r["host"]] = r
    return {kernel: hosts for kernel, hosts in found.items() if len(hosts) > 1}


def share_on(row: Row, candidate: int) -> float:
    """The candidate's speed there over that of the optimum there."""
    return float(min(row["times"]) / row["times"][candidate])


def single(rows: Sequence[Row]) -> tuple[int, float]:
    """The candidate that is best for all rows together, and its geometric mean share."""
    numbers = range(len(rows[0]["times"]))
    means = [geometric(share_on(r, n) for r in rows) for n in numbers]
    best = max(numbers, key=lambda n: means[n])
    return best, means[best]


def engines(swept: Sequence[Row]) -> str:
    """Each engine's winner on each other engine, and the best single choice for all."""
    kernels = by_kernel(swept)
    hosts = sorted({h for found in kernels.values() for h in found})
    pairs = [(a, b) for a in hosts for b in hosts if a != b]
    head = ["kernel", *(f"{a}'s on {b}" for a, b in pairs), "one for all: lowest", "mean"]
    head += ["gain from one per engine"]
    rows, worsts, means = [], [], []
    for kernel, found in kernels.items():
        cells = [
            f"{share_on(found[b], found[a]['optimum']['candidate']) * 100:.0f} %"
            if a in found and b in found
            else "–"
            for a, b in pairs
        ]
        best, mean = single(list(found.values()))
        worsts.append(min(share_on(r, best) for r in found.values()))
        means.append(mean)
        rows.append([kernel, *cells, *_gained(worsts[-1], mean)])
    rows.append(["all", *("" for _ in pairs), *_gained(min(worsts), geometric(means))])
    return table(head, rows)


def _gained(least: float, mean: float) -> list[str]:
    """One choice for all: its least share, its mean share, and the gain of separate choices."""
    return [f"{least * 100:.0f} %", f"{mean * 100:.0f} %", f"{1 / mean:.3f}×"]


def shapes(record: Record) -> str:
    """Each shape under the winners of other shapes of the same engine and class."""
    text, gains = [], []
    for device, of_class in by_class(record["rows"]).items():
        for host in dict.fromkeys(r["host"] for r in of_class):
            rows = [r for r in of_class if r["host"] == host]
            for names in dict.fromkeys(tuple(r["shares"]) for r in rows):
                group = [r for r in rows if tuple(r["shares"]) == names]
                lines = [[r["kernel"], *(_crossed(r, n) for n in names)] for r in group]
                title = f"{host}, class {device}: shape, with the winner of"
                text.append(table([title, *names], lines))
                best, least, mean = one_for_all([r["shares"] for r in group])
                gains.append([f"{host}, class {device}: {', '.join(names)}", best,
                              *_gained(least, mean)])  # fmt: skip
    head = ["shapes", "best single schedule: the winner of", "one for all: lowest", "mean"]
    head += ["gain from one per shape"]
    few = (
        f"In brackets: the number of tiles, if it is below {ENOUGH_TILES} and below that of the "
        "shape's own winner. One thread may run such a schedule faster, but threads of a pool "
        "would be idle, so the space of that shape does not contain it."
    )
    said = "The best of these schedules for all shapes, as shares of each shape's own winner:"
    return "\n\n".join([*text, few, said, table(head, gains)])


def _crossed(row: Row, name: str) -> str:
    share, tiles = f"{row['shares'][name] * 100:.0f} %", row.get("tiles")
    if tiles is None or tiles[name] >= min(ENOUGH_TILES, tiles[row["kernel"]]):
        return share
    return f"{share} ({tiles[name]})"


def one_for_all(shares: Sequence[Mapping[str, float]]) -> tuple[str, float, float]:
    """The winner that is best for all shapes together; its least and geometric mean share."""
    means = {name: geometric(s[name] for s in shares) for name in shares[0]}
    best = max(means, key=lambda name: means[name])
    return best, min(s[best] for s in shares), means[best]


def details(record: Record) -> str:
    """Conclusions from the sweep: winners elsewhere, and the cost of powers of two."""
    rows = record["rows"]
    forbidden = [r for r in rows if r["powers"] and r["powers"]["share"] < 1]
    lines = [
        f"In {len(forbidden)} of {len(rows)} cases the optimum has a size that is not a power of "
        "two, which nnJIT's heuristic 2 excludes."
    ]
    kinds: dict[str, list[float]] = {}
    for r in rows:
        if r["powers"]:
            kinds.setdefault(r["kind"], []).append(r["powers"]["share"])
    said = (f"{kind} {geometric(v) * 100:.1f} %" for kind, v in kinds.items())
    lines += [f"Share of the best with powers of two only, geometric mean: {', '.join(said)}.", ""]
    for device, of_class in by_class(rows).items():
        if by_kernel(of_class):
            lines += [
                f"Class {device}: the winner of one engine on another, as a share of the optimum "
                "there; and the best single candidate for all engines:",
                "",
                engines(of_class),
                "",
            ]
    return "\n".join(lines).rstrip()


def charts(record: Record) -> Iterator[tuple[str, str]]:
    """Per host: default, best lite and best of powers of two, in percent of the optimum."""
    series = ("default", "best lite", "best of powers of two")
    for host in dict.fromkeys(r["host"] for r in record["rows"]):
        drawn = newest(r for r in record["rows"] if r["host"] == host)
        rows = [
            (r["kernel"], [_bar(r[key]) for key in ("default", "lite", "powers")]) for r in drawn
        ]
        title = f"{host}, {', '.join(by_class(drawn))}: percent of the optimum's speed"
        yield f"space-{host}.svg", grouped(title, series, rows)


def _bar(told: Row | None) -> float | None:
    return None if told is None else 100 * float(told["share"])


# ---- primitives ----------------------------------------------------------------------------------


def primitives() -> str:
    """The findings that are shipped: ratio and interval per device, and the decision."""
    document = findings.read(FINDINGS)
    decided = findings.decisions(document.devices)
    head = ["primitive", "untuned", "tuned", *(d.host for d in document.devices), "decision"]
    rows = []
    for p in MEASURED:
        if p.name not in decided:
            continue
        found = [d.findings.get(p.name) for d in document.devices]
        cells = [f"{f.ratio:.2f} [{f.low:.2f}, {f.high:.2f}]" if f else "–" for f in found]
        tuned = decided[p.name].tuned
        chosen = "" if tuned is None else f": {p.tuned.label if tuned else p.untuned.label}"
        name = p.name.replace("_", " ")
        rows.append(
            [name, p.untuned.label, p.tuned.label, *cells, decided[p.name].verdict + chosen]
        )
    devices = "; ".join(f"{d.engine} on {d.cpu}, {d.date}" for d in document.devices)
    shape = "×".join(map(str, document.matmul))
    says = (
        f"Matmul {shape} on one thread: time at the untuned setting over time at the tuned one, "
        f"with its interval. Measured in {devices}."
    )
    bind = f"`bind` is not measured: {NAMED['bind'].says}."
    return "\n".join([says, "", table(head, rows), "", bind])


def primitive_chart() -> str:
    document = findings.read(FINDINGS)
    names = [d.host for d in document.devices]
    rows = []
    for p in MEASURED:
        found = [d.findings.get(p.name) for d in document.devices]
        marks = [(f.ratio, f.low, f.high) if f else None for f in found]
        rows.append((f"{p.name.replace('_', ' ')}: {p.tuned.label}", marks))
    return ratios("Untuned over tuned: right of 1, the tuned setting is faster", names, rows)


def sections() -> Iterator[str]:
    """The part of results/README.md that comes from the shipped findings."""
    if findings.read(FINDINGS).devices:
        yield from ("## Primitives", "", primitives(), "", "![primitives](primitives.svg)", "")


def pictures() -> Iterator[tuple[str, str]]:
    if findings.read(FINDINGS).devices:
        yield "primitives.svg", primitive_chart()
