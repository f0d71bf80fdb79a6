"""A critical model beside a normal one on an NVIDIA GPU, by every policy.

Input: a GPU with its driver, the extra `cuda`; names of workloads (lab/workloads), or two ONNX
files.  Output: results/corun.policies.json, a row for each pair, policy, bound, number of SMs and
seed. Each row has a fixed time, and rows are saved as they come, so a run may be ended early; rows
of other settings and cards stay.  What was refused is a row with an `error`.

* p50, p99, p999: the critical model's latency, waiting included, over its time alone;
  `service_p50`, ...: from its begin, which a bound is on;
* gaps: the policy knew how soon requests may follow each other;
* solo_changed: by how much the time alone changed while it ran, since the GPU's clock did; requests
  are judged by what was known at their end, shares and totals by what was measured at first;
* normal_share: normal work as share of what critical requests leave possible;
* total_over_sequential: all requests per second, over what turns would give;
* occupancy: of resident warps, by traced kernels in a short run of its own (`--occupancy`).

    python -m benchmarks corun.policies [--pair MDTB-A] [--sms 8] [--seconds 3] [--seed 0]
    python -m benchmarks corun.policies --kernels naive --paper-load --clients 4
    python -m benchmarks corun.policies --model critical.onnx --model normal.onnx --rate 50
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import onnx
import typer

from benchmarks.common import Run, nvidia_machine
from benchmarks.options import among
from benchmarks.records import Row
from lab.naive import naive
from lab.policies import POLICIES
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
#: Whose occupancy is compared.
OCCUPIED = ("sequential", "tilewright")
#: Where a policy takes none.
NO_BOUND = 1e3
#: Bounds of our frontier.
BOUNDS = (1.05, 1.1, 1.2, 1.4, 1.6)
#: Part of the time that a row with traced kernels takes.
TRACED = 0.2


@dataclass(frozen=True)
class RunOptions:
    """The options, as `main` describes them."""

    pairs: Sequence[str]
    models: Sequence[str]
    rate: float
    paper_load: bool
    policies: Sequence[str]
    bounds: Sequence[float]
    seconds: float
    measure: float
    seeds: Sequence[int]
    clients: int
    phases: int
    l2_persistence: bool
    any_time: bool
    kernels: str
    together: int | None
    ahead: int
    kind: Literal["gpu", "cpu"]


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


def pairs_of(options: RunOptions, folder: Path) -> Iterator[Pair]:
    """Models are compiled once each."""
    if options.models:
        names = [Path(m).stem for m in options.models]
        arrival: Arrival = Poisson(options.rate) if options.rate else ClosedLoop()
        found = Workload(
            (Stream(names[0], arrival),), tuple(Stream(n, ClosedLoop()) for n in names[1:])
        )
        paths = [
            built(n, Path(m), folder, options.kernels)
            for n, m in zip(names, options.models, strict=True)
        ]
        yield Pair(" + ".join(names), found.with_clients(options.clients), tuple(paths))
        return
    for name in options.pairs:
        found = workload(name).with_clients(options.clients)
        rate = found.critical[0].arrival.rate
        if options.rate and rate:
            found = found.scaled(options.rate / rate)
        bundles = (built(s.model, model(s.model), folder, options.kernels) for s in found.streams)
        yield Pair(name, found, tuple(bundles))


def built(name: str, source: Path | onnx.ModelProto, folder: Path, kernels: str = TUNED) -> Path:
    """A model's bundle, compiled once."""
    path = folder / name
    if not path.exists():
        schedule = naive(target(CUDA)) if kernels == NAIVE else None
        options = Options(targets=(CUDA,), schedule=schedule)
        write(compile_model(source, options).contents, path)
    return path


def at_paper_load(pair: Pair, options: RunOptions, sms: int | None) -> Pair:
    """Rates such that open arrivals ask for as much of this device as of the paper's boards."""
    settings = Settings("sequential", options.kind, sms, measure_seconds=options.measure)
    with Corun.prepare(*pair.parted, settings) as session:
        solo = solos(
            pair.workload,
            [m.solo_us for m in session.calibration.chosen],
            session.models.normal.alone,
        )
    return replace(pair, workload=pair.workload.at_load(PAPER_LOADS[pair.name], solo))


