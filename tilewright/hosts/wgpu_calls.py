"""The steps of a WGSL plan as the wgpu host dispatches them: each with the best kernel whose
features the device has, and several at once where a kernel joins them.

Input: a plan's steps as in the section (docs/bundle-wgsl.md), and the features that the device
lacks.  Output: the same steps as `WgpuCall`s that the device can run.  web/engine/gpu_plan.js does
the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated

import msgspec

from tilewright.base.abi import VECTOR_WORDS
from tilewright.base.errors import HostError
from tilewright.bundle.format import REBUILD

#: WebGPU's default limit of workgroups along a dimension.
MOST_GROUPS = 65535
_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
#: A number, or the fields of a number that depends on an extent.
_Number = int | Annotated[list[int], msgspec.Meta(min_length=6, max_length=6)]


class WgpuAlternative(msgspec.Struct, frozen=True):
    """A kernel that a step can run."""

    slot: _Count
    tiles: _Number
    group: Annotated[int, msgspec.Meta(ge=1, le=256)]
    scalars: list[_Number]


class JoinedCall(msgspec.Struct, frozen=True):
    """Kernels with which one dispatch runs `steps` steps, with the buffers of all of them."""

    steps: Annotated[int, msgspec.Meta(ge=2)]
    ways: list[WgpuAlternative]
    words: list[_Count]
    bank: _Count = 0
    annexes: list[_Count] = []


class WgpuCall(WgpuAlternative, frozen=True):
    """A step of a plan.  better: other kernels for devices with their features, best first;  bank,
    annexes: numbers of the buffers outside the model's own one"""

    words: list[_Count] = []
    bank: _Count = 0
    annexes: list[_Count] = []
    better: list[WgpuAlternative] = []
    joined: JoinedCall | None = None


def runnable_calls(
    calls: Sequence[WgpuCall], lacking: Mapping[int, Collection[str]]
) -> list[WgpuCall]:
    """The steps with the best kernel that the device can run; a step's own kernel is the last
    choice.

    lacking: by slot, the features that the device lacks.  Raises HostError for a step that it
             cannot run; ValueError for joined steps that do not exist.
    """

    def best(found: Sequence[WgpuAlternative]) -> WgpuAlternative | None:
        return next(
            (alternative for alternative in found if not lacking.get(alternative.slot)), None
        )

    taken = []
    for at, call in enumerate(calls):
        joined = best(call.joined.ways) if call.joined else None
        if call.joined and at + call.joined.steps > len(calls):
            raise ValueError("a step joins steps that do not exist")
        alternative = best([*call.better, call])
        if alternative is None:
            missing = sorted(lacking[call.slot])
            raise HostError(
                f"a kernel needs {', '.join(missing)}, which this device lacks",
                hint=REBUILD, missing=missing,
            )  # fmt: skip
        whole = call.joined and joined and msgspec.structs.replace(call.joined, ways=[joined])
        taken.append(msgspec.structs.replace(call, **_fields(alternative), better=[], joined=whole))
    return taken


def joined_dispatches(calls: Sequence[WgpuCall]) -> list[WgpuCall]:
    """The dispatches of a run: the dispatch of joined steps replaces them."""
    found, at = [], 0
    while at < len(calls):
        call, joined = calls[at], calls[at].joined
        at += joined.steps if joined else 1
        if joined:
            (alternative,) = joined.ways
            call = msgspec.structs.replace(
                call,
                **_fields(alternative),
                words=joined.words,
                bank=joined.bank,
                annexes=joined.annexes,
            )
        found.append(call)
    return found


def separate_dispatches(calls: Sequence[WgpuCall]) -> list[WgpuCall]:
    """The dispatches if each step runs by itself."""
    return [msgspec.structs.replace(call, joined=None) for call in calls]


def is_exchangeable(call: WgpuCall) -> bool:
    """True if a step can run another kernel.  Candidates expect the model's own buffer, and may
    read vectors."""
    return not (call.bank or call.annexes or any(word % VECTOR_WORDS for word in call.words))


def exchanged(
    calls: Sequence[WgpuCall], specs: Sequence[int], kernels: Mapping[int, WgpuAlternative]
) -> list[WgpuCall]:
    """The steps with these kernels, by number; they keep their run-time scalars.  Steps that were
    joined with one of them run by themselves."""
    new = [spec in kernels and is_exchangeable(c) for c, spec in zip(calls, specs, strict=True)]
    found = []
    for at, (call, spec) in enumerate(zip(calls, specs, strict=True)):
        if new[at]:
            alternative = kernels[spec]
            call = msgspec.structs.replace(
                call, slot=alternative.slot, tiles=alternative.tiles, group=alternative.group
            )
        if call.joined and any(new[at : at + call.joined.steps]):
            call = msgspec.structs.replace(call, joined=None)
        found.append(call)
    return found


def number_at(number: _Number, extents: Sequence[int]) -> int:
    """A number that is fixed, or min((extent * times + plus) // by, most) * each."""
    if isinstance(number, int):
        return number
    extent, times, plus, by, most, each = number
    return min((extents[extent] * times + plus) // by, most) * each


def groups_of(count: int, group: int) -> tuple[int, int]:
    """The workgroups in two dimensions that cover `count` invocations.  Raises ValueError if too
    many are needed."""
    wanted = -(-count // group)
    rows = max(1, -(-wanted // MOST_GROUPS))
    if count < 0 or rows > MOST_GROUPS:
        raise ValueError(f"a step has {count} invocations")
    return -(-wanted // rows), rows


def _fields(alternative: WgpuAlternative) -> dict[str, object]:
    return {name: getattr(alternative, name) for name in WgpuAlternative.__struct_fields__}
