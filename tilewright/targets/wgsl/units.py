"""The text of special units of a GPU: subgroup matrices, and arithmetic on packed bytes.

Input: statements and calls of the loop IR.  Output: WGSL for Dawn's version of subgroup matrices,
an experimental feature of Chromium.  emit.py inserts the text.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.base.dtypes import F32, I8, U8
from tilewright.base.errors import CompilerBug
from tilewright.kernel.expr import Call, Const, dtype_of
from tilewright.kernel.index import Index
from tilewright.kernel.loops import (
    LoadMatrix,
    MatrixStmt,
    MatrixUnit,
    MultiplyMatrices,
    StoreMatrix,
    ZeroMatrix,
)


def statement(
    s: MatrixStmt, unit: MatrixUnit, place: Callable[[int, Index, int], tuple[str, int]]
) -> str:
    """The text of a statement on matrices.  place: turns a shared area, an index and a stride into
    a pointer with an offset, and the stride in the area's own elements"""
    match s:
        case ZeroMatrix(name):
            return f"{name} = {matrix_type('result', unit)}();"
        case LoadMatrix(name, right, buffer, index, stride, across):
            kind = matrix_type("right" if right else "left", unit)
            order = "col_major" if right != across else "row_major"
            at, by = place(buffer, index, stride)
            return f"let {name} = subgroupMatrixLoad<{kind}, {order}>({at}, {by}u);"
        case MultiplyMatrices(name, left, right):
            return f"{name} = subgroupMatrixMultiplyAccumulate({left}, {right}, {name});"
        case StoreMatrix(buffer, index, name, stride):
            at, by = place(buffer, index, stride)
            return f"subgroupMatrixStore<row_major>({at}, {name}, {by}u);"
    raise CompilerBug(f"no text for {s}")


def matrix_type(role: str, unit: MatrixUnit) -> str:
    """The type of a left or right operand, or of a result, with its columns and rows."""
    columns, rows = {
        "left": (unit.k, unit.m), "right": (unit.n, unit.k), "result": (unit.n, unit.m)
    }[role]  # fmt: skip
    dtype = unit.result if role == "result" else unit.operand
    return f"subgroup_matrix_{role}<{dtype.name}, {columns}, {rows}>"


def on_bytes(e: Call, args: list[str]) -> str:
    """The text of an operation on packed bytes: subtract 128, reinterpret the sign, or f32 to
    i8."""
    match e:
        case Call("cast", (Call("round", _),)) if e.dtype == I8 and dtype_of(e.operands[0]) == F32:
            # Adding a large constant rounds x; the last bits of the sum are the integer.
            x = args[0].removeprefix("round")
            whole = f"clamp({x}, vec4<f32>(-128.0), vec4<f32>(127.0)) + vec4<f32>(12582912.0)"
            return f"pack4xU8(bitcast<vec4<u32>>({whole}))"
        case Call("sub", (_, Const(128, _, _))):
            return f"({args[0]} ^ 0x80808080u)"
        case Call("cast", (x,)) if dtype_of(x) in (I8, U8):
            return args[0]
    raise CompilerBug(f"no text for packed bytes: {e}")
