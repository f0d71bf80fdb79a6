"""How many trials sessions need, with what their own trials teach and without, on stored sweeps.

Input: sweeps in results/tuning.headroom.json, their models.  Output: results/tuning.forecast.json:
per sweep and number of trials, the share of the fastest that the model and its kernels have by
then.  The order of trial and the choice among candidates are the tuner's own
(tuning/candidate_order.py, web/tune/loop); times are the sweep's, with noise.  A candidate counts
as soon as it was tried, and kernels that were not swept take no part, so real sessions need more
trials.  Shares of the time are exact, as with a static build; a server is told powers of four.

    python -m benchmarks tuning.forecast --models dist/public
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import tilewright
from benchmarks.common import Run
from benchmarks.optimum import POOR
from benchmarks.options import Models
from benchmarks.records import Row
from benchmarks.tuning.candidate_times import device_here
from benchmarks.tuning.headroom import KernelRow, short, steps_of, swept_kernels
from tilewright.tuning.candidate_order import Tunable, compose
from tilewright.tuning.candidates import Space, space_of

HERE = Path(__file__).parent
LOOP = Path(tilewright.__file__).parent / "web" / "tune" / "loop"
#: Trials after which is looked; noises that each session is repeated with.
LOOKS, SEEDS = (10, 20, 40, 80, 160), (1, 2, 3)


@dataclass(frozen=True)
class Swept:
    """A sweep of a model: kernels with their spaces.  rows: of results/tuning.headroom.json"""

    host: str
    model: str
    device: str
    rows: Sequence[KernelRow]
    spaces: Sequence[Space]


def sweeps_of(models: Path) -> Iterator[Swept]:
    """The stored sweeps of the class of this machine whose spaces are today's."""
    device = device_here()
    rows = [r for r in swept_kernels(device) if "times" in r]
    for model in sorted({r["model"] for r in rows}):
        spaces = {short(s.kernel): space_of(s.kernel, device) for s in steps_of(model, models)}
        for host in sorted({r["host"] for r in rows if r["model"] == model}):
            own = [r for r in rows if (r["host"], r["model"]) == (host, model)]
            same = [
                r for r in own
                if r["kernel"] in spaces and spaces[r["kernel"]].checksum == r["checksum"]
            ]  # fmt: skip
            if len(same) == len(own):
                yield Swept(host, model, device.id, own, [spaces[r["kernel"]] for r in own])
            else:
                print(f"{model} on {host}: its spaces have changed since the sweep", flush=True)


def session(swept: Swept, learning: bool, seed: int) -> Row:
    """What forecast.mjs is asked."""
    subjects = [
        Tunable(n, row["time_share"], space.marks.count("lite"), space.order)
        for n, (row, space) in enumerate(zip(swept.rows, swept.spaces, strict=True))
    ]
    picks = [(p.spec, p.candidate) for p in compose(subjects, seed) if p.candidate is not None]
    kernels = [
        {"share": row["time_share"], "times": row["times"], "schedules": [*map(str, s.schedules)]}
        for row, s in zip(swept.rows, swept.spaces, strict=True)
    ]
    return {
        "kernels": kernels, "picks": picks, "looks": LOOKS, "learning": learning, "seed": seed,
    }  # fmt: skip


def shares(swept: Swept, found: Sequence[Sequence[float]]) -> list[list[float]]:
    """Per look: share of the fastest of the whole model, then of each kernel."""
    own = [row["time_share"] for row in swept.rows]
    rest = 1 - sum(own)
    fastest = [min(row["times"]) / row["times"][0] for row in swept.rows]

    def whole(times: Sequence[float]) -> float:
        return rest + sum(s * t for s, t in zip(own, times, strict=True))

    return [
        [whole(fastest) / whole(look), *(f / t for f, t in zip(fastest, look, strict=True))]
        for look in found
    ]


def row_of(swept: Swept, learning: bool) -> Row:
    asked = {
        "loop": LOOP.as_uri(),
        "sessions": [session(swept, learning, seed) for seed in SEEDS],
    }
    done = subprocess.run(
        ["node", str(HERE / "forecast.mjs")],
        input=json.dumps(asked), capture_output=True, text=True, check=True,
    )  # fmt: skip
    told = [shares(swept, found) for found in json.loads(done.stdout)]
    poor = [n + 1 for n, row in enumerate(swept.rows) if min(row["times"]) < POOR * row["times"][0]]

    def middle(look: int, kernel: int) -> float:
        return sorted(one[look][kernel] for one in told)[len(SEEDS) // 2]

    return {
        "host": swept.host, "model": swept.model, "device": swept.device, "learning": learning,
        "kernels": len(swept.rows), "trials": list(LOOKS),
        "share": [round(middle(n, 0), 3) for n in range(len(LOOKS))],
        "poor": [[round(middle(n, k), 3) for k in poor] for n in range(len(LOOKS))],
    }  # fmt: skip


def main(run: Run, models: Models = Path("dist/public")) -> None:
    rows = []
    for swept in sweeps_of(models):
        for learning in (False, True):
            rows.append(row_of(swept, learning))
            run.show(rows[-1])
    run.save(rows)
