"""Page: this version beside earlier ones.

Input: the records of versions.speed (earlier, earlier_gpu) and versions.visits.  Output: the page.
"""

from __future__ import annotations

from statistics import median

from benchmarks.options import BROWSERS
from benchmarks.records import Record, Records, by, values
from benchmarks.report.page import Answer, Page, Section, over
from benchmarks.report.tables import Columns, listed, paragraphs, shown, table

#: What versions.py measured, in words.
TIMES = {"loaded": "load", "first": "first run", "each": "warm run", "trial": "first trial"}
EARLIER: Columns = {
    "what": "subject", "earlier, ms": "before:.4g", "now, ms": "now:.4g",
    "times as fast": "speedup:.3f",
    "quartiles of the turns": lambda r: f"{r['low']:.3f} to {r['high']:.3f}", "turns": "turns",
}  # fmt: skip
#: Record and hosts of each target; rows of older versions in browsers do not say their host.
TARGETS = {"WebAssembly": ("versions.speed", (*BROWSERS, None)),
           "WGSL": ("versions.speed.gpu", ("dawn",)),
           "CUDA": ("versions.speed.gpu", ("cuda",))}  # fmt: skip


def _since(record: Record) -> str:
    return f"Earlier: commit {record['before']}."


def earlier(record: Record) -> str:
    return paragraphs(listed(record["rows"], EARLIER), _since(record))


def earlier_gpu(record: Record) -> str:
    """A line per subject, WGSL and CUDA beside each other."""
    hosts = {"dawn": "WGSL", "cuda": "CUDA"}
    kept = [name for name in EARLIER if name not in ("what", "turns")]
    head = ["what", *(f"{host}: {name}" for host in hosts.values() for name in kept), "turns"]
    lines = []
    for (subject,), found in by(record["rows"], "subject").items():
        own = {r["host"]: r for r in found}
        cells = (shown(own[host], EARLIER[name]) for host in hosts for name in kept)
        lines.append([subject, *cells, shown(found[0], "turns")])
    return paragraphs(table(head, lines), _since(record))


def versions(record: Record) -> str:
    head = ["bundle", "browser", "what", "earlier, ms", "now, ms", "more, ms", "quartiles"]
    lines = [
        [
            r["bundle"], r["browser"], words, f"{r[time]['before']:.1f}", f"{r[time]['now']:.1f}",
            f"{r[time]['more']:+.1f}",
            f"{r[time]['more_low']:+.1f} to {r[time]['more_high']:+.1f}",
        ]
        for r in record["rows"]
        for time, words in TIMES.items()
    ]  # fmt: skip
    return paragraphs(table(head, lines), _since(record))


def _faster(records: Records) -> dict[str, list[float]]:
    return {
        target: values(records[name], "speedup", host=hosts)
        for target, (name, hosts) in TARGETS.items()
    }


def verdict(records: Records) -> str:
    said = "; ".join(
        f"{target} {median(ratios):.3f} (from {min(ratios):.3f} to {max(ratios):.3f})"
        for target, ratios in _faster(records).items()
    )
    return f"Times as fast as the version before, median of all subjects: {said}."


def answers(records: Records) -> list[Answer]:
    return [
        over(f"{target}: times as fast", ratios, records[TARGETS[target][0]], ".3f")
        for target, ratios in _faster(records).items()
    ]


PAGE = Page("versions", "Beside an earlier version", verdict, answers, (
    Section("versions.speed", "WebAssembly",
            "On one thread, each version with its own compiler and engine, by turns in one run.",
            earlier),
    Section("versions.speed.gpu", "WGSL and CUDA",
            "WGSL in a Node with Dawn, from the call to the outputs in JavaScript; CUDA by the "
            "device's clock; each version with its own compiler and engine, by turns in one run.",
            earlier_gpu),
    Section("versions.visits", "What the engine and the tuner cost more than earlier",
            "The minified files of both versions, visits by turns; the difference is the "
            "median of those of all visits; below 0, the present version is faster.", versions),
))  # fmt: skip
