"""Schedules of any kernel: random ones, and the default with some fields changed.

Input: a kernel, a `random.Random` or values by name of field.  Output: schedules of its own types.
"""

from __future__ import annotations

from dataclasses import fields, replace
from random import Random
from typing import Any

from tilewright.kernel.spec import Kernel
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.strategies import default_schedule, objection, strategy_of

#: What random schedules draw each field from.
VALUES: dict[str, tuple[Any, ...]] = {
    "x0": (1, 2, 3, 4, 5, 6),
    "y0": (4, 8, 12, 16),
    "r0": (1, 2, 3, 4, 5),
    "r1": (0, 0, 1, 4, 7, 16),
    "x1": (1, 2, 3, 5, 6, 8, 12, 100),
    "y1": (4, 8, 12, 16, 24, 64, 4096),
    "stage": (False, False, True),
    "order": ("nm", "mn"),
    "lanes": (4, 4, 4, 1),
    "cache": ("", "k", "v", "kv"),
    "dot": ("pair", "wide"),
}


def random_schedule(rng: Random, kernel: Kernel) -> Schedule:
    """One of any type that the kernel may have."""
    kinds = [kind for kind in strategy_of(kernel).kinds if not objection(kernel, kind())]
    kind = rng.choice(kinds)
    return kind(**{field.name: rng.choice(VALUES[field.name]) for field in fields(kind)})


def scheduled(kernel: Kernel, machine: Machine | None = None, **values: Any) -> Schedule:
    """The default, with these values of the fields that it has."""
    usual = default_schedule(kernel, machine or Machine())
    known = {field.name for field in fields(usual)}
    return replace(usual, **{name: value for name, value in values.items() if name in known})
