"""The plainest lowering: scalar loops, one tile per row, in the order of the specification.

Input: any kernel.  Output: the loop nest of one tile.  A target that starts from here supports
every kernel at once and has no schedule to choose; it is correct, not fast.

    matmul:   tile = (m, n);  r0 := sum over k;  store r0
    softmax:  tile = row;     r0 := max, r1 := sum over the row;  store each column
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tilewright.base.errors import UsageError
from tilewright.base.sections import Section
from tilewright.kernel.builder import Builder, Values, nest
from tilewright.kernel.expr import Acc, Expr, Load, Reg, dtype_of, rewrite
from tilewright.kernel.extents import limited_first, points
from tilewright.kernel.index import flatten, index, unflatten
from tilewright.kernel.loops import Scratch, TileFn
from tilewright.kernel.reduction import identity, step
from tilewright.kernel.spec import Kernel, Stage
from tilewright.plan import Program
from tilewright.targets.protocol import Code


@dataclass(frozen=True)
class Plain:
    """The only schedule there is."""

    def to_json(self) -> dict[str, Any]:
        return {}

    def __str__(self) -> str:
        return "plain"


@dataclass(frozen=True)
class PlainVariant:
    """The only variant there is."""

    name: str
    features: frozenset[str] = frozenset()


class PlainTarget(ABC):
    """A target with one schedule and one variant; its code is text."""

    name: str
    variant: PlainVariant

    @property
    def variants(self) -> Mapping[str, PlainVariant]:
        return {self.variant.name: self.variant}

    @property
    def stages(self) -> tuple[str, ...]:
        return (self.name,)

    def default(self, kernel: Kernel, variant: str) -> Plain:
        return Plain()

    def schedule(self, data: Mapping[str, Any]) -> Plain:
        return Plain()

    def codes(
        self,
        kernel: Kernel,
        schedules: Mapping[str, Plain],
        *,
        alone: bool = False,
        without: frozenset[str] = frozenset(),
    ) -> dict[str, Code]:
        fn = lower(kernel)
        body = self.emit(kernel, fn)
        return {v: Code(kernel, s, fn, 0, frozenset(), body) for v, s in schedules.items()}

    @abstractmethod
    def emit(self, kernel: Kernel, fn: TileFn) -> str:
        """The text of one kernel; kernels of equal text share a slot."""

    @abstractmethod
    def encode(
        self,
        program: Program,
        codes: Mapping[str, Sequence[Code]],
        settings: Mapping[str, Any],
    ) -> Section: ...

    def exchange(
        self,
        program: Program,
        old: Section,
        variant: str,
        codes: Sequence[Code],
        changed: frozenset[int],
        settings: Mapping[str, Any],
    ) -> Section:
        return self.encode(program, {variant: codes}, settings)

    def module(self, code: Code, variant: str) -> bytes:
        return str(code.body).encode()

    def probe(self, kind: str, **sizes: int) -> tuple[Section, int]:
        raise UsageError(
            f"The target {self.name} measures no host", hint="Use --target wasm", kind=kind
        )

    def text(self, code: Code, variant: str, stage: str) -> str:
        return str(code.body)


def numbers_of(fn: TileFn) -> list[int | list[int]]:
    """Tiles and run-time scalars as data: a number, or the fields of a `Count`."""
    if not fn.counts:
        return [fn.tiles]
    pairs = zip(fn.counts, (fn.tiles, *fn.values), strict=True)
    return [n if count is None else count.to_data() for count, n in pairs]


def lower(kernel: Kernel) -> TileFn:
    """One tile per point of the leading axes.  Reductions that keep axes are staged per tile."""
    rows = limited_first(kernel, kernel.rows)
    b = Builder({}, points(kernel, rows), kernel)
    at: Values = dict(zip(rows, unflatten(b.tile, tuple(v.extent for v in rows)), strict=True))
    kept = [n for n, stage in enumerate(kernel.stages) if stage.keep]
    numbers = {n: len(kernel.buffers) + i for i, n in enumerate(kept)}
    for n, stage in enumerate(kernel.stages):
        with nest(b, stage.keep, at) as inside:
            reg = Reg(f"r{n}", dtype_of(stage.value))
            b.set(reg.name, identity(stage.op, reg.dtype, 1))
            with nest(b, stage.axes, inside) as deep:
                b.set(reg.name, step(stage.op, reg, _value(stage.value, kernel, deep, numbers)))
            if stage.keep:
                b.store(numbers[n], _place(stage, inside), reg)
    with nest(b, kernel.axes[len(kernel.rows) :], at) as inside:
        b.store(0, kernel.store.substitute(inside), _value(kernel.value, kernel, inside, numbers))
    scratch = tuple(
        Scratch(dtype_of(kernel.stages[n].value), prod(v.extent for v in kernel.stages[n].keep))
        for n in kept
    )
    return b.finish(kernel, scratch)


def _value(e: Expr, kernel: Kernel, at: Values, numbers: Mapping[int, int]) -> Expr:
    """The expression at a point: variables replaced, results of stages read."""

    def change(node: Expr) -> Expr:
        if not isinstance(node, Acc):
            return node
        stage = kernel.stages[node.stage]
        if not stage.keep:
            return Reg(f"r{node.stage}", node.dtype)
        return Load(numbers[node.stage], _place(stage, at), node.dtype)

    return rewrite(e, change, at)


def _place(stage: Stage, at: Values) -> Any:
    """Where the result of a stage is, among those that it keeps."""
    return flatten((at.get(v, index(v)) for v in stage.keep), (v.extent for v in stage.keep))
