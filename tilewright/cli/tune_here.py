"""`tune` where the host runs no page: the session of tuning/loop.py in this process.

Input: a bundle, a host, what the command was given.  Output: what a page's tuner answers, too: a
summary, and events on the way.  Candidates, their order and the store are a tuning server's, as for
pages (tilewright/server), on a port of this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from tilewright.base.errors import UsageError
from tilewright.bundle import open_bundle
from tilewright.hosts.wgpu import TARGET, WgpuHost
from tilewright.hosts.wgpu_model import WgpuModel
from tilewright.server import BackgroundServer, Tuning, create_app
from tilewright.server.tune import SOCKET
from tilewright.targets.classes import CLASSES, match
from tilewright.targets.lite import Objective
from tilewright.tuning.catalogue import kernels_of
from tilewright.tuning.line import TuningLine
from tilewright.tuning.loop import OwnSession
from tilewright.tuning.messages import PROTOCOL, FromClient, Hello

Plain = dict[str, Any]
NAME = "model"


def tune_here(
    folder: Path,
    tuning: Tuning,
    *,
    seconds: float,
    kernels: int | None,
    objective: Objective,
    report: bool,
    on_event: Callable[[Plain], None],
) -> Plain:
    """A session on the wgpu host.  Raises HostError, UsageError and what the bundle raises."""
    if objective != "latency":
        raise UsageError(
            f"This host tunes for latency, not for {objective}",
            hint="Leave --objective out, or tune on a host that runs the page's tuner",
        )
    bundle = open_bundle(folder)
    host = WgpuHost(folder)
    device = match(facts(host.adapter))
    model = WgpuModel(host)
    hello = partial(
        Hello,
        protocol=PROTOCOL,
        bundle=NAME,
        digest=bundle.pointer.manifest.digest,
        device=device.id,
        browser="other",
        variant=device.variant,
        features=tuple(host.adapter["features"]),
        objective=objective,
    )
    session = OwnSession(
        model, model.bench(), kernels_of(bundle), device.id, on_event, share_reports=report
    )
    cancelled = False

    def sent(message: FromClient) -> None:
        on_event({"type": "sent", "message": msgspec.to_builtins(message)})

    app = create_app({NAME: folder}, tuning=tuning)
    try:
        with BackgroundServer(app) as server, TuningLine(server.url, SOCKET, sent) as line:
            session.run(line, hello, seconds, kernels)
    except KeyboardInterrupt:
        cancelled = True
    about = {"name": bundle.manifest.name, "threads": 1, "adapter": host.adapter}
    return session.summary() | {"cancelled": cancelled} | about


def facts(adapter: Mapping[str, Any]) -> Plain:
    """What an adapter's class depends on; wgpu does not say which architecture it has."""
    kind = next(c.kind for c in CLASSES.values() if c.target == TARGET)
    return {"kind": kind, "vendor": adapter["vendor"]}
