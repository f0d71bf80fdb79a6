"""The record of a device class: devices that share tuning results, and their figures.

Input: figures from a target's own `device_classes.py`.  Output: `DeviceClass`, plain data.  Only
the id of a class ever leaves a device.  docs/device-classes.md explains each figure;
targets/device_classes.py lists the classes of all targets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.targets.lite_space import Core

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True)
class DeviceClass:
    """One device class.  An empty `vendor` or `architecture` matches any.

    target:   name of the target whose kernels the devices run
    kind:     the page's name for such devices; also the id of the widest class that admits them
    features: features that a device must have to belong to the class
    core:     the figures of one core for the formulas of the lite space (targets/lite_space.py)
    machine:  limits for the target's schedules, a dataclass of the target; None: not known
    variant:  the target's code variant that the devices run; "" if the class cannot be tuned
    fallback: id of the next wider class; "" for the widest
    least_l1: bytes of L1 that a device must be known to have; 0: its size does not matter
    """

    id: str
    target: str
    kind: str
    vendor: str
    architecture: str
    features: frozenset[str]
    core: Core
    machine: DataclassInstance | None
    variant: str
    fallback: str
    least_l1: int = 0

    @property
    def tunable(self) -> bool:
        """True if candidates can be made for this class."""
        return bool(self.variant)

    def admits(self, facts: Mapping[str, object]) -> bool:
        """True if a device with these facts belongs to this class."""
        features, l1 = facts.get("features") or (), facts.get("l1") or 0
        return (
            facts.get("kind") == self.kind
            and self.vendor in ("", str(facts.get("vendor") or "").lower())
            and self.architecture in ("", str(facts.get("architecture") or "").lower())
            and isinstance(features, Collection)
            and self.features <= frozenset(features)
            and isinstance(l1, int | float)
            and l1 >= self.least_l1
        )
