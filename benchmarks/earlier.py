"""Speed of this checkout beside an earlier one: each with its own compiler and its own engine.

Input: the other checkout with its environment (`git worktree add ../before COMMIT`, set up by its
scripts); for Wasm a folder of models, on a GPU those of peers/models.py.  Output:
results/earlier.json and results/earlier_gpu.json: kernels, empty steps and models, both versions by
turns, each in a host of its own, with the ratio of their medians.

    uv run python benchmarks/earlier.py --other ../before --models dist/models
    uv run python benchmarks/earlier.py --other ../before --host dawn
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parents[1]))

import common
import numpy as np
import onnx
from earlier_side import EMPTY, LARGE, MATMULS, PRODUCTS, TARGETS
from versions import commit

from benchmarks.peers.cases import CASES, Case, Model
from benchmarks.peers.examples import example, model_file, named_sizes
from benchmarks.peers.gpu_cases import BITS4, NETS
from benchmarks.peers.models import MODELS

ROOT = Path(__file__).parents[1]
SIDE = Path(__file__).with_name("earlier_side.py")
WARM_MS = 2000.0
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
        command = [root / ".venv" / "bin" / "python", SIDE, host, str(threads)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
        )

    def ask(self, **asked: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a version ended with exit code {self.process.wait()}")
        return json.loads(line)

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


def compared(sides: dict[str, Side], subject: Subject, rounds: int) -> dict[str, Any]:
    """Medians of the turns' means, and the ratio before / now with quartiles over the turns."""
    with ThreadPoolExecutor(len(sides)) as threads:
        loaded = threads.map(lambda side: side.load(subject), sides.values())
        outputs = dict(zip(sides, loaded, strict=True))
    difference = differing(outputs["now"], outputs["before"])
    if not difference <= subject.tolerance:
        raise SystemExit(f"{subject.name}: outputs differ by {difference:.2g} of the largest")
    usual = max(common.warmed(side.time, WARM_MS, TURN_MS) for side in sides.values())
    runs = max(1, min(400, round(TURN_MS / max(usual, 0.01))))
    times: dict[str, list[float]] = {version: [] for version in sides}
    for turn in range(rounds):
        for version in list(sides)[:: -1 if turn % 2 else 1]:
            # One short run takes only a few ticks of a browser's clock.
            times[version].append(statistics.mean(sides[version].time(runs)))
    ratios = [b / n for b, n in zip(times["before"], times["now"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    medians = {version: round(statistics.median(found), 4) for version, found in times.items()}
    return {
        "subject": subject.name, **medians, "speedup": round(middle, 3),
        "low": round(low, 3), "high": round(high, 3), "turns": rounds, "runs": runs,
        "difference": difference,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--other", type=Path, required=True, help="the other checkout")
    parser.add_argument("--models", type=Path, default=ROOT / "dist" / "models")
    parser.add_argument("--host", default="chromium", help="a browser, dawn or cuda")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", action="append", help="names of subjects")
    parser.add_argument("--commits", nargs=2, help="now and before, where there is no git")
    given = parser.parse_args()
    gpu, rows = given.host in TARGETS, []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for subject in on_gpu(folder) if gpu else subjects(given.models, folder):
            if given.only and subject.name not in given.only:
                continue
            rows.append(in_new_hosts(given, subject))
            print(json.dumps(rows[-1]), flush=True)
    mean = statistics.geometric_mean(row["speedup"] for row in rows)
    print(f"geometric mean {mean:.3f} of {len(rows)}")
    if given.only:
        return
    now, before = given.commits or (common.commit(), commit(given.other))
    if gpu:
        rows = [{"host": given.host, **row} for row in rows]
        facts = common.nvidia_facts(now)
        common.merge("earlier_gpu", rows, ("host", "subject"), before=before, **facts)
    else:
        common.save("earlier", rows, host=given.host, threads=given.threads, before=before)


def in_new_hosts(given: argparse.Namespace, subject: Subject) -> dict[str, Any]:
    """No heap of an earlier subject is in its way."""
    roots = {"now": ROOT, "before": given.other}
    sides = {
        version: Side(root.resolve(), given.host, given.threads) for version, root in roots.items()
    }
    try:
        return compared(sides, subject, given.rounds)
    finally:
        for side in sides.values():
            side.close()


if __name__ == "__main__":
    main()
