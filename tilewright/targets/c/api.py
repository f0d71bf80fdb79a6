"""The C target's implementation of `targets/protocol.py`.

Input: kernels and programs.  Output: a section with one C file, and for each plan a list of slots,
tiles and run-time scalars.  The section has no memory layout: a host allocates each plan's values
from their lifetimes (docs/bundle.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tilewright.base.sections import Build, File, Section
from tilewright.kernel.loops import TileFn, checks
from tilewright.kernel.spec import Kernel
from tilewright.plan import Program
from tilewright.targets.c.emit import function, prelude
from tilewright.targets.c_family import FOUND, TYPES
from tilewright.targets.packing import PACKING
from tilewright.targets.protocol import Code, Facts, slots_of
from tilewright.targets.scalar_lowering import PlainTarget, PlainVariant, numbers_of


class C(PlainTarget):
    """The C target.  Its one instance is in targets/__init__.py."""

    name = "c"
    variant = PlainVariant("scalar")
    facts = Facts(address_bits=64, dtypes=frozenset(TYPES), packing=PACKING)

    def emit(self, kernel: Kernel, fn: TileFn, needs: frozenset[str] = frozenset()) -> str:
        return function(fn, "k")

    def encode(
        self,
        program: Program,
        codes: Mapping[str, Sequence[Code]],
        settings: Mapping[str, object],
    ) -> Section:
        ((variant, listed),) = codes.items()
        numbers = slots_of(codes)
        first = dict(zip(reversed(numbers), reversed(listed), strict=True))
        functions = [function(first[n].loops, f"k{n}") for n in sorted(first)]
        told = [f"long {FOUND};"] if any(checks(first[n].loops) for n in first) else []
        text = "\n".join([prelude(), *told, *functions, ""])
        calls = (
            [[numbers[s.kernel], *numbers_of(listed[s.kernel].loops)] for s in p.steps]
            for p in program.plans
        )
        plans = tuple(File(json.dumps(c).encode(), "json") for c in calls)
        return Section(
            builds=(Build(variant, (), File(text.encode(), "c"), plans, {}),),
            slots=len(first),
            memory=max((sum(v.bytes for v in plan.values) for plan in program.plans), default=0),
            programs={},
            plans=tuple({} for _ in program.plans),
            kernels=numbers,
            facts={},
        )
