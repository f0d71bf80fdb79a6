"""What candidates are worth: sweeps, winners of other engines and other shapes, primitives.

Input: the records of space.py, and the findings that are shipped with the space.  Output: tables
and pictures.  A share is a candidate's speed over that of the fastest of all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from charts import grouped, ratios, table

from tilewright.tuning import findings
from tilewright.tuning.primitives import MEASURED, NAMED

Record = dict[str, Any]
Row = Mapping[str, Any]

#: What a schedule's fields are called in tables, and which values go without saying.
_SHORT = {"order": "nm", "stage": False, "along": "n", "lanes": 4, "cache": "", "dot": "wide"}


def short(schedule: Mapping[str, Any]) -> str:
    """ "6x8 r8 tile 96x64 mn"."""
    words = [f"{schedule['x0']}x{schedule['y0']} r{schedule['r0']}"]
    words.append(f"tile {schedule['x1']}x{schedule['y1']}")
    if schedule["r1"]:
        words.append(f"split {schedule['r1']}")
    words += [f"{k}={v}" for k, v in schedule.items() if k in _SHORT and v != _SHORT[k]]
    return " ".join(words).replace("order=", "").replace("stage=True", "staged")


def _percent(told: Row | None) -> str:
    return "–" if told is None else f"{told['share'] * 100:.0f} %"


def geometric(values: Iterable[float]) -> float:
    found = list(values)
    return math.exp(sum(map(math.log, found)) / len(found))


# ---- the sweep -----------------------------------------------------------------------------------


def space(record: Record) -> str:
    """One line per kernel and host."""
    head = ["kernel", "shape", "host", "candidates", "of them lite", "default", "best lite"]
    head += ["best of powers of two", "rounds to 97 %", "without default", "optimum"]
    rows = [
        [
            r["kernel"], r["shape"].replace("x", "×"), r["host"], str(r["candidates"]),
            str(r["lite_candidates"]), _percent(r["default"]), _percent(r["lite"]),
            _percent(r["powers"]), _cell(r["rounds"]), _cell(r["rounds_without_default"]),
            short(r["optimum"]["schedule"]),
        ]
        for r in record["rows"]
    ]  # fmt: skip
    return table(head, rows)


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


def engines(record: Record) -> str:
    """Each engine's winner on each other engine, and the best single choice for all."""
    kernels = by_kernel(record["rows"])
    hosts = sorted({h for found in kernels.values() for h in found})
    pairs = [(a, b) for a in hosts for b in hosts if a != b]
    head = ["kernel", *(f"{a}'s on {b}" for a, b in pairs), "one for all: worst", "mean"]
    head += ["gain of choosing per engine"]
    rows = []
    for kernel, found in kernels.items():
        cells = [
            f"{share_on(found[b], found[a]['optimum']['candidate']) * 100:.0f} %"
            if a in found and b in found
            else "–"
            for a, b in pairs
        ]
        best, mean = single(list(found.values()))
        worst = min(share_on(r, best) for r in found.values())
        rows.append(
            [kernel, *cells, f"{worst * 100:.0f} %", f"{mean * 100:.0f} %", f"{1 / mean:.3f}×"]
        )
    return table(head, rows)


def shapes(record: Record) -> str:
    """Each shape under the winners of other shapes of the same engine."""
    text = []
    for host in dict.fromkeys(r["host"] for r in record["rows"]):
        rows = [r for r in record["rows"] if r["host"] == host]
        for names in dict.fromkeys(tuple(r["shares"]) for r in rows):
            lines = [
                [r["kernel"], *(f"{r['shares'][n] * 100:.0f} %" for n in names)]
                for r in rows
                if tuple(r["shares"]) == names
            ]
            text.append(table([f"{host}: under the winner of", *names], lines))
    return "\n\n".join(text)


def details(record: Record) -> str:
    """What is read off the sweep: winners elsewhere, and what powers of two cost."""
    rows = record["rows"]
    forbidden = [r for r in rows if r["powers"] and r["powers"]["share"] < 1]
    lines = [
        f"In {len(forbidden)} of {len(rows)} cases the optimum has a size that is no power of two, "
        "which nnJIT's heuristic 2 forbids."
    ]
    kinds: dict[str, list[float]] = {}
    for r in rows:
        if r["powers"]:
            kinds.setdefault(r["kind"], []).append(r["powers"]["share"])
    said = (f"{kind} {geometric(v) * 100:.1f} %" for kind, v in kinds.items())
    lines += [f"The best of powers of two alone (geometric mean): {', '.join(said)}.", ""]
    if by_kernel(rows):
        lines += ["Winners of one engine on another, as shares of the optimum there:", ""]
        lines.append(engines(record))
    return "\n".join(lines)


