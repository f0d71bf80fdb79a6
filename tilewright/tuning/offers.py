"""What is said of a kernel and of a candidate, in the words of the tuning socket.

Input: spaces and built candidates.  Output: plain data, the same whether a server, a static build
or a page made it.  It needs only the standard library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tilewright.targets import target
from tilewright.tuning.candidates import Built, Space, number_of

Data = dict[str, Any]


def plans_of(plans: Sequence[Iterable[int]]) -> dict[int, tuple[int, ...]]:
    """From the kernels that each plan's steps run: by kernel, the plans that run it."""
    found: dict[int, tuple[int, ...]] = {}
    for number, specs in enumerate(plans):
        for spec in sorted(set(specs)):
            found[spec] = (*found.get(spec, ()), number)
    return found


def default_of(builds: Mapping[str, Data], variant: str, space: Space) -> int | None:
    """The candidate that a bundle itself has: 0, unless it was relinked.

    builds: of a slot (bundle/kernels.py)
    """
    if variant not in builds:
        return None
    chosen = target(space.device.target)
    return number_of(space, chosen.schedule(builds[variant]["schedule"]))


def offer(spec: int, space: Space, default: int | None) -> Data:
    """A kernel that may be tuned."""
    return {
        "spec": spec,
        "kind": space.kind,
        "shape": space.shape,
        "checksum": space.checksum,
        "count": len(space.schedules),
        "fixed": space.fixed,
        "default": default,
        "needs": needs_of(space, default),
        "gold": None,
    }


def needs_of(space: Space, number: int | None) -> Data | None:
    """What a candidate takes of that which objectives count; None where that is not known."""
    if number is None or number >= len(space.needs):
        return None
    return asdict(space.needs[number])


def ordered(spec: int, space: Space, default: int | None) -> Data:
    """The same with its candidates in their order of trial, for who has no server to order them.

    Where a bundle has its choice already, the compiler's own comes before all: devices judge the
    bundle's by it, and try no other one before.
    """
    judge = [] if default == 0 else [0]
    order = [number for number in space.trial if number != default]
    return offer(spec, space, default) | {"order": judge + order}


def described(space: Space, number: int, built: Built, plans: Iterable[int]) -> Data:
    """A candidate: what an engine has to know to swap it in, and what people like to see."""
    return {
        "mark": space.mark(number),
        "schedule": str(built.schedule),
        "digest": built.digest,
        "tiles": built.tiles,
        "grains": dict.fromkeys(plans, built.grain),
        "scratch": built.scratch,
        "needs": needs_of(space, number),
        "bytes": len(built.module),
    }
