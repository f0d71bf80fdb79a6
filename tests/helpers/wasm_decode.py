"""Bytes to instructions: the inverse of targets/wasm/encode.py, from the same table.

Input: the code of one function body.  Output: instructions as tuples.  The compiler never reads
Wasm back.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.base.errors import CompilerBug
from tilewright.targets.wasm.isa import ISA, VALTYPES, Ins, Row

_BY_CODE: dict[bytes, Row] = {row.code: row for row in ISA.values()}
_TYPE_NAMES = {code: name for name, code in VALTYPES.items()}


class Reader:
    """A cursor over bytes."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def take(self, n: int) -> bytes:
        self.at += n
        return self.data[self.at - n : self.at]

    def uleb(self) -> int:
        value = shift = 0
        while True:
            b = self.byte()
            value |= (b & 0x7F) << shift
            shift += 7
            if b < 0x80:
                return value

    def sleb(self) -> int:
        value = shift = 0
        while True:
            b = self.byte()
            value |= (b & 0x7F) << shift
            shift += 7
            if b < 0x80:
                return value - (1 << shift) if b & 0x40 else value


def _read_block(r: Reader) -> str | None:
    code = r.byte()
    return None if code == 0x40 else _TYPE_NAMES[code]


def _bits(n: int) -> Callable[[Reader], int]:
    return lambda r: int.from_bytes(r.take(n), "little")


#: How each kind of immediate is read; the counterpart of the encoder's table.
_READ: dict[str, Callable[[Reader], object]] = {
    **dict.fromkeys(("local", "global", "func", "type", "table", "zero", "label"), Reader.uleb),
    "lane": Reader.byte,
    "lanes16": lambda r: r.take(16),
    "i32": Reader.sleb,
    "i64": Reader.sleb,
    "f32": _bits(4),
    "f64": _bits(8),
    "v128": _bits(16),
    "block": _read_block,
}


def _opcode(r: Reader) -> Row:
    start = r.at
    if r.byte() in (0xFC, 0xFD, 0xFE):
        r.uleb()
    row = _BY_CODE.get(r.data[start : r.at])
    if row is None:
        raise CompilerBug(f"unknown opcode {r.data[start : r.at].hex()}", offset=start)
    return row


def decode_one(r: Reader) -> Ins:
    """The instruction at the cursor."""
    row = _opcode(r)
    values: list[object] = [row.name]
    for kind in row.imms:
        if kind == "mem":
            values += (r.uleb(), r.uleb())
        else:
            values.append(_READ[kind](r))
    return tuple(values)


def decode_body(data: bytes) -> tuple[Ins, ...]:
    """All instructions of a body, without its closing `end`."""
    r = Reader(data)
    body: list[Ins] = []
    while r.at < len(data):
        body.append(decode_one(r))
    if not body or body[-1] != ("end",):
        raise CompilerBug("a function body must close with end")
    return tuple(body[:-1])
