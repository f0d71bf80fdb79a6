"""The table of device classes of all targets.  Devices of one class share tuning results.

Input: facts that a page can detect, or a class's id.  Output: `DeviceClass` records.  Each target
defines its own classes (`Target.classes`); docs/device-classes.md explains them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from tilewright.base.errors import UsageError
from tilewright.targets import TARGETS
from tilewright.targets.cuda.device_classes import KIND, VENDOR, architecture_of
from tilewright.targets.cuda.features import features_of
from tilewright.targets.device_class import DeviceClass

__all__ = ["CLASSES", "USUAL", "DeviceClass", "find", "match", "nearest", "of_capability", "table"]

#: Every class by its id.  If several classes admit a device, the first one is the most specific.
CLASSES: dict[str, DeviceClass] = {c.id: c for t in TARGETS.values() for c in t.classes}

#: Ids of the widest classes: each one admits every device of its kind.
WIDEST = tuple(c.id for c in CLASSES.values() if not c.fallback)

#: The class that commands use where the caller names none.
USUAL = "wasm-x86-relaxed"


def find(id: str) -> DeviceClass:
    """The class of this id; `UsageError` for one that does not exist."""
    if id not in CLASSES:
        raise UsageError(
            f"There is no device class {id!r}",
            hint=f"Take a known one; {_listed('and')} fit every device",
            known=list(CLASSES),
        )
    return CLASSES[id]


def nearest(id: str) -> DeviceClass:
    """The class of this id; if there is none, parts are cut off the id's end until one is found."""
    parts = id.split("-")
    names = ("-".join(parts[:n]) for n in range(len(parts), 0, -1))
    return find(next((name for name in names if name in CLASSES), id))


def match(facts: Mapping[str, object]) -> DeviceClass:
    """The most specific class that admits a device; `UsageError` if its kind is not known.

    facts: "kind" is one of the widest classes.  Optional: "vendor", "architecture", "features" that
           the engine detected, and "l1", the cache's bytes if a probe measured them.
    """
    found = next((c for c in CLASSES.values() if c.admits(facts)), None)
    if found is None:
        raise UsageError(
            f"No device class for the kind {facts.get('kind')!r}",
            hint=f"The kind is {_listed('or')}",
        )
    return found


def of_capability(capability: tuple[int, int]) -> tuple[DeviceClass, frozenset[str]]:
    """The class of an NVIDIA GPU of this compute capability, and the features that it has."""
    facts = {"kind": KIND, "vendor": VENDOR, "architecture": architecture_of(capability)}
    return match(facts), features_of(capability)


def table() -> list[dict[str, object]]:
    """All classes as plain data, in the order of `match`: a page takes the first that admits it."""
    return [
        {
            "id": c.id,
            "kind": c.kind,
            "vendor": c.vendor,
            "architecture": c.architecture,
            "features": sorted(c.features),
            "least_l1": c.least_l1,
            "core": asdict(c.core),
            "variant": c.variant,
            "fallback": c.fallback,
            "target": c.target,
        }
        for c in CLASSES.values()
    ]


def _listed(word: str) -> str:
    return f" {word} ".join(WIDEST)
