"""The WebAssembly instruction table: one row per instruction that Tilewright may emit.

Input: the text tables below.  Output: `ISA`, name -> `Row` (opcode bytes, immediates, stack types,
feature).  The encoder, decoder, checker and printer all read these rows and have no instructions of
their own.  Modules and sections are in module.py.

A line is `name opcode immediates : pops > pushes`.  Lines that differ only in a prefix are written
once, with the prefixes listed in front.  A `*` as signature marks the few instructions whose types
depend on their context (locals, calls, control flow); `validate.py` has a rule for each.
"""

from __future__ import annotations

from dataclasses import dataclass

#: An instruction: its name, then its immediates (floats and v128 as raw bits).
Ins = tuple[object, ...]


@dataclass(frozen=True)
class Row:
    """One instruction.

    code:  opcode bytes, prefix included
    imms:  kinds of the immediates: local global func type table label block mem lane lanes16 i32
           i64 f32 f64 v128
    align: log2 of the natural alignment of a memory access
    pops, pushes: stack types; None where they depend on the context
    """

    name: str
    code: bytes
    imms: tuple[str, ...]
    pops: tuple[str, ...] | None
    pushes: tuple[str, ...] | None
    feature: str
    align: int = 0

    @property
    def width(self) -> int:
        """Bytes that a memory access touches."""
        return 1 << self.align

    @property
    def atomic(self) -> bool:
        return ".atomic." in self.name

    @property
    def values(self) -> int:
        """The number of Python values for the immediates (a memarg takes two: align, offset)."""
        return len(self.imms) + ("mem" in self.imms)


VALTYPES: dict[str, int] = {"i32": 0x7F, "i64": 0x7E, "f32": 0x7D, "f64": 0x7C, "v128": 0x7B}

_CONTROL = """
unreachable 00 : *
nop 01 : >
block 02 block : *
loop 03 block : *
if 04 block : *
else 05 : *
end 0b : *
br 0c label : *
br_if 0d label : *
return 0f : *
call 10 func : *
call_indirect 11 type table : *
drop 1a : *
select 1b : *
local.get 20 local : *
local.set 21 local : *
local.tee 22 local : *
global.get 23 global : *
memory.size 3f zero : > i32
"""

_MEMORY = """
i32.load 28 mem2 : i32 > i32
i64.load 29 mem3 : i32 > i64
f32.load 2a mem2 : i32 > f32
f64.load 2b mem3 : i32 > f64
i32.load8_s 2c mem0 : i32 > i32
i32.load8_u 2d mem0 : i32 > i32
i32.load16_s 2e mem1 : i32 > i32
i32.load16_u 2f mem1 : i32 > i32
i64.load8_s 30 mem0 : i32 > i64
i64.load8_u 31 mem0 : i32 > i64
i64.load16_s 32 mem1 : i32 > i64
i64.load16_u 33 mem1 : i32 > i64
i64.load32_s 34 mem2 : i32 > i64
i64.load32_u 35 mem2 : i32 > i64
i32.store 36 mem2 : i32 i32 >
i64.store 37 mem3 : i32 i64 >
f32.store 38 mem2 : i32 f32 >
f64.store 39 mem3 : i32 f64 >
i32.store8 3a mem0 : i32 i32 >
i32.store16 3b mem1 : i32 i32 >
i64.store8 3c mem0 : i32 i64 >
i64.store16 3d mem1 : i32 i64 >
i64.store32 3e mem2 : i32 i64 >
"""

