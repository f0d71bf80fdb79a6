"""The C target's implementation of `targets/protocol.py`.

Input: kernels and programs.  Output: a section with one C file, and for each plan a list of slots,
tiles and run-time scalars.  The section has no memory layout: a host allocates each plan's values
from their lifetimes (docs/bundle.md).

A kernel is one function, `int k(void **buffers, long first, long last)`.  It returns 0.  If an
index lies outside its table, it returns the number of the failed check plus one, and leaves the
index in `FOUND`.  Scratch memory is on the function's stack.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tilewright.base.sections import Build, File, Section
from tilewright.kernel.loops import TileFn, checks
from tilewright.kernel.spec import Kernel
from tilewright.plan import Program
from tilewright.targets.brace_text import body
from tilewright.targets.c_family import FOUND, TYPES, CDialect, rules
from tilewright.targets.protocol import Code, Facts, slots_of
from tilewright.targets.scalar_lowering import PlainTarget, PlainVariant, numbers_of


def prelude() -> str:
    """The declarations that open a C file; all its kernels use them."""
    lines = [
        "#include <math.h>",
        "#include <stdint.h>",
        "#define min(a, b) ((a) < (b) ? (a) : (b))",
        *rules("static inline"),
    ]
    return "\n".join(lines) + "\n"


def function(fn: TileFn, name: str) -> str:
    """The function that computes tiles [first, last).

    `buffers` has the output first, then the inputs, then the run-time scalars if there are any.
    """
    lines = [f"int {name}(void **buffers, long first, long last) {{"]
    for n, buffer in enumerate(fn.buffers):
        kind = ("" if n == 0 else "const ") + TYPES[buffer.dtype.name]
        lines.append(f"  {kind} *b{n} = buffers[{n}];")
    if fn.counts:
        lines.append(f"  const long *scalars = buffers[{len(fn.buffers)}];")
    for n, area in enumerate(fn.scratch, len(fn.buffers)):
        lines.append(f"  {TYPES[area.dtype.name]} b{n}[{area.size}];")
    lines.append(f"  for (long {fn.tile.name} = first; {fn.tile.name} < last; {fn.tile.name}++) {{")
    lines += body(fn, CDialect(), "    ")
    lines += ["  }", "  return 0;", "}"]
    return "\n".join(lines)


class C(PlainTarget):
    """The C target.  Its one instance is in targets/__init__.py."""

    name = "c"
    variant = PlainVariant("scalar")
    facts = Facts(address_bits=64, dtypes=frozenset(TYPES), grows=True)

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
