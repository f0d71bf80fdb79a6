"""Several models on one GPU: critical ones with a bound on their slowdown, normal ones beside them.

`policy/` decides and `simulator/` tries decisions; both are pure.  `session.py` runs bundles on a
device, `broker/` those of several processes.  Names are imported when they are first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.elastic.agents import CriticalAgent, NormalAgent
    from tilewright.elastic.broker import Broker, RemoteCoordinator
    from tilewright.elastic.coordinator import Coordinator
    from tilewright.elastic.models import CriticalModel, ElasticKernels, critical_task
    from tilewright.elastic.policy import Gpu, KernelCost, Normal, Scheduler, design
    from tilewright.elastic.result import CorunResult, CriticalResult
    from tilewright.elastic.session import CorunSession
    from tilewright.elastic.settings import Guarded, Settings
    from tilewright.elastic.simulator import simulate
    from tilewright.elastic.workloads.arrivals import ClosedLoop, Poisson, Trace, Uniform

#: The public names, by module.
_HOMES = {
    "agents": ("CriticalAgent", "NormalAgent"),
    "broker": ("Broker", "RemoteCoordinator"),
    "coordinator": ("Coordinator",),
    "models": ("CriticalModel", "ElasticKernels", "critical_task"),
    "policy": ("Gpu", "KernelCost", "Normal", "Scheduler", "design"),
    "result": ("CorunResult", "CriticalResult"),
    "session": ("CorunSession",),
    "settings": ("Guarded", "Settings"),
    "simulator": ("simulate",),
    "workloads.arrivals": ("ClosedLoop", "Poisson", "Trace", "Uniform"),
}

__all__ = [
    "Broker",
    "ClosedLoop",
    "Coordinator",
    "CorunResult",
    "CorunSession",
    "CriticalAgent",
    "CriticalModel",
    "CriticalResult",
    "ElasticKernels",
    "Gpu",
    "Guarded",
    "KernelCost",
    "Normal",
    "NormalAgent",
    "Poisson",
    "RemoteCoordinator",
    "Scheduler",
    "Settings",
    "Trace",
    "Uniform",
    "critical_task",
    "design",
    "simulate",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
