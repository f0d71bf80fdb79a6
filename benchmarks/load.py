"""How long it takes until a bundle is ready: a first visit, second visits, and the first run.

Input: bundles, a browser.  Output: results/load.json: milliseconds of each part of a load (medians
and the fastest), the first run beside the steady ones, memory.  "First" empties the kept files
before each load; the browser itself stays open, so its own start is never in a number.

    uv run python benchmarks/load.py .demo/minilm --bucket n=128
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import common
import numpy as np

from tilewright.base.dtypes import DTYPES
from tilewright.hosts.browser import BrowserHost, BrowserModel

PARTS = ("manifest", "code", "weights", "ready")
STEADY_RUNS = 5


def inputs_of(model: BrowserModel, sizes: dict[str, int]) -> dict[str, np.ndarray[Any, Any]]:
    """Ones of every type: token ids and masks alike can have them."""
    found = {}
    for info in model.info["inputs"]:
        shape = [sizes.get(d, max(model.info["dims"].get(d, [1]))) if isinstance(d, str) else d
                 for d in info["shape"]]  # fmt: skip
        found[info["name"]] = np.ones(shape, DTYPES[info["dtype"]].numpy)
    return found


def visit(host: BrowserHost, bundle: Path, sizes: dict[str, int], threads: int) -> dict[str, Any]:
    """One load with its first runs."""
    model = host.load(bundle, threads=threads)
    inputs = inputs_of(model, sizes)
    runs = [model.run(inputs) for _ in range(1 + STEADY_RUNS)]
    info = model.info
    model.dispose()
    return {
        **info["timings"],
        "first_run": runs[0].milliseconds,
        "later_run": min(r.milliseconds for r in runs[1:]),
        "memory_bytes": info["memoryBytes"],
        "downloaded_bytes": info["cache"]["downloadedBytes"],
        "variant": info["variant"]["name"],
    }


def row(bundle: Path, kind: str, visits: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over the visits, and the fastest."""
    timed = (*PARTS, "first_run", "later_run")
    found: dict[str, Any] = {"bundle": bundle.name, "visit": kind, "n": len(visits)}
    for part in timed:
        found[f"{part}_ms"] = round(statistics.median(v[part] for v in visits), 1)
    found["fastest_ready_ms"] = round(min(v["ready"] for v in visits), 1)
    fixed = ("memory_bytes", "downloaded_bytes", "variant")
    return found | {name: visits[-1][name] for name in fixed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundles", type=Path, nargs="+")
    parser.add_argument("--browser", default="chromium")
    parser.add_argument("--bucket", action="append", default=[], metavar="DIM=SIZE")
    parser.add_argument("--visits", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    sizes = {name: int(size) for name, size in (b.split("=") for b in args.bucket)}
    rows = []
    with BrowserHost(args.browser) as host:
        for bundle in args.bundles:
            first = []
            for _ in range(args.visits):
                host.request("clear_cache", {})
                first.append(visit(host, bundle, sizes, args.threads))
            second = [visit(host, bundle, sizes, args.threads) for _ in range(args.visits)]
            rows += [row(bundle, "first", first), row(bundle, "second", second)]
    for found in rows:
        print(found)
    facts = {"browser": args.browser, "threads": args.threads}
    print(common.save(f"load-{args.browser}", rows, **facts))


if __name__ == "__main__":
    main()