def solos(
    streams: Workload, critical_us: Sequence[float], normal_rates: Sequence[float]
) -> dict[str, float]:
    """Seconds of each model alone; of one that is critical and normal, as a normal one."""
    critical = zip(streams.critical, critical_us, strict=True)
    normal = zip(streams.normal, normal_rates, strict=True)
    return {s.model: us / 1e6 for s, us in critical} | {s.model: 1 / rate for s, rate in normal}


def under_policies(pair: Pair, options: RunOptions, sms: int | None) -> Iterator[Row]:
    """One policy after the other; curves are measured once."""
    curves: Sequence[Measured] = ()
    critical, normal = pair.parted
    if options.paper_load and pair.name in PAPER_LOADS:
        pair = at_paper_load(pair, options, sms)
    arrivals = [stream.arrival for stream in pair.workload.critical]
    for name in options.policies:
        promises = POLICIES[name].promises
        for bound in options.bounds if promises else (None,):
            settings = Settings(
                POLICIES[name],
                options.kind,
                sms,
                max_slowdown=bound or NO_BOUND,
                phases=options.phases,
                ahead=options.ahead,
                max_concurrent=options.together,
                l2_persistence=options.l2_persistence,
                gap_s=min(arrival.mean_gap for arrival in arrivals),
                use_least_gap=not options.any_time,
                measure_seconds=options.measure,
            )
            try:
                with Corun.prepare(critical, normal, settings, curves) as session:
                    curves = session.calibration.curves if promises else curves
                    for seed in options.seeds:
                        yield row(pair, options, session, bound, seed)
            except TilewrightError as error:
                for seed in options.seeds:
                    said = {"error": error.to_json()}
                    yield setting(pair, options, name, sms, bound, seed) | said


def setting(
    pair: Pair,
    options: RunOptions,
    policy: str,
    sms: int | None,
    bound: float | None,
    seed: int,
) -> Row:
    return {
        "pair": pair.name,
        "policy": policy,
        "sms": sms,
        "kernels": options.kernels,
        "clients": options.clients,
        "l2_persistence": options.l2_persistence,
        "rate": options.rate,
        "load": PAPER_LOADS.get(pair.name) if options.paper_load else None,
        "seed": seed,
        "max_slowdown": bound,
        "together": options.together,
        "gaps": not options.any_time
        and POLICIES[policy].plain
        and all(s.arrival.least_gap for s in pair.workload.critical),
    }


def row(
    pair: Pair,
    options: RunOptions,
    session: Corun,
    bound: float | None,
    seed: int,
) -> Row:
    """The deadline is only counted: no policy refuses for it.  Of several critical models all
    requests count together, each over its own model's time alone."""
    streams = pair.workload
    result = session.run(
        [s.arrival for s in streams.critical],
        options.seconds, seed, [s.arrival for s in streams.normal],
    )  # fmt: skip
    critical = list(zip(streams.critical, result.critical, strict=True))
    solo = solos(streams, [one.solo_us for one in result.critical], session.models.normal.alone)
    closed = any(s.arrival.clients for s in streams.critical)
    left = 1.0 if closed else max(1e-9, 1 - result.duty)
    answered = [(s, answer) for s, one in critical for answer in one.answered]
    total = (len(answered) + sum(result.inferences)) / result.seconds
    waited = tail([a.waited for _, a in answered])
    service = tail([a.slowdown for _, a in answered])
    missed = [s.due is not None and a.latency_us > 1e6 * s.due for s, a in answered]
    used = session.models.settings
    found: Row = setting(pair, options, session.models.policy.name, used.sms, bound, seed) | {
        "l2_kept": session.models.persistent.share if session.models.persistent else None,
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
        "at_once": session.concurrency.max_concurrent,
        "gated": session.concurrency.gated,
        "solo_us": statistics.mean(c.solo_us for c in result.critical),
        "decision_us": result.decision_us,
        "seconds": result.seconds,
    }
    return {k: round(v, 5) if isinstance(v, float) else v for k, v in found.items()}


