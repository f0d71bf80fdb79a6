"""What the policy wants to know of a model, measured on the simulated GPU: time alone, curves.

Input: costs of kernels.  Output: phases with their slowdown curves, as measure.py finds them on a
real device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.elastic.policy import (
    EVERYBODY,
    Critical,
    Curve,
    Gpu,
    KernelCost,
    Normal,
    Phase,
    Scheduler,
)
from tilewright.elastic.policy.designs import ALL, Design
from tilewright.elastic.simulator.run import RequestSource, simulate

#: Requests of a measurement, and the share of them whose slowdown a curve covers.
REQUESTS, COVERED = 20, 0.9


@dataclass(frozen=True)
class _Loop:
    clients: int = 1

    def times(self, seconds: float, seed: int) -> tuple[float, ...]:
        return ()


def solo_us(gpu: Gpu, kernels: Sequence[KernelCost]) -> float:
    """Of one inference with nothing beside it."""
    return _took(gpu, kernels, (), 0)


def phases(
    gpu: Gpu, kernels: Sequence[KernelCost], normal: Sequence[KernelCost], levels: Sequence[int]
) -> tuple[Phase, ...]:
    """One phase for each kernel, with its slowdown at each level of workers beside it."""
    found = []
    for kernel in kernels:
        alone = _took(gpu, [kernel], (), 0)
        points = [(n, _took(gpu, [kernel], normal, n) / alone) for n in (0, *levels)]
        found.append(Phase(1, alone, Curve(tuple(points))))
    return tuple(found)


def _took(
    gpu: Gpu, kernels: Sequence[KernelCost], normal: Sequence[KernelCost], workers: int
) -> float:
    """The time of a request with so many workers beside it, which come at once."""
    design = Design("measured", "chunk", lambda t, _: (workers,) * len(t.phases), lambda _: ALL)
    critical = Critical("critical", (Phase(len(kernels), 1.0),), tuple(kernels), max_slowdown=1e9)
    tasks: list[tuple[Critical | Normal, RequestSource]] = [(critical, _Loop())]
    if workers:
        tasks.append((Normal("normal", tuple(normal)), _Loop()))
    about = sum(2 * k.tile_us * (1 + k.tiles / gpu.sms) + gpu.launch_us for k in kernels)
    seconds = REQUESTS * (about + 2 * gpu.submit_us) / 1e6
    outcome = simulate(Scheduler(design, gpu), tasks, seconds)
    took = sorted(served.took_us for served in outcome.served)
    return took[min(len(took) - 1, int(COVERED * len(took)))]


def levels(gpu: Gpu, kernels: Sequence[KernelCost], steps: int = 4) -> tuple[int, ...]:
    """Budgets that are worth a measurement: even parts of the most residents, then everybody."""
    most = max(kernel.residents(gpu) for kernel in kernels)
    return tuple(dict.fromkeys((*(max(1, most * n // steps) for n in range(1, steps)), EVERYBODY)))
