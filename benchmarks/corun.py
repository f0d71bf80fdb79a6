"""A critical model beside a normal one on an NVIDIA GPU, by every policy: results/corun.json.

Input: a GPU with its driver, the extra `cuda`; names of workloads (tilewright/elastic/workloads),
or two ONNX files.  Output: a row for each pair, policy, bound, number of SMs and seed.  Each row
has a fixed time, and rows are saved as they come, so a run may be ended early.

* p50, p99, p999: the critical model's time from its begin, over its time alone;
  `..._waiting`: the same from its arrival, so the wait for earlier requests counts;
* normal_share: normal inferences over what the GPU does of them alone in that time;
* total_over_sequential: what both got over what turns would have given them;
* occupancy: of all threads of the SMs, the share that was resident, with watched kernels, in a
  short run of its own; 0 where that was left out.

    python benchmarks/corun.py [--pair MDTB-A] [--sms 8] [--seconds 3] [--seed 0] [--policy ...]
    python benchmarks/corun.py --models critical.onnx normal.onnx --rate 50
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import common

from tilewright.base.errors import TilewrightError, UsageError
from tilewright.bundle import write
from tilewright.cli.corun import facts
from tilewright.compiler import Options, compile_model
from tilewright.elastic.measure import Measured
from tilewright.elastic.policy import DESIGNS
from tilewright.elastic.session import Result, Session, Settings
from tilewright.elastic.workloads import WORKLOADS, workload
from tilewright.elastic.workloads.arrivals import Arrival, ClosedLoop, Poisson

OPTIONS = Options(targets=("cuda",))
#: Bounds of our frontier.
BOUNDS = (1.05, 1.1, 1.2, 1.4, 1.6)
#: Part of the time that a row with watched kernels takes.
WATCHED = 0.2


@dataclass(frozen=True)
class Pair:
    """Bundles of a critical and of normal models, and how critical requests come."""

    name: str
    critical: Path
    normal: tuple[Path, ...]
    arrival: Arrival
    deadline: float | None


def pairs_of(args: argparse.Namespace, folder: Path) -> Iterator[Pair]:
    """Compiled once each."""
    if args.models:
        paths = [built(Path(m).stem, Path(m), folder) for m in args.models]
        arrival: Arrival = Poisson(args.rate) if args.rate else ClosedLoop()
        name = " + ".join(Path(m).stem for m in args.models)
        yield Pair(name, paths[0], tuple(paths[1:]), arrival, None)
        return
    from tilewright.elastic.workloads.models import model

    for name in args.pair or list(WORKLOADS):
        found = workload(name)
        if len(found.critical) > 1:
            print(f"{name}: several critical models are not in this table", flush=True)
            continue
        stream = found.critical[0]
        arrival = stream.arrival
        if args.rate and arrival.rate:
            arrival = arrival.scaled(args.rate / arrival.rate)
        yield Pair(
            name,
            built(stream.model, model(stream.model), folder),
            tuple(built(s.model, model(s.model), folder) for s in found.normal),
            arrival,
            None if args.rate else stream.due,
        )


def built(name: str, model: Any, folder: Path) -> Path:
    path = folder / name
    if not path.exists():
        write(compile_model(model, OPTIONS).contents, path)
    return path


def rows_of(pair: Pair, args: argparse.Namespace, sms: int | None) -> Iterator[dict[str, Any]]:
    """One policy after the other; curves are measured once."""
    curves: Measured | None = None
    for name in args.policy or list(DESIGNS):
        settings = Settings(
            name,
            args.device,
            sms,
            deadline_ms=None if pair.deadline is None else 1e3 * pair.deadline,
            phases=args.phases,
            captured=args.captured,
            measure_seconds=args.measure,
        )
        bounds = args.bound or BOUNDS if DESIGNS[name].promises else (1.0,)
        for bound in bounds:
            own = replace(settings, max_slowdown=bound)
            try:
                with Session(pair.critical, pair.normal, own, curves) as session:
                    if DESIGNS[name].promises:
                        curves = session.measured
                    for seed in args.seed or (0,):
                        result = session.run(pair.arrival, args.seconds, seed, args.clients)
                        yield row(pair, own, sms, seed, result, occupancy=0.0)
            except TilewrightError as error:
                yield {
                    "pair": pair.name, "policy": name, "sms": sms, "max_slowdown": bound,
                    "error": error.to_json(),
                }  # fmt: skip


def row(
    pair: Pair, settings: Settings, sms: int | None, seed: int, result: Result, occupancy: float
) -> dict[str, Any]:
    found = facts(result)
    turns = sequential_share(result)
    return {
        "pair": pair.name,
        "policy": settings.policy,
        "sms": sms,
        "seed": seed,
        "clients": len(result.inferences),
        "max_slowdown": settings.max_slowdown,
        "n": found.pop("requests"),
        "p50": found.pop("p50"),
        "p99": found.pop("p99"),
        "p999": found.pop("p999"),
        "p50_waiting": found.pop("p50_with_waiting"),
        "p99_waiting": found.pop("p99_with_waiting"),
        "total_over_sequential": round((result.duty + result.normal_share) / turns, 4),
        "occupancy": round(occupancy, 4),
        **{key: value for key, value in found.items() if key != "max_slowdown"},
    }


def sequential_share(result: Result) -> float:
    """What turns give: open arrivals get what they ask for and normal work the rest, so the sum is
    one device's time."""
    return max(1.0, result.duty)