_NUMERIC = """
i32.const 41 i32 : > i32
i64.const 42 i64 : > i64
f32.const 43 f32 : > f32
f64.const 44 f64 : > f64
i32.eqz 45 : i32 > i32
i64.eqz 50 : i64 > i32
i32.wrap_i64 a7 : i64 > i32
i32.trunc_f32_s a8 : f32 > i32
i32.trunc_f32_u a9 : f32 > i32
i32.trunc_f64_s aa : f64 > i32
i32.trunc_f64_u ab : f64 > i32
i64.extend_i32_s ac : i32 > i64
i64.extend_i32_u ad : i32 > i64
i64.trunc_f32_s ae : f32 > i64
i64.trunc_f32_u af : f32 > i64
i64.trunc_f64_s b0 : f64 > i64
i64.trunc_f64_u b1 : f64 > i64
f32.convert_i32_s b2 : i32 > f32
f32.convert_i32_u b3 : i32 > f32
f32.convert_i64_s b4 : i64 > f32
f32.convert_i64_u b5 : i64 > f32
f32.demote_f64 b6 : f64 > f32
f64.convert_i32_s b7 : i32 > f64
f64.convert_i32_u b8 : i32 > f64
f64.convert_i64_s b9 : i64 > f64
f64.convert_i64_u ba : i64 > f64
f64.promote_f32 bb : f32 > f64
i32.reinterpret_f32 bc : f32 > i32
i64.reinterpret_f64 bd : f64 > i64
f32.reinterpret_i32 be : i32 > f32
f64.reinterpret_i64 bf : i64 > f64
i32.extend8_s c0 : i32 > i32
i32.extend16_s c1 : i32 > i32
i64.extend8_s c2 : i64 > i64
i64.extend16_s c3 : i64 > i64
i64.extend32_s c4 : i64 > i64
i32.trunc_sat_f32_s fc00 : f32 > i32
i32.trunc_sat_f32_u fc01 : f32 > i32
i32.trunc_sat_f64_s fc02 : f64 > i32
i32.trunc_sat_f64_u fc03 : f64 > i32
i64.trunc_sat_f32_s fc04 : f32 > i64
i64.trunc_sat_f32_u fc05 : f32 > i64
i64.trunc_sat_f64_s fc06 : f64 > i64
i64.trunc_sat_f64_u fc07 : f64 > i64
"""

#: Runs of consecutive opcodes with one signature: (type, first opcode, names, signature).
_RUNS = (
    ("i32", 0x46, "eq ne lt_s lt_u gt_s gt_u le_s le_u ge_s ge_u", "T T > i32"),
    ("i64", 0x51, "eq ne lt_s lt_u gt_s gt_u le_s le_u ge_s ge_u", "T T > i32"),
    ("f32", 0x5B, "eq ne lt gt le ge", "T T > i32"),
    ("f64", 0x61, "eq ne lt gt le ge", "T T > i32"),
    ("i32", 0x67, "clz ctz popcnt", "T > T"),
    ("i32", 0x6A, "add sub mul div_s div_u rem_s rem_u and or xor", "T T > T"),
    ("i32", 0x74, "shl shr_s shr_u rotl rotr", "T T > T"),
    ("i64", 0x79, "clz ctz popcnt", "T > T"),
    ("i64", 0x7C, "add sub mul div_s div_u rem_s rem_u and or xor", "T T > T"),
    ("i64", 0x86, "shl shr_s shr_u rotl rotr", "T T > T"),
    ("f32", 0x8B, "abs neg ceil floor trunc nearest sqrt", "T > T"),
    ("f32", 0x92, "add sub mul div min max copysign", "T T > T"),
    ("f64", 0x99, "abs neg ceil floor trunc nearest sqrt", "T > T"),
    ("f64", 0xA0, "add sub mul div min max copysign", "T T > T"),
)

