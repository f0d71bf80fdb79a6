"""Tables of what a crowd with liars attains: simulated, against a real server, and on the page.

Input: records of results/.  Output: Markdown for results/README.md.
"""

from __future__ import annotations

from typing import Any

from charts import table

Record = dict[str, Any]

ASSUMED = (
    "That no wrong kernel is adopted is an assumption, not a result: the check of the simulated "
    "devices detects every wrong kernel."
)


def crowd(record: Record) -> str:
    """One line per scenario, all classes and seeds together."""
    head = ["scenario", "clients", "keys", "default within 3 % of the best", "bad defaults"]
    head += ["by the paper's vote: within 3 %", "bad"]
    head += [
        "adoptions",
        "slower ones",
        "lowest speed over the kernel before",
        "adoptions that the crowd proposed",
        "slower ones",
        "wrong ones",
        "slower or wrong proposals",
    ]
    rows = []
    for name in dict.fromkeys(r["scenario"] for r in record["rows"]):
        found = [r for r in record["rows"] if r["scenario"] == name]

        def total(key: str, found: list[Record] = found) -> int:
            return sum(r[key] for r in found)

        rows.append(
            [
                name,
                f"{total('clients'):,}",
                str(total("keys")),
                f"{total('within') / total('keys') * 100:.1f} %",
                str(total("bad")),
                f"{total('paper_within') / total('keys') * 100:.1f} %",
                str(total("paper_bad")),
                f"{total('adopted'):,}",
                str(total("adopted_slower")),
                f"{min(r['worst'] for r in found) * 100:.1f} %",
                f"{total('adopted_crowd'):,}",
                str(total("adopted_crowd_slower")),
                str(total("adopted_wrong")),
                f"{total('offered_bad') / max(1, total('offered')) * 100:.1f} %",
            ]
        )
    return table(head, rows)


def percent(part: float, whole: float) -> str:
    return f"{part / max(1, whole) * 100:.1f} %"


def shares(record: Record) -> str:
    head = ["liars", "scenario", "keys", "bad defaults", "good ones"]
    head += ["bad ones by the paper's vote", "good ones"]
    head += ["visits that were offered a slower or wrong one"]
    rows = [
        [
            f"{r['malicious'] * 100:.0f} %",
            r["scenario"],
            str(r["keys"]),
            str(r["bad"]),
            str(r["good"]),
            str(r.get("paper_bad", "–")),
            str(r.get("paper_good", "–")),
            percent(r["offered_bad"], r["clients"] * (1 - r["malicious"]) * r["keys"]),
        ]
        for r in record["rows"]
    ]
    return table(head, rows)


def liars(record: Record) -> str:
    head = ["liars", "they come", "voices", "keys", "bad defaults at the end", "at any time"]
    head += ["good ones at the end", "bad ones that honest devices were given"]
    rows = [
        [
            f"{r['share'] * 100:.0f} %",
            r["tactic"],
            str(r["voices"]),
            str(r["keys"]),
            str(r["bad"]),
            str(r["ever_bad"]),
            str(r["good"]),
            percent(r["given_bad"], (r["voices"] - r["liars"]) * r["keys"]),
        ]
        for r in record["rows"]
    ]
    return table(head, rows)


def recovery(record: Record) -> str:
    head = ["bundle", "browser", "visits", "bad kernels replaced", "first: median ms", "most"]
    head += ["last: median ms", "most"]
    rows = [
        [
            r["subject"],
            r["browser"],
            f"{r['recovered']} of {r['visits']}",
            f"{r['kernels']:g}",
            f"{r['first_ms']:.0f}",
            f"{r['first_most_ms']:.0f}",
            f"{r['last_ms']:.0f}",
            f"{r['last_most_ms']:.0f}",
        ]
        for r in record["rows"]
    ]
    return table(head, rows)
