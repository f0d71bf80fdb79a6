"""What a target is: the interface by which everything above the waist makes code.

Input: kernels and plans that say what is computed.  Output: what hosts of this target run, as plain
data and bytes.  Compiler, tuning, store, server and command line speak to `Target` alone; which
targets there are is told by name (`targets/__init__.py`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tilewright.base.sections import Section
from tilewright.kernel.layout import Packing
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.plan import Program


class Schedule(Protocol):
    """The choices of how one kernel runs: hashable data of the target's own types."""

    def to_json(self) -> dict[str, Any]: ...

    def __hash__(self) -> int: ...


class Variant(Protocol):
    """Code for one kind of devices, such as those with 15 vector registers and fused multiply-add.

    features: what a host must have, beyond what the target asks of all
    """

    @property
    def name(self) -> str: ...

    @property
    def features(self) -> frozenset[str]: ...


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
    """

    address_bits: int
    dtypes: frozenset[str]
    packing: Packing
    features: frozenset[str] = frozenset()
    binding_bytes: int = 0
    group: int = 1
    subnormals: bool = True


@dataclass(frozen=True)
class Code:
    """One kernel as one variant runs it, before it is linked with others.

    loops:   what it does, as the interpreter of the loop IR understands it
    scratch: bytes of staging memory that it needs
    needs:   features that its instructions ask of a host
    body:    the target's own: kernels with equal bodies share a slot
    """

    kernel: Kernel
    schedule: Any
    loops: TileFn
    scratch: int
    needs: frozenset[str]
    body: Hashable


class Target(Protocol):
    """A way to run kernels."""

    @property
    def name(self) -> str: ...

    @property
    def facts(self) -> Facts: ...

    @property
    def variants(self) -> Mapping[str, Variant]: ...

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of what `text` can show, in the order of making."""

    def default(self, kernel: Kernel, variant: str) -> Any:
        """The schedule that a kernel starts with, from arithmetic alone."""

    def schedule(self, data: Mapping[str, Any]) -> Any:
        """The schedule whose `to_json` gave `data`."""

    def codes(
        self,
        kernel: Kernel,
        schedules: Mapping[str, Any],
        *,
        alone: bool = False,
        without: frozenset[str] = frozenset(),
    ) -> dict[str, Code]:
        """A kernel's code by variant.

        alone:   for this one shape; otherwise kernels of other shapes may turn out to be equal
        without: names of optional passes that do not run
        """

    def module(self, code: Code, variant: str) -> bytes:
        """One kernel that was made alone, as engines exchange it."""

    def encode(
        self,
        program: Program,
        codes: Mapping[str, Sequence[Code]],
        settings: Mapping[str, Any],
    ) -> Section:
        """The target's part of a bundle, from the code of every kernel by variant."""

    def exchange(
        self,
        program: Program,
        old: Section,
        variant: str,
        codes: Sequence[Code],
        changed: frozenset[int],
        settings: Mapping[str, Any],
    ) -> Section:
        """A section whose `variant` runs other code in the same memory; all else stays.

        codes: of all kernels, of which those numbered in `changed` are not those of before
        """

    def probe(self, kind: str, **sizes: int) -> tuple[Section, int]:
        """A section that measures a host rather than a model, and its floating point operations.

        kind: "peak" (tiles): multiply-adds in registers alone; "steps" (steps, tiles): empty steps
        Its only plan has one output of four f32.
        """

    def text(self, code: Code, variant: str, stage: str) -> str:
        """A kernel as readable text."""
