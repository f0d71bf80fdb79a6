"""Encodes instructions as bytes: LEB128 numbers and immediates, by the rows of `isa.ISA`.

Input: instructions as tuples (name, immediates...).  Output: byte strings, with holes where a
symbol names a function or type; `module.py` fills them once everything is numbered. Nothing is
checked here; `validate.py` runs before.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tilewright.base.errors import CompilerBug
from tilewright.targets.wasm.isa import ISA, VALTYPES, Ins, uleb


@dataclass(frozen=True)
class FnType:
    """A function type."""

    params: tuple[str, ...]
    results: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"({' '.join(self.params)}) -> ({' '.join(self.results)})"


@dataclass(frozen=True)
class Function:
    """A function as instructions, without the closing `end` of the body.

    kinds: all distinct instructions; on average a body repeats each about four times
    order: the body, as positions in `kinds`
    """

    name: str
    type: FnType
    locals: tuple[str, ...]
    kinds: tuple[Ins, ...]
    order: tuple[int, ...]

    @classmethod
    def of(
        cls, name: str, type_: FnType, locals_: tuple[str, ...], body: Sequence[Ins]
    ) -> Function:
        """The function with this body."""
        number = {ins: n for n, ins in enumerate(dict.fromkeys(body))}
        return cls(name, type_, locals_, tuple(number), tuple([number[ins] for ins in body]))

    @property
    def body(self) -> tuple[Ins, ...]:
        return tuple([self.kinds[n] for n in self.order])


#: Encoded code: bytes, with a function's name or a type where the linker writes an index.
Parts = tuple["bytes | str | FnType", ...]


def sleb(value: int) -> bytes:
    """Signed LEB128: -1 -> 7f."""
    out = bytearray()
    while not -64 <= value < 64:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value & 0x7F)
    return bytes(out)


def f32_bits(value: float) -> int:
    """The bit pattern of the f32 nearest to `value`; beyond the range it is an infinity."""
    try:
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    except OverflowError:
        return 0x7F800000 if value > 0 else 0xFF800000


def f64_bits(value: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])


def _block(value: object) -> bytes:
    return b"\x40" if value is None else bytes([VALTYPES[str(value)]])


def _int(value: object) -> int:
    if not isinstance(value, int):
        raise CompilerBug(f"an immediate must be a number, not {value!r}")
    return value


#: Encoders of immediates by kind.  "mem" takes two values and is encoded separately below.
_WRITE: dict[str, Callable[[object], bytes]] = {
    "local": lambda v: uleb(_int(v)),
    "global": lambda v: uleb(_int(v)),
    "func": lambda v: uleb(_int(v)),
    "type": lambda v: uleb(_int(v)),
    "table": lambda v: uleb(_int(v)),
    "zero": lambda v: uleb(_int(v)),
    "label": lambda v: uleb(_int(v)),
    "lane": lambda v: bytes([_int(v)]),
    "lanes16": lambda v: bytes(v),  # type: ignore[call-overload]
    "i32": lambda v: sleb(_int(v)),
    "i64": lambda v: sleb(_int(v)),
    "f32": lambda v: _int(v).to_bytes(4, "little"),
    "f64": lambda v: _int(v).to_bytes(8, "little"),
    "v128": lambda v: _int(v).to_bytes(16, "little"),
    "block": _block,
}


@lru_cache(maxsize=1 << 14)
def encode(ins: Ins) -> bytes:
    """One instruction without symbols, as bytes."""
    row = ISA[str(ins[0])]
    out, at = row.code, 1
    for kind in row.imms:
        if kind == "mem":
            out += uleb(_int(ins[at])) + uleb(_int(ins[at + 1]))
            at += 2
        else:
            out += _WRITE[kind](ins[at])
            at += 1
    return out


def encode_body(fn: Function) -> Parts:
    """A body as bytes with holes; equal instructions are encoded once."""
    codes = [b"" if _has_symbol(ins) else encode(ins) for ins in fn.kinds]
    holes = [at for at, n in enumerate(fn.order) if not codes[n]] if b"" in codes else []
    parts: list[bytes | str | FnType] = []
    at, rest = 0, b""
    for hole in holes:
        name, symbol, *others = fn.kinds[fn.order[hole]]
        run = b"".join([codes[n] for n in fn.order[at:hole]])
        parts += (rest + run + ISA[str(name)].code, symbol)  # type: ignore[arg-type]
        at, rest = hole + 1, b"".join([uleb(_int(n)) for n in others])
    run = b"".join([codes[n] for n in fn.order[at:]])
    return (*parts, rest + run + b"\x0b")


def _has_symbol(ins: Ins) -> bool:
    return ins[0] in ("call", "call_indirect") and not isinstance(ins[1], int)


def encode_locals(types: Iterable[str]) -> bytes:
    """The local declarations of a function, run-length coded: i32 i32 v128 -> 2 runs."""
    runs: list[list[int]] = []
    for t in types:
        code = VALTYPES[t]
        if runs and runs[-1][1] == code:
            runs[-1][0] += 1
        else:
            runs.append([1, code])
    return uleb(len(runs)) + b"".join(uleb(n) + bytes([code]) for n, code in runs)
