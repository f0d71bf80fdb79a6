"""The primitives of SIMD schedules and WebAssembly code: a table of variables with two settings.

Input: a kernel and its schedule.  Output: the table of primitives for `python -m lab primitives`,
the schedules and passes to time a setting with, and schedules with all settings untuned.  It
measures nothing.  The idea is from nnJIT, section 5.1 and figure 9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from lab.primitives.findings import Decision
from tilewright.kernel.form import Contraction, form_as
from tilewright.kernel.product_operands import Operands
from tilewright.kernel.spec import Kernel
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.contraction import ContractionSchedule
from tilewright.targets.simd.elementwise import MapSchedule, ReduceSchedule, one_row
from tilewright.targets.simd.inner_product import InnerProductSchedule
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.strategies import default_schedule
from tilewright.targets.wasm.choices import CHOICES
from tilewright.targets.wasm.passes import PASSES
from tilewright.targets.wasm.variant import VARIANTS

#: Rows, depth and columns of the product that is measured. nnJIT takes 4096 each on a GPU. One CPU
#: core would need 3 seconds for one run of that size; for this size it needs 6 milliseconds.
MATMUL = (512, 512, 512)

Kind = Literal["switch", "range", "size", "none"]
Columns = Literal["packed", "rows"]


def _same(schedule: Any) -> Any:
    return schedule


@dataclass(frozen=True)
class Setting:
    """One setting of a primitive: how it changes a product's schedule, or the passes and variants
    that code is made with.

    variants: names of the variants in which the setting shows; (): the best ones for a host
    """

    label: str
    change: Callable[[Any], Any] = _same
    without: frozenset[str] = frozenset()
    variants: tuple[str, ...] = ()


@dataclass(frozen=True)
class Primitive:
    """One variable of the microbenchmark.

    kind:    "switch": it has only these two settings; if devices agree, one is fixed, else both are
             tried; "range": the untuned setting is one end of a range in the space; if devices
             agree, that end is removed or is all that stays; "size": two of many sizes; the result
             only shows whether the size matters; "none": not measured on this target, for the
             reason in `says`
    columns: the layout of the product's columns: a weight in panels, or rows as of an input
    has:     tells whether a schedule of a product has the tuned setting; None: it is not part of
             schedules
    concerns: tells whether both settings are possible for a product; short sums, for example,
              cannot be unrolled
    """

    name: str
    says: str
    kind: Kind
    untuned: Setting = Setting("")
    tuned: Setting = Setting("")
    columns: Columns = "packed"
    has: Callable[[Any], bool] | None = None
    concerns: Callable[[Operands], bool] = lambda roles: True

    @property
    def measured(self) -> bool:
        return self.kind != "none"

    def setting(self, tuned: bool) -> Setting:
        return self.tuned if tuned else self.untuned


@dataclass(frozen=True)
class Setup:
    """The code for timing one setting: a schedule for each variant, and the passes to leave out.

    A host runs the variant that suits it.
    """

    schedules: tuple[tuple[str, Schedule], ...]
    without: frozenset[str]

    @property
    def variants(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.schedules)


#: The findings of the devices that we have measured.
FINDINGS = Path(__file__).with_name("primitives.json")

_FUSED = tuple(t.name for t in VARIANTS.values() if t.fma and t.is_default)
_PLAIN = tuple(t.name for t in VARIANTS.values() if not t.fma)


def _one_tile(s: ContractionSchedule) -> ContractionSchedule:
    return replace(s, x1=s.x0, y1=s.y0)


def _one_vector(s: ContractionSchedule) -> ContractionSchedule:
    """The schedule with register tiles of one row and four columns, and the same number of them per
    tile of the grid."""
    return replace(s, x0=1, y0=4)


def _choice(
    name: str, says: str, untuned: str, tuned: str, columns: Columns = "packed"
) -> Primitive:
    """A primitive that is a choice of the lite space, with the labels of its settings."""
    choice = CHOICES[name]
    return Primitive(
        name, says, "switch" if choice.switch else "range",
        Setting(untuned, choice.untuned), Setting(tuned, choice.tuned), columns, choice.has,
        choice.concerns,
    )  # fmt: skip


#: All primitives, in the order in which `untuned` applies them: inner sizes before outer ones.
PRIMITIVES: tuple[Primitive, ...] = (
    Primitive(
        "tile_registers", "results that a register tile holds (x0, y0)", "size",
        Setting("1x4", _one_vector), Setting("6x8, as registers allow"),
        has=lambda s: s.x0 * s.y0 > 4,
    ),
    Primitive(
        "tile_cache", "register tiles that one tile of the grid holds (x1, y1)", "size",
        Setting("one", _one_tile), Setting("as caches allow"),
        has=lambda s: s.x1 > s.x0 or s.y1 > s.y0,
    ),
    _choice("unroll", "reduction steps that are written out (r0)", "1", "8"),
    _choice("vectorize", "elements per vector (lanes)", "1", "4"),
    Primitive(
        "split", "reduction steps after which a tile starts over (r1)", "size",
        Setting("all", lambda s: replace(s, r1=0)), Setting("128", lambda s: replace(s, r1=128)),
        has=lambda s: s.r1 > 0,
    ),
    _choice(
        "cache_write", "where sums wait between two passes of the innermost loop", "memory",
        "registers",
    ),
    _choice(
        "reorder", "loop over a tile's register tiles that is inside: rows (nm), columns (mn)",
        "nm", "mn",
    ),
    _choice(
        "cache_read", "columns in packed panels: copied to scratch memory before use", "copied",
        "in place",
    ),
    _choice(
        "cache_read_rows", "columns in rows, as an input has them: copied to panels before use",
        "in place", "copied", "rows",
    ),
    Primitive(
        "fma", "products and sums", "switch",
        Setting("two instructions", variants=_PLAIN), Setting("one instruction"),
    ),
    *(
        Primitive(
            name, f"the Wasm pass of this name, number {number} of nnJIT's three", "switch",
            Setting("off", without=frozenset({name})), Setting("on"),
        )
        for number, (name, _) in enumerate(PASSES, 1)
    ),
    Primitive(
        "bind",
        "loops bound to blocks and threads: a CPU core runs one thread, and all cores take tiles "
        "of any schedule by ticket, so there is nothing to choose",
        "none",
    ),
)  # fmt: skip

NAMED: Mapping[str, Primitive] = {p.name: p for p in PRIMITIVES}
#: The primitives that are measured; a device's vector of zeros and ones has this order.
MEASURED: tuple[Primitive, ...] = tuple(p for p in PRIMITIVES if p.measured)


def fixed_by(found: Mapping[str, Decision]) -> dict[str, bool | None]:
    """The table that `targets/wasm/choices.py` must contain according to these decisions."""
    effects = {name: found[name] for name in CHOICES if name in found}
    return {name: d.tuned for name, d in effects.items() if d.verdict != "no effect"}


def setup(primitive: Primitive, tuned: bool, kernel: Kernel) -> Setup:
    """The schedules and passes with which a setting of a contraction is timed.  Both settings start
    from the default schedule for a machine with fused multiply-add."""
    setting = primitive.setting(tuned)
    machines = {name: VARIANTS[name].machine for name in setting.variants or _FUSED}
    return Setup(
        tuple(
            (name, setting.change(default_schedule(kernel, replace(machine, fma=True))))
            for name, machine in machines.items()
        ),
        setting.without,
    )


#: The untuned setting of each field in schedules of other kernels than contractions.
LEAST = {"x0": 1, "r0": 1, "x1": 1, "cache": ""}


def untuned(kernel: Kernel, machine: Machine) -> Schedule:
    """The kernel's schedule with every primitive at its untuned setting.

    It is the worst start for a tuner: slow, but as correct as any schedule.
    """
    schedule = default_schedule(kernel, machine)
    if isinstance(schedule, ContractionSchedule):
        roles = form_as(kernel, Contraction).operands
        for primitive in PRIMITIVES:
            if primitive.concerns(roles):
                schedule = primitive.untuned.change(schedule)
        return schedule
    if isinstance(schedule, InnerProductSchedule):
        return replace(schedule, x0=1, y0=1, r0=1, x1=1, y1=1)
    least = {f.name: LEAST[f.name] for f in fields(schedule) if f.name in LEAST}
    if isinstance(schedule, MapSchedule | ReduceSchedule) and one_row(kernel):
        del least["x1"]  # a span of elements is not a primitive
    return replace(schedule, **least)
