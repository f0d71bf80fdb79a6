"""The public description of a kernel and of a candidate, as the tuning socket sends it.

Input: spaces and built candidates.  Output: plain data, the same from a server, a static build and
a page.  Only the standard library is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tilewright.targets import target
from tilewright.tuning.candidates import Built, Space, number_of

if TYPE_CHECKING:
    from tilewright.bundle.sections import SlotBuild

Data = dict[str, Any]


def plans_of(plans: Sequence[Iterable[int]]) -> dict[int, tuple[int, ...]]:
    """For each kernel the plans that run it.  plans: for each plan the kernels of its steps"""
    found: dict[int, tuple[int, ...]] = {}
    for number, specs in enumerate(plans):
        for spec in sorted(set(specs)):
            found[spec] = (*found.get(spec, ()), number)
    return found


def default_of(
    builds: Mapping[str, SlotBuild], variant: str, space: Space, features: Collection[str]
) -> int | None:
    """The candidate that a device runs in the bundle itself: 0, unless the bundle was relinked.

    builds: of a slot (bundle/sections.py)
    features: of the device; if one that the relinked candidate needs is missing, the bundle runs 0
    """
    if variant not in builds:
        return None
    chosen = target(space.device.target).schedule(builds[variant]["schedule"])
    return number_of(space, chosen) if chosen.features.issubset(features) else 0


def offer(spec: int, space: Space, default: int | None) -> Data:
    """The description of a kernel that may be tuned."""
    return {
        "spec": spec,
        "kind": space.kind,
        "shape": space.shape,
        "checksum": space.checksum,
        "count": len(space.schedules),
        "fixed": space.fixed,
        "default": default,
        "schedule": _schedule_of(space, default),
        "needs": needs_of(space, default),
        "gold": None,
    }


def _schedule_of(space: Space, number: int | None) -> str:
    found = None if number is None else space.schedule(number)
    return str(found or "")


def needs_of(space: Space, number: int | None) -> Data | None:
    """A candidate's resources that objectives count; None if they are not known."""
    if number is None or number >= len(space.needs):
        return None
    return asdict(space.needs[number])


def ordered(spec: int, space: Space, default: int | None, features: Collection[str]) -> Data:
    """The description of a kernel, with the candidates that a device with these features can run,
    in their order of trial.  It serves clients without a server.

    If the bundle has a tuned candidate, the compiler's default comes first: devices judge the
    bundle's candidate against it before they try others.
    """
    judge = [] if default == 0 else [0]
    order = [number for number in space.trial_on(features) if number != default]
    return offer(spec, space, default) | {"order": judge + order}


def described(space: Space, number: int, built: Built, plans: Iterable[int]) -> Data:
    """The description of a candidate: what an engine needs to swap it in, and readable facts."""
    return {
        "mark": space.mark(number),
        "schedule": str(built.schedule),
        "features": sorted(built.schedule.features),
        "digest": built.digest,
        "tiles": built.tiles,
        "grains": dict.fromkeys(plans, built.grain),
        "scratch": built.scratch,
        "needs": needs_of(space, number),
        "bytes": len(built.module),
    }
