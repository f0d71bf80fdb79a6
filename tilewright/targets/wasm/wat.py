"""Functions as WAT-like text, for `tilewright show` and golden files.

Input: a `Function`.  Output: one instruction per line, indented by block depth, with readable
floats.  A WAT assembler cannot read it: locals have only numbers, and symbols are not resolved.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from tilewright.targets.wasm.encode import Function
from tilewright.targets.wasm.isa import ISA, Ins


def _float(code: str, bits: str) -> Callable[[object], str]:
    return lambda v: repr(struct.unpack(code, struct.pack(bits, v))[0])


#: Text of immediates by kind; kinds that are not listed are printed unchanged.
_SHOW: dict[str, Callable[[object], str]] = {
    "f32": _float("<f", "<I"),
    "f64": _float("<d", "<Q"),
    "v128": lambda v: f"0x{v:032x}",
    "lanes16": lambda v: " ".join(map(str, v)),  # type: ignore[call-overload]
    "block": lambda v: "" if v is None else f"(result {v})",
    "func": lambda v: f"${v}" if isinstance(v, str) else str(v),
    "zero": lambda _: "",
}


def show(ins: Ins) -> str:
    """One instruction: `v128.load32_splat offset=16`."""
    row = ISA[str(ins[0])]
    words, at = [row.name], 1
    for kind in row.imms:
        if kind == "mem":
            align, offset = ins[at], ins[at + 1]
            words += [f"offset={offset}"] * bool(offset)
            words += [f"align={1 << int(align)}"] * (align != row.align)  # type: ignore[call-overload]
            at += 2
        else:
            words.append(_SHOW.get(kind, str)(ins[at]))
            at += 1
    return " ".join(w for w in words if w)


def render(fn: Function) -> str:
    """A whole function."""
    lines = [f"func ${fn.name} {fn.type}"]
    if fn.locals:
        lines.append(f"  locals {_counted(fn.locals)}")
    depth = 1
    for ins in fn.body:
        if ins[0] in ("end", "else"):
            depth -= 1
        lines.append("  " * depth + show(ins))
        if ins[0] in ("block", "loop", "if", "else"):
            depth += 1
    return "\n".join(lines)


def _counted(types: tuple[str, ...]) -> str:
    """i32 i32 v128 -> i32*2 v128*1."""
    return " ".join(f"{t}*{types.count(t)}" for t in dict.fromkeys(types))
