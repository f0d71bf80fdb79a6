"""Writes loop nests as WGSL: one module per kernel, with one invocation or a workgroup per tile.

Input: a scalar `TileFn`.  Output: text.  A kernel's buffers are parts of one array of 32-bit words.
The step's uniform block has the number of invocations, the first word of each buffer, and run-time
scalars.

    bool, i8, u8, i16, i32, u32, f32   one word an element        i64   two words, the low one first
    f32 stored as f16                  half a word, the first in its low bits
    i8, u8 of packed weights           a quarter of a word (packed_bytes.py)

In a kernel of packed dot products, or of packed weights, a vector of 4 bytes is one word, and one
of 16 bytes four words, both in registers and in shared areas whose every access has that form.  A
vector of 8 f16 is four words.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping

from tilewright.base.abi import CHECK_BIT
from tilewright.base.dtypes import BOOL, F16, F32, I8, I64, U8, DType
from tilewright.base.errors import ensure
from tilewright.kernel.expr import Call, Dot, Nibbles, Subvector, dtype_of
from tilewright.kernel.index import Index
from tilewright.kernel.loops import LetGather, MatrixStmt, MatrixUnit, Scratch, TileFn, checks
from tilewright.kernel.spec import F16_VECTOR
from tilewright.targets.brace_text import Dialect, at, body, value_of
from tilewright.targets.gpu.gpu_target import workgroup_threads
from tilewright.targets.gpu.vector_buffers import packs_bytes, vectors
from tilewright.targets.wgsl.arrays import MEMORY, Arrays, entry
from tilewright.targets.wgsl.calls import (
    ANY,
    CUT,
    FLOAT,
    INTEGER,
    LONG,
    PACK,
    UNPACK,
    max_magnitude,
    nibble_as_f32,
)
from tilewright.targets.wgsl.packed_bytes import as_floats, element, in_bytes, on_bytes
from tilewright.targets.wgsl.prelude import head, prelude
from tilewright.targets.wgsl.subgroup_matrices import matrix_type, statement

#: Words of an element, by dtype.
WORDS = {"f32": 1, "i8": 1, "u8": 1, "i16": 1, "i32": 1, "i64": 2, "bool": 1}

#: Types of values.  Small integers are computed in 32 bits and then truncated.
TYPES = {
    "f32": "f32", "i8": "i32", "u8": "u32", "i16": "i32", "i32": "i32", "i64": "vec2<u32>",
    "bool": "bool", "f16": "f16",
}  # fmt: skip


class WgslDialect(Dialect):
    """WGSL.  Buffer n begins at word `at(n)` of its array (arrays.py); scratch areas are arrays of
    the function.  A scratch area with a vector access is declared as vectors of 4.
    """

    def __init__(self, fn: TileFn, arrays: Arrays) -> None:
        self.buffers = len(fn.buffers)
        self.scalars = len(fn.scalars) if fn.counts else 0
        #: Buffers with two numbers in a word.
        self.halves = frozenset(n for n, b in enumerate(fn.buffers) if b.as_f16)
        #: Names of numbers that all threads share.
        self.uniforms: list[str] = []
        self.bytes = frozenset(n for n, b in enumerate(fn.buffers) if in_bytes(b))
        #: Whether there are dot products of bytes; the lanes of vector accesses by buffer.
        self.dots, self.lanes = packs_bytes(fn), vectors(fn.body)
        self.packed = self.dots or bool(self.bytes & self.lanes.keys())
        #: Scratch areas that are declared as vectors; for bytes, as vectors of words.
        self.wide = frozenset(
            n
            for n, lanes in self.lanes.items()
            if n >= self.buffers
            and not (self.words(fn.scratch[n - self.buffers].dtype) and lanes == 4)
        )
        self.areas = fn.scratch
        self.shares_output = fn.shares_output
        #: True if several threads compute a tile.
        self.together = fn.thread is not None
        self.arrays = arrays

    def words(self, dtype: DType, lanes: int = 4) -> bool:
        """True if such a vector is stored as words of four bytes each."""
        return self.packed and dtype in (I8, U8) and lanes > 1

    def type(self, dtype: DType, lanes: int) -> str:
        if self.words(dtype, lanes):
            return "u32" if lanes == 4 else f"vec{lanes // 4}<u32>"
        return "vec4<u32>" if (dtype, lanes) == (F16, F16_VECTOR) else _type(dtype, lanes)

    def area(self, number: int, area: Scratch) -> str:
        """The declaration of a scratch area; {} stands for its address space."""
        each = self._each(number)
        kind = f"array<{self.type(area.dtype, each)}, {(area.part or area.size) // each}>"
        if area.part:
            kind = f"array<{kind}, {area.size // area.part}>"
        return f"var{{}} b{number}: {kind};"

    def _each(self, number: int) -> int:
        """Numbers in one element of a scratch area."""
        if number not in self.wide:
            return 4 if self.words(self.areas[number - self.buffers].dtype) else 1
        return self.lanes[number]

    def literal(self, value: float | int | bool, dtype: DType) -> str:
        if dtype == BOOL:
            return "true" if value else "false"
        if dtype == I64:
            low, high = struct.unpack("<II", struct.pack("<q", int(value)))
            return f"vec2<u32>({low}u, {high}u)"
        if dtype != F32:
            # The smallest number has no literal.
            return f"{TYPES[dtype.name]}({int(value)})"
        if value != value:
            return "f32_nan()"
        if math.isinf(value):
            return "f32_inf()" if value > 0 else "(-f32_inf())"
        rounded = struct.unpack("f", struct.pack("f", value))[0]
        return f"f32({rounded!r})"

    def call(self, e: Call, args: list[str]) -> str:
        dtype = dtype_of(e.operands[-1])
        if self.words(e.dtype, e.lanes):
            return on_bytes(e, args)
        if self.words(dtype, e.lanes) and e.dtype == F32:
            return as_floats(args[0], dtype)
        if self.words(dtype, e.lanes):  # unpack
            args = [f"unpack4x{dtype.name.upper()}({args[0]})"]
        known = nibble_as_f32(e, lambda words: value_of(words, self)) or max_magnitude(e, args)
        if known is not None:
            return known
        if e.fn == "cast":
            return self._cast(args[0], dtype, e.dtype, e.lanes)
        table = {
            **ANY,
            **(FLOAT if dtype.is_float else LONG if dtype == I64 else INTEGER),
        }
        text = table[e.fn].format(
            *args, t=_type(dtype, e.lanes), r=_type(e.dtype, e.lanes), u=_type(U8, e.lanes)
        )
        if e.fn == "eq" and dtype == BOOL:
            return text
        return CUT.get(e.dtype.name, "{0}").format(text)

    def _cast(self, text: str, source: DType, to: DType, lanes: int) -> str:
        if source == to:
            return text
        if to == BOOL:
            zero = self.literal(0, source)
            return f"any({text} != {zero})" if source == I64 else f"({text} != {zero})"
        if source == I64:
            if to == F32:
                return f"f32_of_i64({text})"
            return CUT.get(to.name, "{0}").format(f"{TYPES[to.name]}({text}.x)")
        if to == I64:
            return f"i64_of_f32({text})" if source == F32 else f"i64_of_i32(i32({text}))"
        if source == F32 and not to.is_float:
            bits, signed = to.size * 8, to.kind == "int"
            low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
            return f"{TYPES[to.name]}(clamped({text}, i32({low}), i32({high})))"
        return CUT.get(to.name, "{0}").format(f"{_type(to, lanes)}({text})")

    def load(self, buffer: int, at: str, dtype: DType, lanes: int) -> str:
        if buffer in self.halves:
            word = f"(u32({at}) >> 1u) + at({buffer}u)"
            place = self.arrays.word(buffer, word, lanes)
            if lanes == 1:
                return _cut(f"half_at({place}, u32({at}))", dtype)
            if lanes == F16_VECTOR:
                return place
            return f"{'raw' if dtype == F16 else 'halves'}_at({place}, {word})"
        if buffer in self.bytes:
            word = self.arrays.word(buffer, f"(u32({at}) >> 2u) + at({buffer}u)", 1)
            return word if lanes > 1 else element(word, at, dtype)
        place = self._place(buffer, at, dtype, lanes)
        if buffer >= self.buffers:
            return place
        if self.words(dtype, lanes):
            return f"pack4xU8({place})"
        if lanes > 1:
            return f"bitcast<{_type(dtype, lanes)}>({place})"
        if dtype == I64:
            return f"vec2<u32>({place}, {self._place(buffer, at, dtype, 1, 1)})"
        return UNPACK[TYPES[dtype.name]].format(place)

    def store(self, buffer: int, at: str, value: str, dtype: DType, lanes: int) -> str:
        if buffer in self.halves:
            ensure(lanes == F16_VECTOR, f"halves are stored by {F16_VECTOR}", lanes=lanes)
            word = f"(u32({at}) >> 1u) + at({buffer}u)"
            return f"{self.arrays.word(buffer, word, lanes)} = {value};"
        place = self._place(buffer, at, dtype, lanes)
        if buffer >= self.buffers:
            return f"{place} = {value};"
        if self.words(dtype, lanes):
            value = f"unpack4x{dtype.name.upper()}({value})"
        if lanes > 1:
            return f"{place} = bitcast<vec4<u32>>({value});"
        if dtype == I64:
            high = self._place(buffer, at, dtype, 1, 1)
            return f"{{ let long = {value}; {place} = long.x; {high} = long.y; }}"
        return f"{place} = {PACK[TYPES[dtype.name]].format(value)};"

    def _place(self, buffer: int, at: str, dtype: DType, lanes: int, part: int = 0) -> str:
        """An element of an array, or the vector that begins there."""
        if buffer >= self.buffers and self.words(dtype, lanes):
            return self._scratch(buffer, f"u32({at}) >> 2u", lanes // 4)
        if buffer >= self.buffers and self._each(buffer) == F16_VECTOR:
            ensure(lanes == F16_VECTOR, f"b{buffer} has vectors of {F16_VECTOR}", lanes=lanes)
            return self._scratch(buffer, f"u32({at})", lanes)
        ensure(lanes in (1, 4), "vectors have 4 lanes", lanes=lanes)
        if buffer >= self.buffers:
            return self._scratch(buffer, f"u32({at})", lanes)
        times = "" if WORDS[dtype.name] == 1 else f" * {WORDS[dtype.name]}u"
        word = f"u32({at}){times} + at({buffer}u)" + (f" + {part}u" if part else "")
        return self.arrays.word(buffer, word, lanes)

    def _scratch(self, number: int, at: str, lanes: int) -> str:
        """The same for a scratch area; an area with parts is an array of arrays."""
        area, name = self.areas[number - self.buffers], f"b{number}"
        if area.part:
            size = f"{area.part // (4 if self.words(area.dtype) else 1)}u"
            name, at = f"{name}[({at}) / {size}]", f"({at}) % {size}"
        if self._each(number) == F16_VECTOR:
            return f"{name}[({at}) >> 3u]"
        return entry(name, at, number in self.wide, lanes)

    def vector(self, dtype: DType, parts: list[str]) -> str:
        if self.words(dtype):
            pack = "pack4xU8" if self.dots else "word_of"
            return f"{pack}(vec4<u32>({', '.join(f'u32({part})' for part in parts)}))"
        return f"{_type(dtype, 4)}({', '.join(parts)})"

    def join(self, dtype: DType, parts: list[str]) -> str:
        if dtype == F16:
            return f"vec4<u32>({', '.join(f'bitcast<vec2<u32>>({part})' for part in parts)})"
        if dtype == F32:
            return f"vec4<u32>({', '.join(f'halves_of({part})' for part in parts)})"
        ensure(self.words(dtype), "no vectors of more than 4", dtype=dtype)
        return f"vec4<u32>({', '.join(parts)})"

    def part(self, e: Subvector, vector: str) -> str:
        ensure(self.words(dtype_of(e), e.lanes), "no word", value=e)
        return f"{vector}.{'xyzw'[e.first // 4]}"

    def shuffle_xor(self, value: str, bits: int) -> str:
        return f"subgroupShuffleXor({value}, {bits}u)"

    def subgroup_broadcast(self, value: str, thread: Index) -> str:
        if thread.is_const:
            return f"subgroupBroadcast({value}, {thread.const}u)"
        return f"subgroupShuffle({value}, u32({at(thread)}))"

    def dot(self, e: Dot, acc: str, row: str, col: str) -> str:
        kind = {dtype_of(e.row), dtype_of(e.col)}
        ensure(kind in ({I8}, {U8}), "no instruction", value=e)
        text = "i32(dot4U8Packed({}, {}))" if kind == {U8} else "dot4I8Packed({}, {})"
        if e.lanes == 1:
            return f"({acc} + {text.format(row, col)})"
        products = ", ".join(text.format(row, f"{col}.{part}") for part in "xyzw")
        return f"({acc} + vec4<i32>({products}))"

    def nibbles(self, e: Nibbles, words: str) -> str:
        kind = self.type(I8, e.lanes)
        return f"(({kind}({words}) >> {kind}({4 * e.upper})) & {kind}(0x0f0f0f0fu))"

    def matrix(self, s: MatrixStmt, unit: MatrixUnit) -> str:
        return statement(s, unit, self._shared)

    def _shared(self, buffer: int, index: Index, stride: int) -> tuple[str, int]:
        """A place in a shared area, and the stride, in the area's elements.

        Within a part the place is a constant.  For other places Dawn adds a range check to every
        load, and replaces a stride that is out of range, so drivers would know neither value.
        """
        area, each, part = self.areas[buffer - self.buffers], self._each(buffer), ""
        ensure(stride % each == 0, f"rows of b{buffer} begin between its elements")
        if area.part:
            part, index = f"[{at(index // area.part)}]", index % area.part
        if index.is_const:
            return f"&b{buffer}{part}, {index.const // each}u", stride // each
        return f"&b{buffer}{part}, u32({at(index)}) / {each}u", stride // each

    def result(self, name: str, unit: MatrixUnit) -> str:
        return f"var {name}: {matrix_type('result', unit)};"

    def lane(self, vector: str, lane: int) -> str:
        return f"{vector}.{'xyzw'[lane]}"

    def number(self, at: str, dtype: DType) -> str:
        return f"i64_of_i32({at})" if dtype == I64 else f"{TYPES[dtype.name]}({at})"

    def choose(self, condition: str, value: str, default: str) -> str:
        # Both values are evaluated; a read beyond the array returns some element of it.
        return f"select({default}, {value}, {condition})"

    def all(self, conditions: list[str]) -> str:
        # With && each condition would become a branch.
        return " & ".join(conditions) or "true"

    def scalar(self, number: int) -> str:
        return f"i32(word({1 + self.buffers + number}u))"

    def declare(self, name: str, dtype: DType, lanes: int) -> str:
        return f"var {name}: {self.type(dtype, lanes)};"

    def let(self, name: str, value: str) -> str:
        return f"let {name}: i32 = {value};"

    def loop(self, name: str, begin: str, end: str, step: int, most: int) -> str:
        if not set(re.findall(r"\w+", end)) & set(self.uniforms):
            return f"for (var {name}: i32 = {begin}; {name} < {end}; {name} += {step}) {{"
        # The constant bound lets the code that vets kernels see that the loop ends.
        head = f"for (var {name}: i32 = {begin}; {name} < {most}; {name} += {step}) {{"
        return f"{head} if ({name} >= {end}) {{ break; }}"

    def uniform(self, name: str, value: str, most: int) -> str:
        self.uniforms.append(name)
        write = f"if (local == 0u) {{ shared_{name} = clamp({value}, i32(0), i32({most})); }}"
        return f"{write} let {name} = workgroupUniformLoad(&shared_{name});"

    def barrier(self, subgroup_only: bool) -> str:
        return (
            "storageBarrier(); workgroupBarrier();" if self.shares_output else "workgroupBarrier();"
        )

    def told(self, s: LetGather, dtype: DType) -> str:
        """Reports an index in the first words of memory, unless an earlier one is reported
        already."""
        name, wide = s.var.name, MEMORY in self.arrays.wide
        if s.check is None:
            return f"{MEMORY}[0] = {'vec4<u32>(1u)' if wide else '1u'};"
        place = f"word({1 + self.buffers + self.scalars}u)"
        place += f" + {1 + s.step + (s.check << CHECK_BIT)}u"
        low, high = f"u32({name})", f"u32({name} >> 31u)"
        if dtype == I64:
            low, high = f"{name}_long.x", f"{name}_long.y"
        if wide:
            all_four = f"vec4<u32>({place}, 0u, {low}, {high})"
            return f"if ({MEMORY}[0].x == 0u) {{ {MEMORY}[0] = {all_four}; }}"
        words = " ".join(f"{MEMORY}[{n}] = {x};" for n, x in ((0, place), (2, low), (3, high)))
        return f"if ({MEMORY}[0] == 0u) {{ {words} }}"

    def gather(self, s: LetGather, value: str, dtype: DType) -> str:
        name, extent = s.var.name, s.var.extent
        number, wrong = f"i32({value})", ""
        if dtype == I64:
            number, wrong = f"i32({name}_long.x)", f"{name}_long.y != 0u || "
        head = f"let {name}_long = {value}; " if dtype == I64 else ""
        tell = self.told(s, dtype)
        if self.together:  # go on with index 0, so that all threads reach the next barrier
            ends, kind = f"{name} = 0;", "var"
        else:
            ends, kind = "return;", "let"
        trap = f"if ({wrong}{name} < 0 || {name} >= {extent}) {{ {tell} {ends} }}"
        return f"{head}{kind} {name} = {number}; {trap}"


def _type(dtype: DType, lanes: int) -> str:
    return TYPES[dtype.name] if lanes == 1 else f"vec{lanes}<{TYPES[dtype.name]}>"


def _cut(text: str, dtype: DType) -> str:
    return f"f16({text})" if dtype == F16 else text


def module(
    fn: TileFn, needs: frozenset[str] = frozenset(), apart: Mapping[int, str] | None = None
) -> str:
    """The text of a kernel.  It sets the first word of memory if an index is out of range
    (base/abi.py).

    needs: features that it requires;  apart: array names of buffers outside the model's own array,
           by buffer number (arrays.py)
    """
    arrays, group = Arrays(fn, apart or {}), workgroup_threads(fn)
    dialect = WgslDialect(fn, arrays)
    blocks = -(-(1 + len(fn.buffers) + dialect.scalars + checks(fn)) // 4)
    areas = [dialect.area(n, area) for n, area in enumerate(fn.scratch, len(fn.buffers))]
    shared = [area.format("<workgroup>") for area in areas] if fn.thread else []
    own, *others = arrays.declared()
    lines = [
        *shared,
        f"struct Step {{ words: array<vec4<u32>, {blocks}> }}",
        own,
        "@group(0) @binding(1) var<uniform> step: Step;",
        *others,
        "fn word(n: u32) -> u32 { return step.words[n >> 2u][n & 3u]; }",
        "fn at(buffer: u32) -> u32 { return word(buffer + 1u); }",
        f"@compute @workgroup_size({group})",
        "fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) "
        "groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {",
        "  let workgroup = group.y * groups.x + group.x;",
        # The whole workgroup returns or none of it: otherwise some threads would wait at a barrier.
        f"  if (workgroup * {group}u >= word(0u)) {{ return; }}",
    ]
    if fn.thread:
        lines += [
            f"  let {fn.tile.name} = i32(workgroup);",
            f"  let {fn.thread.name} = i32(local);",
        ]
    else:
        lines += [
            f"  let number = workgroup * {group}u + local;",
            "  if (number >= word(0u)) { return; }",
            f"  let {fn.tile.name} = i32(number);",
            *("  " + area.format("") for area in areas),
        ]
    lines += body(fn, dialect)
    shared = [f"var<workgroup> shared_{name}: i32;" for name in dialect.uniforms]
    text = "\n".join([*shared, *lines])
    return head(needs) + "\n".join([prelude(text), *arrays.functions(text), text, "}", ""])
