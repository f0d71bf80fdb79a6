"""`tune`: tunes a bundle's kernels in a browser or on a GPU, and prints the result.

Input: a bundle, a host, a number of seconds.  Output: a table of kernels, a JSON report, and the
winners as a file for `relink`.  On hosts with a page, the page's tuner (web/tune/) measures; on
others, the tuner of this process (tune_local.py).  At the end the whole model is timed with the old
and new kernels alternately, which gives the gain.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table

from tilewright.api.host_registry import has_times, targets_of
from tilewright.base.errors import HostError, UsageError, one_of
from tilewright.bundle import open_bundle
from tilewright.cli.options import OBJECTIVES_HELP, Force, Json, check_objective
from tilewright.cli.output import Answer, Show, progress, table
from tilewright.cli.output_files import Output, is_json_of_ours
from tilewright.hosts.browser_programs import PROGRAMS
from tilewright.kernel.spec import Kernel
from tilewright.targets.device_classes import find
from tilewright.targets.protocol import FIXED
from tilewright.tuning.candidates import space_of
from tilewright.tuning.catalogue import kernels_of

if TYPE_CHECKING:
    from tilewright.server import Tuning

#: Hosts that tune in this process.
HERE = ("wgpu", "cuda")
PAGES = tuple(PROGRAMS)
TUNERS = (*PAGES, *HERE)
CANCELLED = 130
#: Events that a report keeps: those needed to draw latency against rounds.
KEPT = ("trial", "swap", "rollback", "fault", "latency", "lost")
Plain = dict[str, Any]


def tune(
    bundle: Annotated[
        Path, typer.Argument(metavar="BUNDLE", help="Tune the bundle in this folder.")
    ],
    host: Annotated[
        str, typer.Option(help=f"Tune on this host: {', '.join(TUNERS)}.")
    ] = "chromium",
    budget: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="Tune for this number of seconds.")
    ] = 30,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Use this number of threads. By default the host chooses."),
    ] = None,
    kernels: Annotated[
        int | None,
        typer.Option(
            min=1, help="Tune only this number of kernels. Those that take most time are chosen."
        ),
    ] = None,
    objective: Annotated[str, typer.Option(help=f"Reduce one of: {OBJECTIVES_HELP}.")] = "latency",
    store: Annotated[
        str,
        typer.Option(metavar="FILE|URL", help="Learn from this kernel database, and report to it."),
    ] = "",
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write all measurements and sent messages to this JSON file."
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the winners to this file, for `relink`."),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> Answer:
    """Tune a bundle on this machine, in a browser or on its GPU."""
    check_tuner(host)
    serves = check_objective(objective)
    open_bundle(bundle)
    files = {path: Output(path, is_json_of_ours, force) for path in (report, save) if path}
    for file in files.values():
        file.check()
    from tilewright.cli.compile_workers import makers
    from tilewright.cli.serve import open_store
    from tilewright.server import Tuning

    tuning = Tuning(makers(1), open_store(store))
    given = {"seconds": budget, "report": bool(store), "objective": serves}
    with progress(as_json) as show:
        session = TuningLog(budget, show)
        tuned = _here if host in HERE else _in_page
        summary = tuned(host, bundle, tuning, given, threads, kernels, session)
    about: Plain = {"bundle": str(bundle), "host": host, "objective": serves}
    found = [session.kernels.get(k["spec"], {}) | k for k in summary["kernels"]]
    # Without a device class there are no winners.
    saved = save if summary["class"] else None
    data = about | summary | {"kernels": found, "saved": None if saved is None else str(saved)}
    if report is not None:
        files[report].write_json(data | {"events": session.events, "sent": session.sent})
    rest = "" if kernels is not None else _left_out(found)
    view: list[RenderableType] = [_view(data), *([rest] if rest else []), _words(data)]
    if saved is not None:
        files[saved].write_json(winners(data, kernels_of(open_bundle(bundle))))
    elif save is not None:
        view.append(f"It ended before the device's class was known: {save} was not written")
    return Answer(data, Group(*view), _code(data))


def _in_page(
    host: str,
    bundle: Path,
    tuning: Tuning,
    given: Plain,
    threads: int | None,
    kernels: int | None,
    session: TuningLog,
) -> Plain:
    """The summary of a session of the page's tuner."""
    from tilewright.hosts.browser import BrowserHost

    options = given | {"budget": 1}
    with BrowserHost(host, tuning=tuning) as browser:
        model = browser.load(bundle, threads=threads)
        if kernels is not None:
            options["specs"] = hottest(model.profile(), kernels)
        about = {"name": model.info["name"], "threads": model.info["features"]["threads"]}
        return about | model.tune(options, session.take)


def _here(
    host: str,
    bundle: Path,
    tuning: Tuning,
    given: Plain,
    threads: int | None,
    kernels: int | None,
    session: TuningLog,
) -> Plain:
    """The summary of a session in this process, without an option for threads: the GPU has its
    own."""
    if threads is not None:
        raise UsageError(f"The host {host} has no threads", hint="Leave --threads out")
    from tilewright.cli.tune_local import tune_here

    return tune_here(host, bundle, tuning, kernels=kernels, on_event=session.take, **given)


#: The least share of the time that `_left_out` mentions.
LITTLE = 0.05