def charts(record: Record) -> Iterator[tuple[str, str]]:
    """Per host: default, best lite and best of powers of two, in percent of the optimum."""
    series = ("default", "best lite", "best of powers of two")
    for host in dict.fromkeys(r["host"] for r in record["rows"]):
        rows = [
            (r["kernel"], [_bar(r[key]) for key in ("default", "lite", "powers")])
            for r in record["rows"]
            if r["host"] == host
        ]
        yield f"space-{host}.svg", grouped(f"{host}: percent of the optimum's speed", series, rows)


def _bar(told: Row | None) -> float | None:
    return None if told is None else 100 * float(told["share"])


# ---- primitives ----------------------------------------------------------------------------------


def primitives() -> str:
    """The findings that are shipped: ratio and interval per device, and the decision."""
    document = findings.read()
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
    kinds = len({d.cpu for d in document.devices})
    says = (
        f"Matmul {shape} on one thread: time at the untuned setting over time at the tuned one, "
        f"with its interval. {kinds} kind(s) of processor: {devices}."
    )
    bind = f"Bind is not measured: {NAMED['bind'].says}."
    return "\n".join([says, "", table(head, rows), "", bind])


def primitive_chart() -> str:
    document = findings.read()
    names = [d.host for d in document.devices]
    rows = []
    for p in MEASURED:
        found = [d.findings.get(p.name) for d in document.devices]
        marks = [(f.ratio, f.low, f.high) if f else None for f in found]
        rows.append((f"{p.name.replace('_', ' ')}: {p.tuned.label}", marks))
    return ratios("Untuned over tuned: right of 1, the tuned setting is faster", names, rows)


def sections() -> Iterator[str]:
    """The part of results/README.md that comes from the shipped findings."""
    if findings.read().devices:
        yield from ("## primitives", "", primitives(), "", "![primitives](primitives.svg)", "")


def pictures() -> Iterator[tuple[str, str]]:
    if findings.read().devices:
        yield "primitives.svg", primitive_chart()


# ---- tuning --------------------------------------------------------------------------------------

#: Part → (title, head, cells of a row).
_TUNING: Mapping[str, tuple[str, list[str], tuple[str, ...]]] = {
    "rounds": (
        "Kernels from poor and from good defaults, as shares of the exhaustive optimum",
        ["kernel", "host", "start", "share at start", "rounds to 97 %", "share after 32 rounds",
         "share at the end", "rounds", "evaluation ms", "most"],
        ("subject", "host", "start", "start_share", "rounds", "share", "last_share", "tried",
         "evaluation_ms", "evaluation_most_ms"),
    ),
    "known": (
        "What one device found, linked into the bundle for the next one of its class, beside a "
        "bundle whose default is the optimum",
        ["kernel", "host", "start", "first inference ms: bundle as built", "relinked",
         "of the optimum", "share, first inference", "share, warm", "browsers"],
        ("subject", "host", "start", "built_first_ms", "first_ms", "optimum_first_ms",
         "first_share", "share", "n"),
    ),
    "server": (
        "The server's part of a round",
        ["kernel", "candidates", "space ms", "one candidate ms", "most",
         "processor ms", "most", "bytes", "most"],
        ("subject", "candidates", "space_ms", "median_ms", "most_ms", "cpu_ms", "cpu_most_ms",
         "median_bytes", "most_bytes"),
    ),
    "model": (
        "Whole models, all of the time given to tuning; speed beside the model of good defaults",
        ["model", "host", "start", "kernels", "rounds", "swaps", "seconds", "last swap s",
         "speed", "least of rounds"],
        ("subject", "host", "start", "kernels", "rounds", "swaps", "seconds", "last_swap_s",
         "gain", "gain_least"),
    ),
    "never": (
        "Sessions from good defaults: tuned against default",
        ["model", "host", "sessions", "seconds", "of them changed something", "their gain",
         "least", "slower by 2 %", "least where nothing changed (noise)"],
        ("subject", "host", "runs", "seconds", "changed", "gain_median", "gain_least", "slower",
         "same_least"),
    ),
    "p95": (
        "Inferences beside a tuner with its usual budget",
        ["model", "host", "p95 alone ms", "while tuning", "ratio", "ratio of medians", "n",
         "trials", "tuning s", "of s"],
        ("subject", "host", "alone_ms", "tuning_ms", "ratio", "median_ratio", "n",
         "trials", "tuning_s", "busy_s"),
    ),
}  # fmt: skip


def tuning(record: Record) -> str:
    """One table per part that was measured."""
    text = []
    for part, (title, head, keys) in _TUNING.items():
        rows = [r for r in record["rows"] if r["part"] == part]
        if rows:
            text += [f"{title}:", "", table(head, [[_cell(r.get(k)) for k in keys] for r in rows])]
            text.append("")
    return "\n".join(text).rstrip()


def _cell(value: Any) -> str:
    if isinstance(value, float):
        value = round(value, 3)
    return "–" if value is None else str(value)
