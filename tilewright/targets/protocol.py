"""What a target is: the interface by which everything above the waist makes code.

Input: kernels and plans that say what is computed.  Output: what hosts of this target run, as plain
data and bytes.  Compiler, tuning, store, server and command line speak to `Target` alone; which
targets there are is told by name (`targets/__init__.py`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from tilewright.base.errors import UsageError
from tilewright.base.sections import File, Section
from tilewright.kernel.layout import Packing
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.plan import Program
from tilewright.targets.device import DeviceClass
from tilewright.targets.schedule import Schedule

T = TypeVar("T")
Mark = Literal["default", "lite", "extended"]
#: Why nothing but the default schedule of a kernel is tried; "" if more is.
Fixed = Literal["", "extents"]
#: The same in words.
FIXED: Mapping[Fixed, str] = {
    "extents": "kernels that end at run time are not tuned (extents): times at one length say "
    "little about another"
}


def fixed(kernel: Kernel) -> Fixed:
    return "extents" if kernel.extents else ""


class Variant(Protocol):
    """Code for one kind of devices, such as those with 15 vector registers and fused multiply-add.

    features: what a host must have, beyond what the target asks of all
    usual:    whether bundles have it that name no variants
    """

    @property
    def name(self) -> str: ...

    @property
    def features(self) -> frozenset[str]: ...

    @property
    def usual(self) -> bool: ...


@dataclass(frozen=True)
class Facts:
    """What a target can do, whatever the device.

    address_bits: the largest memory of one model is 2 ** address_bits bytes
    dtypes:       names of the element types that its kernels read and write
    features:     names that variants may ask of a host
    binding_bytes: the largest tensor that a kernel can be given; 0: any that fits the memory
    group:        the most threads of one tile; 1: one thread computes it
    subnormals:   whether f32 numbers below 2^-126 survive arithmetic
    packing:      how it asks weights to lie
    halves:       whether values may lie in memory as f16
    banks:        whether large weights may lie in buffers of their own, as the setting `bank` says
    """

    address_bits: int
    dtypes: frozenset[str]
    packing: Packing
    features: frozenset[str] = frozenset()
    binding_bytes: int = 0
    group: int = 1
    subnormals: bool = True
    halves: bool = False
    banks: bool = False


@dataclass(frozen=True)
class Code:
    """One kernel as one variant runs it, before it is linked with others.

    loops:   what it does, as the interpreter of the loop IR understands it
    scratch: bytes of staging memory that it needs
    needs:   features that its instructions ask of a host
    body:    the target's own: kernels with equal bodies share a slot
    """

    kernel: Kernel
    schedule: Schedule
    loops: TileFn
    scratch: int
    needs: frozenset[str]
    body: Hashable


def slots_of(codes: Mapping[str, Sequence[Code]]) -> tuple[int, ...]:
    """A slot per kernel; kernels with equal bodies in all variants share one."""
    found: dict[Hashable, int] = {}
    bodies = zip(*([code.body for code in listed] for listed in codes.values()), strict=True)
    return tuple(found.setdefault(body, len(found)) for body in bodies)


@dataclass(frozen=True)
class Candidate:
    """A schedule that is worth trying on a class of devices.

    mark:    "default", "lite" (the paper's space) or "extended" (our own)
    cost:    what the target's model expects; smaller is better
    scratch: bytes of scratch memory per worker, as far as they depend on the schedule
    words:   words loaded and stored beyond L1
    family:  the model compares costs well within one, and less well between two
    """

    schedule: Schedule
    mark: Mark
    cost: float
    scratch: int
    words: float
    family: str = ""


def setting(settings: Mapping[str, object], name: str, usual: T) -> T:
    """A setting of a target, which is of the same type as what is usual.  Raises UsageError."""
    found = settings.get(name, usual)
    if isinstance(found, type(usual)):
        return found
    wanted = type(usual).__name__
    raise UsageError(f"The setting {name} is no {wanted}", hint=f"Give it {usual}", found=found)


class Target(Protocol):
    """A way to run kernels.

    What it is:          name, facts, variants, classes, stages
    Schedules, spaces:   default, schedule, objection, candidates, slow
    Code and its text:   codes, text
    Bundles:             encode, exchange
    How hosts time it:   module, tiles and grain (a candidate)
    """

    @property
    def name(self) -> str: ...

    @property
    def facts(self) -> Facts: ...

    @property
    def variants(self) -> Mapping[str, Variant]: ...

    @property
    def classes(self) -> Sequence[DeviceClass]:
        """Classes of devices that run it, the most exact first; () where nobody tunes it."""

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of what `text` can show, in the order of making."""

    def default(self, kernel: Kernel, variant: str) -> Schedule:
        """The schedule that a kernel starts with, from arithmetic alone."""

    def schedule(self, data: Mapping[str, object]) -> Schedule:
        """The schedule whose `to_json` gave `data`; `InputError` if it is none of this target."""

    def objection(self, kernel: Kernel, schedule: Schedule) -> str:
        """What is wrong with a schedule from outside; "" if code can be made from it."""

    def candidates(
        self, kernel: Kernel, device: DeviceClass, relaxation: float
    ) -> Sequence[Candidate]:
        """The space: the default first, then all others, each once; the same in every process.

        relaxation: how much of a resource a lite tile may leave unused (targets/lite.py)
        Raises `NoSpace` if nothing can be tried.
        """

    def slow(self, kernel: Kernel, default: Schedule) -> Schedule | None:
        """A schedule beyond the space that is much slower than the default on any device, or None:
        for questions whose answer is known."""

    def codes(
        self,
        kernel: Kernel,
        schedules: Mapping[str, Schedule],
        *,
        alone: bool = False,
        without: frozenset[str] = frozenset(),
    ) -> dict[str, Code]:
        """A kernel's code by variant.

        alone:   for this one shape; otherwise kernels of other shapes may turn out to be equal
        without: names of optional passes that do not run
        """

    def module(self, code: Code, variant: str) -> File:
        """One kernel that was made alone, as engines exchange it."""

    def tiles(self, code: Code) -> int:
        """How many there are of what hosts count in a step of it; it has no run-time extents."""

    def grain(self, kernel: Kernel, tiles: int) -> int:
        """Tiles per ticket of a kernel's steps that have `tiles`; all where one worker runs them.

        A step that is serial in the plan's image stays so: engines see to that.
        """

    def encode(
        self,
        program: Program,
        codes: Mapping[str, Sequence[Code]],
        settings: Mapping[str, object],
    ) -> Section:
        """The target's part of a bundle, from the code of every kernel by variant."""

    def exchange(
        self,
        program: Program,
        old: Section,
        variant: str,
        codes: Sequence[Code],
        changed: frozenset[int],
        settings: Mapping[str, object],
    ) -> Section:
        """A section whose `variant` runs other code in the same memory; all else stays.

        codes: of all kernels, of which those numbered in `changed` are not those of before
        """

    def text(self, code: Code, variant: str, stage: str) -> str:
        """A kernel as readable text."""
