"""`corun`: critical models beside normal ones on one GPU, with bounds on their slowdown.

Input: ONNX files or bundles, a bound, a rate.  Output: latencies, what the normal models did, and
on request a timeline, as text and as JSON. The work is done in tilewright/elastic.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tilewright import TOOL
from tilewright.api.host_registry import targets_of
from tilewright.base.errors import AdmissionRefused, TaskOverdue, UsageError, unknown_name
from tilewright.bundle import POINTER
from tilewright.cli.options import Force, Json
from tilewright.cli.output import Answer, Show, pairs, progress, table
from tilewright.cli.output_files import Output

if TYPE_CHECKING:
    from tilewright.elastic.arrivals import Arrival
    from tilewright.elastic.result import CorunResult, CriticalResult
    from tilewright.elastic.settings import CriticalSettings

DEVICES = ("cuda", "cpu")
PolicyName = Annotated[
    str,
    typer.Option(help="Share the GPU by this policy. Others than tilewright are for comparison."),
]
DeviceName = Annotated[str, typer.Option(help=f"Run on this device: {' or '.join(DEVICES)}.")]
#: Microseconds that a timeline shows.
SHOWN_US = 5000.0
#: Seconds between two checks that the broker still works.
CHECK_S = 1.0


def corun(
    critical: Annotated[
        Path,
        typer.Argument(
            metavar="CRITICAL", help="Run this ONNX file or bundle as the critical model."
        ),
    ],
    normal: Annotated[
        list[Path],
        typer.Argument(metavar="NORMAL...", help="Run these models on the rest of the GPU."),
    ],
    max_slowdown: Annotated[
        float,
        typer.Option(
            help="Set the bound: the time of a critical request stays below this multiple of its "
            "time alone."
        ),
    ] = 1.05,
    also: Annotated[
        list[str] | None,
        typer.Option(
            "--critical",
            metavar="FILE[,NAME=VALUE...]",
            help="Run one more critical model. It can have its own max_slowdown, deadline, rate "
            "and priority (larger goes first). Values that you leave out are those of the first "
            "model. You can repeat this option.",
        ),
    ] = None,
    deadline: Annotated[
        float | None,
        typer.Option(
            help="Answer each critical request within this number of milliseconds. A request that "
            "would miss this is refused, and a late answer counts as a miss."
        ),
    ] = None,
    rate: Annotated[
        float,
        typer.Option(
            help="Send this number of critical requests per second. 0 sends each one after "
            "the last answer."
        ),
    ] = 20.0,
    arrival: Annotated[
        str,
        typer.Option(
            help="With --rate: send requests at equal distances (uniform) or at random (poisson)."
        ),
    ] = "poisson",
    clients: Annotated[
        int,
        typer.Option(
            min=1,
            help="Give each normal model this number of clients. A client asks again when it has "
            "its answer.",
        ),
    ] = 1,
    sms: Annotated[
        int | None,
        typer.Option(min=2, help="Use this number of multiprocessors. By default all."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Run for this number of seconds.")] = 10.0,
    seed: Annotated[int, typer.Option(help="Draw the times of requests from this seed.")] = 0,
    policy: PolicyName = "tilewright",
    max_concurrent: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Run at most this number of normal models at once. 0 means all. By default "
            "all; if the bounds cannot be kept, 2; else 1.",
        ),
    ] = None,
    phases: Annotated[
        int,
        typer.Option(
            min=1,
            help="Divide the critical model into this number of parts. Each part has its own "
            "budget of normal work.",
        ),
    ] = 1,
    l2_persistence: Annotated[
        bool,
        typer.Option(
            "--l2-persistence",
            help="Reserve a part of the L2 cache for the critical models' weights.",
        ),
    ] = False,
    curves: Annotated[
        Path | None,
        typer.Option(
            help="Read slowdown curves from this file if it exists, and add new measurements to it."
        ),
    ] = None,
    device: DeviceName = DEVICES[0],
    trace: Annotated[
        Path | None, typer.Option(help="Write a trace for Perfetto to this JSON file.")
    ] = None,
    timeline: Annotated[
        Path | None,
        typer.Option(help="Write a timeline of the multiprocessors to this SVG file."),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> Answer:
    """Run critical models beside normal ones and keep their slowdown under a bound."""
    from tilewright.elastic import measure_curves
    from tilewright.elastic import timeline as pictures
    from tilewright.elastic.arrivals import ClosedLoop
    from tilewright.elastic.corun import Corun
    from tilewright.elastic.settings import Settings

    _check_device(device, sms)
    first = CriticalChoice(critical, max_slowdown, deadline, rate)
    chosen = [first, *(further(text, first) for text in also or ())]
    files = {path: Output(path, _ours, force) for path in (trace, timeline) if path}
    for file in files.values():
        file.check()
    sources = [_arrival(arrival, one.rate) for one in chosen]
    settings = Settings(
        policy=policy,
        kind="cpu" if device == "cpu" else "gpu",
        sms=sms,
        phases=phases,
        max_concurrent=max_concurrent,
        traced=bool(files),
        l2_persistence=l2_persistence,
        gap_s=min(source.mean_gap for source in sources),
        measure_seconds=min(4.0, seconds),
    )
    known = measure_curves.load(curves) if curves is not None and curves.is_file() else []
    with contextlib.ExitStack() as open_until:
        with progress(as_json) as show:
            every = [*(one.path for one in chosen), *normal]
            paths = open_until.enter_context(_bundles(every, show))
            critical_models, others = _critical_settings(chosen, paths), paths[len(chosen) :]
            session = Corun.prepare(critical_models, others, settings, known, show)
        open_until.enter_context(session)
        if curves is not None and session.calibration.curves != known:
            measure_curves.save(session.calibration.curves, curves)
        names = [one.path for one in chosen]
        with _shown(as_json, names) as on_result:
            result = session.run(sources, seconds, seed, [ClosedLoop(clients)], on_result)
    shown = pictures.window(result.spans, SHOWN_US) if files else []
    if trace is not None:
        files[trace].write(pictures.trace(shown).encode())
    if timeline is not None:
        files[timeline].write(pictures.svg(shown, policy).encode())
    _require_ended(result)
    persistent = session.models.persistent
    found = {
        "pair": " + ".join(path.stem for path in (*names, *normal)),
        "policy": policy,
        "device": session.calibration.chosen[0].device,
        "sms": sms,
        "clients": clients,
        "max_concurrent": session.concurrency.max_concurrent,
        "gated": session.concurrency.gated,
        "l2_persistence": l2_persistence,
        "l2_kept": round(persistent.share, 4) if persistent else None,
    } | facts(result, names)
    gave_up = any(one.gave_up for one in result.critical)
    return Answer(found, view(found), AdmissionRefused.exit_code if gave_up else 0)


def broker(
    path: Annotated[Path, typer.Argument(metavar="SOCKET", help="Serve this Unix socket.")],
    policy: PolicyName = "tilewright",
    sms: Annotated[
        int | None,
        typer.Option(min=2, help="Share this number of multiprocessors. By default all."),
    ] = None,
    device: DeviceName = DEVICES[0],
    as_json: Json = False,
) -> Answer:
    """Let the models of several processes share one GPU, until Ctrl-C."""
    from tilewright.elastic.broker import Broker, FileWord, GpuWord, SharedWord, file_of
    from tilewright.elastic.policy import Gpu, Scheduler, policy_named

    chosen = policy_named(policy)
    make: Callable[[], SharedWord]
    if device == "cpu":
        make, shared = partial(FileWord, file_of(path), create=True), Gpu(sms or 2)
    else:
        from tilewright.hosts.cuda_driver import Driver

        driver = Driver(0)
        make, shared = partial(GpuWord, driver), Gpu(sms or driver.sms)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    served = Broker(path, Scheduler(chosen, shared), make)
    with served, contextlib.suppress(KeyboardInterrupt):
        Console(stderr=True).print(f"The broker serves {path}")
        while not ended.wait(CHECK_S):
            served.check()
    return Answer({"socket": str(path)}, "The broker has ended")


def _check_device(device: str, sms: int | None) -> None:
    """Raises UsageError for an unknown device, and for --sms on the CPU."""
    if device not in DEVICES:
        raise unknown_name("device", device, DEVICES)
    if sms is not None and device == "cpu":
        raise UsageError(
            "The CPU device has no multiprocessors to choose", hint="Leave --sms out, or use a GPU"
        )


def _require_ended(result: CorunResult) -> None:
    """Raises TaskOverdue if a critical request did not end in time."""
    overdue = sum(one.overdue for one in result.critical)
    if overdue:
        raise TaskOverdue(
            f"{overdue} critical requests did not end within their lease",
            hint="Normal work continued. Check the critical models and their inputs",
            overdue=overdue,
            answered=sum(len(one.answered) for one in result.critical),
        )


def _critical_settings(chosen: list[CriticalChoice], paths: list[Path]) -> list[CriticalSettings]:
    from tilewright.elastic.settings import CriticalSettings

    return [
        CriticalSettings(path, one.max_slowdown, one.deadline, one.priority)
        for one, path in zip(chosen, paths, strict=False)
    ]


def _ours(path: Path) -> bool:
    with path.open("rb") as file:
        return TOOL.encode() in file.read(200)


@contextmanager
def _bundles(paths: list[Path], show: Show) -> Generator[list[Path]]:
    """The path of each model's bundle; ONNX files are compiled into a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="tilewright-corun-") as folder:
        found = []
        for number, path in enumerate(paths):
            show(f"Compiling {path.name}", number, len(paths))
            if (path / POINTER).exists():
                found.append(path)
                continue
            from tilewright.bundle import write
            from tilewright.compiler import Options, compile_model

            found.append(Path(folder, str(number)))
            options = Options(targets=targets_of("cuda"))
            write(compile_model(path, options).contents, found[-1])
        yield found


