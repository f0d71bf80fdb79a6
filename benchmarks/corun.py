"""A critical model beside a normal one on an NVIDIA GPU, by every policy: results/corun.json.

Input: a GPU with its driver, the extra `cuda`; names of workloads (lab/workloads),
or two ONNX files.  Output: a row for each pair, policy, bound, number of SMs and seed.  Each row
has a fixed time, and rows are saved as they come, so a run may be ended early; rows of other
settings and cards stay.  What was refused is a row with an `error`.

* p50, p99, p999: the critical model's latency, waiting included, over its time alone;
  `service_p50`, ...: from its begin, which a bound is on;
* gaps: the policy knew how soon requests may follow each other;
* solo_changed: by how much the time alone changed while it ran, since the GPU's clock did; requests
  are judged by what was known at their end, shares and totals by what was measured at first;
* normal_share: normal work as share of what critical requests leave possible;
* total_over_sequential: all requests per second, over what turns would give;
* occupancy: of resident warps, by watched kernels in a short run of its own (`--occupancy`).

    python benchmarks/corun.py [--pair MDTB-A] [--sms 8] [--seconds 3] [--seed 0] [--policy ...]
    python benchmarks/corun.py --kernels naive --paper-load --clients 4
    python benchmarks/corun.py --models critical.onnx normal.onnx --rate 50
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import common

from lab.designs import DESIGNS
from lab.naive import naive
from lab.workloads import PAPER_LOADS, WORKLOADS, Stream, Workload, workload
from lab.workloads.metrics import achieved_occupancy, sequential_rate
from lab.workloads.models import model
from tilewright.base.errors import TilewrightError, UsageError
from tilewright.base.quantiles import tail
from tilewright.bundle import write
from tilewright.compiler import Options, compile_model
from tilewright.elastic.arrivals import Arrival, ClosedLoop, Poisson
from tilewright.elastic.corun import Corun
from tilewright.elastic.measure_curves import Measured
from tilewright.elastic.settings import CriticalSettings, Settings
from tilewright.targets import target

CUDA = "cuda"
TUNED, NAIVE = "tuned", "naive"
KEY = (
    "gpu", "pair", "policy", "sms", "kernels", "clients", "l2_persistence", "rate", "load", "seed",
    "max_slowdown", "gaps", "together",
)  # fmt: skip
#: Whose occupancy is compared.
OCCUPIED = ("sequential", "tilewright")
#: Where a policy takes none.
NO_BOUND = 1e3
#: Bounds of our frontier.
BOUNDS = (1.05, 1.1, 1.2, 1.4, 1.6)
#: Part of the time that a row with watched kernels takes.
WATCHED = 0.2


@dataclass(frozen=True)
class Pair:
    """A workload, and the bundles of its streams in their order: the critical ones first."""

    name: str
    workload: Workload
    bundles: tuple[Path, ...]

    @property
    def parted(self) -> tuple[list[CriticalSettings], list[Path]]:
        """Critical and normal bundles."""
        count = len(self.workload.critical)
        return [CriticalSettings(path) for path in self.bundles[:count]], list(self.bundles[count:])


def pairs_of(args: argparse.Namespace, folder: Path) -> Iterator[Pair]:
    """Models are compiled once each."""
    if args.models:
        names = [Path(m).stem for m in args.models]
        arrival: Arrival = Poisson(args.rate) if args.rate else ClosedLoop()
        found = Workload(
            (Stream(names[0], arrival),), tuple(Stream(n, ClosedLoop()) for n in names[1:])
        )
        paths = [
            built(n, Path(m), folder, args.kernels) for n, m in zip(names, args.models, strict=True)
        ]
        yield Pair(" + ".join(names), found.with_clients(args.clients), tuple(paths))
        return
    for name in args.pair or list(WORKLOADS):
        found = workload(name).with_clients(args.clients)
        rate = found.critical[0].arrival.rate
        if args.rate and rate:
            found = found.scaled(args.rate / rate)
        bundles = (built(s.model, model(s.model), folder, args.kernels) for s in found.streams)
        yield Pair(name, found, tuple(bundles))


def built(name: str, source: Any, folder: Path, kernels: str = TUNED) -> Path:
    """A model's bundle, compiled once."""
    path = folder / name
    if not path.exists():
        schedule = naive(target(CUDA)) if kernels == NAIVE else None
        options = Options(targets=(CUDA,), schedule=schedule)
        write(compile_model(source, options).contents, path)
    return path


