"""`tune` on hosts without a page: runs the session of tuning/host_tuner.py in this process.

Input: a bundle, a host, the command's options.  Output: as from a page's tuner: a summary, and
events during the session.  A tuning server in this process (tilewright/server) supplies candidates,
their order and the store, as for pages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from tilewright.base.errors import HostError, UsageError
from tilewright.bundle import open_bundle
from tilewright.hosts import cuda, wgpu
from tilewright.hosts.cuda_tuning import CudaModel
from tilewright.hosts.wgpu_tuning import WgpuModel
from tilewright.kernel.spec import Kernel
from tilewright.server import BackgroundServer, Tuning, create_app
from tilewright.server.tune import SOCKET
from tilewright.targets.device_class import DeviceClass
from tilewright.targets.device_classes import CLASSES, match, of_capability
from tilewright.targets.lite_space import Objective
from tilewright.tuning.catalogue import kernels_of
from tilewright.tuning.host_tuner import HostTuner
from tilewright.tuning.messages import PROTOCOL, FromClient, Hello
from tilewright.tuning.socket_client import TuningSocket

Plain = dict[str, Any]
OnEvent = Callable[[Plain], None]
NAME = "model"


class AnyHostTuner(Protocol):
    """A `HostTuner` for any type of kernel."""

    @property
    def fault(self) -> HostError | None: ...

    def run(
        self, line: TuningSocket, hello: Callable[..., Hello], seconds: float, most: int | None
    ) -> None: ...

    def summary(self) -> Plain: ...


@dataclass(frozen=True)
class LoadedModel:
    """A model that is loaded on a device of this machine, and its tuner.

    features: features of the device that its class lacks and candidates may need
    """

    device: DeviceClass
    features: tuple[str, ...]
    adapter: Mapping[str, object]
    tuner: AnyHostTuner


def _on_wgpu(
    folder: Path, kernels: Sequence[Kernel], on_event: OnEvent, report: bool
) -> LoadedModel:
    host = wgpu.WgpuHost(folder)
    device, model = match(facts(host.adapter)), WgpuModel(host)
    tuner = HostTuner(model, model.bench(), kernels, device.id, on_event, share_reports=report)
    return LoadedModel(device, tuple(host.adapter["features"]), host.adapter, tuner)


def _on_cuda(
    folder: Path, kernels: Sequence[Kernel], on_event: OnEvent, report: bool
) -> LoadedModel:
    host = cuda.CudaHost(folder)
    device, found = of_capability(host.device.capability)
    name, features = host.device.name, sorted(found)
    adapter = {"name": name, "description": name, "software": False, "features": features}
    model = CudaModel(host)
    tuner = HostTuner(model, model.bench(), kernels, device.id, on_event, share_reports=report)
    return LoadedModel(device, tuple(features), adapter, tuner)


LOADERS: Mapping[str, Callable[[Path, Sequence[Kernel], OnEvent, bool], LoadedModel]] = {
    "wgpu": _on_wgpu,
    "cuda": _on_cuda,
}


def tune_here(
    name: str,
    folder: Path,
    tuning: Tuning,
    *,
    seconds: float,
    kernels: int | None,
    objective: Objective,
    report: bool,
    on_event: OnEvent,
) -> Plain:
    """Runs a session on a host of `LOADERS` and returns its summary.  Raises HostError, UsageError,
    and errors of opening the bundle.

    If the device fails, the session ends; "fault" in the summary is the error, and the rest is what
    was found before.
    """
    if objective != "latency":
        raise UsageError(
            f"This host tunes for latency, not for {objective}",
            hint="Leave --objective out, or tune on a host that runs the page's tuner",
        )
    bundle = open_bundle(folder)
    loaded = LOADERS[name](folder, kernels_of(bundle), on_event, report)
    hello = partial(
        Hello,
        protocol=PROTOCOL,
        bundle=NAME,
        digest=bundle.pointer.manifest.digest,
        device=loaded.device.id,
        browser="other",
        variant=loaded.device.variant,
        features=loaded.features,
        objective=objective,
    )
    cancelled = False

    def sent(message: FromClient) -> None:
        on_event({"type": "sent", "message": msgspec.to_builtins(message)})

    app = create_app({NAME: folder}, tuning=tuning)
    try:
        with BackgroundServer(app) as server, TuningSocket(server.url, SOCKET, sent) as line:
            loaded.tuner.run(line, hello, seconds, kernels)
    except KeyboardInterrupt:
        cancelled = True
    fault = loaded.tuner.fault
    ended = {"cancelled": cancelled, "fault": fault and fault.to_json()}
    about = {"name": bundle.manifest.name, "threads": 1, "adapter": loaded.adapter}
    return loaded.tuner.summary() | ended | about


def facts(adapter: Mapping[str, object]) -> Plain:
    """The facts that a WebGPU adapter's device class depends on.  wgpu does not tell the
    architecture."""
    kind = next(c.kind for c in CLASSES.values() if c.target == wgpu.TARGET)
    return {"kind": kind, "vendor": adapter["vendor"]}