def _arrival(kind: str, rate: float) -> Arrival:
    from tilewright.elastic.arrivals import ClosedLoop, Poisson, Uniform

    kinds = {"uniform": Uniform, "poisson": Poisson}
    if kind not in kinds:
        raise unknown_name("arrival", kind, kinds)
    return kinds[kind](rate) if rate else ClosedLoop()


@contextmanager
def _shown(as_json: bool, models: list[Path]) -> Generator[Callable[[CorunResult], None] | None]:
    """While inside, shows results in a table on stderr if that is a terminal; gives the function
    that updates it."""
    console = Console(stderr=True)
    if as_json or not console.is_terminal:
        yield None
        return
    with Live(console=console, transient=True) as live:
        yield lambda result: live.update(view(facts(result, models)))


#: The settings that may follow a further critical model on the command line, and their parsers.
OWN: dict[str, Callable[[str], Any]] = {
    "max_slowdown": float,
    "deadline": float,
    "rate": float,
    "priority": int,
}


@dataclass(frozen=True)
class CriticalChoice:
    """One critical model with its settings.

    deadline: milliseconds;  rate: requests per second, 0: one after the other
    """

    path: Path
    max_slowdown: float
    deadline: float | None
    rate: float
    priority: int = 0

    def __post_init__(self) -> None:
        """Raises UsageError for a value out of range."""
        if not self.max_slowdown > 1:
            raise UsageError(
                f"max_slowdown cannot be {self.max_slowdown}",
                hint="Give a number above 1", model=self.path,
            )  # fmt: skip
        if self.deadline is not None and not self.deadline > 0:
            raise UsageError(
                f"A deadline cannot be {self.deadline} milliseconds",
                hint="Give a number above 0", model=self.path,
            )  # fmt: skip
        if not self.rate >= 0:
            raise UsageError(
                f"The rate cannot be {self.rate} requests per second",
                hint="Give 0 or more", model=self.path,
            )  # fmt: skip


