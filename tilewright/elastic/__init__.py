"""Runs several models on one GPU: critical models with a bound on their slowdown, and normal ones.

* `policy/` makes the decisions, without clocks or devices.
* `corun.py` runs bundles on a device; `broker/` does so for models of several processes.
* `coordinator.py` and `agents.py` have the threads; `interpreter_priority.py` orders them.
* `critical.py`, `normal.py`, `plans.py` and `gates.py` launch models.
* `measure_curves.py`, `background.py` and `device_timing.py` measure slowdowns and times.
* `instrumented.py` records when kernels ran, and `timeline.py` draws it.

Names are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.elastic.agents import CriticalAgent, NormalAgent
    from tilewright.elastic.arrivals import ClosedLoop, Poisson, Trace, Uniform
    from tilewright.elastic.broker import Broker, RemoteCoordinator
    from tilewright.elastic.coordinator import Coordinator
    from tilewright.elastic.corun import Corun
    from tilewright.elastic.critical import CriticalModel, critical_task
    from tilewright.elastic.plans import ElasticKernels
    from tilewright.elastic.policy import Gpu, KernelCost, Normal, Scheduler, policy_named
    from tilewright.elastic.result import CorunResult, CriticalResult
    from tilewright.elastic.settings import CriticalSettings, Settings

#: The public names, by module.
_HOMES = {
    "agents": ("CriticalAgent", "NormalAgent"),
    "broker": ("Broker", "RemoteCoordinator"),
    "coordinator": ("Coordinator",),
    "corun": ("Corun",),
    "critical": ("CriticalModel", "critical_task"),
    "plans": ("ElasticKernels",),
    "policy": ("Gpu", "KernelCost", "Normal", "Scheduler", "policy_named"),
    "result": ("CorunResult", "CriticalResult"),
    "settings": ("CriticalSettings", "Settings"),
    "arrivals": ("ClosedLoop", "Poisson", "Trace", "Uniform"),
}

__all__ = [
    "Broker",
    "ClosedLoop",
    "Coordinator",
    "Corun",
    "CorunResult",
    "CriticalAgent",
    "CriticalModel",
    "CriticalResult",
    "CriticalSettings",
    "ElasticKernels",
    "Gpu",
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
    "policy_named",
]  # fmt: skip


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
