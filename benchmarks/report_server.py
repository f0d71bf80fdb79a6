"""Tables of servers under load and under attack.

Input: records of benchmarks/sockets.py and front.py.  Output: Markdown.  It measures nothing.
"""

from __future__ import annotations

from typing import Any

from charts import figure, table

Record = dict[str, Any]


def sockets(record: Record) -> str:
    head = ["server", "clients", "kernels sent", "server ms: median", "p95"]
    head += ["client ms: median", "p95", "times killed", "connections", "reports", "stored"]
    head += ["lost", "counted twice"]
    rows = [
        [
            r["what"],
            str(r["clients"]),
            f"{r['kernels']:,}",
            *(figure(r[key]) if key in r else "–" for key in ("server_median_ms", "server_p95_ms")),
            *(figure(r[key]) for key in ("client_median_ms", "client_p95_ms")),
            *(f"{r[key]:,}" for key in ("kills", "connections", "reports", "stored")),
            *(str(r[key]) for key in ("lost", "twice")),
        ]
        for r in record["rows"]
    ]
    return table(head, rows)


def front(record: Record) -> str:
    head = ["connections", "networks", "held", "in all", "/healthz ms: median", "p95", "most"]
    head += ["probes", "memory MB: before", "most", "afterwards", "log bytes"]
    rows = [
        [
            r["kind"],
            *(f"{r[key]:,}" for key in ("networks", "held", "connections")),
            *(figure(r[f"health_{key}_ms"]) for key in ("median", "p95", "most")),
            str(r["probes"]),
            *(f"{r[f'{key}_bytes'] / 1e6:.1f}" for key in ("before", "peak", "after")),
            f"{r['log_bytes']:,}",
        ]
        for r in record["rows"]
    ]
    return table(head, rows)
