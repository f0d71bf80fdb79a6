"""Normal form of a kernel: neighbouring axes that every index walks as one become one axis.

Input: a kernel as fusion made it.  Output: the same kernel with as few axes as possible.

    out[b*512*384 + s*384 + n], a[b*512*K + s*K + k]   ->   out[m*384 + n], a[m*K + k]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from tilewright.kernel.expr import Expr, Guard, IndexValue, Load
from tilewright.kernel.index import Div, Gathered, Index, Mod, Var, index
from tilewright.kernel.spec import Kernel, Limit
from tilewright.kernel.tree import walk


def collapse(kernel: Kernel) -> Kernel:
    """Merge axes until nothing more fits, then drop axes of extent 1."""
    kernel = _drop_units(kernel)
    merged = True
    while merged:
        merged = False
        for group in range(2 + len(kernel.stages)):
            axes = _group(kernel, group)
            for outer, inner in pairwise(axes):
                smaller = _merge(kernel, group, outer, inner)
                if smaller is not None:
                    kernel, merged = smaller, True
                    break
    return kernel


def _group(kernel: Kernel, group: int) -> tuple[Var, ...]:
    """Axes that may merge with each other: the rows, the columns, then each stage's axes."""
    if group == 0:
        return kernel.rows
    if group == 1:
        return kernel.axes[len(kernel.rows) :]
    return kernel.stages[group - 2].axes


def _merge(kernel: Kernel, group: int, outer: Var, inner: Var) -> Kernel | None:
    if kernel.limit(inner) is not None:
        return None  # its end would be inside the joined axis
    joined = Var(f"{outer.name}{inner.name}", outer.extent * inner.extent)
    at = index(joined)
    values = {outer: at // inner.extent, inner: at % inner.extent}
    trial = _substitute(kernel, values)
    if _splits(trial) > _splits(kernel):
        return None
    axes = tuple(joined if v == outer else v for v in _group(kernel, group) if v != inner)
    limits = tuple(
        Limit(joined, limit.extent, limit.times * inner.extent) if limit.axis == outer else limit
        for limit in kernel.limits
    )
    return _with_group(replace(trial, limits=limits), group, axes)


def _with_group(kernel: Kernel, group: int, axes: tuple[Var, ...]) -> Kernel:
    if group == 0:
        cols = kernel.axes[len(kernel.rows) :]
        return replace(kernel, axes=axes + cols)
    if group == 1:
        return replace(kernel, axes=kernel.rows + axes, cols=len(axes))
    stages = list(kernel.stages)
    stages[group - 2] = replace(stages[group - 2], axes=axes)
    return replace(kernel, stages=tuple(stages))


def _substitute(kernel: Kernel, values: Mapping[Var, Index]) -> Kernel:
    stages = tuple(replace(s, value=s.value.substitute(values)) for s in kernel.stages)
    store = kernel.store.substitute(values)
    return replace(kernel, stages=stages, value=kernel.value.substitute(values), store=store)


def _drop_units(kernel: Kernel) -> Kernel:
    """Axes of extent 1 vanish from the domain; their variables are the constant 0 already."""
    rows = tuple(v for v in kernel.rows if v.extent > 1)
    cols = tuple(v for v in kernel.axes[len(kernel.rows) :] if v.extent > 1)
    stages = tuple(
        replace(
            s,
            axes=tuple(v for v in s.axes if v.extent > 1),
            keep=tuple(v for v in s.keep if v.extent > 1),
        )
        for s in kernel.stages
    )
    return replace(kernel, axes=rows + cols, cols=len(cols), stages=stages)


def _splits(kernel: Kernel) -> int:
    """How many divisions and remainders the kernel's indices hold."""
    exprs = [s.value for s in kernel.stages] + [kernel.value]
    return sum(map(_count, indices(*exprs))) + _count(kernel.store)


def indices(*exprs: Expr) -> Iterator[Index]:
    """Every index in the expressions, bounds included."""
    for e in exprs:
        for node in walk(e):
            if isinstance(node, (Load, IndexValue)):
                yield node.index
            elif isinstance(node, Guard):
                yield from (b.index for b in node.bounds)


def _count(i: Index) -> int:
    total = 0
    for atom, _ in i.terms:
        if isinstance(atom, (Div, Mod)):
            total += 1 + _count(atom.value)
        elif isinstance(atom, Gathered):
            continue  # the loads inside are walked as expressions
    return total
