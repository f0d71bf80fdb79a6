"""Page: servers under load and under attack.

Input: the records of serving.sockets and serving.front.  Output: the page.
"""

from __future__ import annotations

from benchmarks.records import Records, values
from benchmarks.report.page import Answer, Page, Section, count, over
from benchmarks.report.tables import Columns

SOCKETS: Columns = {
    "server": "what", "clients": "clients:,", "kernels sent": "kernels:,",
    "in the server, median, ms": "server_median_ms:.2f",
    "in the server, p95, ms": "server_p95_ms:.1f",
    "for the client, median, ms": "client_median_ms:.1f",
    "for the client, p95, ms": "client_p95_ms:.0f",
    "times killed": "kills", "connections": "connections:,", "reports sent": "reports:,",
    "reports stored": "stored:,", "reports lost": "lost", "reports counted twice": "twice",
}  # fmt: skip
FRONT: Columns = {
    "kind of connection": "kind", "from networks": "networks:,", "held at once": "held:,",
    "opened in all": "connections:,", "/healthz, median, ms": "health_median_ms:.2f",
    "/healthz, p95, ms": "health_p95_ms:.1f", "/healthz, longest, ms": "health_most_ms:.1f",
    "memory before, MB": "before_bytes*1e-6:.1f", "memory at most, MB": "peak_bytes*1e-6:.1f",
}  # fmt: skip


def _lost(records: Records) -> tuple[int, int]:
    lost, twice, reports = (
        sum(values(records["serving.sockets"], k)) for k in ("lost", "twice", "reports")
    )
    return lost + twice, reports


def verdict(records: Records) -> str:
    lost, reports = _lost(records)
    front, kills = records["serving.front"], sum(values(records["serving.sockets"], "kills"))
    slow = max(r["health_p95_ms"] for r in front["rows"] if r["held"])
    return (
        f"While an attacker holds {max(values(front, 'held')):,} idle connections, p95 of another "
        f"client's request is {slow:.0f} ms at most; of {reports:,} reports over sockets, while "
        f"processes were killed {kills} times, {lost} were lost or counted "
        "twice."
    )


def answers(records: Records) -> list[Answer]:
    record = records["serving.front"]
    attacked = [r for r in record["rows"] if r["held"]]
    more = [(r["peak_bytes"] - r["before_bytes"]) / 1e6 for r in attacked]
    return [
        over("under attack: p95 of /healthz, ms", [r["health_p95_ms"] for r in attacked], record,
             ".1f"),
        over("under attack: memory more, MB", more, record, ".1f"),
        count("reports lost or counted twice", *_lost(records), records["serving.sockets"]),
    ]  # fmt: skip


PAGE = Page("server", "The server under load and attack", verdict, answers, (
    Section("serving.front", "A server under silent connections",
            "Attackers hold as many connections as they can and connect again when the server ends "
            "them, from one network or each from its own; meanwhile another client asks /healthz "
            "200 times.",
            FRONT),
    Section("serving.sockets", "Tuning sockets under load",
            "Many clients at once; of two processes each is killed again and again.", SOCKETS),
))  # fmt: skip