_SIMD = """
v128.load 00 mem4 : i32 > v128
v128.load8x8_s 01 mem3 : i32 > v128
v128.load8x8_u 02 mem3 : i32 > v128
v128.load16x4_s 03 mem3 : i32 > v128
v128.load16x4_u 04 mem3 : i32 > v128
v128.load32x2_s 05 mem3 : i32 > v128
v128.load32x2_u 06 mem3 : i32 > v128
v128.load8_splat 07 mem0 : i32 > v128
v128.load16_splat 08 mem1 : i32 > v128
v128.load32_splat 09 mem2 : i32 > v128
v128.load64_splat 0a mem3 : i32 > v128
v128.store 0b mem4 : i32 v128 >
v128.const 0c v128 : > v128
i8x16.shuffle 0d lanes16 : v128 v128 > v128
i8x16.swizzle 0e : v128 v128 > v128
i8x16.splat 0f : i32 > v128
i16x8.splat 10 : i32 > v128
i32x4.splat 11 : i32 > v128
i64x2.splat 12 : i64 > v128
f32x4.splat 13 : f32 > v128
f64x2.splat 14 : f64 > v128
i8x16.extract_lane_s 15 lane : v128 > i32
i8x16.extract_lane_u 16 lane : v128 > i32
i8x16.replace_lane 17 lane : v128 i32 > v128
i16x8.extract_lane_s 18 lane : v128 > i32
i16x8.extract_lane_u 19 lane : v128 > i32
i16x8.replace_lane 1a lane : v128 i32 > v128
i32x4.extract_lane 1b lane : v128 > i32
i32x4.replace_lane 1c lane : v128 i32 > v128
i64x2.extract_lane 1d lane : v128 > i64
i64x2.replace_lane 1e lane : v128 i64 > v128
f32x4.extract_lane 1f lane : v128 > f32
f32x4.replace_lane 20 lane : v128 f32 > v128
f64x2.extract_lane 21 lane : v128 > f64
f64x2.replace_lane 22 lane : v128 f64 > v128
v128.not 4d : v128 > v128
v128.bitselect 52 : v128 v128 v128 > v128
v128.any_true 53 : v128 > i32
v128.load8_lane 54 mem0 lane : i32 v128 > v128
v128.load16_lane 55 mem1 lane : i32 v128 > v128
v128.load32_lane 56 mem2 lane : i32 v128 > v128
v128.load64_lane 57 mem3 lane : i32 v128 > v128
v128.store8_lane 58 mem0 lane : i32 v128 >
v128.store16_lane 59 mem1 lane : i32 v128 >
v128.store32_lane 5a mem2 lane : i32 v128 >
v128.store64_lane 5b mem3 lane : i32 v128 >
v128.load32_zero 5c mem2 : i32 > v128
v128.load64_zero 5d mem3 : i32 > v128
i8x16.all_true 63 : v128 > i32
i8x16.bitmask 64 : v128 > i32
i32x4.all_true a3 : v128 > i32
i32x4.bitmask a4 : v128 > i32
i32x4.shl ab : v128 i32 > v128
i32x4.shr_s ac : v128 i32 > v128
i32x4.shr_u ad : v128 i32 > v128
"""

_VECTOR_RUNS = (
    ("i32x4", 0x37, "eq ne lt_s lt_u gt_s gt_u le_s le_u ge_s ge_u", "T T > T"),
    ("f32x4", 0x41, "eq ne lt gt le ge", "T T > T"),
    ("v128", 0x4E, "and andnot or xor", "T T > T"),
    ("i8x16", 0x65, "narrow_i16x8_s narrow_i16x8_u", "T T > T"),
    ("f32x4", 0x67, "ceil floor trunc nearest", "T > T"),
    ("i16x8", 0x85, "narrow_i32x4_s narrow_i32x4_u", "T T > T"),
    ("i16x8", 0x87, "extend_low_i8x16_s extend_high_i8x16_s", "T > T"),
    ("i16x8", 0x89, "extend_low_i8x16_u extend_high_i8x16_u", "T > T"),
    ("i32x4", 0x7E, "extadd_pairwise_i16x8_s", "T > T"),
    ("i32x4", 0xA0, "abs neg", "T > T"),
    ("i32x4", 0xA7, "extend_low_i16x8_s extend_high_i16x8_s", "T > T"),
    ("i32x4", 0xA9, "extend_low_i16x8_u extend_high_i16x8_u", "T > T"),
    ("i32x4", 0xAE, "add", "T T > T"),
    ("i32x4", 0xB1, "sub", "T T > T"),
    ("i32x4", 0xB5, "mul min_s min_u max_s max_u dot_i16x8_s", "T T > T"),
    ("f32x4", 0xE0, "abs neg", "T > T"),
    ("f32x4", 0xE3, "sqrt", "T > T"),
    ("f32x4", 0xE4, "add sub mul div min max pmin pmax", "T T > T"),
    ("i32x4", 0xF8, "trunc_sat_f32x4_s trunc_sat_f32x4_u", "T > T"),
    ("f32x4", 0xFA, "convert_i32x4_s convert_i32x4_u", "T > T"),
)

