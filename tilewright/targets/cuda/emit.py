"""Writes loop nests as CUDA C++: one kernel each, with a block per tile or a thread per tile.

Input: a `TileFn`.  Output: text that follows prelude.py:

    KERNEL void k(float *b0, const float *b1, …, int count, int n0, …, unsigned *trap)

count: the number of tiles, or of threads where each thread computes its own tile
n0, …: run-time scalars, if there are any; then the step's number if the kernel checks indices
trap:  the words that report an index out of range (base/abi.py); the index is at the third word

Buffers have the types of their elements; f32 values that are stored as f16 have 16 bits each.  In a
kernel of packed dot products, a vector of 4 bytes is one word, and one of 16 bytes four words.
"""

from __future__ import annotations

from tilewright.base.abi import CHECK_BIT
from tilewright.base.dtypes import F16, F32, I8, U8, DType
from tilewright.base.errors import CompilerBug, ensure
from tilewright.kernel.expr import Call, Const, Dot, Expr, Nibbles, Subvector, dtype_of
from tilewright.kernel.index import Index
from tilewright.kernel.loops import (
    AsyncCopy,
    CommitCopies,
    LetGather,
    MatrixStmt,
    MatrixUnit,
    Scratch,
    TileFn,
    WaitForCopies,
    checks,
)
from tilewright.kernel.spec import F16_VECTOR
from tilewright.targets.brace_text import at, body, condition
from tilewright.targets.c_family import FLOAT, TYPES, CDialect
from tilewright.targets.cuda import mma, wgmma
from tilewright.targets.gpu.gpu_target import workgroup_threads
from tilewright.targets.gpu.vector_buffers import packs_bytes

#: Tensors with fewer elements have 32-bit indices.
MOST_ELEMENTS = 2**31
#: Bytes of shared memory that a text may declare; the elastic form needs the other 256.
MOST_STATIC = 48 * 1024 - 256
#: Functions of floats whose CUDA text differs from C's.
FLOATS = {**FLOAT, "bits": "__float_as_int({0})"}

#: A float `x` as the nearest f16, at most the largest one: what a compact state holds.
_AS_HALF = "(uint16_t)half_of(x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x)"


