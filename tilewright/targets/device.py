"""What a class of devices is: who may share tuning results, and the figures a space is made from.

Input: figures that a target writes down (its own `classes.py`).  Output: `DeviceClass`: data only.
Only the id of a class ever leaves a device.  docs/device-classes.md says what each figure means;
targets/classes.py has all classes of all targets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.targets.lite import Core

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True)
class DeviceClass:
    """One class.  An empty `vendor` or `architecture` stands for any.

    target:   name of the target whose kernels it runs
    kind:     how a page calls such devices, and the widest class of them
    features: what a device must have to belong here
    core:     the figures of the lite space's formulas
    machine:  what the target's schedules must fit, a dataclass of its own; None: not known
    variant:  the target's variant whose code it runs; "" as long as nothing can be tuned there
    fallback: id of the next wider class; "" at the end
    least_l1: bytes of L1 that a device must be known to have to belong here; 0: need not be known
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
        """Whether candidates can be made for it."""
        return bool(self.variant)

    def admits(self, facts: Mapping[str, object]) -> bool:
        """Whether a device of these facts belongs here."""
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
