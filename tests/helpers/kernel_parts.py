"""Parts of random kernel specifications: axes, buffers with data, loads and expressions over them.

Input: a `random.Random`.  Output: a `Case`: a kernel, data for its buffers, how exact it must be.
Data are small whole numbers, so that sums and products are exact in f32 in any order: a wrong
index then cannot hide behind a tolerance.  Only functions that round make a case inexact.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from random import Random

import numpy as np

from tilewright.base.dtypes import BOOL, F32, F64, I8, I32, I64, U8, DType
from tilewright.kernel.expr import Bound, Call, Const, Expr, Guard, IndexValue, Load
from tilewright.kernel.index import Gathered, Index, Var, flatten, index, unflatten
from tilewright.kernel.layout import ROWS, Layout
from tilewright.kernel.spec import Buffer, Kernel, Stage, check
from tilewright.kernel.tree import walk

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 17)
POINTS = 400  # output points of a random kernel, so that the interpreter stays fast
TERMS = 64  # points of a reduction

#: Functions that are exact on whole numbers of f32, by number of operands.
EXACT = {1: ("neg", "abs", "floor", "ceil", "round"), 2: ("add", "sub", "mul", "max", "min")}
#: Functions that round; the interpreter and NumPy may differ by a few ULP.
ROUNDING = ("exp", "tanh", "erf", "sin", "cos", "sqrt", "div")

#: ULP that one rounding function may be off, and that its operand's error may grow by.
ULP = 2.0**-23


@dataclass(frozen=True)
class Case:
    """A kernel, its input data (element i-1 for buffer i), and whether results must be equal."""

    kernel: Kernel
    data: tuple[np.ndarray, ...]
    exact: bool

    @property
    def relative(self) -> float:
        """Bound of the relative error: one rounding per term of a sum, 32 ULP per function."""
        k = self.kernel
        depth = sum(prod(v.extent for v in s.axes) for s in k.stages)
        exprs = [k.value, *(s.value for s in k.stages)]
        return ULP * (depth + 32 * sum(isinstance(n, Call) for e in exprs for n in walk(e)))


class Maker:
    """Collects buffers and data while a kernel is made."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.inputs: list[Buffer] = []
        self.data: list[np.ndarray] = []
        self.exact = True

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def axes(self, stem: str, rank: int, points: int) -> tuple[Var, ...]:
        made: list[Var] = []
        for i in range(rank):
            fits = [n for n in EXTENTS if n * prod(v.extent for v in made) <= points]
            made.append(Var(f"{stem}{'xyzw'[i]}", self.rng.choice(fits)))
        return tuple(made)

    def finish(
        self,
        axes: tuple[Var, ...],
        value: Expr,
        stages: tuple[Stage, ...] = (),
        cols: int = 0,
        keep_last: bool = False,
    ) -> Case:
        """The kernel; its output lies in any order of the axes."""
        order = list(axes)
        if self.chance(0.25):
            tail = [order.pop()] if keep_last and order else []
            self.rng.shuffle(order)
            order += tail
        store = flatten((index(v) for v in order), (v.extent for v in order))
        out = Buffer(value.dtype, prod(v.extent for v in axes))  # type: ignore[attr-defined]
        kernel = Kernel("case", axes, stages, value, store, (out, *self.inputs), cols)
        check(kernel)
        return Case(kernel, tuple(self.data), self.exact)

    # ---- buffers and loads -----------------------------------------------------------------------

    def buffer(self, dtype: DType, size: int, top: int | None = None, layout: Layout = ROWS) -> int:
        """A new input filled with small whole numbers, in [0, top) if `top` is given."""
        numbers = np.random.default_rng(self.rng.getrandbits(32))
        if top is not None:
            data = numbers.integers(0, top, size)
        elif dtype == BOOL:
            data = numbers.integers(0, 2, size)
        else:
            low = 0 if dtype.kind == "uint" else -3
            data = numbers.integers(low, 4, size)
        self.inputs.append(Buffer(dtype, size, layout=layout))
        self.data.append(data.astype(dtype.numpy))
        return len(self.inputs)

    def load(self, dtype: DType, axes: tuple[Var, ...], plain: bool = False) -> Expr:
        """A load over some of `axes`: permuted, strided, flipped, reshaped, padded, gathered."""
        used = [v for v in axes if self.chance(0.85)]
        if not plain and self.chance(0.4):
            self.rng.shuffle(used)
        at: list[Index] = [index(v) for v in used]
        shape = [v.extent for v in used]
        bounds: list[Bound] = []
        for _ in range(0 if plain else self.rng.choice((0, 0, 1, 1, 2, 3))):
            if not at:
                break
            change = self.rng.choice((self._stretch, self._flip, self._reshape, self._pad))
            change(at, shape, bounds)
        if not plain and self.chance(0.15):
            self._gather(at, shape, axes)
        where = flatten(at, shape)
        load = Load(self.buffer(dtype, max(1, prod(shape))), where, dtype)
        if not bounds:
            return load
        default = Const(True if dtype == BOOL else 1, dtype)
        return Guard(tuple(bounds), load, default)

    def _stretch(self, at: list[Index], shape: list[int], bounds: list[Bound]) -> None:
        """A slice: start + step * i."""
        i = self.rng.randrange(len(at))
        start, step, after = (self.rng.randint(0, 2) for _ in range(3))
        step += 1
        shape[i] = start + (shape[i] - 1) * step + 1 + after
        at[i] = at[i] * step + start

    def _flip(self, at: list[Index], shape: list[int], bounds: list[Bound]) -> None:
        i = self.rng.randrange(len(at))
        at[i] = at[i] * -1 + (shape[i] - 1)

    def _pad(self, at: list[Index], shape: list[int], bounds: list[Bound]) -> None:
        i = self.rng.randrange(len(at))
        if shape[i] < 2:
            return
        cut = self.rng.randint(1, shape[i] - 1)
        at[i] = at[i] - self.rng.randint(0, cut)
        shape[i] -= cut
        bounds.append(Bound(at[i], shape[i]))

    def _reshape(self, at: list[Index], shape: list[int], bounds: list[Bound]) -> None:
        """The same offset in another shape."""
        size = prod(shape)
        new, rest = [], size
        while rest > 1:
            factor = self.rng.choice([n for n in range(2, rest + 1) if rest % n == 0])
            new.append(factor)
            rest //= factor
        at[:] = unflatten(flatten(at, shape), tuple(new))
        shape[:] = new

    def _gather(self, at: list[Index], shape: list[int], axes: tuple[Var, ...]) -> None:
        """Replace an axis by an index that is read from memory."""
        dtype = self.rng.choice((I64, I32))
        used = tuple(v for v in axes if self.chance(0.5))
        i = self.rng.randrange(len(at)) if at else 0
        if not at:
            at.append(Index())
            shape.append(1)
        size, shape[i] = shape[i], self.rng.randint(1, 6)
        table = self.buffer(dtype, max(1, prod(v.extent for v in used)), shape[i])
        where = flatten((index(v) for v in used), (v.extent for v in used))
        if self.chance(0.4):  # the table lies below the pads of this axis
            where = at[i]
            self.inputs[-1] = Buffer(dtype, size)
            self.data[-1] = np.resize(self.data[-1], size)
        at[i] = Index(((Gathered(Load(table, where, dtype), shape[i]), 1),))

    # ---- expressions -----------------------------------------------------------------------------

    def expr(
        self, dtype: DType, axes: tuple[Var, ...], depth: int, accs: tuple[Expr, ...] = ()
    ) -> Expr:
        """A random expression of `dtype` over loads, literals and stage results."""
        fitting = [a for a in accs if a.dtype == dtype]  # type: ignore[attr-defined]
        if fitting and self.chance(0.5):
            return self.rng.choice(fitting)
        if depth == 0 or self.chance(0.15):
            return self._leaf(dtype, axes)
        kind = self.rng.random()
        if dtype == BOOL:
            return self._truth(axes, depth, accs)
        if kind < 0.12:
            old = self.rng.choice([d for d in (F32, F32, I32, I64, F64, BOOL, U8) if d != dtype])
            if dtype in (I8, U8):
                old = self.rng.choice((I32, I64, BOOL))
            return Call("cast", (self.expr(old, axes, depth - 1, accs),), dtype)
        if kind < 0.24:
            arms = [self.expr(dtype, axes, depth - 1, accs) for _ in range(2)]
            return Call("where", (self.expr(BOOL, axes, depth - 1, accs), *arms), dtype)
        if kind < 0.34 and dtype == F32:
            return self._rounded(axes, depth, accs)
        if kind < 0.44:  # the same operand twice
            twice = self.expr(dtype, axes, depth - 1, accs)
            return Call(self.rng.choice(EXACT[2]), (twice, twice), dtype)
        if kind < 0.55:
            fns = EXACT[1] if dtype.is_float else ("neg", "abs")
            fn = self.rng.choice(fns)
            return Call(fn, (self.expr(dtype, axes, depth - 1, accs),), dtype)
        a, b = (self.expr(dtype, axes, depth - 1, accs) for _ in range(2))
        return Call(self.rng.choice(EXACT[2]), (a, b), dtype)

    def _leaf(self, dtype: DType, axes: tuple[Var, ...]) -> Expr:
        kind = self.rng.random()
        if kind < 0.15:
            value = self.rng.randint(0, 3)
            typed = bool(value) if dtype == BOOL else float(value) if dtype.is_float else value
            return Const(typed, dtype)
        if kind < 0.25 and dtype in (I64, I32) and axes:
            return IndexValue(index(self.rng.choice(axes)) * 2 + 1, dtype)
        return self.load(dtype, axes)

    def _truth(self, axes: tuple[Var, ...], depth: int, accs: tuple[Expr, ...]) -> Expr:
        if self.chance(0.3):
            fn = self.rng.choice(("and", "or", "not"))
            count = 1 if fn == "not" else 2
            parts = tuple(self.expr(BOOL, axes, depth - 1, accs) for _ in range(count))
            return Call(fn, parts, BOOL)
        dtype = self.rng.choice((F32, F32, I32, I64))
        exact = self.exact  # a comparison of rounded numbers may fall either way
        self.exact = True
        a, b = (self.expr(dtype, axes, min(depth, 2) - 1, accs) for _ in range(2))
        if not self.exact or not exact:
            a, b = (self._leaf(dtype, axes) for _ in range(2))
        self.exact = exact
        return Call(self.rng.choice(("lt", "le", "eq")), (a, b), BOOL)

    def _rounded(self, axes: tuple[Var, ...], depth: int, accs: tuple[Expr, ...]) -> Expr:
        """A function that rounds, of an exact operand, kept where it is smooth."""
        self.exact = False
        fn = self.rng.choice(ROUNDING)
        x = self.load(F32, axes)
        if fn == "div":
            y = Call("add", (Call("abs", (self.load(F32, axes),), F32), Const(1.0, F32)), F32)
            return Call("div", (x, y), F32)
        if fn == "sqrt":
            x = Call("abs", (x,), F32)
        return Call(fn, (x,), F32)