def occupancy_of(pair: Pair, args: argparse.Namespace, sms: int | None, name: str) -> float:
    """Threads that were resident, by watched kernels."""
    settings = Settings(
        name, args.device, sms, max_slowdown=1e3, watched=True, measure_seconds=args.measure / 4
    )
    with Session(pair.critical, pair.normal, settings) as session:
        result = session.run(pair.arrival, WATCHED * args.seconds, 0, args.clients)
        spans = result.spans
        if not spans:
            return 0.0
        begin, end = min(s.begin for s in spans), max(s.end for s in spans)
        held = sum((s.end - s.begin) * s.threads for s in spans)
        return held / ((end - begin) * session.sms * args.threads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pair", action="append", help="a workload's name; default: all")
    parser.add_argument("--models", nargs="+", help="ONNX files, the critical one first")
    parser.add_argument("--rate", type=float, default=0.0, help="critical requests per second")
    parser.add_argument("--policy", action="append", choices=sorted(DESIGNS))
    parser.add_argument("--bound", action="append", type=float, help="for ours; repeatable")
    parser.add_argument("--sms", action="append", type=int, help="default: the whole GPU")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each row")
    parser.add_argument("--measure", type=float, default=2.0, help="seconds for curves")
    parser.add_argument("--budget", type=float, default=480.0, help="seconds of the whole run")
    parser.add_argument("--seed", action="append", type=int)
    parser.add_argument("--clients", type=int, default=1, help="of each normal model")
    parser.add_argument("--phases", type=int, default=1)
    parser.add_argument("--captured", action="store_true", help="budget writes inside the graph")
    parser.add_argument("--occupancy", action="store_true", help="also a short watched run")
    parser.add_argument("--threads", type=int, default=2048, help="that an SM has room for")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", default="corun", help="results/NAME.json")
    parser.add_argument("--commit", default="", help="what was measured, where there is no git")
    args = parser.parse_args()
    if args.models and len(args.models) < 2:
        raise UsageError("--models needs two at least", hint="The critical one comes first")
    stop, rows = time.monotonic() + args.budget, list[dict[str, Any]]()
    with tempfile.TemporaryDirectory(prefix="corun-") as folder:
        for pair in pairs_of(args, Path(folder)):
            for sms in args.sms or (None,):
                for found in rows_of(pair, args, sms):
                    rows.append(found)
                    print(found, flush=True)
                    saved(args, rows)
                    if time.monotonic() > stop:
                        print("the time is over", flush=True)
                        return
                if args.occupancy:
                    for policy in ("sequential", "tilewright"):
                        share = occupancy_of(pair, args, sms, policy)
                        rows += [
                            {**r, "occupancy": round(share, 4)}
                            for r in rows
                            if (r["pair"], r["policy"], r["sms"]) == (pair.name, policy, sms)
                        ]
                        print(pair.name, policy, "occupancy", share, flush=True)


def saved(args: argparse.Namespace, rows: Sequence[dict[str, Any]]) -> None:
    common.save(
        args.out, list(rows),
        machine=common.machine() | common.nvidia_driver(),
        versions=common.versions(),
        commit=args.commit or common.commit(),
    )  # fmt: skip


if __name__ == "__main__":
    main()
