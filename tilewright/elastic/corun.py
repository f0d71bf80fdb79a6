"""Runs critical and normal models on one device, from bundles to a result: the `corun` command.

Input: bundles with a section for CUDA, a policy, arrivals.  Output: a `CorunResult`, and results so
far while it runs.  The parts (models, agents, coordinator) can be used without this module.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.base.budget import UNLIMITED
from tilewright.elastic.arrivals import Arrival, ClosedLoop
from tilewright.elastic.background import Background
from tilewright.elastic.calibration import Calibration, calibrate
from tilewright.elastic.concurrency import Concurrency
from tilewright.elastic.coordinator import Coordinator
from tilewright.elastic.loading import LoadedModels, load_models
from tilewright.elastic.measure_curves import Measured
from tilewright.elastic.normal import Show
from tilewright.elastic.policy import Scheduler
from tilewright.elastic.result import CorunResult
from tilewright.elastic.settings import CriticalSettings, Settings
from tilewright.elastic.workload import Requests, started

#: Seconds between two results so far.
RESULT_S = 0.25


@dataclass(frozen=True)
class Corun:
    """Loaded and measured models; `run` runs one workload.

    `Corun.prepare` makes one.  Use it in a `with` statement.
    """

    models: LoadedModels
    calibration: Calibration

    @classmethod
    def prepare(
        cls,
        critical: Path | Sequence[CriticalSettings],
        normal: Sequence[Path],
        settings: Settings,
        curves: Sequence[Measured] = (),
        show: Show = lambda what, done, of: None,
    ) -> Corun:
        """Loads the models, and measures what `curves` do not have.  This takes seconds.

        critical: one model, or several, each with its own bound
        curves: earlier measurements, in the order of the critical models, for some kinds of
                concurrency

        Raises HostError, BundleCorrupt, MemoryLimit, UsageError.
        """
        several = [CriticalSettings(critical)] if isinstance(critical, Path) else critical
        models = load_models(several, normal, settings, show)
        return cls(models, calibrate(models, curves, show))

    def __enter__(self) -> Corun:
        return self

    def __exit__(self, *_: object) -> None:
        self.models.allow(UNLIMITED)
        if self.models.persistent is not None:
            self.models.persistent.release()

    @property
    def concurrency(self) -> Concurrency:
        """How many normal models run at once, and whether they have gates."""
        return self.calibration.concurrency

    @property
    def scheduler(self) -> Scheduler:
        """The policy for this device and concurrency."""
        return self.models.scheduler(self.concurrency)

    def background(self, budget: int) -> Background:
        """The normal models, running without pause as far as the budget allows: for
        measurements."""
        return Background(self.models.normal_work(self.concurrency), budget)

    def run(
        self,
        arrival: Arrival | Sequence[Arrival],
        seconds: float,
        seed: int = 0,
        normal: Sequence[Arrival] = (ClosedLoop(),),
        on_result: Callable[[CorunResult], None] | None = None,
        stop: threading.Event | None = None,
    ) -> CorunResult:
        """Runs the workload.  Critical models take their arrivals in rotation from `arrival`,
        normal models from `normal`.

        on_result: called with the result so far, a few times a second;  stop: ends the run early

        Raises AdmissionRefused if a bound cannot be kept, and the error of an agent.
        """
        several = [arrival] if isinstance(arrival, Arrival) else arrival
        requests = Requests(
            _in_rotation(several, len(self.models.critical)),
            _in_rotation(normal, len(self.models.normal.models)),
            seconds,
            seed,
            stop or threading.Event(),
        )
        with (
            Coordinator(self.scheduler, self.models.allow) as coordinator,
            started(self.models, self.calibration, coordinator, requests) as workload,
        ):
            while not workload.is_over(RESULT_S):
                workload.check()
                if on_result is not None and workload.answered:
                    on_result(workload.result())
            workload.end_requests()
            result = workload.result()
        spans = tuple(span for trace in self.models.devices.traces for span in trace.spans())
        workload.check_requests()
        return replace(result, spans=spans)


def _in_rotation(arrivals: Sequence[Arrival], count: int) -> list[Arrival]:
    return [arrivals[n % len(arrivals)] for n in range(count)]
