"""Copies f32 to f16 in memory: each thread writes eight numbers, which are four whole words.

Input: a kernel whose output is stored as f16 (fusion/f16_operands.py), or whose rows
fusion/f16_operands.py divides, if their length is a multiple of eight. Output: its loop nest. Two
threads never write to the same word.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.base.dtypes import F32
from tilewright.base.errors import of_kind
from tilewright.kernel.builder import Builder
from tilewright.kernel.expr import Call, Expr, Join, Lane, Lanes, Load, Reg
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import F16_VECTOR, Kernel
from tilewright.targets.vectors import LANES


def lower(kernel: Kernel) -> TileFn | None:
    """The loops of such a kernel; None for kernels whose output is not stored as
    f16, or is a state: on targets with f16 states, threads write single numbers."""
    if not kernel.buffers[0].as_f16 or kernel.buffers[0].compact:
        return None
    (axis,), copied, size = kernel.axes, kernel.value, None
    if isinstance(copied, Call) and copied.fn == "div":
        copied, size = copied.operands
    copied = of_kind(copied, Load, "its value is not one load", kernel=kernel.name)
    b = Builder({}, axis.extent // F16_VECTOR, kernel)
    first = b.tile * F16_VECTOR
    parts: list[Expr] = []
    if size is not None:
        b.set("size", size.substitute({axis: first}))
    for half in range(F16_VECTOR // LANES):
        at = copied.index.substitute({axis: first + half * LANES})
        part: Expr = replace(copied, index=at, lanes=LANES)
        if size is not None:
            b.set(f"part{half}", part)
            lanes = (Lane(Reg(f"part{half}", F32, LANES), n) for n in range(LANES))
            part = Lanes(tuple(Call("div", (x, Reg("size", F32)), F32) for x in lanes))
        parts.append(part)
    b.store(0, first, Join(tuple(parts)))
    return b.finish(kernel)
