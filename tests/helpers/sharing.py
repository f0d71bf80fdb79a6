"""Options that make workers meet as often as possible: tiny tiles, every step shared that can be.

Input: what a barrier costs.  Output: compiler options.  Only tests want such bundles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from helpers.schedules import scheduled
from tilewright.compiler import Options
from tilewright.kernel.form import Contraction, classify
from tilewright.kernel.spec import Kernel
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.strategies import default_schedule
from tilewright.targets.step_sharing import Costs
from tilewright.targets.wasm import WasmVariant


def tiny_tiles(kernel: Kernel, variant: WasmVariant) -> Schedule:
    usual = default_schedule(kernel, variant.machine).to_json()
    y1 = usual["y0"] if isinstance(classify(kernel), Contraction) else 4
    return scheduled(kernel, variant.machine, x1=usual.get("x0", 1), y1=y1)


def sharing(
    barrier: float = 0.0,
    buckets: Mapping[str, Sequence[int]] | None = None,
    variants: tuple[str, ...] = ("x86", "x86-simd"),
) -> Options:
    """With `barrier` at its lowest all steps of several tiles are shared, at infinity none is."""
    costs = Costs(barrier=barrier, ticket=0.0)
    return Options(
        buckets=buckets or {}, variants=variants, schedule=tiny_tiles, settings={"costs": costs}
    )