class CudaDialect(CDialect):
    """CUDA C++: buffers are typed pointers `b0`, `b1`, …; scratch is shared or a thread's own
    memory."""

    def __init__(self, fn: TileFn) -> None:
        self.buffers, self.areas = fn.buffers, fn.scratch
        self.asynchronous = fn.unit is not None and fn.unit.asynchronous
        self.packed = packs_bytes(fn)
        #: True if each thread computes its own tile.
        self.alone = not fn.thread
        self.index = "int" if max(b.size for b in fn.buffers) < MOST_ELEMENTS else "int64_t"

    def words(self, dtype: DType, lanes: int) -> bool:
        """True if such a vector is stored as words of four bytes each."""
        return self.packed and dtype in (I8, U8) and lanes > 1

    def type(self, dtype: DType, lanes: int) -> str:
        kind = cpp_type(dtype)
        if self.words(dtype, lanes):
            kind, lanes = "unsigned", lanes // 4
        elif dtype == F16 and lanes == F16_VECTOR:
            kind, lanes = "unsigned", 4
        if lanes not in (1, 4):
            raise CompilerBug(f"vectors have 4 elements or words, not {lanes}")
        return kind if lanes == 1 else f"vec4<{kind}>"

    floats = FLOATS

    def parameter(self, number: int) -> str:
        buffer = self.buffers[number]
        kind = "uint16_t" if buffer.as_f16 else TYPES[buffer.dtype.name]
        return f"{'' if number == 0 else 'const '}{kind} *b{number}"

    def area(self, number: int, area: Scratch) -> str:
        return f"__align__({_alignment(area)}) {cpp_type(area.dtype)} b{number}[{area.size}];"

    def call(self, e: Call, args: list[str]) -> str:
        if self.words(e.dtype, e.lanes) and self.words(dtype_of(e.operands[0]), e.lanes):
            return _on_bytes(e, args)
        if e.fn == "cast" and e.dtype == F16:
            return f"{'as_halves' if e.lanes > 1 else '(uint16_t)half_of'}({args[0]})"
        if e.lanes == 1:
            return super().call(e, args)
        names = "abc"[: len(args)]
        kinds = (TYPES[dtype_of(x).name] for x in e.operands)
        given = ", ".join(f"{kind} {name}" for kind, name in zip(kinds, names, strict=True))
        args = [self._apart(x, arg) for x, arg in zip(e.operands, args, strict=True)]
        text = f"each([]({given}) {{ return {super().call(e, list(names))}; }}, {', '.join(args)})"
        return f"word_of({text})" if self.words(e.dtype, e.lanes) else text

    def _apart(self, e: Expr, text: str) -> str:
        """Text of a vector; a vector of packed bytes is unpacked."""
        dtype = dtype_of(e)
        return f"bytes_of<{TYPES[dtype.name]}>({text})" if self.words(dtype, 4) else text

    def literal(self, value: float | int | bool, dtype: DType) -> str:
        if dtype == F16:
            ensure(value == 0, "no text for a half", value=value)
            return "(uint16_t)0"
        return super().literal(value, dtype)

    def load(self, buffer: int, at: str, dtype: DType, lanes: int) -> str:
        if buffer < len(self.buffers) and self.buffers[buffer].as_f16 and dtype != F16:
            return f"{'half' if lanes == 1 else 'halves'}_at(b{buffer} + {at})"
        if lanes == 1:
            return f"b{buffer}[{at}]"
        return f"*(const {self.type(dtype, lanes)} *)(b{buffer} + {at})"

    def store(self, buffer: int, at: str, value: str, dtype: DType, lanes: int) -> str:
        halves = buffer < len(self.buffers) and self.buffers[buffer].as_f16
        if halves and dtype == F32 and lanes == 1:
            return f"{{ const float x = {value}; b{buffer}[{at}] = {_AS_HALF}; }}"
        if halves and dtype == F32 and lanes < F16_VECTOR:
            made = f"each([](float x) {{ return {_AS_HALF}; }}, {value})"
            return f"*(vec4<uint16_t> *)(b{buffer} + {at}) = {made};"
        if lanes == 1:
            return f"b{buffer}[{at}] = {value};"
        kind = "vec4<unsigned>" if halves else self.type(dtype, lanes)
        return f"*({kind} *)(b{buffer} + {at}) = {value};"

    def vector(self, dtype: DType, parts: list[str]) -> str:
        if self.words(dtype, 4):
            each = parts * 4 if len(parts) == 1 else parts
            placed = (f"(unsigned)(uint8_t){part} << {8 * n}" for n, part in enumerate(each))
            return f"({' | '.join(placed)})"
        if len(parts) == 1:
            return f"splat<{cpp_type(dtype)}>({parts[0]})"
        return f"vec4<{cpp_type(dtype)}>{{{', '.join(parts)}}}"

    def lane(self, vector: str, lane: int) -> str:
        return f"{vector}.{'xyzw'[lane]}"

    def join(self, dtype: DType, parts: list[str]) -> str:
        if dtype in (F16, F32):
            return f"halves_of({', '.join(parts)})"
        ensure(self.words(dtype, 4), "no vectors of more than 4", dtype=dtype)
        return f"vec4<unsigned>{{{', '.join(parts)}}}"

    def part(self, e: Subvector, vector: str) -> str:
        ensure(self.words(dtype_of(e), e.lanes), "no word", value=e)
        return f"{vector}.{'xyzw'[e.first // 4]}"

    def shuffle_xor(self, value: str, bits: int) -> str:
        return f"__shfl_xor_sync(0xffffffffu, {value}, {bits})"

    def subgroup_broadcast(self, value: str, thread: Index) -> str:
        return f"__shfl_sync(0xffffffffu, {value}, {at(thread)})"

    def dot(self, e: Dot, acc: str, row: str, col: str) -> str:
        kinds = {dtype_of(e.row), dtype_of(e.col)}
        ensure(kinds in ({I8}, {U8}), "no instruction", value=e)
        kind = "unsigned" if kinds == {U8} else "int"
        one = f"(int)__dp4a(({kind}){{0}}, ({kind}){{1}}, ({kind}){{2}})"
        if e.lanes == 1:
            return one.format(row, col, acc)
        text = one.format(row, "b", "a")
        return f"each([&](int a, unsigned b) {{ return {text}; }}, {acc}, {col})"

    def nibbles(self, e: Nibbles, words: str) -> str:
        text = f"(((unsigned){{}} >> {4 * e.upper}) & 0x0f0f0f0fu)"
        if e.lanes == 4:
            return text.format(words)
        return f"each([](int a) {{ return {text.format('a')}; }}, {words})"

    def matrix(self, s: MatrixStmt, unit: MatrixUnit) -> str:
        return wgmma.statement(s, unit) if unit.asynchronous else mma.statement(s, unit)

    def result(self, name: str, unit: MatrixUnit) -> str:
        return f"{mma.result_type(unit)} {name};"

    def copy(self, s: AsyncCopy | CommitCopies | WaitForCopies) -> str:
        match s:
            case AsyncCopy(buffer, index, source, there, _, bounds):
                where = condition(bounds, self) if bounds else "true"
                to = f"b{buffer} + {at(index)}"
                if self.areas[buffer - len(self.buffers)].swizzled:
                    to = f"(char *)b{buffer} + swizzled(({at(index)}) * {F16.size})"
                return f"copy_ahead({to}, b{source} + {at(there)}, {where});"
            case CommitCopies():
                return "end_copies();"
            case WaitForCopies(behind):
                return f"await_copies<{behind}>();" + (
                    " show_copies();" if self.asynchronous else ""
                )

    def scalar(self, number: int) -> str:
        return f"n{number}"

    def declare(self, name: str, dtype: DType, lanes: int) -> str:
        return f"{self.type(dtype, lanes)} {name};"

    def let(self, name: str, value: str) -> str:
        return f"const {self.index} {name} = {value};"

    def loop(self, name: str, begin: str, end: str, step: int, most: int) -> str:
        return f"for ({self.index} {name} = {begin}; {name} < {end}; {name} += {step}) {{"

    def uniform(self, name: str, value: str, most: int) -> str:
        share = f"__shared__ int shared_{name}; if (threadIdx.x == 0) shared_{name} = "
        bound = f"min(max((int){value}, 0), {most}); __syncthreads();"
        return f"{share}{bound} const int {name} = shared_{name};"

    def barrier(self, subgroup_only: bool) -> str:
        return "__syncwarp();" if subgroup_only and not self.asynchronous else "__syncthreads();"

    def gather(self, s: LetGather, value: str, dtype: DType) -> str:
        """Checks a gathered index and reports one that is out of range.

        Where each thread computes its own tile, the thread returns and stores nothing, so states
        keep their contents.  In a group it goes on with row 0, since all threads must reach the
        barriers.
        """
        name, extent = s.var.name, s.var.extent
        head = f"const int64_t {name}_read = {value}; {self.index} {name} = {name}_read;"
        wrong = f"if ({name}_read < 0 || {name}_read >= {extent})"
        tell = "*trap = 1"
        if s.check is not None:  # only the first index that is out of range is reported
            told = f"place + {1 + s.step + (s.check << CHECK_BIT)}"
            tell = f"if (!atomicCAS(trap, 0u, {told})) *(int64_t *)(trap + 2) = {name}_read"
        if self.alone:
            return f"{head} {wrong} {{ {tell}; return; }}"
        if s.check is None:
            return f"{head} {wrong} {tell}, {name} = 0;"
        return f"{head} {wrong} {{ {tell}; {name} = 0; }}"


