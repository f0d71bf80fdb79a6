"""Hostile modules in place of a tile kernel: each tries to run more, reach more or take more.

Input: nothing, or a right module to build on.  Output: modules by name, most from WebAssembly's
text format.  `FORGED` must be refused before anything of them is compiled or instantiated;
`ILL_BEHAVED` are kernels by their form and must be found out by their trial.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import wasmtime

from tilewright.targets.wasm.encode import sleb
from tilewright.targets.wasm.isa import uleb

MEMORY = '(import "env" "memory" (memory 1 65536 shared))'
TABLE = '(import "env" "table" (table 1 funcref))'
SCRATCH = '(import "env" "scratch" (global $scratch i32))'
KERNEL = '(func $k (export "k0") (param $args i32) (param $first i32) (param $last i32)'
FILL = "(elem (i32.const 0) $k)"


def _number(of: bytes, at: int) -> tuple[int, int]:
    """An unsigned number of the binary format, and where it ends."""
    value = shift = 0
    while True:
        value |= (of[at] & 127) << shift
        shift += 7
        at += 1
        if of[at - 1] < 128:
            return value, at


def module(*fields: str, imports: str = MEMORY + TABLE, body: str = "", fill: str = FILL) -> bytes:
    """A kernel with this body in a module with more fields."""
    return _assembled(f"(module {imports} {KERNEL} {body}) {fill} {' '.join(fields)})")


def _assembled(text: str) -> bytes:
    """Without the names of functions and locals, which would be a reason to refuse it."""
    made = bytes(wasmtime.wat2wasm(text))
    kept = [_section(n, body) for n, body in sections(made) if n or not body.startswith(b"\4name")]
    return made[:8] + b"".join(kept)


def _import(description: str, imports: str = MEMORY + TABLE) -> bytes:
    return module(imports=f"{imports} (import {description})")


def _exporting(fields: str, kernel: str = "") -> bytes:
    """Fields instead of the kernel's own export."""
    plain = kernel or KERNEL.replace('(export "k0") ', "")
    return _assembled(f"(module {MEMORY} {TABLE} {plain}) {FILL} {fields})")


#: What JavaScript objects answer to, own or inherited.
INHERITED = (
    "constructor", "toString", "valueOf", "hasOwnProperty", "isPrototypeOf", "toLocaleString",
    "propertyIsEnumerable", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__proto__",
)  # fmt: skip

