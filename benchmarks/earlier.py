"""Speed of this checkout beside an earlier one: each with its own compiler and its own engine.

Input: the other checkout with its environment (`git worktree add ../before COMMIT`, set up by its
scripts), a folder of models.  Output: results/earlier.json: kernels, empty steps and models, both
versions by turns in a browser of its own, with the ratio of their medians.

    uv run python benchmarks/earlier.py --other ../before --models dist/models
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import common
import numpy as np
import onnx
from earlier_side import EMPTY, MATMULS, PRODUCTS
from peers.cases import CASES, Case, Model
from peers.examples import example, model_file, named_sizes
from versions import commit

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
    """A process of one version, with its browser."""

    def __init__(self, root: Path, browser: str, threads: int) -> None:
        command = [root / ".venv" / "bin" / "python", SIDE, browser, str(threads)]
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


def subjects(models: Path, folder: Path) -> list[Subject]:
    kernels = [Subject(name) for name in (*MATMULS, *PRODUCTS, *EMPTY)]
    return kernels + [s for case in CASES if (s := of_model(case, models, folder))]


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
    outputs = {version: side.load(subject) for version, side in sides.items()}
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
    parser.add_argument("--browser", default="chromium")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", action="append", help="names of subjects")
    given = parser.parse_args()
    roots = {"now": ROOT, "before": given.other}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for subject in subjects(given.models, Path(folder)):
            if given.only and subject.name not in given.only:
                continue
            # Each subject gets new browsers: no heap of an earlier one is in its way.
            sides = {
                version: Side(root.resolve(), given.browser, given.threads)
                for version, root in roots.items()
            }
            try:
                rows.append(compared(sides, subject, given.rounds))
            finally:
                for side in sides.values():
                    side.close()
            print(json.dumps(rows[-1]), flush=True)
    mean = statistics.geometric_mean(row["speedup"] for row in rows)
    print(f"geometric mean {mean:.3f} of {len(rows)}")
    if not given.only:
        facts = {"browser": given.browser, "threads": given.threads, "mean": round(mean, 3)}
        common.save("earlier", rows, before=commit(given.other), **facts)


if __name__ == "__main__":
    main()
