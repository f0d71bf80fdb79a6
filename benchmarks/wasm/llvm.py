"""Kernels by LLVM: the loops of our own lowering as C, compiled by clang, in place of our code.

Input: a `TileFn`, a compiled bundle.  Output: C, a Wasm module with what a bundle's module has, and
how long clang took.  The text is what a person would write for such a loop nest: vectors and their
intrinsics, restricted pointers, one function per tile.  It prints what products need, no more.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tilewright.base.dtypes import F32, DType
from tilewright.base.errors import HostError
from tilewright.kernel.expr import Call
from tilewright.kernel.loops import Scratch, TileFn
from tilewright.targets.brace_text import lines, registers
from tilewright.targets.c_family import TYPES, CDialect
from tilewright.targets.wasm.emit import FuncCode
from tilewright.targets.wasm.encode import FnType
from tilewright.targets.wasm.isa import VALTYPES
from tilewright.targets.wasm.module import Import, Module, encode_module

#: Newest first; TILEWRIGHT_CLANG names another one.
NAMES = ("clang-22", "clang-21", "clang-20", "clang-19", "clang")
FLAGS = (
    "--target=wasm32", "-O3", "-ffast-math", "-msimd128", "-mrelaxed-simd", "-nostdlib",
    "-ffreestanding", "-Wl,--no-entry", "-Wl,--strip-all", "-Wl,--allow-undefined",
)  # fmt: skip
#: Instructions stay in the order of the source, and constants in the places that offsets take them
#: from: what an engine's register allocator wants, and no default of clang's.
ORDER = ("-mllvm", "-pre-RA-sched=source", "-mllvm", "-disable-lsr")

PRELUDE = """\
#define min(a, b) ((a) < (b) ? (a) : (b))
typedef float f32x4 __attribute__((vector_size(16)));
typedef float f32x4_in_memory __attribute__((vector_size(16), aligned(4)));
"""
#: The worker's scratch area: an imported global, which C has no name for.
SCRATCH = """\
__asm__(".globaltype scratch, i32, immutable\\n.import_module scratch, env\\n");
static inline char *scratch(void) {
  char *at;
  __asm__("global.get scratch\\nlocal.set %0" : "=r"(at));
  return at;
}
"""

#: Functions of vectors that C has no operator for.
_VECTOR = {
    "fma": "__builtin_wasm_relaxed_madd_f32x4({0}, {1}, {2})",
    "max": "__builtin_wasm_pmax_f32x4({0}, {1})", "min": "__builtin_wasm_pmin_f32x4({0}, {1})",
}  # fmt: skip
_SCALAR = {"fma": "({0} * {1} + {2})", "max": "({0} < {1} ? {1} : {0})"}


@dataclass(frozen=True)
class _Floats(CDialect):
    """C with floats and, unless lanes is 1, vectors of four."""

    lanes: int

    def call(self, e: Call, args: list[str]) -> str:
        table = _VECTOR if e.lanes > 1 else _SCALAR
        return table[e.fn].format(*args) if e.fn in table else super().call(e, args)

    def load(self, buffer: int, at: str, dtype: DType, lanes: int) -> str:
        text = _element(buffer, at)
        return text if lanes == 1 else f"(*(const f32x4_in_memory *)&{text})"

    def store(self, buffer: int, at: str, value: str, dtype: DType, lanes: int) -> str:
        text = _element(buffer, at)
        return f"{text if lanes == 1 else f'*(f32x4_in_memory *)&{text}'} = {value};"

    def vector(self, dtype: DType, parts: list[str]) -> str:
        if self.lanes == 1:
            return parts[0]
        return f"(f32x4){{{', '.join(parts if len(parts) > 1 else parts * 4)}}}"

    def lane(self, vector: str, lane: int) -> str:
        return f"({vector})[{lane}]"

    def declare(self, name: str, dtype: DType, lanes: int) -> str:
        return f"{'f32x4' if lanes > 1 else TYPES[dtype.name]} {name};"


def _element(buffer: int, at: str) -> str:
    """A pointer and a constant, which clang turns into the offset of an instruction.

    before: b1[(k * 8 + x + 768)];  after: (b1 + (k * 8 + x))[768]
    """
    found = re.fullmatch(r"\((.+) \+ (\d+)\)", at)
    return f"(b{buffer} + ({found[1]}))[{found[2]}]" if found else f"b{buffer}[{at}]"


def text_of(fn: TileFn) -> str:
    """The kernel as C: a function for a tile, and k0(args, first, last) that calls it."""
    return PRELUDE + SCRATCH * bool(fn.scratch) + "\n".join(_functions(fn)) + "\n"


def _functions(fn: TileFn) -> Iterator[str]:
    stmts = (*fn.prologue, *fn.body)
    count, at = len(fn.buffers), 0
    yield f"static __attribute__((noinline)) void tile(const long *args, long {fn.tile.name}) {{"
    for n, buffer in enumerate(fn.buffers):
        kind = "float" if n == 0 else "const float"
        assert buffer.dtype == F32
        yield f"  {kind} *restrict b{n} = ({kind} *)args[{n}];"
    for n, area in enumerate(fn.scratch, count):
        yield f"  float *restrict b{n} = (float *)(scratch() + {at});"
        at += _rounded(area)
    for n, scalar in enumerate(fn.scalars, count):
        yield f"  const long {scalar.name} = args[{n}];"
    names = registers(stmts)
    dialect = _Floats(max(lanes for _, lanes in names.values()))
    for name, (dtype, lanes) in names.items():
        yield "  " + dialect.declare(name, dtype, lanes)
    yield from lines(stmts, dialect, "  ", None)
    yield "}"
    yield '__attribute__((export_name("k0"))) void k0(const long *args, long first, long last) {'
    yield "  for (long n = first; n < last; n++) tile(args, n);"
    yield "}"


def _rounded(area: Scratch) -> int:
    """Bytes of a scratch area, as `scratch_offsets` of the target counts them."""
    return (area.size * area.dtype.size + 63) // 64 * 64


@cache
def clang() -> Path:
    """Raises HostError where there is none, or no linker for it."""
    named = os.environ.get("TILEWRIGHT_CLANG")
    found = next((p for n in ((named,) if named else NAMES) if (p := shutil.which(n))), None)
    if found is None:
        raise HostError(
            "clang is not installed",
            hint="Debian: apt-get install clang-22 lld-22; or name one in TILEWRIGHT_CLANG",
        )
    return Path(found)


def version() -> str:
    said = subprocess.run([clang(), "--version"], capture_output=True, text=True, check=True)
    return said.stdout.splitlines()[0]


def compiled(text: str, folder: Path, flags: Sequence[str] = ()) -> tuple[bytes, float]:
    """What clang and its linker make of it, and their milliseconds, start of both included."""
    source, module = folder / "kernel.c", folder / "kernel.wasm"
    source.write_text(text)
    start = time.perf_counter()
    done = subprocess.run(
        [clang(), *FLAGS, *flags, source, "-o", module], capture_output=True, text=True, check=False
    )
    spent = time.perf_counter() - start
    if done.returncode:
        raise HostError("clang refuses the kernel", hint="Read what it says", said=done.stderr)
    return module.read_bytes(), spent * 1e3


# ---- a bundle's module ---------------------------------------------------------------------------

_TYPES = {code: name for name, code in VALTYPES.items()}
_TYPE, _FUNCTION, _EXPORT, _CODE = 1, 3, 7, 10
#: Sections that would be missed: a start function, elements, data.  The stack pointer, which the
#: linker always declares, would be too; code that uses it is not valid in a bundle's module.
_MISSED = {8, 9, 11}


class _Reader:
    """Numbers and names from the front of a section."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def take(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def types(self) -> tuple[str, ...]:
        return tuple(_TYPES[code] for code in self.take(self.number()))