_FORGED: Mapping[str, Callable[[], bytes]] = {
    "exports a name with a mark": lambda: _exporting('(export "\\ef\\bb\\bfk0" (func $k))'),
    "has a type that is no function": lambda: module("(type (struct (field i32)))"),
    # what it imports
    "imports constructor.constructor": lambda: _import('"constructor" "constructor" (func)'),
    "imports env.constructor": lambda: _import('"env" "constructor" (func (param i32))'),
    "imports the prototype": lambda: _import('"__proto__" "constructor" (func)'),
    "imports from nowhere": lambda: _import('"" "" (func)'),
    "imports a function as memory": lambda: _import('"env" "memory" (func)', TABLE),
    "imports a function as scratch": lambda: _import('"env" "scratch" (func)'),
    "imports memory twice": lambda: _import('"env" "memory" (memory 1 65536 shared)'),
    "imports the table twice": lambda: _import('"env" "table" (table 1 funcref)'),
    "imports memory of its own kind": lambda: module(
        imports='(import "env" "memory" (memory 1))' + TABLE
    ),
    "imports a table of externs": lambda: module(
        imports=MEMORY + '(import "env" "table" (table 1 externref))', fill=""
    ),
    "imports a global that changes": lambda: _import('"env" "scratch" (global (mut i32))'),
    "imports a wide global": lambda: _import('"env" "scratch" (global i64)'),
    "imports another table": lambda: _import('"env" "other" (table 1 funcref)'),
    "imports another module's memory": lambda: _import('"page" "memory" (memory 1 65536 shared)'),
    "imports a tag": lambda: _import('"env" "tag" (tag)'),
    **{
        f"imports env.{name}": lambda name=name: _import(f'"env" "{name}" (func)')  # type: ignore[misc]
        for name in INHERITED
    },
    # what it exports
    "exports nothing": lambda: _exporting(""),
    "exports a promise": lambda: module('(func (export "then") (param i32 i32))'),
    "exports its memory": lambda: module('(export "memory" (memory 0))'),
    "exports the table": lambda: module('(export "table" (table 0))'),
    "exports a global": lambda: module('(global (export "g") (mut i32) (i32.const 0))'),
    "exports two kernels": lambda: module('(export "k1" (func $k))'),
    "exports another name": lambda: _exporting('(export "k00" (func $k))'),
    "exports a name beside": lambda: module('(export "constructor" (func $k))'),
    "exports a memory as kernel": lambda: _exporting('(export "k0" (memory 0))'),
    "exports another type": lambda: _exporting('(export "k0" (func $f)) (func $f (param i32 i32))'),
    "exports what returns": lambda: _exporting(
        '(export "k0" (func $f)) (func $f (param i32 i32 i32) (result i32) i32.const 0)'
    ),
    "exports what takes references": lambda: _exporting(
        '(export "k0" (func $f)) (func $f (param externref i32 i32))'
    ),
    # what runs or lies in memory before any check
    "starts": lambda: module("(start $s) (func $s)"),
    "starts and never ends": lambda: module("(start $s) (func $s (loop br 0))"),
    "starts and traps": lambda: module("(start $s) (func $s unreachable)"),
    "starts and writes": lambda: module(
        "(start $s) (func $s (i32.store (i32.const 0) (i32.const -1)))"
    ),
    "brings data": lambda: module('(data (i32.const 0) "x")'),
    "brings data for later": lambda: module('(data "x")'),
    "counts data": lambda: module('(data "x") (func (data.drop 0))'),
    "has a memory": lambda: module("(memory 1)", imports=TABLE),
    "has a huge memory": lambda: module("(memory 65536)", imports=TABLE),
    "has a second memory": lambda: module("(memory 1)"),
    "has a table": lambda: module("(table 1 funcref)"),
    "has a table of externs": lambda: module("(table 10000000 externref)"),
    "has a global": lambda: module("(global (mut i32) (i32.const 0))"),
    "has a tag": lambda: module("(tag)"),
    # the table
    "fills no entry": lambda: module(fill=""),
    "fills a later entry": lambda: module(fill="(elem (i32.const 1) $k)"),
    "fills two entries": lambda: module(fill="(elem (i32.const 0) $k $k)"),
    "fills it with another function": lambda: module(
        "(func $o (param i32 i32 i32))", fill="(elem (i32.const 0) $o)"
    ),
    "fills it twice": lambda: module(fill=FILL + FILL),
    "fills it where scratch says": lambda: module(
        imports=MEMORY + TABLE + SCRATCH, fill="(elem (global.get $scratch) $k)"
    ),
    "keeps functions for later": lambda: module("(elem func $k)"),
    "declares functions": lambda: module("(elem declare func $k)"),
    # size and form
    "has a thousand functions": lambda: module("(func)" * 1000),
    "is large": lambda: module(f"(func {'nop ' * (1 << 20)})"),
    "has names": lambda: module() + _section(0, b"\4name"),
    "has a section for tools": lambda: module('(@custom "sourceMappingURL" "//evil.example/map")'),
    "has types of references": lambda: module("(type (func (param externref)))"),
    "has types of structures": lambda: module("(type (struct))"),
    "has an unknown section": lambda: module() + _section(14, b""),
    "is cut off": lambda: module()[:-3],
    "is empty": lambda: b"\0asm\1\0\0\0",
    "is nothing": lambda: b"",
    "is text": lambda: b"<!doctype html>",
    "is of another version": lambda: b"\0asm\2\0\0\0" + module()[8:],
    "has more behind": lambda: module() + b"\0",
    "counts beyond its end": lambda: _section_of(module(), 3, uleb((1 << 32) - 1) + b"\0"),
    "has two code sections": lambda: module() + _section(10, b"\0"),
}


def _section(number: int, body: bytes) -> bytes:
    return bytes([number]) + uleb(len(body)) + body


def sections(of: bytes) -> list[tuple[int, bytes]]:
    """The sections of a module: number and body."""
    at, found = 8, []
    while at < len(of):
        length, start = _number(of, at + 1)
        found.append((of[at], of[start : start + length]))
        at = start + length
    return found


def _section_of(of: bytes, number: int, body: bytes) -> bytes:
    """The module with another body of this section."""
    kept = [_section(n, body if n == number else old) for n, old in sections(of)]
    return of[:8] + b"".join(kept)


#: By name, what is refused for its form.
FORGED: Mapping[str, bytes] = {name: made() for name, made in _FORGED.items()}

_ALL = (
    "(local.set $at (i32.const 0)) (loop {body} (br_if 0 (i32.lt_u "
    "(local.tee $at (i32.add (local.get $at) (i32.const 4))) "
    "(i32.mul (memory.size) (i32.const 65536)))))"
)


