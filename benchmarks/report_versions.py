"""Tables of this version beside earlier ones: earlier.json, earlier_gpu.json and versions.json.

Input: records of benchmarks/earlier.py and versions.py.  Output: Markdown.  It measures nothing.
"""

from __future__ import annotations

from statistics import geometric_mean
from typing import Any

from charts import table

Record = dict[str, Any]
#: What versions.py measured, in words.
TIMES = {"loaded": "load", "first": "first run", "each": "warm run", "trial": "first trial"}


def earlier(record: Record) -> str:
    head = ["what", "earlier, ms", "now, ms", "times as fast", "quartiles of the turns", "turns"]
    rows = [
        [
            " ".join((r["subject"], *((f"({r['host']})",) if "host" in r else ()))),
            f"{r['before']:.4g}",
            f"{r['now']:.4g}",
            f"{r['speedup']:.3f}",
            f"{r['low']:.3f} to {r['high']:.3f}",
            str(r["turns"]),
        ]
        for r in record["rows"]
    ]
    mean = geometric_mean(r["speedup"] for r in record["rows"])
    said = f"\n\nGeometric mean {mean:.3f}. Earlier: commit {record['before']}."
    return table(head, rows) + said


def versions(record: Record) -> str:
    head = ["bundle", "browser", "what", "earlier, ms", "now, ms", "more, ms", "quartiles"]
    rows = [
        [
            r["bundle"],
            r["browser"],
            words,
            f"{r[time]['before']:.1f}",
            f"{r[time]['now']:.1f}",
            f"{r[time]['more']:+.1f}",
            f"{r[time]['more_low']:+.1f} to {r[time]['more_high']:+.1f}",
        ]
        for r in record["rows"]
        for time, words in TIMES.items()
    ]
    return table(head, rows) + f"\n\nEarlier: commit {record['before']}."