def _on_bytes(e: Call, args: list[str]) -> str:
    """Text of an operation on packed bytes: subtract 128, or reinterpret the sign."""
    match e:
        case Call("sub", (_, Const(128, _, _))):
            return f"({args[0]} ^ 0x80808080u)"
        case Call("cast", (x,)) if dtype_of(x) in (I8, U8):
            return args[0]
    raise CompilerBug(f"no text for packed bytes: {e}")


def cpp_type(dtype: DType) -> str:
    """The C++ type of an element; f16 and bf16 are stored as their bits."""
    return "uint16_t" if dtype == F16 else TYPES[dtype.name]


def kernel(fn: TileFn) -> str:
    """Writes the plain form of a kernel; the function is named `k`."""
    d = CudaDialect(fn)
    bounds = f"__launch_bounds__({workgroup_threads(fn)})"
    head = f"KERNEL void {bounds} k({', '.join(parameters(fn, d))}) {{"
    inside = list(tile_of(fn, d, "blockIdx.x"))
    if not fn.thread:
        inside.append(f"if ({fn.tile.name} >= count) return;")
    return "\n".join([head, *areas_of(fn, d), *inside, *body(fn, d), "}", ""])


def parameters(fn: TileFn, d: CudaDialect) -> tuple[str, ...]:
    scalars = [f"int n{n}" for n in range(len(fn.scalars))] if fn.counts else []
    scalars += ["unsigned place"] if checks(fn) else []
    return *map(d.parameter, range(len(fn.buffers))), "int count", *scalars, "unsigned *trap"


def areas_of(fn: TileFn, d: CudaDialect) -> list[str]:
    """Declares scratch memory: shared by the threads of a tile, or a thread's own."""
    kind, first = "__shared__ " if fn.thread else "", len(fn.buffers)
    if not dynamic_of(fn):
        return [kind + d.area(n, area) for n, area in enumerate(fn.scratch, first)]
    lines = [f"extern __shared__ __align__({max(map(_alignment, fn.scratch))}) char shared[];"]
    for n, (area, begin) in enumerate(zip(fn.scratch, _begins(fn)[0], strict=True), first):
        name = cpp_type(area.dtype)
        lines.append(f"{name} *const b{n} = ({name} *)(shared + {begin});")
    return lines


def dynamic_of(fn: TileFn) -> int:
    """Bytes of shared memory that a launch must request; 0 if the text declares all of it."""
    size = _begins(fn)[1]
    asked = size > MOST_STATIC or any(area.may_overlap for area in fn.scratch)
    return size if fn.thread and asked else 0


def _begins(fn: TileFn) -> tuple[list[int], int]:
    """The byte offset of each scratch area, and the total size."""
    begins, end = [], 0
    for area in fn.scratch:
        begins.append(0 if area.may_overlap else -(-end // _alignment(area)) * _alignment(area))
        end = max(end, begins[-1] + area.size * area.dtype.size)
    return begins, end


def _alignment(area: Scratch) -> int:
    return wgmma.EIGHT_LINES_BYTES if area.swizzled else 16


def tile_of(fn: TileFn, d: CudaDialect, block: str) -> list[str]:
    """Declares the tile and the thread of the block with this number."""
    if fn.thread:
        return [d.let(fn.tile.name, block), d.let(fn.thread.name, "threadIdx.x")]
    return [d.let(fn.tile.name, f"{block} * blockDim.x + threadIdx.x")]