def _over_all(body: str) -> str:
    """Does this at every address, `$at`, of the memory."""
    return "(local $at i32) " + _ALL.format(body=body)


#: By name, what has the right form and does not compute the result.
ILL_BEHAVED: Mapping[str, bytes] = {
    "does nothing": module(),
    "never ends": module(body="(loop br 0)"),
    "calls itself for ever": module(
        body="(call $k (local.get $args) (local.get $first) (local.get $last))"
    ),
    "calls itself through the table": module(
        body="(call_indirect (param i32 i32 i32) (local.get $args) (local.get $first) "
        "(local.get $last) (i32.const 0))"
    ),
    "traps": module(body="unreachable"),
    "reads beyond the end": module(body="(drop (i32.load (i32.const -8)))"),
    "writes beyond the end": module(body="(i32.store (i32.const -8) (i32.const 1))"),
    "waits for ever": module(
        body="(drop (memory.atomic.wait32 (i32.const 0) (i32.load (i32.const 0)) (i64.const -1)))"
    ),
    "wakes all": module(body="(drop (memory.atomic.notify (i32.const 0) (i32.const -1)))"),
    "takes all memory": module(
        body="(loop (br_if 0 (i32.ge_s (memory.grow (i32.const 1)) (i32.const 0))))"
    ),
    "erases all memory": module(
        body="(memory.fill (i32.const 0) (i32.const 0) (i32.mul (memory.size) (i32.const 65536)))"
    ),
    "writes everywhere": module(body=_over_all("(i32.store (local.get $at) (local.get $at))")),
    "flips a bit everywhere": module(
        body=_over_all(
            "(i32.store (local.get $at) (i32.xor (i32.load (local.get $at)) (i32.const 1)))"
        )
    ),
    "changes its arguments": module(body="(i32.store (local.get $args) (i32.const 64))"),
    "copies an input": module(
        body="(memory.copy (i32.load (local.get $args)) (i32.load offset=4 (local.get $args)) "
        "(i32.const 64))"
    ),
    "clears the table": module(body="(table.set (i32.const 0) (ref.null func))"),
    "grows the table": module(body="(drop (table.grow (ref.null func) (i32.const 1000000)))"),
    "divides by zero": module(body="(drop (i32.div_s (i32.const 1) (i32.const 0)))"),
}


#: Where the argument block of a trial lies (web/tune/trial/trial_memory.js): so a kernel can tell
#: it.
TRIALS_BLOCK = 1024
_ELSEWHERE = b"\x20\0\x41" + sleb(TRIALS_BLOCK) + b"\x47\x04\x40"
#: memory.fill from 0 to the end of memory, with zeros
_ERASE = b"\x41\0\x41\0\x3f\0\x41" + sleb(65536) + b"\x6c\xfc\x0b\0"
#: The control block's word for the step that worker 0 runs (targets/wasm's ABI) becomes 2.
_FRAME = b"\x41" + sleb(2048) + b"\x41\2\x36\2\0"
#: What a kernel does first, by name, if it is not in a trial.
LATER: Mapping[str, bytes] = {
    "does nothing": _ELSEWHERE + b"\x0f\x0b",
    "never ends": _ELSEWHERE + b"\x03\x40\x0c\0\x0b\x0b",
    "traps": _ELSEWHERE + b"\0\x0b",
    "erases all and returns": _ELSEWHERE + _ERASE + b"\x0f\x0b",
    "erases all and traps": _ELSEWHERE + _ERASE + b"\0\x0b",
    "says it is another and traps": _ELSEWHERE + _FRAME + b"\0\x0b",
}


def turning(right: bytes, how: str) -> bytes:
    """A right module whose kernel behaves in trials alone."""
    code = dict(sections(right))[10]
    at, bodies = _number(code, 0)[1], []
    while at < len(code):
        size, start = _number(code, at)
        bodies.append(code[start : start + size])
        at = start + size
    exported = dict(sections(right))[7]
    place = exported[-1]
    assert exported[:5] == b"\1\2k0\0", "it exports k0 alone"
    body = bodies[place]
    groups, after = _number(body, 0)
    for _ in range(groups):
        after = _number(body, after)[1] + 1
    bodies[place] = body[:after] + LATER[how] + body[after:]
    joined = b"".join(uleb(len(b)) + b for b in bodies)
    return _section_of(right, 10, uleb(len(bodies)) + joined)
