// What CUDA C++ has beyond C++, for a compiler of the CPU: qualifiers, vectors, barriers, lanes,
// atomics and functions.
//
// Input: CUDA C++ whose dynamic shared arrays were renamed (hosts/cuda_cpu.py).  Output: kernels
// that threads.h runs.  It has what kernels use, not the API of the host.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "half.h"
#include "threads.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static thread_local
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
// Unlike alignas these may stand behind `static thread_local`.
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __CUDA_ARCH__ 900

// ---- vectors -------------------------------------------------------------------------------------

#define CUDA_CPU_VECTORS(T, name)                                                     \
  struct alignas(2 * sizeof(T)) name##2 { T x, y; };                                  \
  struct name##3 { T x, y, z; };                                                      \
  struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) name##4 { T x, y, z, w; };  \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }                          \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                  \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
CUDA_CPU_VECTORS(float, float)
CUDA_CPU_VECTORS(double, double)
CUDA_CPU_VECTORS(int, int)
CUDA_CPU_VECTORS(short, short)
CUDA_CPU_VECTORS(signed char, char)
CUDA_CPU_VECTORS(unsigned char, uchar)
CUDA_CPU_VECTORS(unsigned short, ushort)
CUDA_CPU_VECTORS(long long, longlong)
#undef CUDA_CPU_VECTORS
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// ---- barriers, fences, lanes ---------------------------------------------------------------------

inline void __syncthreads() { cuda_cpu::meet(false); }
inline int __syncthreads_or(int p) { return cuda_cpu::meet(p != 0).any; }
inline int __syncthreads_and(int p) { return cuda_cpu::meet(p != 0).all; }
inline int __syncthreads_count(int p) { return cuda_cpu::meet(p != 0).sum; }
inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __threadfence_block() { __threadfence(); }
inline void __threadfence_system() { __threadfence(); }
inline void __nanosleep(unsigned) { std::this_thread::yield(); }
inline long long clock64() { return 0; }

inline void __syncwarp(unsigned mask = ~0u) { cuda_cpu::exchange(mask, 0); }
inline unsigned __ballot_sync(unsigned mask, int p) {
  const uint64_t *given = cuda_cpu::exchange(mask, p != 0);
  unsigned found = 0;
  for (unsigned n = 0; n < cuda_cpu::WARP; n++) found |= unsigned(mask >> n & 1 && given[n]) << n;
  return found;
}
inline int __any_sync(unsigned mask, int p) { return __ballot_sync(mask, p) != 0; }
inline int __all_sync(unsigned mask, int p) { return __ballot_sync(mask, !p) == 0; }
inline unsigned __activemask() { return ~0u; }

// Lanes of a part of `width` reach their own part only; beyond it a lane gets its own value.
template <class T> T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  unsigned own = cuda_cpu::lane(), first = own / width * width;
  return cuda_cpu::from_lane(mask, value, first + unsigned(source) % width);
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  unsigned own = cuda_cpu::lane(), other = own ^ bits;
  return cuda_cpu::from_lane(mask, value, other / width <= own / width ? other : own);
}
template <class T> T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  unsigned own = cuda_cpu::lane(), other = own + by;
  return cuda_cpu::from_lane(mask, value, other / width == own / width ? other : own);
}
template <class T> T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  unsigned own = cuda_cpu::lane();
  return cuda_cpu::from_lane(mask, value, own % width >= by ? own - by : own);
}
template <class T, class F> T __reduce_lanes(unsigned mask, T value, F join) {
  const uint64_t *given = cuda_cpu::exchange(mask, uint64_t(value));
  T found = value;
  for (unsigned n = 0; n < cuda_cpu::WARP; n++)
    if (mask >> n & 1 && n != cuda_cpu::lane()) found = join(found, T(given[n]));
  return found;
}
template <class T> T __reduce_add_sync(unsigned mask, T value) {
  return __reduce_lanes(mask, value, [](T a, T b) { return T(a + b); });
}
template <class T> T __reduce_max_sync(unsigned mask, T value) {
  return __reduce_lanes(mask, value, [](T a, T b) { return a > b ? a : b; });
}
template <class T> T __reduce_min_sync(unsigned mask, T value) {
  return __reduce_lanes(mask, value, [](T a, T b) { return a < b ? a : b; });
}

// ---- atomics -------------------------------------------------------------------------------------

