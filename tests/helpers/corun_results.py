"""Results of co-running as the command and the benchmark write them, from known figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilewright.cli.corun import facts
from tilewright.elastic.agents import RequestTimes
from tilewright.elastic.result import CorunResult, CriticalResult

ROW: dict[str, Any] = {
    "pair": "MDTB-A", "policy": "tilewright", "sms": 8, "kernels": "tuned", "clients": 1, "seed": 0,
    "max_slowdown": 1.05, "p50": 1.01, "p99": 1.04, "p999": 1.1, "service_p50": 1.0,
    "service_p99": 1.02, "service_p999": 1.03, "misses": 0.0, "normal_share": 0.9,
    "total_over_sequential": 1.5, "n": 1000,
}  # fmt: skip
ROWS = [
    *({**ROW, "seed": n, "normal_share": share} for n, share in enumerate((0.8, 0.9, 0.95))),
    {**ROW, "max_slowdown": 1.4, "p99": 1.35, "service_p99": 1.3, "normal_share": 0.97},
    {**ROW, "max_slowdown": 1.6, "p99": 1.5, "service_p99": 1.4, "normal_share": 0.95},
    {**ROW, "policy": "streams", "max_slowdown": None, "p99": 2.5, "normal_share": 0.99},
    {**ROW, "sms": 30, "kernels": "naive"},
    {**ROW, "sms": 30},
    {**ROW, "pair": "LGSVL", "sms": None, "p99": 1.06},
]
RECORD = {"rows": [*ROWS, {"pair": "MDTB-B", "error": {"code": "refused"}}]}


def of_command(
    pair: str = "mine + other", slowdown: float = 1.2, models: tuple[str, ...] = ("mine",)
) -> dict[str, Any]:
    """What `tilewright corun --json` prints for 50 requests of such a slowdown to each model."""
    answered = (RequestTimes(200.0, 100.0 * slowdown, 100.0),) * 50
    each = tuple(CriticalResult(name, 100.0, 1.25, None, answered, 0, 0) for name in models)
    paths = [Path(f"{name}.onnx") for name in models]
    found = facts(CorunResult(1.0, each, (60,), (100.0,), 3.0), paths)
    return {"pair": pair, "policy": "tilewright", "sms": 16, "device": "GPU"} | found