def further(text: str, first: CriticalChoice) -> CriticalChoice:
    """Reads FILE[,NAME=VALUE...].  first: the first model's settings, used for names that are not
    given.  Raises UsageError."""
    path, *parts = text.split(",")
    own = {}
    for part in parts:
        name, _, value = part.partition("=")
        try:
            own[name] = OWN[name](value)
        except (KeyError, ValueError) as error:
            raise UsageError(
                f"{part!r} is not an option of a critical model",
                hint=f"Give FILE,NAME=VALUE,...; names are {', '.join(OWN)}",
                model=path,
            ) from error
    return replace(first, path=Path(path), **own)


def facts(result: CorunResult, models: Sequence[Path]) -> dict[str, object]:
    """The results of a run as plain data.  Times are in microseconds; slowdowns and shares are
    ratios.

    With one critical model its facts are at the top level; with several, each has a record under
    `critical`.

    """
    normal = result.normal_share
    each = [_facts(one) for one in result.critical]
    own: dict[str, object] = each[0] if len(each) == 1 else {
        "critical": [{"model": path.name, **one} for path, one in zip(models, each, strict=True)]
    }  # fmt: skip
    return own | {
        "normal_inferences": sum(result.inferences),
        "normal_share": round(normal, 4),
        "normal_share_of_possible": round(normal / max(1e-9, 1 - result.duty), 4),
        "decision_us": round(result.decision_us, 1),
        "seconds": round(result.seconds, 2),
    }


