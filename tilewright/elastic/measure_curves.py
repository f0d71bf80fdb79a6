"""Measures the slowdown curves of a critical model on the device: one for each of its phases.

Input: a critical model, normal models that run beside it, budgets to try.  Output: `Measured`,
stored as JSON.  lab/simulator/measure.py runs the same experiment in the simulator, with one normal
model.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from tilewright.base.budget import UNLIMITED
from tilewright.base.errors import InputError, UsageError
from tilewright.bundle import Bundle
from tilewright.bundle.format import MALFORMED, digest
from tilewright.elastic.background import GAP_S, Background, NormalWork, Part, requests
from tilewright.elastic.concurrency import Concurrency
from tilewright.elastic.critical import CriticalModel
from tilewright.elastic.device_timing import kernel_times, repeat_timing
from tilewright.elastic.policy import (
    Curve,
    Hold,
    Phase,
)
from tilewright.elastic.policy.budgets import LEVELS, REQUESTS, covering_time, levels_of
from tilewright.hosts.cuda import TARGET

#: The fewest requests by which a point of a curve is measured.
LEAST_RUNS = 3
#: A model alone is measured with the gaps of its own requests, up to this many seconds.
LONGEST_GAP_S = 0.01
#: Digits of a model's identity.
DIGITS = 16
HINT = "Delete the file of curves or name another one, and they are measured again"


class Measured(msgspec.Struct, frozen=True):
    """The measurements of one critical model.

    device: its name;  workers: of the normal models' largest kernel alone
    kernels_us: of each critical kernel alone;  solo_us: of a request, by the host's clock
    models: identities of the model and of the normal models that ran at the same time
    concurrency: how the normal models ran; files call it "way"
    """

    device: str
    sms: int
    workers: int
    solo_us: float
    kernels_us: tuple[float, ...]
    phases: tuple[Phase, ...]
    models: tuple[str, ...]
    concurrency: Concurrency = msgspec.field(name="way")


#: A file of curves.
CurveFile = Annotated[list[Measured], msgspec.Meta(min_length=1)]


def save(measured: Sequence[Measured], path: Path) -> None:
    """Saves curves: for each number of normal models, those of the critical models in order."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(measured)) + b"\n")


def load(path: Path) -> list[Measured]:
    """Loads curves.  Raises InputError for a file that `save` did not write."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=CurveFile)
    except MALFORMED as error:
        raise InputError(
            f"the file has no slowdown curves of this version: {error}",
            hint=HINT,
            path=path,
        ) from error


def identity(bundle: Bundle) -> str:
    """A digest of a model's kernels and plans; it does not depend on the weights."""
    return digest(msgspec.json.encode(bundle.manifest.section(TARGET)))[:DIGITS]


def check(
    curves: Sequence[Measured], device: str, sms: int, models: Sequence[tuple[str, ...]]
) -> None:
    """Raises UsageError if curves are of another device, another part of it, or other models.

    models: for each critical model the expected `Measured.models`
    """
    if len(curves) != len(models):
        raise UsageError(
            f"there are {len(curves)} slowdown curves for {len(models)} critical models",
            hint=HINT,
        )
    for known, now in zip(curves, models, strict=True):
        facts: tuple[tuple[str, object, object], ...] = (
            ("another device", known.device, device),
            ("other multiprocessors", known.sms, sms),
            ("another critical model", known.models[:1], now[:1]),
            ("other normal models", known.models[1:], now[1:]),
        )
        for kind, measured, present in facts:
            if measured != present:
                raise UsageError(
                    f"the slowdown curves were measured with {kind}", hint=HINT,
                    measured=measured, present=present,
                )  # fmt: skip


def split_into_phases(times: Sequence[float], parts: int) -> list[int]:
    """The number of kernels of each phase, for at most `parts` phases of about equal time."""
    whole, counts, spent = sum(times), [0], 0.0
    for took in times:
        if counts[-1] and len(counts) < parts and spent + took / 2 > whole * len(counts) / parts:
            counts.append(0)
        counts[-1] += 1
        spent += took
    return counts


@dataclass(frozen=True)
class CurveSettings:
    """How curves are measured.

    phases: the most parts of the critical model, each with its own curve
    steps: points of a curve besides 0;  most: the most requests of a point
    seconds: the approximate length of the whole measurement; each point has at least three requests
    gap_s: seconds between requests of the model alone, as expected in use
    """

    phases: int = 1
    steps: int = LEVELS
    most: int = REQUESTS
    seconds: float = 10.0
    gap_s: float = 0.0


def measure(
    model: CriticalModel, models: tuple[str, ...], work: NormalWork, settings: CurveSettings
) -> Measured:
    """Measures each phase under each budget while all normal models run continuously.

    The model alone is measured before each budget, because a host's speed changes within seconds.

    models: as in `Measured`
    """
    most, seconds = settings.most, settings.seconds
    times = kernel_times(model.device, model.launches, seconds / 8)
    counts = split_into_phases(times, settings.phases)
    parts = _parts(counts)
    tried = (0, *levels_of(work.workers, settings.steps))
    each = seconds / (len(counts) * (len(tried) + 1))

    def a_part(once: Callable[[], float], whole_s: float) -> list[float]:
        return repeat_timing(once, -(-most // len(tried)), whole_s / len(tried), LEAST_RUNS)

    entire = _alone(model, (0, len(model.launches)), min(settings.gap_s, LONGEST_GAP_S))
    singly = [_alone(model, part, min(settings.gap_s, GAP_S)) for part in parts]
    samples = _Samples([], [[] for _ in parts], [[] for _ in parts])
    for budget in tried:
        samples.whole += a_part(entire, seconds / 8)
        for once, took in zip(singly, samples.alone, strict=True):
            took += a_part(once, each)
        with Background(work, budget) as busy:
            busy.warmed()
            for part, took, points in zip(parts, samples.alone, samples.concurrent, strict=True):
                once = busy.beside(model, part, statistics.median(took))
                points.append((budget, covering_time(repeat_timing(once, most, each, LEAST_RUNS))))
    return Measured(
        model.device.name,
        work.scheduler.gpu.sms,
        work.workers,
        samples.solo_us,
        tuple(times),
        samples.phases(counts),
        models,
        Concurrency(work.scheduler.max_concurrent, work.gated),
    )


def _alone(model: CriticalModel, part: Part, gap_s: float) -> Callable[[], float]:
    """Makes and times a request of a part of the model alone."""
    return requests(model, Hold(UNLIMITED, *part), 0.0, gap_s=gap_s)


@dataclass
class _Samples:
    """Microseconds of requests.

    whole: of the model alone;  alone: of each phase alone
    concurrent: of each phase beside normal work: budgets, each with the time that covers its
        requests
    """

    whole: list[float]
    alone: list[list[float]]
    concurrent: list[list[tuple[int, float]]]

    @property
    def solo_us(self) -> float:
        return statistics.median(self.whole)

    def phases(self, counts: Sequence[int]) -> tuple[Phase, ...]:
        """The phases with their curves.  counts: kernels of each phase.  Times of phases are scaled
        to the time of the whole model."""
        alone_us = [statistics.median(took) for took in self.alone]
        scale = self.solo_us / sum(alone_us)
        return tuple(
            Phase(count, us * scale, Curve(tuple((budget, worst / us) for budget, worst in points)))
            for count, us, points in zip(counts, alone_us, self.concurrent, strict=True)
        )


def _parts(counts: Sequence[int]) -> list[Part]:
    ends = [sum(counts[: n + 1]) for n in range(len(counts))]
    return [(end - count, end) for count, end in zip(counts, ends, strict=True)]
