"""C as a target: what targets/protocol.py asks for.

Input: kernels and programs.  Output: a section with one file of C and per plan a list of slots and
tiles.  Hosts lay out the memory themselves: a plan's values have lives (docs/bundle.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import UsageError
from tilewright.base.sections import Build, File, Section
from tilewright.kernel.spec import Kernel
from tilewright.plan import Program
from tilewright.targets.c.emit import TYPES, function, prelude
from tilewright.targets.plain import Plain, lower
from tilewright.targets.protocol import Code, Facts


@dataclass(frozen=True)
class Scalar:
    """Any machine with a C compiler."""

    name: str = "scalar"
    features: frozenset[str] = frozenset()


@dataclass(frozen=True)
class C:
    """The target's only value is in targets/__init__.py."""

    name: str = "c"
    stages: tuple[str, ...] = ("c",)

    @property
    def facts(self) -> Facts:
        return Facts(address_bits=64, dtypes=frozenset(TYPES))

    @property
    def variants(self) -> Mapping[str, Scalar]:
        return {"scalar": Scalar()}

    def default(self, kernel: Kernel, variant: str) -> Plain:
        return Plain()

    def schedule(self, data: Mapping[str, Any]) -> Plain:
        return Plain()

    def codes(
        self,
        kernel: Kernel,
        schedules: Mapping[str, Plain],
        *,
        alone: bool = False,
        without: frozenset[str] = frozenset(),
    ) -> dict[str, Code]:
        fn = lower(kernel)
        return {
            v: Code(kernel, s, fn, 0, frozenset(), function(fn, "k")) for v, s in schedules.items()
        }

    def module(self, code: Code, variant: str) -> bytes:
        return _file([code]).encode()

    def encode(
        self,
        program: Program,
        codes: Mapping[str, Sequence[Code]],
        settings: Mapping[str, Any],
    ) -> Section:
        builds = []
        slots: dict[object, int] = {}
        numbers: tuple[int, ...] = ()
        for variant, listed in codes.items():
            numbers = tuple(slots.setdefault(code.body, len(slots)) for code in listed)
            by_slot = dict(zip(reversed(numbers), reversed(listed), strict=True))
            plans = tuple(
                File(
                    json.dumps(
                        [[numbers[s.kernel], listed[s.kernel].loops.tiles] for s in plan.steps]
                    ).encode(),
                    "json",
                )
                for plan in program.plans
            )
            text = _file([by_slot[n] for n in sorted(by_slot)])
            builds.append(Build(variant, (), File(text.encode(), "c"), plans, {}))
        most = max((sum(v.bytes for v in plan.values) for plan in program.plans), default=0)
        return Section(
            builds=tuple(builds),
            slots=len(slots),
            memory=most,
            programs={},
            plans=tuple({} for _ in program.plans),
            kernels=numbers,
            facts={},
        )

    def exchange(
        self,
        program: Program,
        old: Section,
        variant: str,
        codes: Sequence[Code],
        changed: frozenset[int],
        settings: Mapping[str, Any],
    ) -> Section:
        return self.encode(program, {variant: codes}, settings)

    def probe(self, kind: str, **sizes: int) -> tuple[Section, int]:
        raise UsageError("The target c measures no host", hint="Use the target wasm")

    def text(self, code: Code, variant: str, stage: str) -> str:
        return str(code.body)


def _file(codes: Sequence[Code]) -> str:
    """Kernel i is the function k<i>."""
    functions = [function(code.loops, f"k{n}") for n, code in enumerate(codes)]
    return "\n".join([prelude(), *functions]) + "\n"
