"""Tensor cores of a warp (mma.sync), and asynchronous copies to shared memory, as CUDA C++.

Input: statements of the loop IR.  Output: their text, and `UNIT_FUNCTIONS`, the functions that this
text calls, which follow the head of prelude.py.  The instructions are inline PTX (mma.sync,
ldmatrix, cp.async), which needs no header.  hosts/cuda_on_cpu/matrices.h has the same functions
for a CPU.

A thread's fragment of an operand has one word for each 8 rows (or columns) and 16 bytes of the
depth.  Its fragment of a result has four numbers for each 16 by 8, as in mma.m16n8 (PTX ISA).  So
one function loads all types that are contiguous along the depth, and fragments can be saved
unchanged.
"""

from __future__ import annotations

from tilewright.base.dtypes import F16, F32, U8, DType
from tilewright.base.errors import CompilerBug
from tilewright.kernel.loops import (
    LoadMatrix,
    MatrixStmt,
    MatrixUnit,
    MultiplyMatrices,
    StoreMatrix,
    ZeroMatrix,
)
from tilewright.targets.brace_text import at

#: Bytes of every matrix's depth, and the rows (or columns) that one word of a fragment covers.
DEPTH, ROWS = 32, 8


def statement(s: MatrixStmt, unit: MatrixUnit) -> str:
    _check(unit)
    match s:
        case ZeroMatrix(name):
            return f"{name} = {{}};"
        case LoadMatrix(name, right, buffer, index, stride, across, group):
            words = (unit.n if right else unit.m) * 2 // ROWS
            where, by = f"b{buffer} + {at(index)}", stride * unit.operand.size
            layout = "lines" if not across else "halves" if unit.operand == F16 else "across"
            if layout == "across" and unit.operand.size * group != 4:
                raise CompilerBug(f"no text for matrices of steps of {unit.operand}: {s}")
            if s.run not in (0, ROWS * group):
                raise CompilerBug(f"panels have {ROWS} columns: {s}")
            next_ = unit.operand.size * (s.apart if s.run else ROWS * group)
            call = f"load_{layout}<{words}>({where}, {by}{f', {next_}' if across else ''})"
            return f"const Part<unsigned, {words}> {name} = {_cut(call, unit)};"
        case MultiplyMatrices(name, left, right):
            return f"multiply<{_kind(unit)}>({name}, {left}, {right});"
        case StoreMatrix(buffer, index, name, stride):
            return f"store_part(b{buffer} + {at(index)}, {name}, {stride});"
    raise CompilerBug(f"no text for {s}")


