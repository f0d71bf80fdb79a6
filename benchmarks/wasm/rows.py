"""Kernels bound by memory or by scalar functions: nanoseconds per element and GB/s.

Input: browsers, names of models/row_kernels.py; "copy" is the baseline.  Output:
results/wasm.rows.json: the fastest of many runs, warm, one thread.

    python -m benchmarks wasm.rows [--host chromium --host firefox] [--only softmax] [--rounds 60]
"""

from __future__ import annotations

import tempfile
from math import prod
from pathlib import Path

import numpy as np

from benchmarks.common import Run
from benchmarks.models.row_kernels import COLS, SUBJECTS, subject_graph
from benchmarks.options import BROWSERS, Hosts, Only, Rounds, chosen
from benchmarks.records import Row
from lab.subjects import compile_graph
from lab.timing import WARM_MS, timer_of, warm_up
from tilewright.bundle import write
from tilewright.hosts.browser import BrowserHost
from tilewright.kernel.expr import Call
from tilewright.kernel.spec import Kernel


def measure(host: BrowserHost, name: str, rounds: int, folder: Path) -> Row:
    compiled = compile_graph(subject_graph(name))
    steps = compiled.plans[0].steps
    path = folder / host.browser.name / name.replace(" ", "_")
    write(compiled.contents, path)
    model = host.load(path, threads=1)
    random = np.random.default_rng(1)
    inputs = {
        n: random.standard_normal(i.shape, np.float32)
        if i.dtype.is_float
        else random.integers(0, COLS, i.shape).astype(i.dtype.numpy)
        for n, i in compiled.plans[0].graph.inputs
    }
    model.run(inputs)
    warm_up(timer_of(model), WARM_MS, 20)
    fastest = min(min(model.time(3, 1).milliseconds) for _ in range(rounds))
    model.dispose()
    size = max(b.size for s in steps for b in s.kernel.buffers[:2])
    moved = sum(s.kernel.bytes for s in steps)
    row: Row = {
        "kernel": name,
        "host": host.browser.name,
        "kernels": len(steps),
        "us": round(fastest * 1e3, 1),
        "ns_per_element": round(fastest * 1e6 / size, 3),
        "gb_per_s": round(moved / fastest / 1e6, 1),
    }
    if name.startswith("attention"):
        products = sum(product_flops(s.kernel) for s in steps)
        row["gflops"] = round(products / fastest / 1e6, 1)
    return row


def product_flops(kernel: Kernel) -> int:
    """Floating point operations of sums of products alone: what a register tile could do."""
    points = prod(v.extent for v in kernel.rows)
    return sum(
        2 * points * prod(v.extent for v in (*s.keep, *s.axes))
        for s in kernel.stages
        if s.op == "sum" and isinstance(s.value, Call) and s.value.fn == "mul"
    )


def main(run: Run, host: Hosts = None, only: Only = None, rounds: Rounds = 40) -> None:
    rows = []
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        for name in host or BROWSERS:
            with BrowserHost(name) as browser:
                for kernel in chosen(SUBJECTS, only):
                    rows.append(measure(browser, kernel, rounds, Path(folder)))
                    run.show(rows[-1])
    if not only:
        run.save(rows)