// The old value; the new one is change(old).
template <class T, class F> T cuda_cpu_atomic(T *at, F change) {
  T old, made;
  __atomic_load(at, &old, __ATOMIC_SEQ_CST);
  do made = change(old);
  while (!__atomic_compare_exchange(at, &old, &made, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
  return old;
}
#define CUDA_CPU_ATOMIC(name, value)                                                              \
  template <class T> T name(T *at, std::common_type_t<T> b) {                                     \
    return cuda_cpu_atomic(at, [b](T a) { return T(value); });                                    \
  }                                                                                               \
  template <class T> T name##_block(T *at, std::common_type_t<T> b) { return name(at, b); }       \
  template <class T> T name##_system(T *at, std::common_type_t<T> b) { return name(at, b); }
CUDA_CPU_ATOMIC(atomicAdd, a + b)
CUDA_CPU_ATOMIC(atomicSub, a - b)
CUDA_CPU_ATOMIC(atomicMin, a < b ? a : b)
CUDA_CPU_ATOMIC(atomicMax, a > b ? a : b)
CUDA_CPU_ATOMIC(atomicExch, ((void)a, b))
CUDA_CPU_ATOMIC(atomicAnd, a &b)
CUDA_CPU_ATOMIC(atomicOr, a | b)
CUDA_CPU_ATOMIC(atomicXor, a ^ b)
CUDA_CPU_ATOMIC(atomicInc, a >= b ? 0 : a + 1)
CUDA_CPU_ATOMIC(atomicDec, a == 0 || a > b ? b : a - 1)
#undef CUDA_CPU_ATOMIC
template <class T>
T atomicCAS(T *at, std::common_type_t<T> expected, std::common_type_t<T> value) {
  __atomic_compare_exchange(at, &expected, &value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}

template <class T>
T atomicCAS_system(T *at, std::common_type_t<T> expected, std::common_type_t<T> value) {
  return atomicCAS(at, expected, value);
}
template <class T>
T atomicCAS_block(T *at, std::common_type_t<T> expected, std::common_type_t<T> value) {
  return atomicCAS(at, expected, value);
}

// ---- functions -----------------------------------------------------------------------------------

template <class A, class B> auto max(A a, B b) { return a > b ? a : b; }
template <class A, class B> auto min(A a, B b) { return a < b ? a : b; }
inline unsigned umin(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned umax(unsigned a, unsigned b) { return a > b ? a : b; }
template <class T> T __ldg(const T *at) { return *at; }
template <class T> T __ldcg(const T *at) { return *at; }
template <class To, class From> To cuda_cpu_bits(From value) {
  To made;
  memcpy(&made, &value, sizeof(To));
  return made;
}
inline int __float_as_int(float v) { return cuda_cpu_bits<int>(v); }
inline unsigned __float_as_uint(float v) { return cuda_cpu_bits<unsigned>(v); }
inline float __int_as_float(int v) { return cuda_cpu_bits<float>(v); }
inline float __uint_as_float(unsigned v) { return cuda_cpu_bits<float>(v); }
inline float rsqrtf(float v) { return 1.0f / std::sqrt(v); }
inline double rsqrt(double v) { return 1.0 / std::sqrt(v); }
inline float __expf(float v) { return std::exp(v); }
inline float __logf(float v) { return std::log(v); }
inline float __sinf(float v) { return std::sin(v); }
inline float __cosf(float v) { return std::cos(v); }
inline float __powf(float a, float b) { return std::pow(a, b); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float v) { return v > 0 ? (v < 1 ? v : 1) : 0; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __log2f(float v) { return std::log2(v); }
inline float __log10f(float v) { return std::log10(v); }
inline float __exp10f(float v) { return std::pow(10.0f, v); }
inline float __tanf(float v) { return std::tan(v); }
inline void __sincosf(float v, float *s, float *c) { *s = std::sin(v), *c = std::cos(v); }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __frcp_rn(float a) { return 1 / a; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline int __float2int_rn(float v) { return int(std::nearbyint(v)); }
inline int __float2int_rd(float v) { return int(std::floor(v)); }
inline int __float2int_rz(float v) { return int(v); }
inline unsigned __float2uint_rn(float v) { return unsigned(std::nearbyint(v)); }
inline float __int2float_rn(int v) { return float(v); }
inline float __uint2float_rn(unsigned v) { return float(v); }
inline unsigned __umulhi(unsigned a, unsigned b) { return uint64_t(a) * b >> 32; }
inline int __mulhi(int a, int b) { return int64_t(a) * b >> 32; }
inline int __mul24(int a, int b) { return a * b; }
inline unsigned __umul24(unsigned a, unsigned b) { return a * b; }
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __clz(int v) { return v ? __builtin_clz(v) : 32; }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline unsigned __brev(unsigned v) {
  unsigned made = 0;
  for (int n = 0; n < 32; n++) made |= (v >> n & 1) << (31 - n);
  return made;
}
inline int __dp4a(int a, int b, int c) {
  for (int n = 0; n < 32; n += 8) c += int(int8_t(a >> n)) * int8_t(b >> n);
  return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int n = 0; n < 32; n += 8) c += (a >> n & 255) * (b >> n & 255);
  return c;
}
inline unsigned __vsub4(unsigned a, unsigned b) {
  unsigned made = 0;
  for (int n = 0; n < 32; n += 8) made |= ((a >> n) - (b >> n) & 255) << n;
  return made;
}

// After the headers of C++: see __align__.
#define alignas(n) __attribute__((aligned(n)))
