"""Functions that WGSL kernels may call: 64-bit integers from two words, and exact scalar functions.

Input: coefficients of targets/coefficients.py. Output: text. Our own polynomials replace WGSL's
functions where those may be less exact than base/scalars.py allows. i64 is vec2<u32>, low word
first. Each kernel declares `memory` itself (emit.py). Infinity and NaN come from a variable,
because WGSL rejects them as constants.  `head` has the lines with which a text requires features of
the GPU (targets/gpu/workgroup_limits.py).
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Collection
from functools import cache

from tilewright.targets.coefficients import (
    COEFFICIENTS,
    HALF_PI,
    LN2_HIGH,
    LN2_LOW,
    LOG2E,
    TURNS,
    TURNS_BELOW,
)
from tilewright.targets.gpu.workgroup_limits import (
    F16_FEATURE,
    MATRIX_FEATURE,
    PACKED_DOT_FEATURE,
    SUBGROUP_SIZES,
    SUBGROUPS_FEATURE,
    subgroup_feature,
)

INTEGERS = """\
fn i64_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = a.x + b.x;
  return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}
fn i64_neg(a: vec2<u32>) -> vec2<u32> { return i64_add(~a, vec2<u32>(1u, 0u)); }
fn i64_sub(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return i64_add(a, i64_neg(b)); }
fn u32_high(a: u32, b: u32) -> u32 {
  let a0 = a & 0xffffu; let a1 = a >> 16u; let b0 = b & 0xffffu; let b1 = b >> 16u;
  let mid = a1 * b0 + ((a0 * b0) >> 16u);
  let rest = a0 * b1 + (mid & 0xffffu);
  return a1 * b1 + (mid >> 16u) + (rest >> 16u);
}
fn i64_mul(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(a.x * b.x, u32_high(a.x, b.x) + a.x * b.y + a.y * b.x);
}
fn i64_lt(a: vec2<u32>, b: vec2<u32>) -> bool {
  return select(i32(a.y) < i32(b.y), a.x < b.x, a.y == b.y);
}
fn i64_eq(a: vec2<u32>, b: vec2<u32>) -> bool { return all(a == b); }
fn i64_abs(a: vec2<u32>) -> vec2<u32> { return select(a, i64_neg(a), (a.y >> 31u) == 1u); }
fn i64_div(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (all(b == vec2<u32>(0u))) { return vec2<u32>(0u); }
  let n = i64_abs(a); let d = i64_abs(b);
  var q = vec2<u32>(0u); var r = vec2<u32>(0u);
  for (var i = 63; i >= 0; i -= 1) {
    let word = select(n.x, n.y, i > 31);
    r = vec2<u32>((r.x << 1u) | ((word >> u32(i & 31)) & 1u), (r.y << 1u) | (r.x >> 31u));
    let less = r.y < d.y || (r.y == d.y && r.x < d.x);
    if (!less) {
      r = i64_sub(r, d);
      if (i > 31) { q.y |= 1u << u32(i & 31); } else { q.x |= 1u << u32(i); }
    }
  }
  return select(q, i64_neg(q), ((a.y ^ b.y) >> 31u) == 1u);
}
fn i64_of_i32(a: i32) -> vec2<u32> { return vec2<u32>(bitcast<u32>(a), bitcast<u32>(a >> 31u)); }
fn i64_of_f32(x: f32) -> vec2<u32> {
  if (x != x) { return vec2<u32>(0u); }
  if (x >= 9223372036854775808.0) { return vec2<u32>(0xffffffffu, 0x7fffffffu); }
  if (x < -9223372036854775808.0) { return vec2<u32>(0u, 0x80000000u); }
  let size = trunc(abs(x));
  let high = floor(size / 4294967296.0);
  let whole = vec2<u32>(u32(size - high * 4294967296.0), u32(high));
  return select(whole, i64_neg(whole), x < 0.0);
}
fn f32_of_i64(a: vec2<u32>) -> f32 {
  let size = i64_abs(a);
  // a sticky bit keeps the one rounding right
  var value = f32(size.x);
  if (size.y != 0u) {
    let shift = 32u - countLeadingZeros(size.y);
    let lost = size.x & ((1u << shift) - 1u);
    var top = size.x;
    if (shift < 32u) { top = (size.x >> shift) | (size.y << (32u - shift)); } else { top = size.y; }
    value = ldexp(f32(top | select(0u, 1u, lost != 0u)), i32(shift));
  }
  return select(value, -value, (a.y >> 31u) == 1u);
}
fn i32_div(a: i32, b: i32) -> i32 {
  if (b == 0) { return 0; }
  if (b == -1) { return -a; }
  return a / b;
}
fn u32_div(a: u32, b: u32) -> u32 { return select(a / max(b, 1u), 0u, b == 0u); }
fn u8_at(word: u32, n: u32) -> u32 { return extractBits(word, (n & 3u) * 8u, 8u); }
fn i8_at(word: u32, n: u32) -> i32 {
  return extractBits(bitcast<i32>(word), (n & 3u) * 8u, 8u);
}
// Bytes as the last bits of 2^23, less that: devices convert much slower than they add.
fn bytes_above(word: u32) -> vec4<f32> {
  let bytes = (vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(0xffu);
  return bitcast<vec4<f32>>(bytes | vec4<u32>(0x4b000000u));
}
fn u8_real(word: u32) -> vec4<f32> { return bytes_above(word) - vec4<f32>(8388608.0); }
fn i8_real(word: u32) -> vec4<f32> {
  return bytes_above(word ^ 0x80808080u) - vec4<f32>(8388736.0);
}
fn word_of(bytes: vec4<u32>) -> u32 {
  let placed = (bytes & vec4<u32>(0xffu)) << vec4<u32>(0u, 8u, 16u, 24u);
  return placed.x | placed.y | placed.z | placed.w;
}
fn half_at(word: u32, n: u32) -> f32 { return unpack2x16float(word)[n & 1u]; }
fn halves_at(words: vec4<u32>, n: u32) -> vec4<f32> {
  let two = select(words.xy, words.zw, (n & 2u) != 0u);
  return vec4<f32>(unpack2x16float(two.x), unpack2x16float(two.y));
}
fn raw_at(words: vec4<u32>, n: u32) -> vec4<f16> {
  return bitcast<vec4<f16>>(select(words.xy, words.zw, (n & 2u) != 0u));
}
// The nearest half, ties to even, exactly: what pack2x16float does beyond the largest one is open.
fn half_of(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let size = bits & 0x7fffffffu;
  let small = bitcast<u32>(bitcast<f32>(size) + 0.5) - 0x3f000000u;
  let normal = (size - 0x37fff001u + ((size >> 13u) & 1u)) >> 13u;
  let finite = select(normal, small, size < 0x38800000u);
  let value = select(finite, select(0x7c00u, 0x7e00u, size > 0x7f800000u), size >= 0x477ff000u);
  return value | ((bits >> 16u) & 0x8000u);
}
fn halves_of(x: vec4<f32>) -> vec2<u32> {
  return vec2<u32>(half_of(x.x) | (half_of(x.y) << 16u), half_of(x.z) | (half_of(x.w) << 16u));
}
fn clamped(x: f32, low: i32, high: i32) -> i32 {
  if (x != x) { return 0; }
  if (x >= f32(high)) { return high; }
  if (x <= f32(low)) { return low; }
  return i32(x);
}
"""

FLOATS = """\
var<private> INF_BITS: u32 = 0x7f800000u;
var<private> NAN_BITS: u32 = 0x7fc00000u;
fn f32_inf() -> f32 { return bitcast<f32>(INF_BITS); }
fn f32_nan() -> f32 { return bitcast<f32>(NAN_BITS); }
fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn is_inf(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u; }
fn with_sign(size: f32, signed: f32) -> f32 {
  return bitcast<f32>((bitcast<u32>(size) & 0x7fffffffu) | (bitcast<u32>(signed) & 0x80000000u));
}
// Drivers may take it that there are no NaN, so that x == x is true and !(a < b) is a >= b.
fn f32_eq(a: f32, b: f32) -> bool { return (a == b) & !is_nan(a) & !is_nan(b); }
fn f32_lt(a: f32, b: f32) -> bool { return (a < b) & !is_nan(a) & !is_nan(b); }
fn f32_le(a: f32, b: f32) -> bool { return (a <= b) & !is_nan(a) & !is_nan(b); }
fn f32_max(a: f32, b: f32) -> f32 {
  if (is_nan(a)) { return a; }
  if (is_nan(b)) { return b; }
  return max(a, b);
}
fn f32_min(a: f32, b: f32) -> f32 {
  if (is_nan(a)) { return a; }
  if (is_nan(b)) { return b; }
  return min(a, b);
}
// The nearest f16 and bf16, ties to even, by the bits: WGSL leaves open what conversions to f16 do
// beyond its range, and may flush its smallest numbers.
fn f32_nearest_f16(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  let size = bits & 0x7fffffffu;
  let small = bitcast<u32>(round(bitcast<f32>(size) * 16777216.0) * 5.9604645e-8);
  let normal = (size + 0xfffu + ((size >> 13u) & 1u)) & 0xffffe000u;
  let finite = select(normal, small, size < 0x38800000u);
  let value = select(finite, 0x7f800000u, finite >= 0x47800000u);
  return bitcast<f32>((bits & 0x80000000u) | select(value, size, size > 0x7f800000u));
}
fn f32_nearest_bf16(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  let even = (bits + 0x7fffu + ((bits >> 16u) & 1u)) & 0xffff0000u;
  return bitcast<f32>(select(even, bits, is_nan(x)));
}
fn f32_exponent(x: f32) -> i32 { return i32((bitcast<u32>(x) >> 23u) & 255u); }
fn f32_mantissa(x: f32) -> u32 { return (bitcast<u32>(x) & 0x7fffffu) | 0x800000u; }
// WGSL's own / and sqrt may be off by some ULP, and its fma may round twice.  So the rest that they
// leave is computed in integers, whose high bits may be lost: it is small.  Division has no early
// return: one compiler (Mesa 26) makes wrong code of it within large kernels.
fn f32_div(a: f32, b: f32) -> f32 {
  let ea = f32_exponent(a); let eb = f32_exponent(b);
  let sign = (bitcast<u32>(a) ^ bitcast<u32>(b)) & 0x80000000u;
  let d = f32_mantissa(b);
  let less = u32(f32_mantissa(a) < d);
  let n = f32_mantissa(a) << less;
  let e = ea - eb + 127 - i32(less);
  // n / d is from 1 to 2
  var q = i32(f32(n) / f32(d) * 8388608.0);
  var rest = bitcast<i32>((n << 23u) - u32(q) * d);
  let whole = i32(round(f32(rest) / f32(d)));
  q += whole;
  rest -= whole * i32(d);
  q += i32(2 * rest > i32(d)) - i32(2 * rest < -i32(d));
  let bits = (min(e, 255) << 23u) + (q - 8388608);
  let normal = select(0u, u32(bits), bits >= 0x800000);
  let size = select(normal, INF_BITS, e > 254 || bits >= 0x7f800000);
  let special = ea == 0 || ea == 255 || eb == 0 || eb == 255;
  return select(bitcast<f32>(sign | size), a / b, special);
}
fn f32_sqrt(x: f32) -> f32 {
  let e = f32_exponent(x);
  if (e == 0) { return 0.0 * x; }
  if (is_nan(x) || x < 0.0) { return f32_nan(); }
  if (e == 255) { return x; }
  let half = (e - 127) >> 1u;
  // a number from 1 to 4
  let n = f32_mantissa(x) << u32(e - 127 - 2 * half);
  var s = u32(sqrt(f32(n) * 1.1920929e-7) * 8388608.0);
  var rest = bitcast<i32>((n << 23u) - s * s);
  s += u32(i32(round(f32(rest) / f32(2u * s))));
  rest = bitcast<i32>((n << 23u) - s * s);
  s += u32(i32(rest > i32(s)) - i32(rest <= -i32(s)));
  return bitcast<f32>((u32(half + 127) << 23u) + (s - 8388608u));
}
fn f32_exp2(n: f32) -> f32 { return bitcast<f32>(u32(i32(n) + 127) << 23u); }
// Drivers may compute n * (HIGH + LOW), which rounds what the two parts keep.  Not through this.
fn f32_kept(x: f32) -> f32 { return min(x, 1e38); }
fn f32_reduced(x: f32, n: f32) -> f32 {
  return fma(n, -LN2_LOW, f32_kept(fma(n, -LN2_HIGH, x)));
}
fn f32_exp(x: f32) -> f32 {
  if (is_nan(x)) { return x; }
  if (x > 88.8) { return f32_inf(); }
  if (x < -87.4) { return 0.0; }
  let n = min(floor(x * LOG2E), 127.0);
  let r = f32_reduced(x, n);
  return fma(fma(poly_EXP(r), r, 1.0), r, 1.0) * f32_exp2(n);
}
fn f32_expm1(x: f32) -> f32 {
  let n = round(x * LOG2E);
  let r = f32_reduced(x, n);
  let scale = f32_exp2(n);
  return fma(scale, fma(poly_EXPM1(r) * r, r, r), scale - 1.0);
}
// For all x.  It is doubled last, since 2^128 is infinite.
fn f32_expm1_of_all(x: f32) -> f32 {
  if (is_nan(x)) { return x; }
  if (x > 88.8) { return f32_inf(); }
  if (x < -18.0) { return -1.0; }
  let n = round(x * LOG2E);
  let r = f32_reduced(x, n);
  let scale = f32_exp2(n - 1.0);
  return 2.0 * fma(scale, fma(poly_EXPM1(r) * r, r, r), scale - 0.5);
}
fn f32_tanh(x: f32) -> f32 {
  if (is_nan(x)) { return x; }
  let e = f32_expm1(min(2.0 * abs(x), 20.0));
  return with_sign(e / (e + 2.0), x);
}
fn f32_erf(x: f32) -> f32 {
  if (is_nan(x)) { return x; }
  let size = min(abs(x), 4.0);
  return with_sign(f32_expm1(-size * poly_ERF(size)), x);
}
struct Split { e: f32, f: f32 }
fn f32_split(x: f32) -> Split {
  let tiny = x < 1.1754944e-38;
  let lifted = bitcast<i32>(select(x, x * 8388608.0, tiny));
  let e = (lifted - 0x3f3504f3) >> 23u;
  let mantissa = bitcast<f32>(lifted - (e << 23u));
  return Split(f32(e) - select(0.0, 23.0, tiny), mantissa - 1.0);
}
fn f32_log(x: f32) -> f32 {
  if (is_nan(x) || x < 0.0) { return f32_nan(); }
  if (x == 0.0) { return -f32_inf(); }
  if (is_inf(x)) { return x; }
  let part = f32_split(x);
  let square = part.f * part.f;
  let tail = fma(part.e, LN2_LOW, fma(square, -0.5, square * part.f * poly_LOG(part.f)));
  return fma(part.e, LN2_HIGH, part.f + tail);
}
// log(u) with u = 1 + x rounded, and what rounding took: (x - (u - 1)) / u.
fn f32_log1p(x: f32) -> f32 {
  if (is_nan(x) || x < -1.0) { return f32_nan(); }
  if (x == -1.0) { return -f32_inf(); }
  if (is_inf(x)) { return x; }
  let u = x + 1.0;
  let whole = f32_kept(u);
  let taken = select((x - f32_kept(whole - 1.0)) / u, 0.0, x > 1e8);
  let part = f32_split(u);
  let square = part.f * part.f;
  let tail = fma(square, -0.5, square * part.f * poly_LOG(part.f)) + taken;
  return fma(part.e, LN2_HIGH, part.f + fma(part.e, LN2_LOW, tail));
}
// What the division of two numbers leaves that rounds toward zero, by long division of integers.
fn f32_rem(a: f32, b: f32) -> f32 {
  let size = bitcast<u32>(a) & 0x7fffffffu;
  let under = bitcast<u32>(b) & 0x7fffffffu;
  if (size >= INF_BITS || under > INF_BITS || under == 0u) { return f32_nan(); }
  if (size < under) { return a; }
  let ea = max(size >> 23u, 1u); let eb = max(under >> 23u, 1u);
  let d = (under & 0x7fffffu) | select(0u, 0x800000u, under >= 0x800000u);
  var rest = ((size & 0x7fffffu) | select(0u, 0x800000u, size >= 0x800000u)) % d;
  var left = ea - eb;
  // exponents differ by 253 at most; ends are constant, for whoever vets the text
  for (var i = 31; i >= 0; i -= 1) {
    if (left == 0u) { break; }
    let by = min(left, 8u);
    rest = (rest << by) % d;
    left -= by;
  }
  let zeros = min(countLeadingZeros(rest) - 8u, eb - 1u);
  // without the hidden bit, which the exponent adds, unless the result is subnormal
  let bits = (rest << zeros) + ((eb - 1u - zeros) << 23u);
  return with_sign(bitcast<f32>(select(bits, 0u, rest == 0u)), a);
}
// x = q pi / 2 + r with r within pi / 4.
struct Angle { r: f32, q: i32 }
fn f32_angle(x: f32) -> Angle {
  if (abs(x) > 8192.0) { return f32_far_angle(x); }
  let n = round(x * 0.63661975);
  var r = x;
  REDUCE
  return Angle(clamp(r, -0.8, 0.8), i32(n));
}
// |x| = m 2^e with a whole m; so its turns are m (2^e / 2 pi), of which only the fraction counts:
// 64 bits of it, from a window of 96 bits of the constant.
fn f32_far_angle(x: f32) -> Angle {
  var words = array<u32, 7>(TURNS);
  let m = f32_mantissa(x);
  let shift = u32(f32_exponent(x) - BELOW);
  let k = shift >> 5u; let by = shift & 31u;
  let a = (words[k] << by) | ((words[k + 1u] >> 1u) >> (31u - by));
  let b = (words[k + 1u] << by) | ((words[k + 2u] >> 1u) >> (31u - by));
  let c = (words[k + 2u] << by) | ((words[k + 3u] >> 1u) >> (31u - by));
  let low = vec2<u32>(u32_high(m, c), 0u);
  let turns = i64_add(low, vec2<u32>(m * b, u32_high(m, b) + m * a));
  let turned = select(turns, i64_neg(turns), (bitcast<u32>(x) >> 31u) == 1u);
  let quarter = (turned.y + 0x20000000u) >> 30u;
  let rest = vec2<u32>(turned.x, turned.y - (quarter << 30u));
  let size = i64_abs(rest);
  // the first 32 bits that are not 0, of which 24 and 8 are exact as f32
  let zeros = select(countLeadingZeros(size.y), 32u + countLeadingZeros(size.x), size.y == 0u);
  let word = select(size.y, size.x, size.y == 0u);
  let next = select(size.x, 0u, size.y == 0u);
  let left = zeros & 31u;
  let digits = (word << left) | ((next >> 1u) >> (31u - left));
  let high = f32(digits >> 8u);
  let small = fma(high, TURN_LOW, f32(digits & 255u) * TURN_OF_LAST);
  let r = fma(high, TURN_HIGH, small) * f32_exp2(-f32(zeros));
  return Angle(select(r, -r, (rest.y >> 31u) == 1u), i32(quarter));
}
fn f32_turned(x: f32, turn: i32) -> f32 {
  if (is_nan(x) || is_inf(x)) { return f32_nan(); }
  let angle = f32_angle(x);
  let square = angle.r * angle.r;
  let s = fma(square * poly_SIN(square), angle.r, angle.r);
  let c = fma(square, -0.5, fma(square * poly_COS(square), square, 1.0));
  let quadrant = angle.q + turn;
  let value = select(s, c, (quadrant & 1) == 1);
  return select(value, -value, (quadrant & 2) == 2);
}
fn f32_tan(x: f32) -> f32 {
  if (is_nan(x) || is_inf(x)) { return f32_nan(); }
  let angle = f32_angle(x);
  let square = angle.r * angle.r;
  let value = fma(square * poly_TAN(square), angle.r, angle.r);
  return select(value, f32_div(-1.0, value), (angle.q & 1) == 1);
}
fn f32_sin(x: f32) -> f32 { return f32_turned(x, 0); }
fn f32_cos(x: f32) -> f32 { return f32_turned(x, 1); }
fn f32_high(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u); }
fn f32_power(x: f32, y: f32) -> f32 {
  let part = f32_split(x);
  let square = part.f * part.f;
  let tail = fma(square, -0.5, square * part.f * poly_LOG(part.f));
  let total = y * fma(part.e, LN2_HIGH + LN2_LOW, part.f + tail);
  if (total > 88.8) { return f32_inf(); }
  if (total < -87.4) { return 0.0; }
  let n = round(total * LOG2E);
  let yh = f32_high(y); let yl = y - yh;
  let fh = f32_high(part.f); let fl = part.f - fh;
  let whole = yh * part.e - n;
  var small = whole * LN2_LOW + (yl * part.e) * (LN2_HIGH + LN2_LOW) + (yh * fl + yl * part.f);
  small = fma(y, tail, small);
  let r = (whole * LN2_HIGH + yh * fh) + small;
  let half = floor(n * 0.5);
  return (fma(poly_EXPM1(r) * r, r, r) + 1.0) * f32_exp2(half) * f32_exp2(n - half);
}
fn f32_pow(x: f32, y: f32) -> f32 {
  if (y == 0.0 || x == 1.0) { return 1.0; }
  if (is_nan(x) || is_nan(y)) { return f32_nan(); }
  let size = abs(x);
  if (size == 1.0 && is_inf(y)) { return 1.0; }
  let whole = floor(y) == y;
  let odd = whole && floor(y * 0.5) != y * 0.5;
  if (x < 0.0 && !is_inf(x) && !whole) { return f32_nan(); }
  var value = 0.0;
  if (is_inf(y)) { value = select(0.0, f32_inf(), (size > 1.0) == (y > 0.0)); }
  else if (size != 0.0 && !is_inf(size)) { value = f32_power(size, y); }
  else if ((size == 0.0) == (y < 0.0)) { value = f32_inf(); }
  return select(value, -value, odd && (bitcast<u32>(x) >> 31u) == 1u);
}
"""


def prelude(text: str) -> str:
    """The functions that a kernel calls, and those that they call in turn, in the order above.

    The text is kept short: a browser parses it for each kernel, and a device downloads it.
    """
    parts, needed, new = _parts(), set[str](), _names(text)
    while new:
        needed |= new
        new = {n for name in new & parts.keys() for n in _names(parts[name])} - needed
    return "\n".join(part for name, part in parts.items() if name in needed)


@cache
def _parts() -> dict[str, str]:
    """Constants, variables, structures and functions, by the name that each declares."""
    constants = {"LN2_HIGH": LN2_HIGH, "LN2_LOW": LN2_LOW, "LOG2E": LOG2E, **_turn()}
    turns = ", ".join(f"{TURNS >> 224 - 32 * n & 0xFFFFFFFF:#x}u" for n in range(7))
    reduce = "\n  ".join(f"r = f32_kept(fma(n, -{part!r}f, r));" for part in HALF_PI)
    lines = [f"const {name} = {value!r}f;" for name, value in constants.items()]
    lines += [_poly(name, terms) for name, terms in COEFFICIENTS.items()]
    floats = FLOATS.replace("REDUCE", reduce).replace("TURNS", turns)
    text = "\n".join([*lines, INTEGERS, floats.replace("BELOW", str(150 - TURNS_BELOW))])
    bare = re.sub(r"^ *//.*\n", "", text, flags=re.MULTILINE)
    declared = re.compile(r"^(?:const|var<private>|struct|fn) (\w+)", re.MULTILINE)
    begins = list(declared.finditer(bare))
    ends = [b.start() for b in begins[1:]] + [len(bare)]
    return {b[1]: bare[b.start() : end].rstrip() for b, end in zip(begins, ends, strict=True)}


def _turn() -> dict[str, float]:
    """2 pi 2^-24 as two parts, and constants that convert 8 more bits after those 24."""
    turn = math.tau * 2.0**-24
    high = struct.unpack("f", struct.pack("f", turn))[0]
    return {"TURN_HIGH": high, "TURN_LOW": turn - high, "TURN_OF_LAST": turn * 2.0**-8}


def _names(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def _poly(name: str, terms: tuple[float, ...]) -> str:
    """Horner's rule."""
    total = f"{terms[-1]!r}f"
    for c in reversed(terms[:-1]):
        total = f"fma({total}, x, {c!r}f)"
    return f"fn poly_{name}(x: f32) -> f32 {{ return {total}; }}"


#: The line for each feature; engines reject any other `enable` line.
LINES = {
    F16_FEATURE: "enable f16;\n",
    SUBGROUPS_FEATURE: "enable subgroups;\n",
    PACKED_DOT_FEATURE: "requires packed_4x8_integer_dot_product;\n",
    # A matrix may be loaded from an address with the subgroup's number: it is the same in all
    # threads.
    MATRIX_FEATURE: "enable chromium_experimental_subgroup_matrix;\n"
    "diagnostic(off, chromium.subgroup_matrix_uniformity);\n",
}


#: The line of a text that needs one subgroup size: engines then request it from adapters that have
#: several.
SIZED = {subgroup_feature(threads): f"// subgroups of {threads}\n" for threads in SUBGROUP_SIZES}


def head(needs: Collection[str]) -> str:
    """The first lines of a text that needs these features."""
    return "".join(line for name, line in (LINES | SIZED).items() if name in needs)