_RELAXED_RUNS = (
    ("i8x16", 0x100, "relaxed_swizzle", "T T > T"),
    ("i32x4", 0x101, "relaxed_trunc_f32x4_s relaxed_trunc_f32x4_u", "T > T"),
    ("f32x4", 0x105, "relaxed_madd relaxed_nmadd", "T T T > T"),
    ("i32x4", 0x10B, "relaxed_laneselect", "T T T > T"),
    ("f32x4", 0x10D, "relaxed_min relaxed_max", "T T > T"),
)

#: Relaxed instructions whose results differ between hosts in a way that matters.  They are used
#: only on hosts that were tested (web/engine/features.js).
_ASKED_RUNS = (("i16x8", 0x112, "relaxed_dot_i8x16_i7x16_s", "T T > T"),)


#: Atomic accesses; unlike others they must have natural alignment, and their encoding states it.
_ATOMIC = """
memory.atomic.notify 00 mem2 : i32 i32 > i32
memory.atomic.wait32 01 mem2 : i32 i32 i64 > i32
i32.atomic.load 10 mem2 : i32 > i32
i64.atomic.load 11 mem3 : i32 > i64
i32.atomic.store 17 mem2 : i32 i32 >
i64.atomic.store 18 mem3 : i32 i64 >
i32.atomic.rmw.add 1e mem2 : i32 i32 > i32
i32.atomic.rmw.cmpxchg 48 mem2 : i32 i32 i32 > i32
i64.atomic.rmw.cmpxchg 49 mem3 : i32 i64 i64 > i64
"""


def uleb(value: int) -> bytes:
    """Unsigned LEB128: 300 -> ac 02."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _row(name: str, code: bytes, imms: list[str], signature: str, feature: str) -> Row:
    align = next((int(k[3:]) for k in imms if k.startswith("mem")), 0)
    kinds = tuple("mem" if k.startswith("mem") else k for k in imms)
    if signature.strip() == "*":
        return Row(name, code, kinds, None, None, feature, align)
    pops, _, pushes = signature.partition(">")
    return Row(name, code, kinds, tuple(pops.split()), tuple(pushes.split()), feature, align)


def _lines(table: str, prefix: bytes, feature: str) -> list[Row]:
    rows = []
    for line in table.strip().splitlines():
        head, _, signature = line.partition(" : ")
        name, code, *imms = head.split()
        raw = prefix + uleb(int(code, 16)) if prefix else bytes.fromhex(code)
        rows.append(_row(name, raw, imms, signature, feature))
    return rows


def _runs(table: tuple[tuple[str, int, str, str], ...], feature: str) -> list[Row]:
    rows = []
    for shape, first, names, signature in table:
        stack = signature.replace("T", "v128" if feature else shape)
        for code, name in enumerate(names.split(), first):
            raw = b"\xfd" + uleb(code) if feature else bytes([code])
            rows.append(_row(f"{shape}.{name}", raw, [], stack, feature))
    return rows


_ROWS = (
    *_lines(_CONTROL, b"", ""),
    *_lines(_MEMORY, b"", ""),
    *_lines(_NUMERIC, b"", ""),
    *_runs(_RUNS, ""),
    *_lines(_ATOMIC, b"\xfe", "threads"),
    *_lines(_SIMD, b"\xfd", "simd"),
    *_runs(_VECTOR_RUNS, "simd"),
    *_runs(_RELAXED_RUNS, "relaxed_simd"),
    *_runs(_ASKED_RUNS, "dot_u8"),
)

ISA: dict[str, Row] = {row.name: row for row in _ROWS}
