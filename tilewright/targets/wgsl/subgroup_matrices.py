"""The text of special units of a GPU: subgroup matrices, and arithmetic on packed bytes.

Input: statements and calls of the loop IR.  Output: WGSL for Dawn's version of subgroup matrices,
an experimental feature of Chromium.  emit.py inserts the text.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.base.errors import CompilerBug
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
