"""The plain lowering: scalar loops, one tile per row, in the order of the specification.

Input: any kernel.  Output: the loop nest of one tile.  A target that starts from here supports
every kernel at once and has no schedules to choose from; its code is correct, not fast.

    matmul:   tile = (m, n);  r0 := sum over k;  store r0
    softmax:  tile = row;     r0 := max, r1 := sum over the row;  store each column
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tilewright.base.errors import InputError, NoSpace
from tilewright.base.sections import File, Section
from tilewright.kernel.builder import Builder, Values, nest
from tilewright.kernel.expr import Acc, Expr, Load, Reg, dtype_of, identity, step
from tilewright.kernel.extents import limited_first, points, scaled
from tilewright.kernel.form import TopK, classify
from tilewright.kernel.index import Index, flatten, index, unflatten
from tilewright.kernel.loops import Scratch, TileFn, checks
from tilewright.kernel.spec import Kernel, Stage
from tilewright.kernel.tree import rewrite
from tilewright.plan import Program
from tilewright.targets import scalar_top_k
from tilewright.targets.device_class import DeviceClass
from tilewright.targets.protocol import Candidate, Code
from tilewright.targets.schedule import Schedule

#: Reduction steps, about, between two points at which a worker may leave a tile: some microseconds
#: for one GPU thread.
CHUNK = 64


@dataclass(frozen=True)
class Plain(Schedule):
    """The only schedule of plain targets; its JSON is {}."""

    tag = "plain"

    def to_json(self) -> dict[str, object]:
        return {}


@dataclass(frozen=True)
class PlainVariant:
    """The only code variant of plain targets."""

    name: str
    features: frozenset[str] = frozenset()
    is_default: bool = True


class PlainTarget(ABC):
    """A target with one variant whose code is text, and with one schedule unless it adds others."""

    name: str
    variant: PlainVariant
    classes: tuple[DeviceClass, ...] = ()

    @property
    def variants(self) -> Mapping[str, PlainVariant]:
        return {self.variant.name: self.variant}

    @property
    def stages(self) -> tuple[str, ...]:
        return (self.name,)

    def default(self, kernel: Kernel, variant: str) -> Schedule:
        return Plain()

    def schedule(self, data: Mapping[str, object]) -> Schedule:
        if data:
            raise InputError(
                f"Schedules of the target {self.name} have no choices",
                hint="Write {}, or name a schedule of the target that it was made for",
                schedule=dict(data),
            )
        return Plain()

    def objection(self, kernel: Kernel, schedule: Schedule) -> str:
        return "" if schedule == Plain() else f"the target {self.name} has one schedule, {Plain()}"

    def candidates(
        self, kernel: Kernel, device: DeviceClass, relaxation: float
    ) -> Sequence[Candidate]:
        raise NoSpace(
            f"Kernels of the target {self.name} have one schedule: nothing can be tried",
            hint="Choose a device class of another target (docs/device-classes.md)",
            kernel=kernel.name,
            device=device.id,
        )

    def slow(self, kernel: Kernel, default: Schedule) -> None:
        return None

    def codes(
        self,
        kernel: Kernel,
        schedules: Mapping[str, Schedule],
        *,
        alone: bool = False,
        without: frozenset[str] = frozenset(),
    ) -> dict[str, Code]:
        return {v: self.code(kernel, s) for v, s in schedules.items()}

    def code(self, kernel: Kernel, schedule: Schedule) -> Code:
        fn = self.lower(kernel, schedule)
        needs = schedule.features
        return Code(kernel, schedule, fn, 0, needs, self.emit(kernel, fn, needs))

    def lower(self, kernel: Kernel, schedule: Schedule) -> TileFn:
        """The loop nest of one tile."""
        return lower(kernel)

    @abstractmethod
    def emit(self, kernel: Kernel, fn: TileFn, needs: frozenset[str] = frozenset()) -> str:
        """The text of one kernel; kernels with equal text share a slot.  needs: features it uses"""

    @abstractmethod
    def encode(
        self,
        program: Program,
        codes: Mapping[str, Sequence[Code]],
        settings: Mapping[str, object],
    ) -> Section: ...

    def exchange(
        self,
        program: Program,
        old: Section,
        variant: str,
        codes: Sequence[Code],
        changed: frozenset[int],
        settings: Mapping[str, object],
    ) -> Section:
        return self.encode(program, {variant: codes}, settings)

    def module(self, code: Code, variant: str) -> File:
        return File(str(code.body).encode(), self.name)

    def tiles(self, code: Code) -> int:
        return code.loops.tiles * code.loops.threads

    def grain(self, kernel: Kernel, tiles: int) -> int:
        """Tiles per ticket: all, since one call runs a whole step."""
        return max(1, tiles)

    def text(self, code: Code, variant: str, stage: str) -> str:
        return str(code.body)


def numbers_of(fn: TileFn, place: int | None = None) -> list[int | list[int]]:
    """Invocations (tiles times threads) and run-time scalars as data: numbers, or fields of a
    `RuntimeNumber`.

    place: the step's number, added at the end if the function reports index errors
    """
    told = [] if place is None or not checks(fn) else [place]
    if not fn.counts:
        return [fn.tiles * fn.threads, *told]
    tiles, *scalars = (
        n if count is None else count
        for count, n in zip(fn.counts, (fn.tiles, *fn.values), strict=True)
    )
    numbers = (scaled(tiles, fn.threads), *scalars)
    return [*(n if isinstance(n, int) else n.to_data() for n in numbers), *told]


def lower(kernel: Kernel) -> TileFn:
    """Loops with one tile per point of the leading axes.  Reductions that keep axes use scratch."""
    if isinstance(classify(kernel), TopK):
        return scalar_top_k.lower(kernel)
    rows = limited_first(kernel, kernel.rows)
    b = Builder({}, points(kernel, rows), kernel)
    at: Values = dict(zip(rows, unflatten(b.tile, tuple(v.extent for v in rows)), strict=True))
    kept = [n for n, stage in enumerate(kernel.stages) if stage.keep]
    numbers = {n: len(kernel.buffers) + i for i, n in enumerate(kept)}
    for n, stage in enumerate(kernel.stages):
        with nest(b, stage.keep, at) as inside:
            reg = Reg(f"r{n}", dtype_of(stage.value))
            b.set(reg.name, identity(stage.op, reg.dtype, 1))
            with nest(b, stage.axes, inside, 0 if stage.keep else CHUNK) as deep:
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
    """The expression at a point: variables are replaced, results of stages are read."""

    def change(node: Expr) -> Expr:
        if not isinstance(node, Acc):
            return node
        stage = kernel.stages[node.stage]
        if not stage.keep:
            return Reg(f"r{node.stage}", node.dtype)
        return Load(numbers[node.stage], _place(stage, at), node.dtype)

    return rewrite(e, change, at)


def _place(stage: Stage, at: Values) -> Index:
    """The offset of a stage's result in its scratch area."""
    return flatten((at.get(v, index(v)) for v in stage.keep), (v.extent for v in stage.keep))