def result_type(unit: MatrixUnit) -> str:
    """The C++ type of a thread's part of a matrix result."""
    return part_of(unit.result, unit.m * unit.n // unit.threads)


def part_of(dtype: DType, count: int) -> str:
    """The C++ type of a thread's part of a matrix result with `count` numbers of this type."""
    return f"Part<{'float' if dtype == F32 else 'int'}, {count}>"


def _cut(call: str, unit: MatrixUnit) -> str:
    return f"as_tf32({call})" if unit.fraction else call


def _kind(unit: MatrixUnit) -> str:
    names = {F16: "F16", F32: "TF32", U8: "U8"}
    return names.get(unit.operand, "S8")


def _check(unit: MatrixUnit) -> None:
    sizes = unit.m, unit.k * unit.operand.size, unit.threads
    if sizes != (2 * ROWS, DEPTH, 32) or unit.n not in (ROWS, 2 * ROWS):
        raise CompilerBug(f"CUDA has no {unit}")


#: Functions on fragments of matrices; their argument `kind` is the operands' type.
UNIT_FUNCTIONS = """
template <class T, int N> struct alignas(N < 4 ? 8 : 16) Part { T x[N]; };
enum { F16, TF32, S8, U8 };
#ifdef CUDA_ON_CPU
#include "matrices.h"
#elif __CUDA_ARCH__ >= 750
__device__ inline unsigned shared_at(const void *at) {
  return (unsigned)__cvta_generic_to_shared(at);
}
template <int N> __device__ inline void ldmatrix(unsigned *x, const void *at) {
  if (N == 4)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(shared_at(at)));
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(x[0]), "=r"(x[1]) : "r"(shared_at(at)));
}
template <int N> __device__ inline void ldmatrix_across(unsigned *x, const void *at) {
  if (N == 4)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(shared_at(at)));
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(x[0]), "=r"(x[1]) : "r"(shared_at(at)));
}
// c (16 x 8) += a (16 rows) * b (8 columns), 32 bytes of the depth.
template <int kind>
__device__ inline void mma(float *c, const unsigned *a, unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
  if (kind == F16)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  for (int half = 0; half < 2; half++)
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(half ? b1 : b0));
#endif
}
template <int kind>
__device__ inline void mma(int *c, const unsigned *a, unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
  if (kind == S8)
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  for (int n = 0; n < 4; n++)
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+r"(c[n % 2 * 2]), "+r"(c[n % 2 * 2 + 1])
                 : "r"(a[n]), "r"(n / 2 ? b1 : b0));
#endif
}
__device__ inline unsigned tf32_of(unsigned x) {
  unsigned rounded = x;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(x)));
#endif
  return rounded;
}
// 16 bytes, or zeroes; nothing is read for these.
__device__ inline void copy_ahead(void *to, const void *from, bool there) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
               :: "r"(shared_at(to)), "l"(from), "r"(there ? 16 : 0));
#endif
}
__device__ inline void end_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int behind> __device__ inline void await_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" :: "n"(behind) : "memory");
#endif
}
#endif
#if defined(CUDA_ON_CPU) || __CUDA_ARCH__ >= 750
// Lines are contiguous along the depth; `by`: bytes from one to the next.
template <int N, class T> __device__ inline Part<unsigned, N> load_lines(const T *at, int by) {
  const int lane = threadIdx.x % 32, q = lane / 8, line = lane % 8 + q % (N / 2) * 8;
  Part<unsigned, N> part;
  ldmatrix<N>(part.x, (const char *)at + line * by + q / (N / 2) % 2 * 16);
  return part;
}
// Lines are steps of halves, each with all rows or columns; `next`: bytes to the next eight.
template <int N>
__device__ inline Part<unsigned, N> load_halves(const uint16_t *at, int by, int next) {
  const int lane = threadIdx.x % 32, q = lane / 8, line = lane % 8 + q / (N / 2) % 2 * 8;
  Part<unsigned, N> part;
  ldmatrix_across<N>(part.x, (const char *)at + line * by + q % (N / 2) * next);
  return part;
}
// Lines are steps of words.
template <int N, class T>
__device__ inline Part<unsigned, N> load_across(const T *at, int by, int next) {
  const int lane = threadIdx.x % 32;
  Part<unsigned, N> part;
  for (int n = 0; n < N; n++) {
    const int line = lane % 4 + n / (N / 2) * 4, place = lane / 4 * 4 + n % (N / 2) * next;
    part.x[n] = *(const unsigned *)((const char *)at + line * by + place);
  }
  return part;
}
template <int N> __device__ inline Part<unsigned, N> as_tf32(Part<unsigned, N> part) {
  for (int n = 0; n < N; n++) part.x[n] = tf32_of(part.x[n]);
  return part;
}
template <int kind, class T, int N>
__device__ inline void multiply(Part<T, N> &sums, const Part<unsigned, 4> &left,
                                const Part<unsigned, N / 2> &right) {
  for (int n = 0; n < N / 4; n++)
    mma<kind>(sums.x + 4 * n, left.x, right.x[n], right.x[n + N / 4]);
}
template <class T, int N> __device__ inline void store_part(T *at, const Part<T, N> &part, int by) {
  const int lane = threadIdx.x % 32;
  for (int n = 0; n < N; n += 2) {
    T *const to = at + (lane / 4 + n / 2 % 2 * 8) * by + n / 4 * 8 + lane % 4 * 2;
    *(Part<T, 2> *)to = {part.x[n], part.x[n + 1]};
  }
}
#endif
"""
