"""Random kernels of every anchor, and how to run them.

Input: a seed and an anchor, or a case of kernel_parts.py.  Output: a case; what the loop
interpreter and the reference host make of it.
"""

from __future__ import annotations

from math import prod
from random import Random
from typing import Any

import numpy as np

from helpers.kernel_parts import POINTS, TERMS, Case, Maker
from tilewright.base.dtypes import BOOL, F32, F64, I8, I32, I64, U8
from tilewright.hosts.reference import run_kernel
from tilewright.kernel import interpreter
from tilewright.kernel.expr import Acc, Call, Const, Expr, Load
from tilewright.kernel.index import Var, flatten, index
from tilewright.kernel.layout import ROWS, Panels
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel, Stage
from tilewright.kernel.tree import walk

# ---- anchors -------------------------------------------------------------------------------------


def random_map(rng: Random) -> Case:
    m = Maker(rng)
    axes = m.axes("a", rng.randint(0, 4), POINTS)
    dtype = rng.choice((F32, F32, F32, I32, I64, BOOL, F64, U8, I8))
    return m.finish(axes, m.expr(dtype, axes, rng.randint(0, 3)), keep_last=m.chance(0.5))


def random_reduction(rng: Random) -> Case:
    """Pooling, means, arg-free reductions: along memory or across it."""
    m = Maker(rng)
    axes = m.axes("a", rng.randint(0, 3), 60)
    stages = []
    accs: tuple[Expr, ...] = ()
    for number in range(rng.choice((1, 1, 1, 2))):
        inner = m.axes(f"r{number}", rng.randint(1, 3), TERMS)
        dtype = rng.choice((F32, F32, F32, I32, I64, F64))
        op = rng.choice(("sum", "sum", "max", "min", "prod"))
        domain = (*axes, *inner) if m.chance(0.5) else (*inner, *axes)
        if op == "prod":  # keeps the product exact: 2 ** TERMS and zero
            value = Call("min", (m.load(dtype, domain), Const(2, dtype)), dtype)
            value = Call("max", (value, Const(0, dtype)), dtype)
        else:
            value = m.expr(dtype, domain, rng.randint(0, 2), accs)
        if dtype_of_stage_is_tame(value):
            stages.append(Stage(op, inner, value))
            accs = (*accs, Acc(len(stages) - 1, dtype))
    dtype = rng.choice((F32, F32, I32, I64, BOOL)) if m.chance(0.4) else None
    value = accs[-1] if dtype is None and accs else m.expr(dtype or F32, axes, 2, accs)
    return m.finish(axes, value, tuple(stages))


def dtype_of_stage_is_tame(value: Expr) -> bool:
    """Stages multiply at most a few small numbers, so that sums stay exact."""
    return sum(isinstance(n, Call) and n.fn == "mul" for n in walk(value)) < 4


def random_rows(rng: Random) -> Case:
    """Softmax and layer norm and what is like them."""
    m = Maker(rng)
    rows = m.axes("a", rng.randint(0, 2), 20)
    cols = m.axes("c", rng.randint(1, 2), 48)
    stages: list[Stage] = []
    accs: tuple[Expr, ...] = ()
    shared = m.load(F32, (*rows, *cols), plain=m.chance(0.6))
    for number in range(rng.randint(1, 3)):
        inner = tuple(Var(f"j{number}{v.name}", v.extent) for v in cols)
        moved = {c: index(i) for c, i in zip(cols, inner, strict=True)}
        value = shared.substitute(moved)
        if accs and m.chance(0.7):
            value = Call(rng.choice(("sub", "add", "max")), (value, rng.choice(accs)), F32)
        if m.chance(0.3):
            value = Call("mul", (value, value), F32)
        stages.append(Stage(rng.choice(("sum", "max", "min")), inner, value))
        accs = (*accs, Acc(number, F32))
    dtype = rng.choice((F32, F32, F32, BOOL, I32))
    value = m.expr(dtype, (*rows, *cols), 2, accs)
    if dtype == F32:
        value = Call("sub", (shared, value), F32)
    return m.finish((*rows, *cols), value, tuple(stages), len(cols), keep_last=True)


def random_contraction(rng: Random) -> Case:
    """Matmul, batched matmul, convolution; column operand packed, plain or transposed."""
    m = Maker(rng)
    batch = m.axes("b", rng.choice((0, 0, 1, 2)), 4)
    rows = _rows(m)
    n = Var("n", rng.choice((1, 2, 3, 5, 7, 8, 9, 12, 16, 17, 24, 25)))
    depth = m.axes("k", rng.randint(1, 3), 24)
    row = _row_operand(m, batch, rows, depth)
    col = _column_operand(m, tuple(v for v in batch if m.chance(0.8)), depth, n)
    factors = (row, col) if m.chance(0.8) else (col, row)
    stage = Stage("sum", depth, Call("mul", factors, F32))
    axes = (*batch, *rows, n)
    value = _epilogue(m, axes, n)
    return m.finish(axes, value, (stage,), keep_last=m.chance(0.9))


