// Instructions of a warp's matrix unit, and copies ahead: what NVIDIA's PTX has, on the CPU.
//
// Input: the parts of matrices that the lanes of a warp have.  Output: the same as of PTX's ldmatrix,
// mma.sync (m16n8) and cp.async.  Sums are computed in double and rounded once, where a GPU rounds
// its own way.  Copies happen at once: that they are awaited is checked by the loop interpreter.
#pragma once

// Lane n gives the address of line n % 8 of matrix n / 8; each lane gets a word of each matrix.
template <int N> void ldmatrix(unsigned *x, const void *at) {
  const unsigned own = cuda_cpu::lane();
  const uint64_t *given = cuda_cpu::exchange(~0u, reinterpret_cast<uint64_t>(at));
  for (int n = 0; n < N; n++)
    x[n] = reinterpret_cast<const unsigned *>(given[n * 8 + own / 4])[own % 4];
}

// The same, transposed: lines are columns of the matrix.
template <int N> void ldmatrix_across(unsigned *x, const void *at) {
  const unsigned own = cuda_cpu::lane();
  const uint64_t *given = cuda_cpu::exchange(~0u, reinterpret_cast<uint64_t>(at));
  for (int n = 0; n < N; n++) {
    auto half = [&](unsigned line) {
      return reinterpret_cast<const uint16_t *>(given[n * 8 + line])[own / 4];
    };
    x[n] = half(own % 4 * 2) | unsigned(half(own % 4 * 2 + 1)) << 16;
  }
}

// Element `k` of a line whose 32 bytes are the words of 4 lanes, then 4 more words of these.
template <int kind> double cuda_cpu_element(const unsigned (&words)[8], int k, bool right) {
  if (kind == F16) return float_of_half(words[k / 2] >> k % 2 * 16);
  if (kind == TF32) return __uint_as_float(words[k] & 0xffffe000u);
  const uint8_t byte = words[k / 4] >> k % 4 * 8;
  return kind == U8 && !right ? byte : int8_t(byte);
}

template <int kind, class T> void mma(T *c, const unsigned *a, unsigned b0, unsigned b1) {
  constexpr int depth = kind == F16 ? 16 : kind == TF32 ? 8 : 32;
  unsigned words[6][32];
  for (int n = 0; n < 3; n++) {
    const unsigned low = n < 2 ? a[2 * n] : b0, high = n < 2 ? a[2 * n + 1] : b1;
    const uint64_t *given = cuda_cpu::exchange(~0u, low | uint64_t(high) << 32);
    for (int lane = 0; lane < 32; lane++)
      words[2 * n][lane] = given[lane], words[2 * n + 1][lane] = given[lane] >> 32;
  }
  const unsigned own = cuda_cpu::lane();
  for (int n = 0; n < 4; n++) {
    const unsigned row = own / 4, column = own % 4 * 2 + n % 2;
    unsigned left[8], right[8];
    for (int i = 0; i < 8; i++) {
      left[i] = words[i / 4 * 2 + n / 2][row * 4 + i % 4];
      right[i] = words[4 + i / 4][column * 4 + i % 4];
    }
    double sum = c[n];
    for (int k = 0; k < depth; k++)
      sum += cuda_cpu_element<kind>(left, k, false) * cuda_cpu_element<kind>(right, k, true);
    c[n] = T(sum);
  }
}

// To the nearest number with 10 bits of fraction, ties away from 0.
inline unsigned tf32_of(unsigned x) {
  return (x & 0x7f800000u) == 0x7f800000u ? x : x + 0x1000u & 0xffffe000u;
}

inline void copy_ahead(void *to, const void *from, bool there) {
  if (there) memcpy(to, from, 16);
  else memset(to, 0, 16);
}
inline void end_copies() {}
template <int behind> void await_copies() {}
