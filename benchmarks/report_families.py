"""Whether a choice at load among a few families of schedules would beat one default for all.

Input: the records of families.py and chained.py.  Output: tables.  Shares are of the optimum of a
sweep, as geometric means; a place is a host on a processor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import exp, log
from statistics import mean
from typing import Any

from charts import cell, table

Record = dict[str, Any]
Row = Mapping[str, Any]
#: Logarithms of shares: kernel → family.
Logs = Mapping[str, Mapping[str, float]]

DEFAULT = "default"
#: Most families among which a probe would choose.
MOST = 4
GROUPS = (("chromium", "firefox"), ("wasmtime",))


def places(rows: Sequence[Row]) -> dict[str, Logs]:
    """By place.  A family that was not swept counts as the default."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    names = {name for r in rows for name in r["families"]}
    for r in rows:
        own = r["families"]
        if DEFAULT in own:
            logs = {name: log(own.get(name, own[DEFAULT])) for name in sorted(names)}
            found.setdefault(f"{r['host']}, {r['machine']}", {})[r["kernel"]] = logs
    return found


def score(logs: Logs, family: str) -> float:
    """Mean over kernels."""
    return mean(of[family] for of in logs.values())


def best_of(names: Sequence[str], logs: Logs) -> str:
    """The first of those that are best, so that the default stays where nothing is better."""
    return max(names, key=lambda name: score(logs, name))


def chosen(found: Mapping[str, Logs], k: int) -> tuple[str, ...]:
    """The default and k - 1 others, of which the best of each place has most."""
    first = next(iter(next(iter(found.values())).values()))
    sets = ((DEFAULT, *more) for more in combinations(sorted(first.keys() - {DEFAULT}), k - 1))
    return max(sets, key=lambda ns: mean(max(score(p, n) for n in ns) for p in found.values()))


def held_out(names: Sequence[str], logs: Logs) -> float:
    """Each kernel has the family that the place's other kernels choose."""
    total = []
    for kernel, own in logs.items():
        others = {name: of for name, of in logs.items() if name != kernel}
        total.append(own[best_of(names, others) if others else DEFAULT])
    return mean(total)


def families(record: Record) -> str:
    """For browsers, then for wasmtime: all kernels by place, then kinds over all places."""
    text = []
    for hosts in GROUPS:
        rows = [r for r in record["rows"] if r["host"] in hosts]
        if rows:
            text += [f"{' and '.join(hosts)}, one choice for all kernels:", _by_place(places(rows))]
            text += ["A choice for each kind of kernel, over all places:", _by_kind(rows)]
    return "\n\n".join(text)


def _by_place(found: Mapping[str, Logs]) -> str:
    sets = {k: chosen(found, k) for k in range(2, MOST + 1)}
    head = ["place", "kernels", DEFAULT]
    for k, names in sets.items():
        head += [f"of {k}: {', '.join(names)}", "chosen by the other kernels"]
    head += ["each kernel its own"]
    lines = [
        [
            place, str(len(logs)), _share(score(logs, DEFAULT)),
            *(
                text
                for names in sets.values()
                for text in (
                    f"{_share(score(logs, best_of(names, logs)))} {best_of(names, logs)}",
                    _share(held_out(names, logs)),
                )
            ),
            _share(mean(max(own.values()) for own in logs.values())),
        ]
        for place, logs in found.items()
    ]  # fmt: skip
    return table(head, lines)


def _by_kind(rows: Sequence[Row]) -> str:
    head = ["kind", "kernels and places", DEFAULT, *(f"of {k}" for k in range(2, MOST + 1))]
    head += ["families", "each kernel its own"]
    lines = []
    for kind in dict.fromkeys(r["kind"] for r in rows):
        found = places([r for r in rows if r["kind"] == kind])
        logs = [(place, own) for place, of in found.items() for own in of.values()]
        sets = [chosen(found, k) for k in range(2, MOST + 1)]
        lines.append([
            kind, str(len(logs)), _share(mean(own[DEFAULT] for _, own in logs)),
            *(
                _share(mean(own[best_of(names, found[place])] for place, own in logs))
                for names in sets
            ),
            ", ".join(sets[-1][1:]), _share(mean(max(own.values()) for _, own in logs)),
        ])  # fmt: skip
    return table(head, lines)


def _share(logarithm: float) -> str:
    return f"{exp(logarithm):.3f}"


def chained(record: Record) -> str:
    keys = ("kernel", "cpu", "gain", "least", "ms", "n")
    lines = [[cell(r[key]) for key in keys] for r in record["rows"]]
    total = exp(mean(log(r["gain"]) for r in record["rows"]))
    lines.append(["geometric mean", "", f"{total:.3f}", "", "", ""])
    return table(["kernel", "CPU", "speed over the browsers' code", "least", "ms", "turns"], lines)


def near_peak(record: Record) -> str:
    """Undisturbed rounds; a dash where the machine had none."""
    keys = ("kernel", "host", "cpu", "way", "share", "spread", "n", "share_fastest", "peak_gflops")
    lines = [[cell(r.get(key)) for key in keys] for r in record["rows"]]
    head = ["kernel", "host", "CPU", "schedule", "share of the peak", "spread", "runs"]
    return table([*head, "share, fastest runs", "peak, GFLOP/s"], lines)


TABLES: Mapping[str, Callable[[Record], str]] = {
    "families": families,
    "chained": chained,
    "near_peak": near_peak,
}
ABOUT: Mapping[str, tuple[str, str]] = {
    "families": (
        "Families of schedules",
        "What a probe at load could bring that chooses one of a few rules per engine and "
        "processor, by sweeps of whole spaces: shares of the optimum, and the rule that it takes.",
    ),
    "chained": (
        "Code for wasmtime's compiler",
        "Kernels on wasmtime with the variant for its compiler, and with that for browsers, by "
        "turns on one thread.",
    ),
    "near_peak": (
        "K0 and K1 against the peak",
        "Several schedules and the multiply-add peak by turns on one thread: medians of rounds in "
        "which the peak before and after was undisturbed, and the fastest runs of all.",
    ),
}