def occupancy_of(pair: Pair, options: RunOptions, sms: int | None, name: str) -> float:
    """Resident warps over all that there is room for, by traced kernels."""
    settings = Settings(
        name, options.kind, sms, max_slowdown=NO_BOUND, traced=True,
        l2_persistence=options.l2_persistence, measure_seconds=options.measure / 4,
    )  # fmt: skip
    streams = pair.workload
    with Corun.prepare(*pair.parted, settings) as session:
        result = session.run(
            [s.arrival for s in streams.critical], TRACED * options.seconds, 0,
            [s.arrival for s in streams.normal],
        )  # fmt: skip
    return achieved_occupancy(result.spans)


def main(
    run: Run,
    pair: Annotated[
        list[str] | None, typer.Option(help="A workload's name, by default all; repeatable.")
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="FILE", help="ONNX, the critical one first; repeatable."),
    ] = None,
    rate: Annotated[float, typer.Option(help="Critical requests per second.")] = 0.0,
    paper_load: Annotated[
        bool,
        typer.Option("--paper-load", help="Rates that ask as much as Miriam's of its boards."),
    ] = False,
    policy: Annotated[list[str] | None, among(sorted(POLICIES), "Repeatable")] = None,
    bound: Annotated[list[float] | None, typer.Option(help="For ours; repeatable.")] = None,
    sms: Annotated[
        list[int] | None, typer.Option(help="By default the whole GPU; repeatable.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Of each row.")] = 3.0,
    measure: Annotated[float, typer.Option(help="Seconds for curves.")] = 2.0,
    budget: Annotated[float, typer.Option(help="Seconds of the whole run.")] = 480.0,
    seed: Annotated[list[int] | None, typer.Option(help="By default 0; repeatable.")] = None,
    clients: Annotated[int, typer.Option(min=1, help="Of each normal model.")] = 1,
    phases: Annotated[int, typer.Option(min=1, help="Of the critical model.")] = 1,
    l2_persistence: Annotated[
        bool, typer.Option("--l2-persistence", help="Critical weights stay in the L2 cache.")
    ] = False,
    any_time: Annotated[bool, typer.Option("--any-time", help="Nobody knows least gaps.")] = False,
    occupancy: Annotated[
        bool, typer.Option("--occupancy", help="Also a short traced run.")
    ] = False,
    kernels: Annotated[str, among((TUNED, NAIVE), "Of all models")] = TUNED,
    together: Annotated[
        int | None, typer.Option(help="Normal models that run at once; 0: all.")
    ] = None,
    ahead: Annotated[int, typer.Option(min=1, help="Launches of a normal model in flight.")] = 2,
    on_cpu: Annotated[bool, typer.Option("--on-cpu", help="To see that it works.")] = False,
    part: Annotated[
        str, typer.Option(metavar="NAME", help="Writes results/corun.policies.NAME.json.")
    ] = "",
) -> None:
    if models and len(models) < 2:
        raise UsageError("--model is needed twice at least", hint="The critical one comes first")
    if paper_load and (models or rate):
        raise UsageError(
            "--paper-load sets the rates of the paper's workloads",
            hint="Leave out --model and --rate",
        )
    options = RunOptions(
        pair or list(WORKLOADS), models or (), rate, paper_load, policy or list(POLICIES),
        bound or BOUNDS, seconds, measure, seed or (0,), clients, phases, l2_persistence, any_time,
        kernels, together, ahead, "cpu" if on_cpu else "gpu",
    )  # fmt: skip
    machine, stop = nvidia_machine(), time.monotonic() + budget

    def keep(rows: Sequence[Row]) -> None:
        gpu = {"gpu": machine.get("gpu")}
        run.save([gpu | row for row in rows], part=part, facts={"machine": machine})

    with tempfile.TemporaryDirectory(prefix="corun-") as folder:
        for each in pairs_of(options, Path(folder)):
            for number in sms or (None,):
                rows = list[Row]()
                for found in under_policies(each, options, number):
                    rows.append(found)
                    run.show(found)
                    keep([found])
                    if time.monotonic() > stop:
                        print("the time is over", flush=True)
                        return
                for name in OCCUPIED if occupancy else ():
                    share = round(occupancy_of(each, options, number, name), 4)
                    print(each.name, name, "occupancy", share, flush=True)
                    measured = [r for r in rows if r["policy"] == name and "error" not in r]
                    keep([row | {"occupancy": share} for row in measured])