def _rows(m: Maker) -> tuple[Var, ...]:
    kind = m.rng.random()
    if kind < 0.15:
        return ()
    if kind < 0.7:
        return (Var("m", m.rng.choice((1, 1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 14))),)
    return (Var("h", m.rng.randint(1, 4)), Var("w", m.rng.randint(1, 5)))


def _row_operand(
    m: Maker, batch: tuple[Var, ...], rows: tuple[Var, ...], depth: tuple[Var, ...]
) -> Load:
    """Affine: windows (row * stride + k * dilation) where ranks allow, else an axis each."""
    at, shape = [index(v) for v in batch], [v.extent for v in batch]
    left = list(depth)
    for v in rows:
        where, extent = index(v), v.extent
        if left and m.chance(0.5):
            k, stride, dilation = left.pop(), m.rng.randint(1, 2), m.rng.randint(1, 2)
            where = where * stride + index(k) * dilation
            extent = (v.extent - 1) * stride + (k.extent - 1) * dilation + 1
        at.append(where)
        shape.append(extent)
    at += [index(v) for v in left]
    shape += [v.extent for v in left]
    if m.chance(0.3):  # any order in memory
        pairs = list(zip(at, shape, strict=True))
        m.rng.shuffle(pairs)
        at, shape = [i for i, _ in pairs], [n for _, n in pairs]
    if at and m.chance(0.1):  # rows picked by an index in memory
        m._gather(at, shape, (*batch, *rows))
    return Load(m.buffer(F32, prod(shape)), flatten(at, shape), F32)


def _column_operand(m: Maker, batch: tuple[Var, ...], depth: tuple[Var, ...], n: Var) -> Load:
    layout = m.rng.choice(("panels", "panels", "plain", "transposed"))
    axes = [*batch, *depth]
    at, shape = [index(v) for v in axes], [v.extent for v in axes]
    if layout == "panels":
        head = len(batch)
        at = [*at[:head], index(n) // 8, *at[head:], index(n) % 8]
        shape = [*shape[:head], -(-n.extent // 8), *shape[head:], 8]
    elif layout == "plain":
        at, shape = [*at, index(n)], [*shape, n.extent]
    else:
        at, shape = [index(n), *at], [n.extent, *shape]
    if layout != "panels" and m.chance(0.2):
        m._flip(at, shape, [])
    kept = Panels(8) if layout == "panels" else ROWS
    return Load(m.buffer(F32, prod(shape), layout=kept), flatten(at, shape), F32)


def _epilogue(m: Maker, axes: tuple[Var, ...], n: Var) -> Expr:
    acc = Acc(0, F32)
    kind = m.rng.random()
    if kind < 0.3:
        return acc
    x = Call("add", (acc, m.load(F32, (n,), plain=True)), F32)
    if kind < 0.5:
        return Call("max", (x, Const(0.0, F32)), F32)
    if kind < 0.65:  # GELU: x appears twice
        m.exact = False
        gate = Call("add", (Call("erf", (x,), F32), Const(1.0, F32)), F32)
        return Call("mul", (gate, x), F32)
    return m.expr(F32, axes, 2, (acc, x))


ANCHORS = {
    "map": random_map,
    "reduce": random_reduction,
    "rows": random_rows,
    "contract": random_contraction,
}


def random_case(seed: int, anchor: str) -> Case:
    return ANCHORS[anchor](Random(f"{anchor}{seed}"))


# ---- running -------------------------------------------------------------------------------------


class Counted(list[Any]):
    """An output buffer that counts how often each element is written."""

    def __init__(self, size: int) -> None:
        super().__init__([None] * size)
        self.writes = [0] * size

    def __setitem__(self, where: Any, values: Any) -> None:
        before = len(self)
        for i in range(*where.indices(before)):
            self.writes[i] += 1
        super().__setitem__(where, values)
        assert len(self) == before


def interpret(fn: TileFn, data: tuple[np.ndarray, ...], tiles: list[list[int]]) -> Counted:
    """Run groups of tiles, each as a call of its own; every element must be written once."""
    out = Counted(fn.buffers[0].size)
    for group in tiles:
        interpreter.run(fn, [out, *(d.tolist() for d in data)], group)
    assert set(out.writes) <= {1}, "elements written never or twice"
    return out


def expected(case: Case, kernel: Kernel | None = None) -> np.ndarray:
    """What the reference host computes; the output starts poisoned."""
    kernel = kernel or case.kernel
    out = np.full(kernel.buffers[0].size, 77, kernel.dtype.numpy)
    run_kernel(kernel, [out, *(d.copy() for d in case.data)])
    return out


def assert_close(got: Any, want: np.ndarray, exact: bool, relative: float) -> None:
    """Equal (NaN included), or close relative to the largest number of the result."""
    found = np.asarray(got, want.dtype)
    if exact or want.dtype.kind != "f":
        np.testing.assert_array_equal(found, want)
        return
    finite = want[np.isfinite(want)]
    scale = float(np.abs(finite).max(initial=1.0))
    np.testing.assert_allclose(found, want, rtol=relative, atol=relative * scale)
