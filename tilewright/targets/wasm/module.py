"""Wasm modules: the sections of the binary format, in their order.

Input: `Module` (functions as encoded code, imports, exports, table elements).  Output: bytes. Types
are de-duplicated and symbols become indices here.  Code is not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tilewright.base.errors import ensure
from tilewright.targets.wasm.emit import FuncCode
from tilewright.targets.wasm.encode import FnType, encode_locals
from tilewright.targets.wasm.isa import VALTYPES, uleb

HEADER = b"\0asm\x01\0\0\0"


@dataclass(frozen=True)
class Import:
    """An import from `env`: `kind` is "memory", "table" or "global"; `least` is a minimum.

    Memory is always shared, so that one build serves every number of threads.
    """

    name: str
    kind: str
    least: int = 0


@dataclass(frozen=True)
class Module:
    """A module.

    exports:  (name, function's position)
    elements: positions of the functions that fill table 0 from entry 0 on
    named:    True to add a name section, for profilers
    """

    imports: tuple[Import, ...]
    functions: tuple[FuncCode, ...]
    exports: tuple[tuple[str, int], ...]
    elements: tuple[int, ...] = ()
    named: bool = False


def _name(text: str) -> bytes:
    raw = text.encode()
    return uleb(len(raw)) + raw


def _vector(items: Iterable[bytes]) -> bytes:
    listed = list(items)
    return uleb(len(listed)) + b"".join(listed)


def _section(number: int, body: bytes) -> bytes:
    return bytes([number]) + uleb(len(body)) + body


#: Pages of the largest wasm32 memory.
_MOST_PAGES = 65536

#: Encoders of each kind of import.
_IMPORTS: dict[str, Callable[[int], bytes]] = {
    "table": lambda least: b"\x01\x70\0" + uleb(least),
    "memory": lambda least: b"\x02\3" + uleb(least) + uleb(_MOST_PAGES),
    "global": lambda _: b"\x03" + bytes([VALTYPES["i32"]]) + b"\0",
}


def _type(t: FnType) -> bytes:
    params, results = (bytes(VALTYPES[v] for v in vs) for vs in (t.params, t.results))
    return b"\x60" + uleb(len(params)) + params + uleb(len(results)) + results


def _code(fn: FuncCode, functions: dict[str, int], types: dict[FnType, int]) -> bytes:
    body = encode_locals(fn.locals)
    for part in fn.parts:
        if isinstance(part, bytes):
            body += part
        else:
            body += uleb(types[part] if isinstance(part, FnType) else functions[part])
    return uleb(len(body)) + body


def encode_module(module: Module) -> bytes:
    """The module as bytes; equal modules give equal bytes."""
    named = [p for f in module.functions for p in f.parts if isinstance(p, FnType)]
    wanted = (*(f.type for f in module.functions), *named)
    types = {t: n for n, t in enumerate(dict.fromkeys(wanted))}
    functions = {f.name: n for n, f in enumerate(module.functions)}
    ensure(len(functions) == len(module.functions), "two functions have one name")
    imports = (_name("env") + _name(i.name) + _IMPORTS[i.kind](i.least) for i in module.imports)
    exports = (_name(name) + b"\0" + uleb(at) for name, at in module.exports)
    sections = [
        _section(1, _vector(_type(t) for t in types)),
        _section(2, _vector(imports)),
        _section(3, _vector(uleb(types[f.type]) for f in module.functions)),
        _section(7, _vector(exports)),
    ]
    if module.elements:
        # An active segment of table 0 from i32.const 0 on.
        filled = b"\0\x41\0\x0b" + _vector(uleb(n) for n in module.elements)
        sections.append(_section(9, _vector([filled])))
    sections.append(_section(10, _vector(_code(f, functions, types) for f in module.functions)))
    if module.named:
        names = _vector(uleb(n) + _name(f.name) for n, f in enumerate(module.functions))
        sections.append(_section(0, _name("name") + _section(1, names)))
    return HEADER + b"".join(sections)
