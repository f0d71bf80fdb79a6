"""The instruction table and what hangs on it: encoder, decoder, checker, printer, modules.

wasmtime's assembler is the witness for every opcode, its validator for the checker.
"""

from __future__ import annotations

from random import Random

import pytest
import wasmtime
from helpers.wasm_decode import Reader, decode_body, decode_one
from hypothesis import given, settings
from hypothesis import strategies as st
from wasm_machine import engine

from tilewright.base.errors import CompilerBug
from tilewright.targets.wasm.emit import FuncCode
from tilewright.targets.wasm.encode import (
    FnType,
    Function,
    encode,
    encode_body,
    encode_locals,
    sleb,
)
from tilewright.targets.wasm.isa import ISA, VALTYPES, Ins, Row, uleb
from tilewright.targets.wasm.module import Import, Module, encode_module
from tilewright.targets.wasm.validate import Names, check
from tilewright.targets.wasm.validate import lanes_of as lane_limit
from tilewright.targets.wasm.wat import render, show

PLAIN = [row for row in ISA.values() if row.pops is not None]
TYPES = list(VALTYPES)


def immediates(row: Row, rng: Random) -> tuple[object, ...]:
    """Random immediates of a row, as the tuple form has them."""
    values: list[object] = []
    for kind in row.imms:
        if kind == "mem":
            align = row.align if row.atomic else rng.randint(0, row.align)
            values += (align, rng.choice((0, 1, 127, 128, 70000)))
        elif kind == "lane":
            values.append(rng.randrange(lane_limit(row.name)))
        elif kind == "lanes16":
            values.append(bytes(rng.randrange(32) for _ in range(16)))
        elif kind in ("i32", "i64"):
            bits = int(kind[1:])
            values.append(rng.randrange(-(1 << bits - 1), 1 << bits - 1) >> rng.randrange(bits))
        elif kind in ("f32", "f64", "v128"):
            values.append(rng.getrandbits(int(kind[1:])))
        else:
            values.append(0)
    return tuple(values)


def wat(ins: Ins) -> str:
    """The instruction for wasmtime's assembler."""
    row = ISA[str(ins[0])]
    if row.imms[:1] == ("mem",):
        lane = "" if len(ins) < 4 else f" {ins[3]}"
        return f"{row.name} offset={ins[2]} align={1 << int(str(ins[1]))}{lane}"
    if row.imms[:1] == ("lanes16",):
        assert isinstance(ins[1], bytes)
        return f"{row.name} {' '.join(map(str, ins[1]))}"
    if row.imms[:1] in (("f32",), ("f64",)):
        bits = int(str(ins[1]))
        kind = "i" + row.imms[0][1:]
        return f"{kind}.const {bits} {row.imms[0]}.reinterpret_{kind}"
    if row.imms[:1] == ("v128",):
        raw = int(str(ins[1])).to_bytes(16, "little")
        return f"v128.const i8x16 {' '.join(map(str, raw))}"
    if row.imms == ("zero",):
        return row.name
    return " ".join(map(str, ins))


@pytest.mark.parametrize("row", PLAIN, ids=lambda r: r.name)
def test_the_assembler_agrees_with_the_table(row: Row) -> None:
    ins: Ins = (row.name, *immediates(row, Random(row.name)))
    assert row.pops is not None
    assert row.pushes is not None
    gets = " ".join(f"local.get {n}" for n in range(len(row.pops)))
    result = f"(result {row.pushes[0]})" if row.pushes else ""
    head = f"(param {' '.join(row.pops)}) {result}"
    module = wasmtime.wat2wasm(f"(module (memory 1) (func {head} {gets} {wat(ins)}))")
    if row.imms[:1] in (("f32",), ("f64",)):
        assert encode(ins)[:1] == row.code
    else:
        assert encode(ins) + b"\x0b" in bytes(module)
    body = tuple(("local.get", n) for n in range(len(row.pops)))
    fn = Function.of("f", FnType(row.pops, row.pushes), (), (*body, ins))
    check(fn, Names())
    assert decode_one(Reader(encode(ins))) == ins
    assert show(ins).startswith(row.name)


def test_every_row_is_checked_encoded_and_decoded() -> None:
    codes = [row.code for row in ISA.values()]
    assert len(set(codes)) == len(codes)
    for row in ISA.values():
        ins: Ins = (row.name, *immediates(row, Random(0)))
        if "block" in row.imms:
            ins = (row.name, None)
        assert decode_one(Reader(encode(ins))) == ins
        assert show(ins)


