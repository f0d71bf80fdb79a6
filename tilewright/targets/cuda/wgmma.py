"""Tensor cores of a warp group on Hopper (wgmma), as CUDA C++: operands stay in shared memory.

Input: statements of the loop IR for an asynchronous unit.  Output: their text, and `WARPGROUPS`,
the functions that this text calls, which follow those of mma.py.  Descriptors name the operands,
which lie in shared memory in lines of 128 bytes; the eight 16-byte pieces of a line are swizzled
from line to line (PTX ISA, "128-byte swizzle mode").  Only compute capability 9.0 has these
instructions (`sm_90a`).
"""

from __future__ import annotations

from tilewright.base.errors import CompilerBug
from tilewright.kernel.loops import (
    BeginProducts,
    EndProducts,
    LoadMatrix,
    MatrixStmt,
    MatrixUnit,
    MultiplyMatrices,
    StoreMatrix,
    ZeroMatrix,
)
from tilewright.targets.brace_text import at
from tilewright.targets.lite_space import LINE_BYTES

#: Column counts of a product that there is text for; its rows.
COLUMNS, ROWS = (64, 128, 256), 64
#: Bytes of eight lines, and of a panel's line.
EIGHT_LINES_BYTES, PANEL_LINE_BYTES = 8 * LINE_BYTES, 16


def statement(s: MatrixStmt, unit: MatrixUnit) -> str:
    if unit.m != ROWS or unit.n not in COLUMNS:
        raise CompilerBug(f"CUDA has no {unit}")
    match s:
        case ZeroMatrix(name):
            return f"{name} = {{}};"
        case LoadMatrix(name, _, buffer, index, stride, across):
            size = unit.operand.size
            panels = across and stride * size == PANEL_LINE_BYTES
            if (stride * size != LINE_BYTES and not panels) or (across and s.run != stride):
                raise CompilerBug(f"lines of matrices have {LINE_BYTES} bytes: {s}")
            lie = "PANELS" if panels else "ACROSS" if across else "ALONG"
            return f"const Place<{lie}> {name}(b{buffer}, {at(index)}, {s.apart * size});"
        case MultiplyMatrices(name, left, right):
            return f"multiply_group({name}, {left}, {right});"
        case BeginProducts():
            return "begin_products();"
        case EndProducts(names):
            return " ".join(["end_products();", *(f"hold({name});" for name in names)])
        case StoreMatrix(buffer, index, name, stride):
            warp = f"threadIdx.x / 32 % 4 * {16 * stride}"
            return f"store_part(b{buffer} + {at(index)} + {warp}, {name}, {stride});"
    raise CompilerBug(f"no text for {s}")


def _product(columns: int) -> str:
    """Text of the instruction for this number of columns."""
    count = columns // 2
    sums = ", ".join(f"%{n}" for n in range(count))
    regs = ", ".join(f'"+f"(c[{n}])' for n in range(count))
    first = count
    return f"""
template <Lie p, Lie q>
__device__ inline void multiply_group(Part<float, {count}> &sums, Place<p> left, Place<q> right) {{
  float *const c = sums.x;
  asm volatile("wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.f16.f16 {{{sums}}}, "
               "%{first}, %{first + 1}, 1, 1, 1, %{first + 2}, %{first + 3};"
               : {regs}
               : "l"(left.bits), "l"(right.bits), "n"(p != ALONG), "n"(q != ALONG));
}}"""


#: C++ of a descriptor's first number of bytes.
_LEADING = f"lie == ALONG ? 16 : lie == ACROSS ? apart : {LINE_BYTES}"

#: Layouts of an operand, by name: lines along the depth, swizzled; lines of steps, each with 64
#: rows or columns, swizzled; or panels of eight rows or columns, whose 16-byte lines are in order.
WARPGROUPS = f"""
enum Lie {{ ALONG, ACROSS, PANELS }};
__device__ inline unsigned swizzled(unsigned at) {{ return at ^ (at >> 7 & 7u) << 4; }}
#ifdef CUDA_ON_CPU
#include "warpgroups.h"
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
template <Lie lie> struct Place {{
  uint64_t bits;
  // apart: bytes from the rows or columns of a line to the next ones
  __device__ Place(const uint16_t *area, int index, int apart)
      : bits(described(shared_at(area + index), {_LEADING},
                       lie == PANELS ? apart : {EIGHT_LINES_BYTES})) {{}}
  static __device__ uint64_t described(unsigned begin, unsigned leading, unsigned stride) {{
    return (uint64_t)(begin >> 4 & 0x3fffu) | (uint64_t)(leading >> 4) << 16 |
           (uint64_t)(stride >> 4) << 32 | (uint64_t)(lie != PANELS) << 62;
  }}
}};
__device__ inline void begin_products() {{
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}}
__device__ inline void end_products() {{
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}}
// What was copied is seen by the units, which read memory their own way.
__device__ inline void show_copies() {{
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}}
template <int N> __device__ inline void hold(Part<float, N> &part) {{
  for (int n = 0; n < N; n++) asm volatile("" : "+f"(part.x[n])::"memory");
}}
{"".join(map(_product, COLUMNS))}
#endif
"""
