"""Speed of this checkout beside an earlier one: each with its own compiler and its own engine.

Input: the other checkout with its environment (`git worktree add ../before COMMIT`, set up by its
scripts); for Wasm a folder of models, on a GPU those of peers/models.py.  Output:
results/versions.speed.json and results/versions.speed.gpu.json: kernels, empty steps and models,
both versions by turns, each in a host of its own, with the ratio of their medians.

    python -m benchmarks versions.speed --other ../before --models dist/models
    python -m benchmarks versions.speed --other ../before --host dawn
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypedDict, cast

import numpy as np
import onnx
import typer

from benchmarks.accuracy import require_close
from benchmarks.common import ROOT, Run, commit, nvidia_machine
from benchmarks.options import Models, Other, Rounds
from benchmarks.peers.cases import CASES, Case, Model
from benchmarks.peers.examples import example, model_file, named_sizes
from benchmarks.peers.gpu_cases import BITS4, NETS
from benchmarks.peers.models import MODELS
from benchmarks.records import Row
from benchmarks.versions.one_side import EMPTY, LARGE, MATMULS, PRODUCTS, TARGETS
from lab.timing import WARM_MS, runs_in, turn, warmed

SIDE = Path(__file__).with_name("one_side.py")
#: What one turn of a version takes.
TURN_MS = 150.0
#: Largest difference of two versions' outputs, as a share of the largest value.
TOLERANCE = 1e-4
#: Steps of the grid differ where int8 rounds.
INT8_TOLERANCE = 0.1


@dataclass(frozen=True)
class Subject:
    """What both versions build; `model` is "" for a kernel, `inputs` a file of arrays or ""."""

    name: str
    model: str = ""
    dims: dict[str, int] | None = None
    inputs: str = ""
    tolerance: float = TOLERANCE


class Side:
    """A process of one version, with its host."""

    def __init__(self, root: Path, host: str, threads: int) -> None:
        command: list[str | Path] = [root / ".venv" / "bin" / "python", SIDE, host, str(threads)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
        )

    def ask(self, **asked: object) -> object:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a version ended with exit code {self.process.wait()}")
        found: object = json.loads(line)
        return found

    def load(self, subject: Subject) -> dict[str, list[float]]:
        found = self.ask(
            name=subject.name, model=subject.model, dims=subject.dims or {}, inputs=subject.inputs
        )
        return cast("dict[str, list[float]]", found)

    def time(self, runs: int) -> list[float]:
        return cast("list[float]", self.ask(runs=runs, warmup=0))

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def subjects(models: Path, folder: Path) -> Iterator[Subject]:
    yield from map(Subject, (*MATMULS, *PRODUCTS, *EMPTY))
    for case in CASES:
        if found := of_model(case, models, folder):
            yield found


def on_gpu(folder: Path) -> Iterator[Subject]:
    """Without the empty steps: they are WebAssembly."""
    yield from map(Subject, (*MATMULS, *PRODUCTS, *LARGE))
    for name in (*NETS, *BITS4):
        path, inputs = folder / f"{name}.onnx", folder / f"{name}.npz"
        model = MODELS[name](False)
        onnx.save(model, path)
        np.savez(inputs, allow_pickle=False, **example(model, 0))
        tolerance = INT8_TOLERANCE if name in BITS4 else TOLERANCE
        yield Subject(name, str(path), None, str(inputs), tolerance)


def of_model(case: Case, models: Path, folder: Path) -> Subject | None:
    work = case.work
    if not isinstance(work, Model) or not (path := model_file(work, models)):
        return None
    model = onnx.load(path, load_external_data=False)
    inputs = folder / f"{case.name}.npz"
    np.savez(inputs, allow_pickle=False, **example(model, work.length))
    tolerance = INT8_TOLERANCE if "int8" in case.name else TOLERANCE
    dims = named_sizes(model, work.length)
    return Subject(case.name, str(path.resolve()), dims, str(inputs), tolerance)


def differing(a: dict[str, list[float]], b: dict[str, list[float]]) -> float:
    """The largest difference of two versions' outputs, as a share of the largest value."""
    found = [0.0]
    for name, values in a.items():
        one, other = np.array(values), np.array(b[name])
        found.append(float(np.abs(one - other).max() / max(np.abs(other).max(), 1e-30)))
    return max(found)


class Compared(TypedDict):
    """A row: milliseconds of both versions, and before over now with quartiles over the turns."""

    subject: str
    now: float
    before: float
    speedup: float
    low: float
    high: float
    turns: int
    runs: int
    difference: float


def compared(sides: Mapping[str, Side], subject: Subject, rounds: int) -> Compared:
    """Medians of the turns' means, and the ratio before / now with quartiles over the turns."""
    with ThreadPoolExecutor(len(sides)) as threads:
        loaded = threads.map(lambda side: side.load(subject), sides.values())
        outputs = dict(zip(sides, loaded, strict=True))
    difference = differing(outputs["now"], outputs["before"])
    require_close(subject.name, difference, subject.tolerance)
    usual = max(warmed(side.time, WARM_MS, TURN_MS) for side in sides.values())
    runs = runs_in(TURN_MS, usual)
    times: dict[str, list[float]] = {version: [] for version in sides}
    for number in range(rounds):
        for version in turn(number, list(sides)):
            # One short run takes only a few ticks of a browser's clock.
            times[version].append(statistics.mean(sides[version].time(runs)))
    ratios = [b / n for b, n in zip(times["before"], times["now"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    now, before = (round(statistics.median(times[name]), 4) for name in ("now", "before"))
    return {
        "subject": subject.name, "now": now, "before": before, "speedup": round(middle, 3),
        "low": round(low, 3), "high": round(high, 3), "turns": rounds, "runs": runs,
        "difference": difference,
    }  # fmt: skip


def main(
    run: Run,
    other: Other,
    models: Models = ROOT / "dist" / "models",
    host: Annotated[str, typer.Option(help="A browser, dawn or cuda.")] = "chromium",
    threads: Annotated[int, typer.Option(min=1)] = 1,
    rounds: Rounds = 15,
    only: Annotated[
        list[str] | None, typer.Option(help="Subjects; nothing is written; repeatable.")
    ] = None,
    before: Annotated[
        str, typer.Option(metavar="HASH", help="The other commit, where there is no git.")
    ] = "",
) -> None:
    gpu, rows, speedups = host in TARGETS, list[Row](), list[float]()
    roots = {"now": ROOT, "before": other.resolve()}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for subject in on_gpu(folder) if gpu else subjects(models, folder):
            if not only or subject.name in only:
                with new_sides(roots, host, threads) as sides:
                    row = compared(sides, subject, rounds)
                run.show(row)
                rows.append({"host": host, **row})
                speedups.append(row["speedup"])
    print(f"geometric mean {statistics.geometric_mean(speedups):.3f} of {len(rows)}")
    if only:
        return
    facts: Row = {"before": before or commit(other)}
    facts |= {"machine": nvidia_machine()} if gpu else {"host": host, "threads": threads}
    run.save(rows, part="gpu" if gpu else "", facts=facts)


@contextmanager
def new_sides(roots: Mapping[str, Path], host: str, threads: int) -> Iterator[dict[str, Side]]:
    """Hosts of both versions: no heap of an earlier subject is in their way."""
    sides = {version: Side(root, host, threads) for version, root in roots.items()}
    try:
        yield sides
    finally:
        for side in sides.values():
            side.close()
