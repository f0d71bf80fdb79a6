"""Measures critical models beside normal ones, and chooses how many normal models run at once.

Input: loaded models, curves of earlier sessions.  Output: `Calibration`: the curves of the chosen
concurrency.  measure_curves.py measures one critical model; settings.py lists the choices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.elastic.concurrency import Concurrency, choices
from tilewright.elastic.gates import pass_gates
from tilewright.elastic.loading import LoadedModels
from tilewright.elastic.measure_curves import CurveSettings, Measured, check, measure
from tilewright.elastic.normal import Show, parts_of
from tilewright.elastic.policy.admission import least_slowdown


@dataclass(frozen=True)
class Calibration:
    """What was measured of the critical models.

    chosen: for each critical model its curves under the chosen concurrency
    curves: all known ones, for a file: those that were given, then those that were measured now
    """

    chosen: Sequence[Measured]
    curves: Sequence[Measured]

    @property
    def concurrency(self) -> Concurrency:
        return self.chosen[0].concurrency


def calibrate(models: LoadedModels, known: Sequence[Measured], show: Show) -> Calibration:
    """Takes the first choice of concurrency that can keep all bounds.  If none can, it takes the
    one that comes nearest.

    known: curves of some choices, in the order of the critical models; missing ones are measured

    Raises UsageError for curves of another device or other models.
    """
    curves, tried = list(known), list[tuple[float, Sequence[Measured]]]()
    for choice in _choices(models):
        found = [each for each in curves if each.concurrency == choice]
        if found:
            check(
                found,
                models.devices.control.name,
                models.devices.sms,
                [one.identities for one in models.critical],
            )
        else:
            what = f"Measuring critical models beside {choice.max_concurrent} normal ones at once"
            what += ", with gates" if choice.gated else ""
            work, how = models.normal_work(choice), _curve_settings(models)
            found = [
                measure(one.model, one.identities, work, how)
                for one in parts_of(show, what, models.critical)
            ]
            curves += found
        excess = max(
            least_slowdown(each.phases) / one.max_slowdown
            for each, one in zip(found, models.critical, strict=True)
        )
        if excess <= 1:
            return Calibration(found, curves)
        tried.append((excess, found))
    _, nearest = min(tried, key=lambda one: one[0])
    return Calibration(nearest, curves)


def _choices(models: LoadedModels) -> Iterator[Concurrency]:
    """The choices, in the order in which they are tried."""

    def may_wait() -> bool:
        others = [*models.devices.critical, models.devices.control]
        return models.normal.in_runs and pass_gates(models.normal.devices, others)

    every, asked = len(models.normal.models), models.settings.max_concurrent
    return choices(every, asked, models.policy.promises, may_wait)


def _curve_settings(models: LoadedModels) -> CurveSettings:
    """How each critical model is measured.  Policies whose workers never leave need one level."""
    elastic, settings = models.normal.elastic, models.settings
    return CurveSettings(
        phases=settings.phases if elastic else 1,
        steps=settings.steps if elastic else 1,
        seconds=settings.measure_seconds / len(models.critical),
        gap_s=settings.gap_s,
    )
