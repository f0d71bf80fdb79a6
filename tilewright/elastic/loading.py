"""Loads the models of a session: each critical and each normal one on a stream of its own.

Input: paths of bundles, settings.  Output: `LoadedModels`, with the times of normal models alone.
calibration.py measures the critical models beside the normal ones; corun.py runs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.base.errors import UsageError
from tilewright.elastic.background import NormalWork
from tilewright.elastic.concurrency import Concurrency
from tilewright.elastic.critical import CriticalModel, PersistentWeights
from tilewright.elastic.measure_curves import identity
from tilewright.elastic.normal import NormalModels, Show, load_normal, parts_of
from tilewright.elastic.policy import Gpu, Policy, Scheduler, policy_named
from tilewright.elastic.session_devices import Devices, devices
from tilewright.elastic.settings import CriticalSettings, Settings
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_elastic import Budget
from tilewright.hosts.cuda_tasks import SetWord

#: The share of `Settings.measure_seconds` for each measurement of a normal model alone.
NORMAL_SHARE = 1 / 8


@dataclass(frozen=True)
class LoadedCritical:
    """A critical model on its device, with its own settings or else the common ones.

    deadline_ms: from a request to its answer; None: there is none
    identities: of the model's kernels and of the normal models'; its curves hold beside these only
    """

    name: str
    model: CriticalModel
    max_slowdown: float
    deadline_ms: float | None
    priority: int
    identities: tuple[str, ...]


@dataclass(frozen=True)
class LoadedModels:
    """The models of a session on its devices.

    budget: the word that says how many workers of normal models may stay
    persistent: the part of the L2 cache with the critical models' weights, if one was asked for
    """

    settings: Settings
    policy: Policy
    devices: Devices
    budget: Budget
    critical: Sequence[LoadedCritical]
    normal: NormalModels
    persistent: PersistentWeights | None

    def allow(self, workers: int) -> None:
        """Sets the budget now, in a stream of its own."""
        self.devices.control.use()
        self.devices.control.start(SetWord(self.budget.address, workers))

    def scheduler(self, concurrency: Concurrency) -> Scheduler:
        gpu = Gpu(self.devices.sms)
        return Scheduler(self.policy, gpu, self.settings.ahead, concurrency.max_concurrent)

    def normal_work(self, concurrency: Concurrency) -> NormalWork:
        """The normal models as they run under this choice, for measurements beside them."""
        plans, workers = self.normal.running(concurrency.gated), self.normal.workers
        scheduler = self.scheduler(concurrency)
        return NormalWork(plans, self.allow, scheduler, workers, concurrency.gated)


def load_models(
    critical: Sequence[CriticalSettings], normal: Sequence[Path], settings: Settings, show: Show
) -> LoadedModels:
    """Loads all models and times the normal ones.

    Raises HostError, BundleCorrupt, MemoryLimit; UsageError if there is no model of a kind.
    """
    if not normal or not critical:
        raise UsageError(
            f"there is no {'normal' if critical else 'critical'} model",
            hint="Name one of each, the critical ones first",
        )
    policy = policy_named(settings.policy)
    names = [f"critical {n}" for n in range(len(critical))] if critical[1:] else ["critical"]
    found = devices(settings, names, len(normal))
    budget = Budget(found.control)
    found.control.wait()
    seconds = NORMAL_SHARE * settings.measure_seconds
    loaded = load_normal(normal, found.normal, budget, policy, seconds, show)
    hosts = [
        CudaHost(each.path, device)
        for each, device in parts_of(
            show, "Loading critical models", zip(critical, found.critical, strict=True)
        )
    ]
    persistent = PersistentWeights(found.control, hosts) if settings.l2_persistence else None
    windows = persistent.windows if persistent else [None] * len(hosts)
    word = None if policy.leave == "never" else budget
    models = [
        CriticalModel(host, word, window=window)
        for host, window in zip(hosts, windows, strict=True)
    ]
    others = tuple(identity(one.host.bundle) for one in loaded.models)
    made = [
        _with_settings(name, model, one, settings, others)
        for name, model, one in zip(names, models, critical, strict=True)
    ]
    return LoadedModels(settings, policy, found, budget, made, loaded, persistent)


def _with_settings(
    name: str, model: CriticalModel, own: CriticalSettings, common: Settings, others: Sequence[str]
) -> LoadedCritical:
    """others: identities of the normal models"""
    return LoadedCritical(
        name,
        model,
        common.max_slowdown if own.max_slowdown is None else own.max_slowdown,
        common.deadline_ms if own.deadline_ms is None else own.deadline_ms,
        own.priority,
        (identity(model.host.bundle), *others),
    )
