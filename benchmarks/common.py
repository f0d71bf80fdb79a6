"""What every benchmark shares: the facts of the machine, writing results, medians and spread.

Input: measurements as plain data.  Output: JSON in benchmarks/results/, with machine, versions and
commit, from which report.py makes tables and charts.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import records
from lab import bench_kernel
from tilewright import __version__
from tilewright.cli.tools import cpu
from tilewright.hosts.browser import BrowserModel

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("numpy", "onnx", "onnxruntime", "wasmtime")


def warm_up(model: BrowserModel, milliseconds: float, runs: int = 10) -> None:
    """Runs until the engine has recompiled the hot functions."""
    bench_kernel.warm_up(lambda count: model.time(count, 0).milliseconds, milliseconds, runs)


def warmed(timer: Callable[[int], list[float]], milliseconds: float, batch: float) -> float:
    """Runs so long, in batches of `batch` ms; the milliseconds of a run at the end."""
    spent, runs = 0.0, 1
    while True:
        times = timer(runs)
        spent += max(sum(times), 1.0)  # a coarse clock may show 0
        usual = statistics.mean(times)
        if spent > milliseconds:
            return usual
        runs = max(1, min(400, round(batch / max(usual, 0.01))))


def machine() -> dict[str, Any]:
    """CPU, cores, system; no names of hosts or users."""
    return {
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def nvidia_driver() -> dict[str, str]:
    """Name and driver of an NVIDIA card, as its own tool says."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {}
    name, _, number = said.strip().splitlines()[0].partition(", ")
    return {"gpu": name, "driver": number}


def nvidia_facts(measured: str) -> dict[str, Any]:
    """What a record says of a run on an NVIDIA card; `measured` is the commit where there is no
    git."""
    return {"machine": machine() | nvidia_driver(), "commit": measured or commit()}


def versions() -> dict[str, str]:
    found = {"tilewright": __version__}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """The commit that was measured; "+changes" if the tree differs from it."""
    root = Path(__file__).parents[1]

    def git(*args: str) -> str:
        result = subprocess.run(
            ["git", "-C", str(root), *args], capture_output=True, text=True, check=False
        )
        return result.stdout.strip()

    changed = git("status", "--porcelain", "--", "tilewright", "lab")
    return (git("rev-parse", "--short=12", "HEAD") or "none") + ("+changes" if changed else "")


def save(name: str, rows: list[dict[str, Any]], **facts: Any) -> Path:
    """Write `rows` to results/NAME.json with everything needed to read them later."""
    record = {
        "name": name,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
        **facts,
        "rows": rows,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    records.write(path, record)
    return path


def rows_of(name: str) -> list[dict[str, Any]]:
    """The rows of results/NAME.json, each with its date, commit and processor; none without it."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return []
    record = json.loads(path.read_text())
    own = {"date": record["date"], "commit": record["commit"], "cpu": record["machine"]["cpu"]}
    return [{**own, **row} for row in record["rows"]]


def merge(name: str, rows: list[dict[str, Any]], key: Sequence[str], **facts: Any) -> Path:
    """Replaces the rows of results/NAME.json with the same `key`; the others stay.

    Rows may come from different runs, so each has its date, commit and processor.  Parts of the
    key that an older row lacks count as equal.  `facts` are those of `save`.
    """
    before = rows_of(name)
    when = datetime.datetime.now(datetime.UTC).date().isoformat()
    own = {"date": when, "commit": facts.get("commit") or commit(), "cpu": cpu()}
    new = [{**row, **own} for row in rows]
    kept = [old for old in before if not any(_replaces(row, old, key) for row in new)]
    return save(name, kept + new, **facts)


def _replaces(row: dict[str, Any], old: dict[str, Any], key: Sequence[str]) -> bool:
    return all(old.get(k, row[k]) == row[k] for k in key)


def spread(values: Sequence[float]) -> float:
    """Interquartile range over the median."""
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / statistics.median(values)
