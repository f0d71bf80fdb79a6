// The matrix units of a warp group on the CPU: what PTX's wgmma does with halves.
//
// Input: where operands lie in shared memory.  Output: the same sums, each thread its own ones.
// Products happen at once.
#pragma once

template <Lie lie> struct Place {
  const char *area;
  unsigned begin, apart;
  Place(const uint16_t *area, int index, int apart)
      : area(reinterpret_cast<const char *>(area)), begin(2 * index), apart(apart) {}
  // Of a row (or column) and a step of the depth.
  float at(unsigned place, unsigned step) const {
    unsigned at = begin;
    if (lie == ALONG) at += place / 8 * 1024 + place % 8 * 128 + step * 2;
    if (lie == ACROSS) at += place / 64 * apart + step / 8 * 1024 + step % 8 * 128 + place % 64 * 2;
    if (lie == PANELS) at += place / 8 * apart + step / 8 * 128 + step % 8 * 16 + place % 8 * 2;
    return float_of_half(*reinterpret_cast<const uint16_t *>(area + (lie == PANELS ? at : swizzled(at))));
  }
};

template <int N, Lie p, Lie q>
void multiply_group(Part<float, N> &sums, Place<p> left, Place<q> right) {
  const unsigned warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  for (int n = 0; n < N; n++) {
    const unsigned row = warp * 16 + lane / 4 + n / 2 % 2 * 8;
    const unsigned column = n / 4 * 8 + lane % 4 * 2 + n % 2;
    double sum = sums.x[n];
    for (int k = 0; k < 16; k++) sum += double(left.at(row, k)) * right.at(column, k);
    sums.x[n] = float(sum);
  }
}
inline void begin_products() {}
inline void end_products() {}
inline void show_copies() {}
template <class T> void hold(T &) {}
