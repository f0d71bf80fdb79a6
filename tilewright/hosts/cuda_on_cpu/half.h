// Halves in software: their bits to a float.
#pragma once

#include <cmath>
#include <cstdint>

inline float float_of_half(uint16_t bits) {
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float value = exponent == 31 ? (fraction ? NAN : INFINITY)
                : exponent     ? std::ldexp(float(1024 + fraction), exponent - 25)
                               : std::ldexp(float(fraction), -24);
  return bits >> 15 ? -value : value;
}
