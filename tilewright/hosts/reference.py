"""The reference host: runs a bundle by evaluating its kernel specifications with NumPy.

Input: a bundle and input arrays.  Output: output arrays.  It reads no generated code and no
schedules, so its results define correctness.  It is for checking, not for speed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from tilewright.base.errors import CompilerBug, OutOfRange
from tilewright.base.numpy_scalars import NUMPY_SCALARS, cast
from tilewright.hosts.inputs_outputs import Array
from tilewright.hosts.plan_interpreter import PlanHost
from tilewright.kernel.expr import Acc, Call, Const, Expr, Guard, IndexValue, Load, dtype_of
from tilewright.kernel.extents import at_extents
from tilewright.kernel.index import Atom, Div, Gathered, Index, Mod, Var
from tilewright.kernel.spec import Kernel, Stage
from tilewright.kernel.tree import read_by
from tilewright.plan import Step


class ReferenceHost(PlanHost):
    """One loaded bundle.  It reads only plans, kernels and weights, no target's section."""

    def step(
        self, plan: int, number: int, step: Step, views: list[Array], extents: Sequence[int]
    ) -> None:
        run_kernel(at_extents(self.kernels[step.kernel], extents), views)


def run_kernel(kernel: Kernel, buffers: list[Array]) -> None:
    """Evaluates a specification.  Raises OutOfRange for a gathered index out of range.

    buffers: one-dimensional arrays; `buffers[0]` receives the output
    """
    evaluator = _Evaluator(kernel, buffers)
    with np.errstate(all="ignore"):
        for number, stage in enumerate(kernel.stages):
            evaluator.accs[number] = evaluator.stage(stage)
        value = evaluator.value(kernel.value, kernel.axes)
        where = evaluator.index(kernel.store, kernel.axes)
    shape = tuple(v.extent for v in kernel.axes)
    at = np.broadcast_to(where, shape).ravel()
    buffers[0][at] = np.broadcast_to(value, shape).ravel().astype(kernel.dtype.numpy)


_FOLD: dict[str, Callable[..., object]] = {
    "sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod,
}  # fmt: skip


class _Evaluator:
    """Evaluates expressions as arrays with one dimension per axis; unused axes have extent 1."""

    def __init__(self, kernel: Kernel, buffers: list[Array]) -> None:
        self.kernel = kernel
        self.buffers = buffers
        self.accs: dict[int, Array] = {}

    def stage(self, stage: Stage) -> Array:
        """A reduction for every point of the rows and of the stage's kept axes."""
        domain = (*self.kernel.rows, *stage.keep, *stage.axes)
        rows = len(domain) - len(stage.axes)
        value, value_dtype = stage.value, np.dtype(dtype_of(stage.value).numpy)
        product = self.kernel.product is not None or stage.keep
        if product and isinstance(value, Call) and value.fn == "mul":
            a, b = (self.value(f, domain) for f in self.kernel.product or value.operands)
            if a.dtype != value_dtype:  # integers, whose sums below 2^53 are exact in f64
                a, b = a.astype(np.float64), b.astype(np.float64)
            # An axis on which neither factor depends only repeats the sum.
            unused = zip(stage.axes, a.shape[rows:], b.shape[rows:], strict=True)
            times = prod(v.extent for v, n, m in unused if n == m == 1)
            sums = np.asarray(_sum_of_products(a, b, rows) * a.dtype.type(times))
            return sums if sums.dtype == value_dtype else sums.astype(np.int64).astype(value_dtype)
        full = np.broadcast_to(self.value(value, domain), tuple(v.extent for v in domain))
        over = tuple(range(rows, len(domain)))
        if stage.op == "order":
            first = stage.keep[0].extent
            one = full[(slice(None),) * (rows - 1) + (0,)]  # equal along all kept axes
            return np.argsort(one, axis=-1, kind="stable")[..., :first].astype(np.int32)
        folded = _FOLD[stage.op](full, axis=over) if over else full
        return np.asarray(folded).astype(full.dtype)

    def index(self, i: Index, domain: tuple[Var, ...]) -> Array:
        total = np.full((1,) * len(domain), i.const, np.int64)
        for atom, c in i.terms:
            total = total + c * self._atom(atom, domain)
        return total

    def _atom(self, atom: Atom, domain: tuple[Var, ...]) -> Array:
        match atom:
            case Var():
                shape = [1] * len(domain)
                shape[domain.index(atom)] = atom.extent
                return np.arange(atom.extent).reshape(shape)
            case Div(value, by):
                return self.index(value, domain) // by
            case Mod(value, by):
                return self.index(value, domain) % by
            case Gathered(_, extent, check):
                found = self.value(read_by(atom), domain).astype(np.int64)
                wrong = found[(found < 0) | (found >= extent)]
                if wrong.size:
                    raise OutOfRange(check, int(wrong[0]))
                return found
        raise CompilerBug(f"unknown index {atom}")

    def value(self, e: Expr, domain: tuple[Var, ...]) -> Array:
        match e:
            case Const(value, dtype, _):
                return np.full((1,) * len(domain), value, dtype.numpy)
            case Load(buffer, at, _, _, _):
                where = self.index(at, domain)
                # Guards drop the values of indices out of range.
                return np.take(self.buffers[buffer], where, mode="clip")
            case Call(fn, operands, dtype, _):
                args = [self.value(a, domain) for a in operands]
                if fn == "cast":
                    return cast(args[0], dtype)
                return np.asarray(NUMPY_SCALARS[fn](*args)).astype(dtype.numpy)
            case IndexValue(at, dtype, _):
                return self.index(at, domain).astype(dtype.numpy)
            case Guard(bounds, value, default):
                holds = np.ones((1,) * len(domain), bool)
                for b in bounds:
                    i = self.index(b.index, domain)
                    holds = holds & (i >= 0) & (i < b.extent)
                return np.where(holds, self.value(value, domain), self.value(default, domain))
            case Acc(stage, _, _):
                acc = self.accs[stage]
                shape = [1] * len(domain)
                for var, extent in zip(
                    (*self.kernel.rows, *self.kernel.stages[stage].keep), acc.shape, strict=True
                ):
                    shape[domain.index(var)] = extent
                return acc.reshape(shape)
        raise CompilerBug(f"unknown expression {e}")


def _sum_of_products(a: Array, b: Array, rows: int) -> Array:
    """einsum without the axes on which a factor does not depend, whose extent is 1 there."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = ["".join(c for c, n in zip(letters, x.shape, strict=False) if n > 1) for x in (a, b)]
    present = set("".join(names))
    out = "".join(c for c in letters[:rows] if c in present)
    result = np.einsum(f"{names[0]},{names[1]}->{out}", a.squeeze(), b.squeeze(), optimize=True)
    full = tuple(max(x, y) for x, y in zip(a.shape, b.shape, strict=True))[:rows]
    return np.asarray(result).reshape(full)