def _facts(one: CriticalResult) -> dict[str, object]:
    service, waited = one.service, one.waited
    return {
        "requests": len(one.answered),
        "solo_us": round(one.solo_us, 1),
        "max_slowdown": one.max_slowdown,
        "p50": round(service.p50, 4),
        "p99": round(service.p99, 4),
        "p999": round(service.p999, 4),
        "p50_with_waiting": round(waited.p50, 4),
        "p99_with_waiting": round(waited.p99, 4),
        "p999_with_waiting": round(waited.p999, 4),
        "over_bound": one.over_bound,
        "over_by_waiting": one.over_by_waiting,
        "misses": one.missed,
        "overdue": one.overdue,
        "bound_kept": one.bound_kept,
        "normal_ended": one.gave_up,
        "curves_corrected": [
            {
                "budgets": notice.budgets,
                "requests": notice.requests,
                "over_bound": notice.over,
                "predicted": round(notice.predicted, 4),
                "found": round(notice.found, 4),
            }
            for notice in one.noticed
        ],
        "solo_changed": [
            {"was_us": round(found.was_us, 1), "now_us": round(found.now_us, 1)}
            for found in one.recalibrated
        ],
    }


def view(found: dict[str, Any]) -> Table:
    """The result of `facts` as a table; several critical models get a column each."""
    several = found.get("critical")
    if several is None:
        return pairs({**found, **{name: said(found) for name, said in SAID.items()}})
    rows = [(name, *(one[name] for one in several)) for name in several[0] if name != "model"]
    rows = [
        (name, *map(SAID[name], several)) if name in SAID else (name, *cells)
        for name, *cells in rows
    ]
    shared = [(name, value) for name, value in found.items() if name != "critical"]
    blank = [""] * (len(several) - 1)
    return table(
        ("", *(one["model"] for one in several)), [*rows, *((n, v, *blank) for n, v in shared)]
    )


def _corrected(one: dict[str, Any]) -> str:
    """A sentence about slowdown curves that were too optimistic and were corrected."""
    corrected = one["curves_corrected"]
    if not corrected:
        return "none"
    last = corrected[-1]
    said = f"{len(corrected)}, at last {last['predicted']} to {last['found']}"
    ended = ": the bound cannot be kept, normal work has ended"
    return said + ended if one["normal_ended"] else said


def _changed(one: dict[str, Any]) -> str:
    """A sentence about changes of the baseline, which depends on the device's clock."""
    changes = one["solo_changed"]
    if not changes:
        return "never"
    last = changes[-1]
    return f"{len(changes)} times, at last {last['was_us']} to {last['now_us']}"


#: Facts that are lists in JSON and sentences in the table.
SAID = {"curves_corrected": _corrected, "solo_changed": _changed}