@dataclass(frozen=True)
class _Parts:
    types: list[FnType]
    kinds: list[int]
    bodies: list[bytes]
    k0: int


def _parts(module: bytes) -> _Parts:
    reader, sections = _Reader(module), dict[int, _Reader]()
    reader.take(8)
    while reader.at < len(module):
        number = reader.byte()
        sections[number] = _Reader(reader.take(reader.number()))
    if _MISSED & set(sections):
        raise HostError(
            "clang made more than functions",
            hint="Data has no place in a bundle's module",
            sections=sorted(_MISSED & set(sections)),
        )
    types, functions = sections[_TYPE], sections[_FUNCTION]
    made = []
    for _ in range(types.number()):
        types.byte()
        made.append(FnType(types.types(), types.types()))
    kinds = [functions.number() for _ in range(functions.number())]
    exports, found = sections[_EXPORT], dict[str, int]()
    for _ in range(exports.number()):
        name = exports.take(exports.number()).decode()
        exports.byte()
        found[name] = exports.number()
    code = sections[_CODE]
    bodies = [code.take(code.number()) for _ in range(code.number())]
    return _Parts(made, kinds, bodies, found["k0"])


def in_bundle(module: bytes, scratch: bool) -> bytes:
    """The module's functions with the imports, exports and table entry that a bundle's code has."""
    parts = _parts(module)
    functions = []
    for number, (kind, body) in enumerate(zip(parts.kinds, parts.bodies, strict=True)):
        reader, locals_ = _Reader(body), list[str]()
        for _ in range(reader.number()):
            count = reader.number()
            locals_ += [_TYPES[reader.byte()]] * count
        rest = body[reader.at :]
        functions.append(FuncCode(str(number), parts.types[kind], tuple(locals_), (rest,)))
    imports = [Import("memory", "memory", 1), Import("table", "table", 1)]
    imports += [Import("scratch", "global")] * scratch
    return encode_module(Module(tuple(imports), tuple(functions), (("k0", parts.k0),), (parts.k0,)))
