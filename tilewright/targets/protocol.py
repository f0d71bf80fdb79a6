"""The interface of a target: how everything above the waist makes code.

Input: kernels and plans that say what is computed.  Output: plain data and bytes that a host of the
target runs.  Compiler, tuning, store, server and command line use only `Target`; the registry in
`targets/__init__.py` finds a target by name.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from tilewright.base.errors import UsageError
from tilewright.base.sections import File, Section
from tilewright.kernel.layout import Blocks, Groups, Packing, Panels, RowBlocks, Taps
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.plan import Program
from tilewright.targets.device_class import DeviceClass
from tilewright.targets.schedule import Schedule

#: The layouts of weights that kernels of every target of ours read.  No candidate changes a layout:
#: a wider tile reads several panels.  Panels have two vectors; groups, what one dot product reads;
#: fewer than 4 columns do not fill a vector.
PACKING = Packing(floats=Panels(8), integers=Groups(4, 8), taps=Taps(4), blocks=Blocks(8), few=4)

T = TypeVar("T")
Mark = Literal["default", "lite", "extended"]
#: Why only the default schedule of a kernel is tried; "" if others are, too.
Fixed = Literal["", "extents", "compact", "grows"]
#: The reason as a sentence.
FIXED: Mapping[Fixed, str] = {
    "extents": "kernels that end at run time are not tuned (extents): times at one length say "
    "little about another",
    "compact": "kernels that read f16 from a linear memory are not tuned (compact)",
    "grows": "kernels of states that grow are not tuned (grows)",
}


def fixed(kernel: Kernel) -> Fixed:
    if kernel.extents:
        return "extents"
    if any(b.compact for b in kernel.buffers):
        return "compact"
    return "grows" if any(isinstance(b.layout, RowBlocks) for b in kernel.buffers) else ""


class Variant(Protocol):
    """Code for one kind of devices, such as those with 15 vector registers and fused multiply-add.

    features: features that a host needs beyond the target's minimum
    is_default: True if a bundle has this variant when the user names none
    """

    @property
    def name(self) -> str: ...

    @property
    def features(self) -> frozenset[str]: ...

    @property
    def is_default(self) -> bool: ...


@dataclass(frozen=True)
class Facts:
    """What a target can do on any device.

    address_bits: the largest memory of one model is 2 ** address_bits bytes
    dtypes:       names of the element types that its kernels read and write
    features:     names of features that variants may require of a host
    binding_bytes: the largest tensor that a kernel can be given; 0: any that fits the memory
    group:        the most threads of one tile; 1: one thread computes a tile
    subnormals:   True if f32 numbers below 2^-126 survive arithmetic
    f16_memory:   True if values may be stored as f16
    f16_states:   True if compact states are stored as f16 as well, with `Buffer.as_f16`
    grows:        True if the memory of states may grow by blocks
    banks:        True if large weights may be in buffers of their own (the setting `bank`)
    packing:      the layouts of weights that it wants
    """

    address_bits: int
    dtypes: frozenset[str]
    features: frozenset[str] = frozenset()
    binding_bytes: int = 0
    group: int = 1
    subnormals: bool = True
    f16_memory: bool = False
    f16_states: bool = False
    grows: bool = False
    banks: bool = False
    packing: Packing = PACKING


@dataclass(frozen=True)
class Code:
    """One kernel for one variant, before it is linked with others.

    loops:   its loop nest, which the interpreter of the loop IR can run
    scratch: bytes of staging memory that it needs
    needs:   features that its instructions require of a host
    body:    the target's own representation; kernels with equal bodies share a slot
    """

    kernel: Kernel
    schedule: Schedule
    loops: TileFn
    scratch: int
    needs: frozenset[str]
    body: Hashable


def slots_of(codes: Mapping[str, Sequence[Code]]) -> tuple[int, ...]:
    """A slot number for each kernel; kernels with equal bodies in all variants share one."""
    found: dict[Hashable, int] = {}
    bodies = zip(*([code.body for code in listed] for listed in codes.values()), strict=True)
    return tuple(found.setdefault(body, len(found)) for body in bodies)


@dataclass(frozen=True)
class Candidate:
    """A schedule that is worth trying on a class of devices.

    mark:    "default", "lite" (the paper's space) or "extended" (our own)
    cost:    the cost that the target's model expects; smaller is better
    scratch: bytes of scratch memory per worker, the part that depends on the schedule
    words:   words loaded and stored beyond L1
    family:  a group of candidates whose costs compare well; costs of two families compare less well
    """

    schedule: Schedule
    mark: Mark
    cost: float
    scratch: int
    words: float
    family: str = ""


def setting(settings: Mapping[str, object], name: str, default: T) -> T:
    """A setting of a target; it must have the same type as its default.  Raises UsageError."""
    found = settings.get(name, default)
    if isinstance(found, type(default)):
        return found
    wanted = type(default).__name__
    raise UsageError(
        f"The setting {name} has another type than {wanted}", hint=f"Give it {default}", found=found
    )


class Target(Protocol):
    """A kind of code and the devices that run it.  The methods by purpose:

    Description:         name, facts, variants, classes, stages
    Schedules, spaces:   default, schedule, objection, candidates, slow
    Code and its text:   codes, text
    Bundles:             encode, exchange
    Timing a candidate:  module, tiles and grain
    """

    @property
    def name(self) -> str: ...

    @property
    def facts(self) -> Facts: ...

    @property
    def variants(self) -> Mapping[str, Variant]: ...

    @property
    def classes(self) -> Sequence[DeviceClass]:
        """Classes of devices that run it, the most specific first; () if it is not tuned."""

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the texts that `text` can show, in the order of compilation."""

    def default(self, kernel: Kernel, variant: str) -> Schedule:
        """The schedule that a kernel starts with, computed without measurements."""

    def schedule(self, data: Mapping[str, object]) -> Schedule:
        """The schedule whose `to_json` gave `data`; `InputError` if the target has no such
        schedule."""

    def objection(self, kernel: Kernel, schedule: Schedule) -> str:
        """What is wrong with a schedule from outside; "" if code can be made from it."""

    def candidates(
        self, kernel: Kernel, device: DeviceClass, relaxation: float
    ) -> Sequence[Candidate]:
        """The space: the default first, then all others, each once; the same in every process.

        relaxation: how much of a resource a lite tile may leave unused (targets/lite_space.py)
        Raises `NoSpace` if nothing can be tried.
        """

    def slow(self, kernel: Kernel, default: Schedule) -> Schedule | None:
        """A schedule outside the space that is much slower than the default on every device, or
        None.

        It is used for control questions, whose answer is known.
        """

    def codes(
        self,
        kernel: Kernel,
        schedules: Mapping[str, Schedule],
        *,
        alone: bool = False,
        without: frozenset[str] = frozenset(),
    ) -> dict[str, Code]:
        """A kernel's code by variant.

        alone:   code for this one shape; otherwise kernels of several shapes may share code
        without: names of optional passes to skip
        """

    def module(self, code: Code, variant: str) -> File:
        """A kernel that was compiled alone, as a file for engines."""

    def tiles(self, code: Code) -> int:
        """The number of items that a host counts in a step of this code, which has no run-time
        extents."""

    def grain(self, kernel: Kernel, tiles: int) -> int:
        """Tiles per ticket of a kernel's steps that have `tiles`; all if one worker is to run the
        step.

        A step that is serial in the plan's image stays serial: engines ensure that.
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
        """A section in which `variant` runs other code in the same memory; the rest is unchanged.

        codes: of all kernels; only those numbered in `changed` differ from the old section
        """

    def text(self, code: Code, variant: str, stage: str) -> str:
        """A kernel as readable text."""
