"""Writes loop nests as C: one function per kernel, `int k(void **buffers, long first, long last)`.

Input: a scalar `TileFn`.  Output: C text.  The function returns 0.  If an index lies outside its
table, it returns the number of the failed check plus one, and leaves the index in `FOUND`.  Scratch
memory is on the function's stack.
"""

from __future__ import annotations

from tilewright.kernel.loops import TileFn
from tilewright.targets.brace_text import body
from tilewright.targets.c_family import TYPES, CDialect, rules


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
