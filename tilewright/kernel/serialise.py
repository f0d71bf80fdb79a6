"""Kernels as plain data and back, so that tuners and other hosts can regenerate code from a bundle.

Input: a `Kernel` or the JSON-like data of one.  Output: the other.  The data is canonical: equal
kernels give equal data, so its digest names a kernel.
"""

from __future__ import annotations

import struct
from typing import Any

from tilewright.base.dtypes import DTYPES, DType
from tilewright.base.errors import CompilerBug
from tilewright.kernel.expr import Acc, Bound, Call, Const, Expr, Guard, IndexValue, Load
from tilewright.kernel.index import Atom, Div, Gathered, Index, Mod, Var
from tilewright.kernel.layout import layout_from_data, layout_to_data
from tilewright.kernel.spec import Buffer, Kernel, Limit, Stage
from tilewright.kernel.tree import read_by

Data = Any


def kernel_to_data(k: Kernel) -> dict[str, Data]:
    return {
        "name": k.name,
        "axes": [_var(v) for v in k.axes],
        "cols": k.cols,
        "stages": [
            [s.op, [_var(v) for v in s.axes], _expr(s.value), [_var(v) for v in s.keep]]
            for s in k.stages
        ],
        "value": _expr(k.value),
        "store": _index(k.store),
        "buffers": [_buffer(b) for b in k.buffers],
        **({"extents": [_var(v) for v in k.extents]} if k.extents else {}),
        **({"limits": [[_var(a), _var(e), times] for a, e, times in k.limits]} if k.limits else {}),
    }


def kernel_from_data(data: dict[str, Data]) -> Kernel:
    """Raises ValueError, TypeError or LookupError for data that `kernel_to_data` does not give."""
    return Kernel(
        _text(data["name"]),
        _vars(data["axes"]),
        tuple(
            Stage(_text(op), _vars(axes), _to_expr(value), _vars(keep))
            for op, axes, value, keep in data["stages"]
        ),
        _to_expr(data["value"]),
        _to_index(data["store"]),
        tuple(
            Buffer(
                DTYPES[name],
                _number(size),
                _number(limit),
                layout_from_data(layout),
                *_known(*storage),
            )
            for name, size, limit, layout, *storage in data["buffers"]
        ),
        _number(data["cols"]),
        _vars(data.get("extents", [])),
        tuple(
            Limit(_to_var(a), _to_var(e), _number(times)) for a, e, times in data.get("limits", [])
        ),
    )


def _number(data: Data) -> int:
    if type(data) is not int:
        raise TypeError(f"{data!r} is not a whole number"[:200])
    return data


def _text(data: Data) -> str:
    if type(data) is not str:
        raise TypeError(f"{data!r} is not a text"[:200])
    return data


def _buffer(b: Buffer) -> Data:
    return [b.dtype.name, b.size, b.limit, layout_to_data(b.layout), *_facts(b)]


def _facts(b: Buffer) -> list[bool | str]:
    """The fields that are set; buffers without them have the same data as in older versions."""
    if b.compact:
        return [b.as_f16, b.loose, True]
    return [b.as_f16, b.loose] if b.loose else [True] if b.as_f16 else []


def _known(
    as_f16: bool = False, loose: bool | str = "", compact: bool = False
) -> tuple[bool, str, bool]:
    """`true` is what bundles said of f16 while it was the only type."""
    return as_f16, "f16" if loose is True else loose or "", compact


def _var(v: Var) -> Data:
    return [v.name, v.extent]


def _to_var(data: Data) -> Var:
    name, extent = data
    return Var(_text(name), _number(extent))


def _vars(data: list[Data]) -> tuple[Var, ...]:
    return tuple(map(_to_var, data))


def _index(i: Index) -> Data:
    return [i.const, *([c, *_atom(a)] for a, c in i.terms)]


def _atom(a: Atom) -> Data:
    match a:
        case Var(name, extent):
            return ["var", name, extent]
        case Div(value, by):
            return ["div", _index(value), by]
        case Mod(value, by):
            return ["mod", _index(value), by]
        case Gathered(_, extent, check):
            return ["gather", _expr(read_by(a)), extent, *([check] if check else [])]


def _to_index(data: Data) -> Index:
    const, *terms = data
    return Index(tuple((_to_atom(*atom), _number(c)) for c, *atom in terms), _number(const))


def _to_atom(kind: str, what: Data, number: int, check: int = 0) -> Atom:
    if kind == "var":
        return _to_var((what, number))
    if kind == "gather":
        return Gathered(_to_expr(what), _number(number), _number(check))
    if _number(number) < 1:
        raise ValueError(f"nothing is divided by {number}")
    return (Div if kind == "div" else Mod)(_to_index(what), number)


def _expr(e: Expr) -> Data:
    match e:
        case Const(value, dtype, _):
            # JSON has no infinities and no NaN
            return ["const", dtype.name, value if abs(value) < float("inf") else str(value)]
        case Load(buffer, at, dtype, _, _):
            return ["load", dtype.name, buffer, _index(at)]
        case Call(fn, operands, dtype, _):
            return ["call", dtype.name, fn, [_expr(a) for a in operands]]
        case IndexValue(at, dtype, _):
            return ["index", dtype.name, _index(at)]
        case Guard(bounds, value, default):
            conditions = [[_index(b.index), b.extent] for b in bounds]
            return ["guard", conditions, _expr(value), _expr(default)]
        case Acc(stage, dtype, _):
            return ["acc", dtype.name, stage]
    raise CompilerBug(f"not part of a specification: {e}")


def _to_expr(data: Data) -> Expr:
    match data:
        case ["const", dtype, value]:
            return _constant(value, DTYPES[dtype])
        case ["load", dtype, buffer, at]:
            return Load(_number(buffer), _to_index(at), DTYPES[dtype])
        case ["call", dtype, fn, operands]:
            return Call(_text(fn), tuple(_to_expr(a) for a in operands), DTYPES[dtype])
        case ["index", dtype, at]:
            return IndexValue(_to_index(at), DTYPES[dtype])
        case ["guard", conditions, value, default]:
            bounds = tuple(Bound(_to_index(i), _number(extent)) for i, extent in conditions)
            return Guard(bounds, _to_expr(value), _to_expr(default))
        case ["acc", dtype, stage]:
            return Acc(_number(stage), DTYPES[dtype])
    raise ValueError(f"unknown expression {data}"[:200])


def _constant(value: Data, dtype: DType) -> Const:
    """A literal of the type."""
    if isinstance(value, str) and dtype.is_float:
        return Const(float(value), dtype)
    kinds = {"float": (int, float), "bool": (bool, int)}.get(dtype.kind, (int,))
    if type(value) not in kinds:
        raise TypeError(f"{value!r} is not a literal of {dtype}"[:200])
    try:
        struct.pack(dtype.code, value)
    except struct.error as error:
        raise ValueError(f"{value!r} is not a literal of {dtype}: {error}"[:200]) from error
    return Const(value, dtype)