def _left_out(kernels: Sequence[Plain]) -> str:
    """A sentence with the share of the time in kernels that were not tuned; "" if it is below
    `LITTLE`."""
    known = [kernel["share"] for kernel in kernels if kernel.get("share") is not None]
    rest = 1 - sum(known)
    if not known or rest < LITTLE:
        return ""
    return (
        f"Not tuned: kernels with {rest:.0%} of the time. They are short, too large to try, or on "
        "WebGPU in several buffers (docs/decoders.md)"
    )


def _code(data: Plain) -> int:
    """The exit code.  Results are printed and written also if it is not 0."""
    if data.get("fault"):
        return HostError.exit_code
    return CANCELLED if data["cancelled"] else 0


def check_tuner(host: str, tuners: Sequence[str] = TUNERS) -> None:
    """Raises UsageError if a host has no tuner; the hint names tuning hosts for the same bundle."""
    if host in tuners:
        return
    able = [name for name in tuners if targets_of(name) == targets_of(host)]
    where = f"The same bundle can be tuned on {' or '.join(able)}"
    why = "it does not run the page's tuner" if has_times(host) else "its times mean nothing"
    raise UsageError(
        f"Nothing can be tuned on {host}: {why}"
        + (", and its own tuner sends other messages" if host in HERE else ""),
        hint=where if able else one_of(tuners),
    )


def hottest(steps: list[Plain], count: int) -> list[int]:
    """Numbers of the `count` kernels that take most of the time."""
    spent: dict[int, float] = {}
    for step in steps:
        spent[step["spec"]] = spent.get(step["spec"], 0.0) + step["milliseconds"]
    return sorted(spent, key=lambda spec: -spent[spec])[:count]


@dataclass
class TuningLog:
    """Collects the tuner's events: those that a report keeps, and a line for the screen.

    sent: the messages that the page sent to the server
    """

    seconds: float
    show: Show
    started: float = field(default_factory=time.monotonic)
    kernels: dict[int, Plain] = field(default_factory=dict)
    in_use: dict[int, int] = field(default_factory=dict)
    events: list[Plain] = field(default_factory=list)
    sent: list[Plain] = field(default_factory=list)

    def take(self, event: Plain) -> None:
        if event["type"] == "start":
            self.kernels = {kernel["spec"]: kernel for kernel in event["kernels"]}
        if event["type"] in KEPT:
            self.events.append(event)
        if event["type"] == "sent":
            self.sent.append(event["message"])
        if event["type"] == "swap":
            self.in_use[event["spec"]] = event["candidate"]
        if event["type"] == "rollback" and self.in_use.get(event["spec"]) == event["candidate"]:
            del self.in_use[event["spec"]]
        if event["type"] == "trial":
            kernel = self.kernels[event["spec"]]
            name = f"{kernel['kind']} {kernel['shape']}"
            self._say(f"round {event['round']} · {name} · {len(self.in_use)} changed so far")
        if event["type"] == "turns":
            self._say(f"measuring the whole model by turns · {event['pairs']} pairs")

    def _say(self, line: str) -> None:
        self.show(line, int(time.monotonic() - self.started), int(self.seconds))


def winners(data: Plain, kernels: Sequence[Kernel]) -> Plain:
    """The data that `relink` reads: the device class, and the new schedules by number of the
    kernel.

    It has schedules, since numbers of candidates depend on the class and on the compiler's version.
    """
    device = find(data["class"])
    changed = {
        k["spec"]: k["current"]["candidate"]
        for k in data["kernels"]
        if k["current"]["candidate"] != k["default"]["candidate"]
    }
    found = {
        str(spec): space_of(kernels[spec], device).schedules[candidate].to_json()
        for spec, candidate in changed.items()
    }
    return {"class": device.id, "schedules": found}


def _view(data: Plain) -> Table:
    columns = ("kernel", "shape", "share", "in use", "in trials", "GFLOP/s", "tried")
    return table(columns, (_row(k) for k in data["kernels"]))


def _row(kernel: Plain) -> tuple[str, ...]:
    current = kernel["current"]
    share = kernel.get("share")
    gflops = current.get("gflops")
    candidate = current["candidate"]
    return (
        kernel["kind"],
        kernel["shape"],
        "" if share is None else f"{share:.1%}",
        f"#{candidate}" if candidate != kernel["default"]["candidate"] else "default",
        _gain(kernel) if candidate != kernel["default"]["candidate"] else kernel["fixed"] or "–",
        "" if gflops is None else f"{gflops:.1f}",
        str(kernel["tried"]),
    )


def _gain(kernel: Plain) -> str:
    """The gain of a kernel as text.  It is not measured if the kernel replaced one with wrong
    results."""
    return "not measured" if kernel["gain"] is None else f"{kernel['gain']:.2f}×"


def _words(data: Plain) -> str:
    device = f"a device of class {data['class']}" if data["class"] else "a device of unknown class"
    gain = data["gain"]
    found = f"{data['rounds']} rounds in {data['seconds']:.1f} s on {device}; {gain['text']}"
    if data["latency"] is not None and "tuned" not in gain:
        found += f"; inference {data['latency']:.2f} ms"
    for why in sorted({k["fixed"] for k in data["kernels"]} - {""}):
        found += f"; {FIXED[why]}"
    fault = data.get("fault")
    if fault:
        return f"Ended early, by an error of the host: {fault['message']}. {found}"
    return f"{'Cancelled: ' if data['cancelled'] else ''}{found}"