def at_paper_load(pair: Pair, args: argparse.Namespace, sms: int | None) -> Pair:
    """Rates such that open arrivals ask for as much of this device as of the paper's boards."""
    settings = Settings("sequential", args.device, sms, measure_seconds=args.measure)
    with Corun(*pair.parted, settings) as session:
        solo = solos(pair.workload, [m.solo_us for m in session.measured], session.normal.alone)
    return replace(pair, workload=pair.workload.at_load(PAPER_LOADS[pair.name], solo))


def solos(
    streams: Workload, critical_us: Sequence[float], normal_rates: Sequence[float]
) -> dict[str, float]:
    """Seconds of each model alone; of one that is critical and normal, as a normal one."""
    critical = zip(streams.critical, critical_us, strict=True)
    normal = zip(streams.normal, normal_rates, strict=True)
    return {s.model: us / 1e6 for s, us in critical} | {s.model: 1 / rate for s, rate in normal}


def rows_of(pair: Pair, args: argparse.Namespace, sms: int | None) -> Iterator[dict[str, Any]]:
    """One policy after the other; curves are measured once."""
    curves: Sequence[Measured] = ()
    critical, normal = pair.parted
    if args.paper_load and pair.name in PAPER_LOADS:
        pair = at_paper_load(pair, args, sms)
    arrivals = [stream.arrival for stream in pair.workload.critical]
    for name in args.policy or list(DESIGNS):
        promises = DESIGNS[name].promises
        for bound in args.bound or BOUNDS if promises else (None,):
            settings = Settings(
                DESIGNS[name],
                args.device,
                sms,
                max_slowdown=bound or NO_BOUND,
                phases=args.phases,
                ahead=args.ahead,
                together=args.together,
                l2_persistence=args.l2_persistence,
                gap_s=min(arrival.mean_gap for arrival in arrivals),
                gaps=not args.any_time,
                measure_seconds=args.measure,
            )
            try:
                with Corun(critical, normal, settings, curves) as session:
                    curves = session.curves if promises else curves
                    for seed in args.seed or (0,):
                        yield row(pair, args, session, bound, seed)
            except TilewrightError as error:
                for seed in args.seed or (0,):
                    said = {"error": error.to_json()}
                    yield setting(pair, args, name, sms, bound, seed) | said


def setting(
    pair: Pair,
    args: argparse.Namespace,
    policy: str,
    sms: int | None,
    bound: float | None,
    seed: int,
) -> dict[str, Any]:
    return {
        "pair": pair.name,
        "policy": policy,
        "sms": sms,
        "kernels": args.kernels,
        "clients": args.clients,
        "l2_persistence": args.l2_persistence,
        "rate": args.rate,
        "load": PAPER_LOADS.get(pair.name) if args.paper_load else None,
        "seed": seed,
        "max_slowdown": bound,
        "together": args.together,
        "gaps": not args.any_time
        and DESIGNS[policy].plain
        and all(s.arrival.least_gap for s in pair.workload.critical),
    }


def row(
    pair: Pair,
    args: argparse.Namespace,
    session: Corun,
    bound: float | None,
    seed: int,
) -> dict[str, Any]:
    """The deadline is only counted: no policy refuses for it.  Of several critical models all
    requests count together, each over its own model's time alone."""
    streams = pair.workload
    result = session.run(
        [s.arrival for s in streams.critical],
        args.seconds, seed, [s.arrival for s in streams.normal],
    )  # fmt: skip
    critical = list(zip(streams.critical, result.critical, strict=True))
    solo = solos(streams, [one.solo_us for one in result.critical], session.normal.alone)
    closed = any(s.arrival.clients for s in streams.critical)
    left = 1.0 if closed else max(1e-9, 1 - result.duty)
    answered = [(s, answer) for s, one in critical for answer in one.answered]
    total = (len(answered) + sum(result.inferences)) / result.seconds
    waited = tail([a.waited for _, a in answered])
    service = tail([a.slowdown for _, a in answered])
    missed = [s.due is not None and a.latency_us > 1e6 * s.due for s, a in answered]
    used = session.settings
    found: dict[str, Any] = setting(pair, args, used.policy, used.sms, bound, seed) | {
        "l2_kept": session.persistent.share if session.persistent else None,
        "p50": waited.p50,
        "p99": waited.p99,
        "p999": waited.p999,
        "misses": sum(missed) / len(missed),
        "normal_share": result.normal_share / left,
        "total_over_sequential": total / sequential_rate(streams, solo),
        "occupancy": None,
        "n": len(answered),
        "service_p50": service.p50,
        "service_p99": service.p99,
        "service_p999": service.p999,
        "over_bound": None if bound is None else sum(c.over_bound for c in result.critical),
        "over_by_waiting": None
        if bound is None
        else sum(c.over_by_waiting for c in result.critical),
        "bound_kept": all(c.bound_kept for c in result.critical),
        "curves_corrected": sum(len(c.noticed) for c in result.critical),
        "solo_changed": [
            round(r.now_us / r.was_us, 4) for c in result.critical for r in c.recalibrated
        ],
        "duty": result.duty,
        "at_once": session.concurrency.together,
        "gated": session.concurrency.gated,
        "solo_us": statistics.mean(c.solo_us for c in result.critical),
        "decision_us": result.decision_us,
        "seconds": result.seconds,
    }
    return {k: round(v, 5) if isinstance(v, float) else v for k, v in found.items()}