@given(st.integers(0, 1 << 64))
def test_uleb_reads_back(value: int) -> None:
    assert Reader(uleb(value)).uleb() == value


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_sleb_reads_back_and_is_shortest(value: int) -> None:
    data = sleb(value)
    assert Reader(data).sleb() == value
    assert len(data) == max(1, -(-((value if value >= 0 else ~value).bit_length() + 1) // 7))


def test_locals_are_run_length_coded() -> None:
    assert encode_locals(["i32", "i32", "v128"]) == bytes([2, 2, 0x7F, 1, 0x7B])


class Maker:
    """Random valid functions, built instruction by instruction from the table."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.params = tuple(self.rng.choice(TYPES) for _ in range(self.rng.randint(0, 4)))
        self.extra = tuple(self.rng.choice(TYPES) for _ in range(self.rng.randint(0, 5)))
        self.body: list[Ins] = []

    def push(self, type_: str, nest: int = 0) -> None:
        """One value of a type, somehow; a tree of at most four levels."""
        have = [n for n, t in enumerate((*self.params, *self.extra)) if t == type_]
        if have and self.rng.random() < 0.5:
            self.body.append(("local.get", self.rng.choice(have)))
            return
        makers = [r for r in PLAIN if r.pushes == (type_,) and (nest < 4 or not r.pops)]
        self.apply(self.rng.choice(makers), nest)

    def apply(self, row: Row, nest: int = 0) -> None:
        for t in row.pops or ():
            self.push(t, nest + 1)
        self.body.append((row.name, *immediates(row, self.rng)))

    def statement(self, depth: int) -> None:
        kind = self.rng.choice(("op", "op", "set", "store", "block", "loop", "if", "br", "value"))
        if kind == "op":
            row = self.rng.choice(PLAIN)
            self.apply(row)
            self.body += [("drop",)] * len(row.pushes or ())
        elif kind == "set" and self.extra:
            number = self.rng.randrange(len(self.extra))
            self.push(self.extra[number])
            self.body.append(("local.set", len(self.params) + number))
        elif kind == "store":
            self.apply(self.rng.choice([r for r in PLAIN if not r.pushes and r.pops]))
        elif kind in ("block", "loop") and depth < 3:
            self.block((kind, None), depth)
        elif kind == "if" and depth < 3:
            self.push("i32")
            self.block(("if", None), depth, self.rng.random() < 0.5)
        elif kind == "value" and depth < 3:
            type_ = self.rng.choice(TYPES)
            self.body.append(("block", type_))
            self.push(type_)
            self.body += [("end",), ("drop",)]
        elif kind == "br":
            self.push("i32")
            self.body.append(("br_if", self.rng.randint(0, depth)))

    def block(self, opening: Ins, depth: int, otherwise: bool = False) -> None:
        self.body.append(opening)
        self.statement(depth + 1)
        if otherwise:
            self.body.append(("else",))
            self.statement(depth + 1)
        self.body.append(("end",))

    def function(self) -> Function:
        for _ in range(self.rng.randint(1, 6)):
            self.statement(0)
        return Function.of("f", FnType(self.params), self.extra, tuple(self.body))


def module_of(fn: Function) -> bytes:
    code = FuncCode(fn.name, fn.type, fn.locals, encode_body(fn))
    memory = Import("memory", "memory", 1)
    return encode_module(Module((memory,), (code,), (("f", 0),), named=True))


def is_valid(module: bytes) -> bool:
    try:
        wasmtime.Module.validate(engine(), module)
    except wasmtime.WasmtimeError:
        return False
    return True


@settings(max_examples=150)
@given(st.integers(0, 1 << 32))
def test_random_functions_survive_encoding_and_decoding(seed: int) -> None:
    fn = Maker(seed).function()
    check(fn, Names())
    (data,) = encode_body(fn)
    assert isinstance(data, bytes)
    again = decode_body(data)
    assert again == fn.body
    assert encode_body(Function.of(fn.name, fn.type, fn.locals, again)) == (data,)
    assert render(fn).count("\n") == len(fn.body) + bool(fn.locals)
    assert is_valid(module_of(fn))


@settings(max_examples=300)
@given(st.integers(0, 1 << 32))
def test_the_checker_and_wasmtime_agree_on_broken_functions(seed: int) -> None:
    fn = Maker(seed).function()
    rng = Random(seed + 1)
    body = list(fn.body)
    at = rng.randrange(len(body) + 1)
    change = rng.choice(("delete", "repeat", "insert", "swap"))
    if change == "insert" or not body:
        row = rng.choice([*PLAIN, ISA["drop"], ISA["select"], ISA["unreachable"], ISA["return"]])
        body.insert(at, (row.name, *immediates(row, rng)))
    elif change == "delete":
        del body[at - 1]
    elif change == "repeat":
        body.insert(at - 1, body[at - 1])
    else:
        other = rng.randrange(len(body))
        body[at - 1], body[other] = body[other], body[at - 1]
    broken = Function.of("f", fn.type, fn.locals, tuple(body))
    try:
        check(broken, Names())
        verdict = True
    except CompilerBug:
        verdict = False
    assert verdict == is_valid(module_of(broken))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ([("i32.const", 1)], "left over"),
        ([("drop",)], "empty"),
        ([("f32.const", 0), ("i32.eqz",), ("drop",)], "f32 on the stack"),
        ([("local.get", 9), ("drop",)], "no local"),
        ([("br", 1)], "no block"),
        ([("block", None)], "not closed"),
        ([("end",)], "end without"),
        ([("call", "nobody")], "unknown function"),
        ([("nonsense",)], "unknown instruction"),
        ([("i32.const",), ("drop",)], "immediates"),
        ([("i32.const", 0), ("i32.load", 3, 0), ("drop",)], "alignment"),
    ],
)
def test_the_checker_names_the_fault(body: list[Ins], why: str) -> None:
    with pytest.raises(CompilerBug, match=why):
        check(Function.of("f", FnType(()), (), tuple(body)), Names())


def test_the_checker_refuses_features_that_the_target_lacks() -> None:
    v = ("v128.const", 0)
    fn = Function.of("f", FnType(()), (), (v, v, v, ("f32x4.relaxed_madd",), ("drop",)))
    check(fn, Names())
    with pytest.raises(CompilerBug, match="relaxed_simd"):
        check(fn, Names(features=frozenset({"simd"})))
