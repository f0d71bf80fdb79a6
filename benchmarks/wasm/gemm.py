"""The matmul sweep: every aspect ratio against the register-only multiply-add peak, per browser.

Input: browsers.  Output: results/wasm.gemm.json.  Small products are repeated inside one plan, so
that a run takes many ticks of the browser's clock.  Alternating (all cases, the peak, all cases,
...), warm, one thread; results are compared with NumPy before anything is timed.  Cases that read
each weight once are memory-bound: the bandwidth is reported too.

    python -m benchmarks wasm.gemm [--host chromium] [--rounds 30] [--only square]
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.accuracy import relative_error, require_close
from benchmarks.common import Run
from benchmarks.options import BROWSERS, Hosts, Rounds
from benchmarks.records import Row
from lab.paper_spaces import PAPER
from lab.subjects import Subject, matmul_chain, peak, product, stream, weight_of
from lab.timing import BATCH_MS, COARSE_MS, WARM_MS, runs_in, timer_of, warmed
from tilewright.bundle import write
from tilewright.graph.node import evaluate
from tilewright.hosts.browser import BrowserHost, BrowserModel

#: Tiles of the peak kernel in a run: about as long as a case takes.
PEAK_TILES = 128
#: Sums of 4,096 terms in f32 differ by less.
TOLERANCE = 1e-5
#: Operations per plan below which a product is repeated.
LEAST_FLOPS = 4_000_000
MOST_REPEATS = 100


@dataclass(frozen=True)
class Case:
    """One product: `a` is an input; `b` a weight with elements of `bits` bits, or an input."""

    group: str
    equation: str
    a: tuple[int, ...]
    b: tuple[int, ...]
    weight: bool = True
    bits: int = 32

    @property
    def name(self) -> str:
        shapes = ["x".join(map(str, s)) for s in (self.a, self.b)]
        kind = "" if self.bits == 32 else f" {self.bits} bits"
        return f"{self.equation} {' '.join(shapes)}{kind}{'' if self.weight else ' inputs'}"

    @property
    def flops(self) -> int:
        letters = self.equation.split("->")[0].replace(",", "")
        return 2 * int(np.prod(list(dict(zip(letters, (*self.a, *self.b), strict=True)).values())))

    @property
    def times(self) -> int:
        return max(1, min(MOST_REPEATS, LEAST_FLOPS // self.flops))


def matmul(group: str, m: int, k: int, n: int, weight: bool = True) -> Case:
    return Case(group, "mk,kn->mn", (m, k), (k, n), weight)


SQUARES = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


def cases() -> Iterator[Case]:
    for p in PAPER.values():
        if p.batch == 1:
            yield matmul("kernel", p.m, p.k, p.n)
        else:
            shapes = (p.batch, p.m, p.k), (p.batch, p.k, p.n)
            yield Case("kernel", "bmk,bkn->bmn", *shapes, weight=False)
    for n in SQUARES:
        yield matmul("square", n, n, n)
        yield matmul("square", n, n, n, False)
    for m in range(1, 9):
        yield matmul("rows", m, 768, 768)
    for k, n in ((768, 768), (768, 3072), (4096, 4096)):
        yield matmul("gemv", 1, k, n)
    yield Case("gemv", "mk,k->m", (1024, 1024), (1024,))
    yield Case("gemv", "mk,nk->mn", (1, 768), (768, 768), False)
    for m, k, n in (
        (4096, 64, 64),
        (64, 64, 4096),
        (2048, 32, 64),
        (64, 4096, 64),
        (96, 3072, 768),
    ):
        yield matmul("tall", m, k, n)
    for n in (1, 2, 3, 4, 10):
        yield matmul("narrow", 512, 256, n)
    for m, k, n in ((7, 7, 7), (33, 57, 129), (127, 255, 511), (100, 100, 100)):
        yield matmul("odd", m, k, n)
        yield matmul("odd", m, k, n, False)
    for k in (1, 2, 4, 8):
        yield matmul("shallow", 256, k, 256)
    for m in (1, 4, 16, 128):  # beside the same in f32
        yield matmul("bits", m, 4096, 4096)
        yield Case("bits", "mk,kn->mn", (m, 4096), (4096, 4096), bits=4)
    yield Case("transposed", "km,kn->mn", (256, 256), (256, 256), False)
    yield Case("transposed", "mk,nk->mn", (256, 256), (256, 256), False)
    yield Case("transposed", "bmk,bnk->bmn", (12, 384, 64), (12, 384, 64), False)


def load(host: BrowserHost, subject: Subject, folder: Path) -> BrowserModel:
    write(subject.contents, folder)
    return host.load(folder, threads=1)


def check(model: BrowserModel, case: Case) -> float:
    """Relative error of the first product against float64."""
    rng = np.random.default_rng(1)
    extra = (case.times,) if case.times > 1 and not case.weight else ()
    a = rng.standard_normal((*extra, *case.a), np.float32)
    inputs = {"a": a}
    if case.weight:
        (b,) = evaluate([weight_of(case.b, 0, case.bits)])
    else:
        b = inputs["b"] = rng.standard_normal((*extra, *case.b), np.float32)
    got = model.run(inputs).outputs["y0"]
    left, right = case.equation.split("->")
    equation = case.equation if not extra else "z" + left.replace(",", ",z") + "->z" + right
    want = np.einsum(equation, a.astype(np.float64), b.astype(np.float64), optimize=True)
    return require_close(case.name, relative_error(got, want), TOLERANCE)


def fastest(model: BrowserModel, rounds: int) -> Iterator[list[float]]:
    """Milliseconds of a few runs, round after round, once the code is warm."""
    timer = timer_of(model)
    runs = runs_in(BATCH_MS, warmed(timer, WARM_MS, BATCH_MS))
    for _ in range(rounds):
        times = timer(runs)
        # of a few ticks of the browser's clock only the mean is a time
        yield times if min(times) > COARSE_MS else [statistics.mean(times)]


def measure(host: BrowserHost, batch: list[Case], rounds: int, folder: Path) -> list[Row]:
    """The cases of one batch, alternating with the peak."""
    limit, memory = peak(PEAK_TILES), stream(1 << 24)
    subjects = [
        product(c.equation, c.a, c.b, weight=c.weight, times=c.times, bits=c.bits) for c in batch
    ]
    models = [
        load(host, subject, folder / f"{host.browser.name}-{batch[0].group}-{i}")
        for i, subject in enumerate((limit, memory, *subjects))
    ]
    errors = [check(model, case) for model, case in zip(models[2:], batch, strict=True)]
    turns = zip(*(fastest(model, rounds) for model in models), strict=True)
    times = [[t for part in parts for t in part] for parts in zip(*turns, strict=True)]
    for model in models:
        model.dispose()
    top = limit.flops / min(times[0]) / 1e6
    bandwidth = memory.flops * 4 / min(times[1]) / 1e6
    rows = []
    for case, subject, error, found in zip(batch, subjects, errors, times[2:], strict=True):
        gflops = subject.flops / min(found) / 1e6
        bytes_read = case.bits * case.times * int(np.prod(case.b)) // 8
        rows.append({
            "case": case.name, "group": case.group, "host": host.browser.name, "times": case.times,
            "gflops": round(gflops, 2), "share_of_peak": round(gflops / top, 3),
            "gflops_median": round(subject.flops / statistics.median(found) / 1e6, 2),
            "peak_gflops": round(top, 2), "gb_per_s": round(bytes_read / min(found) / 1e6, 2),
            "stream_gb_per_s": round(bandwidth, 2), "relative_error": error, "n": len(found),
        })  # fmt: skip
        print(
            f"{rows[-1]['gflops']:7.2f} {rows[-1]['share_of_peak']:6.1%}  {case.name}", flush=True
        )
    return rows


def measure_chain(host: BrowserHost, rounds: int, folder: Path) -> Row:
    """100 dependent steps of 48x64x64: the overhead of a small step."""
    subjects = [peak(PEAK_TILES), matmul_chain(100, 48, 64)]
    models = [
        load(host, s, folder / f"{host.browser.name}-chain-{i}") for i, s in enumerate(subjects)
    ]
    turns = zip(*(fastest(model, rounds) for model in models), strict=True)
    times = [[t for part in parts for t in part] for parts in zip(*turns, strict=True)]
    for model in models:
        model.dispose()
    top, gflops = (s.flops / min(t) / 1e6 for s, t in zip(subjects, times, strict=True))
    row = {
        "case": subjects[1].name, "group": "chain", "host": host.browser.name,
        "gflops": round(gflops, 2), "share_of_peak": round(gflops / top, 3),
        "gflops_median": round(subjects[1].flops / statistics.median(times[1]) / 1e6, 2),
        "peak_gflops": round(top, 2), "n": len(times[1]),
    }  # fmt: skip
    print(f"{gflops:7.2f} {gflops / top:6.1%}  {row['case']}", flush=True)
    return row


def main(
    run: Run,
    host: Hosts = None,
    rounds: Rounds = 30,
    only: Annotated[
        list[str] | None, typer.Option(help="Only these groups; nothing is written; repeatable.")
    ] = None,
) -> None:
    rows = []
    for name in host or BROWSERS:
        with tempfile.TemporaryDirectory(prefix="gemm-") as folder, BrowserHost(name) as browser:
            for group in dict.fromkeys(c.group for c in cases()):
                batch = [c for c in cases() if c.group == group]
                if not only or group in only:
                    rows += measure(browser, batch, rounds, Path(folder))
            if not only or "chain" in only:
                rows.append(measure_chain(browser, rounds, Path(folder)))
    if not only:
        run.save(rows)