def occupancy_of(pair: Pair, args: argparse.Namespace, sms: int | None, name: str) -> float:
    """Resident warps over all that there is room for, by watched kernels."""
    settings = Settings(
        name, args.device, sms, max_slowdown=NO_BOUND, watched=True,
        l2_persistence=args.l2_persistence, measure_seconds=args.measure / 4,
    )  # fmt: skip
    streams = pair.workload
    with Corun(*pair.parted, settings) as session:
        result = session.run(
            [s.arrival for s in streams.critical], WATCHED * args.seconds, 0,
            [s.arrival for s in streams.normal],
        )  # fmt: skip
    return achieved_occupancy(result.spans)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pair", action="append", help="a workload's name; default: all")
    parser.add_argument("--models", nargs="+", help="ONNX files, the critical one first")
    parser.add_argument("--rate", type=float, default=0.0, help="critical requests per second")
    parser.add_argument(
        "--paper-load", action="store_true",
        help="rates that take as much of this device as Miriam's took of its boards",
    )  # fmt: skip
    parser.add_argument("--policy", action="append", choices=sorted(DESIGNS))
    parser.add_argument("--bound", action="append", type=float, help="for ours; repeatable")
    parser.add_argument("--sms", action="append", type=int, help="default: the whole GPU")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each row")
    parser.add_argument("--measure", type=float, default=2.0, help="seconds for curves")
    parser.add_argument("--budget", type=float, default=480.0, help="seconds of the whole run")
    parser.add_argument("--seed", action="append", type=int)
    parser.add_argument("--clients", type=int, default=1, help="of each normal model")
    parser.add_argument("--phases", type=int, default=1)
    parser.add_argument(
        "--l2-persistence", action="store_true", help="critical weights stay in the L2 cache"
    )
    parser.add_argument("--any-time", action="store_true", help="nobody knows least gaps")
    parser.add_argument("--occupancy", action="store_true", help="also a short watched run")
    parser.add_argument("--kernels", choices=(TUNED, NAIVE), default=TUNED)
    parser.add_argument("--together", type=int, help="normal models that run at once; 0: all")
    parser.add_argument("--ahead", type=int, default=2, help="launches of a normal model in flight")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--out", default="corun", help="results/NAME.json")
    parser.add_argument("--commit", default="", help="what was measured, where there is no git")
    args = parser.parse_args()
    if args.models and len(args.models) < 2:
        raise UsageError("--models needs two at least", hint="The critical one comes first")
    if args.paper_load and (args.models or args.rate):
        raise UsageError(
            "--paper-load sets the rates of the paper's workloads",
            hint="Leave out --models and --rate",
        )
    stop = time.monotonic() + args.budget
    rows = list[dict[str, Any]]()
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
                for policy in OCCUPIED if args.occupancy else ():
                    share = round(occupancy_of(pair, args, sms, policy), 4)
                    for found in rows:
                        told = found["pair"], found["policy"], found["sms"]
                        if told == (pair.name, policy, sms) and "error" not in found:
                            found["occupancy"] = share
                    print(pair.name, policy, "occupancy", share, flush=True)
                    saved(args, rows)


def saved(args: argparse.Namespace, rows: Sequence[dict[str, Any]]) -> None:
    facts = common.nvidia_facts(args.commit)
    gpu = facts["machine"].get("gpu")
    common.merge(args.out, [{"gpu": gpu, **row} for row in rows], KEY, **facts)


if __name__ == "__main__":
    main()
