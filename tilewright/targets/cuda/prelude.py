"""The text at the head of every CUDA kernel: types, vectors of four, and the scalar functions of
base/scalars.py.

Input: none.  Output: CUDA C++ that includes no header, so NVRTC needs no include path.
"""

from __future__ import annotations

from functools import cache

from tilewright.targets.c_family import rules
from tilewright.targets.cuda.mma import UNIT_FUNCTIONS
from tilewright.targets.cuda.wgmma import WARPGROUPS

_HEAD = """\
#ifdef CUDA_ON_CPU
#include "cuda.h"
#define KERNEL __global__
#else
#define KERNEL extern "C" __global__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#define INFINITY __int_as_float(0x7f800000)
#endif

template <class T> struct alignas(4 * sizeof(T)) vec4 { T x, y, z, w; };
template <class T> __device__ inline vec4<T> splat(T v) { return {v, v, v, v}; }
template <class A> __device__ inline A part(const A &v, int) { return v; }
template <class F, class A> __device__ inline auto each(F f, vec4<A> a) {
  return vec4<decltype(f(a.x))>{f(a.x), f(a.y), f(a.z), f(a.w)};
}
template <class F, class A, class B> __device__ inline auto each(F f, vec4<A> a, vec4<B> b) {
  return vec4<decltype(f(a.x, b.x))>{f(a.x, b.x), f(a.y, b.y), f(a.z, b.z), f(a.w, b.w)};
}
template <class F, class A, class B, class C>
__device__ inline auto each(F f, vec4<A> a, vec4<B> b, vec4<C> c) {
  return vec4<decltype(f(a.x, b.x, c.x))>{f(a.x, b.x, c.x), f(a.y, b.y, c.y), f(a.z, b.z, c.z),
                                          f(a.w, b.w, c.w)};
}
template <class T> __device__ inline vec4<T> bytes_of(unsigned v) {
  return {(T)v, (T)(v >> 8), (T)(v >> 16), (T)(v >> 24)};
}
template <class T> __device__ inline unsigned word_of(vec4<T> v) {
  return (unsigned)(uint8_t)v.x | (unsigned)(uint8_t)v.y << 8 | (unsigned)(uint8_t)v.z << 16 |
         (unsigned)(uint8_t)v.w << 24;
}
__device__ inline float half_at(const uint16_t *at) {
#ifdef CUDA_ON_CPU
  return float_of_half(*at);
#else
  float v;
  asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(*at));
  return v;
#endif
}
__device__ inline vec4<float> halves_at(const uint16_t *at) {
  const vec4<uint16_t> v = *reinterpret_cast<const vec4<uint16_t> *>(at);
  return {half_at(&v.x), half_at(&v.y), half_at(&v.z), half_at(&v.w)};
}
// The nearest half, ties to even.
__device__ inline unsigned half_of(float x) {
#ifndef CUDA_ON_CPU
  unsigned short half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
  return half;
#else
  const unsigned bits = __float_as_uint(x), size = bits & 0x7fffffffu;
  const unsigned small = __float_as_uint(__int_as_float((int)size) + 0.5f) - 0x3f000000u;
  const unsigned normal = (size - 0x37fff001u + (size >> 13 & 1u)) >> 13;
  const unsigned finite = size < 0x38800000u ? small : normal;
  const unsigned beyond = size > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return (size < 0x477ff000u ? finite : beyond) | (bits >> 16 & 0x8000u);
#endif
}
__device__ inline vec4<uint16_t> as_halves(vec4<float> v) {
  return each([](float x) { return (uint16_t)half_of(x); }, v);
}
__device__ inline vec4<unsigned> halves_of(vec4<uint16_t> a, vec4<uint16_t> b) {
  return {a.x | (unsigned)a.y << 16, a.z | (unsigned)a.w << 16, b.x | (unsigned)b.y << 16,
          b.z | (unsigned)b.w << 16};
}
__device__ inline vec4<unsigned> halves_of(vec4<float> a, vec4<float> b) {
  return {half_of(a.x) | half_of(a.y) << 16, half_of(a.z) | half_of(a.w) << 16,
          half_of(b.x) | half_of(b.y) << 16, half_of(b.z) | half_of(b.w) << 16};
}
"""


@cache
def prelude() -> str:
    """The shared text; it is the same for all kernels."""
    return _HEAD + UNIT_FUNCTIONS + WARPGROUPS + "\n".join(rules("__device__ inline")) + "\n"
