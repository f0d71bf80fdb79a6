"""The primitives of SIMD schedules and WebAssembly code, and what findings fix of them.

Input: a kernel and its schedule.  Output: the table that `tilewright primitives` works through, the
settings that are fixed in the space, and schedules at all untuned settings.  It measures nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

from tilewright.kernel.form import Contraction, classify, form_as
from tilewright.kernel.roles import Operands
from tilewright.kernel.spec import Kernel
from tilewright.targets import findings
from tilewright.targets.primitives import Primitive, Setting, Setup
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.contraction import ContractionSchedule
from tilewright.targets.simd.depth import DepthSchedule
from tilewright.targets.simd.elementwise import MapSchedule, ReduceSchedule, one_row
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.table import default_schedule
from tilewright.targets.wasm.passes import PASSES
from tilewright.targets.wasm.target import TARGETS

#: Verdicts that leave a setting to the device that tunes.
OPEN: frozenset[findings.Verdict] = frozenset({"device-dependent", "unconfirmed"})
#: What was found on the devices at hand.
FINDINGS = Path(__file__).parent / "data" / "primitives.json"

_FUSED = tuple(t.name for t in TARGETS.values() if t.fma and t.usual)
_PLAIN = tuple(t.name for t in TARGETS.values() if not t.fma)


def _packed(roles: Operands) -> bool:
    return roles.col_step is None


def _one_step(s: ContractionSchedule) -> ContractionSchedule:
    """One reduction step per pass; a block of the reduction that was one pass remains one."""
    return replace(s, r0=1, r1=1 if s.r1 == s.r0 else s.r1)


def _one_tile(s: ContractionSchedule) -> ContractionSchedule:
    return replace(s, x1=s.x0, y1=s.y0)


def _one_vector(s: ContractionSchedule) -> ContractionSchedule:
    """One row and four columns; as many register tiles per tile of the grid as before."""
    return replace(s, x0=1, y0=4)


#: In the order in which `untuned` applies them: sizes inside before those outside.
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
    Primitive(
        "unroll", "reduction steps that are written out (r0)", "range",
        Setting("1", _one_step), Setting("8"), has=lambda s: s.r0 > 1,
        concerns=lambda roles: bool(roles.depth) and roles.depth[-1].extent > 1,
    ),
    Primitive(
        "vectorize", "elements per vector (lanes)", "switch",
        Setting("1", lambda s: replace(s, lanes=1)), Setting("4"), has=lambda s: s.lanes > 1,
        concerns=lambda roles: roles.n.extent > 1,
    ),
    Primitive(
        "split", "reduction steps after which a tile starts over (r1)", "size",
        Setting("all", lambda s: replace(s, r1=0)), Setting("128", lambda s: replace(s, r1=128)),
        has=lambda s: s.r1 > 0,
    ),
    Primitive(
        "cache_write", "where sums wait between two passes of the innermost loop", "range",
        Setting("memory", lambda s: replace(s, r1=s.r0)),
        Setting("registers"),
        has=lambda s: s.r1 == 0 or s.r1 > s.r0,
    ),
    Primitive(
        "reorder", "loop over a tile's register tiles that is inside: rows (nm), columns (mn)",
        "switch", Setting("nm", lambda s: replace(s, order="nm")),
        Setting("mn", lambda s: replace(s, order="mn")), has=lambda s: s.order == "mn",
        concerns=_packed,
    ),
    Primitive(
        "cache_read", "columns in packed panels: copied to scratch memory before use", "switch",
        Setting("copied", lambda s: replace(s, stage=True)),
        Setting("in place", lambda s: replace(s, stage=False)), has=lambda s: not s.stage,
        concerns=_packed,
    ),
    Primitive(
        "cache_read_rows", "columns in rows, as an input has them: copied to panels before use",
        "switch", Setting("in place", lambda s: replace(s, stage=False)),
        Setting("copied", lambda s: replace(s, stage=True)), "rows", has=lambda s: s.stage,
        concerns=lambda roles: not _packed(roles),
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
#: What is measured; a device's vector of zeros and ones has this order.
MEASURED: tuple[Primitive, ...] = tuple(p for p in PRIMITIVES if p.measured)


@cache
def decided() -> Mapping[str, findings.Decision]:
    """The decision on each primitive that is no size, from the findings that are shipped."""
    found = findings.decisions(findings.read(FINDINGS).devices)
    return {p.name: found[p.name] for p in MEASURED if p.kind != "size" and p.name in found}


def choices(kernel: Kernel, schedule: Schedule) -> tuple[Schedule, ...]:
    """A schedule under each setting that is still open for its kernel.

    Consistent primitives get their setting; a schedule that cannot have it is dropped.  Where
    devices differ, or only one has spoken, both settings of a switch are candidates; otherwise it
    stays as it is.
    """
    form = classify(kernel)
    if not isinstance(form, Contraction) or not isinstance(schedule, ContractionSchedule):
        return (schedule,)
    made: tuple[ContractionSchedule, ...] = (schedule,)
    for name, decision in decided().items():
        primitive, tuned = NAMED[name], decision.tuned
        has = primitive.has
        if has is None or not primitive.concerns(form.operands):
            continue
        if decision.verdict in OPEN and primitive.kind == "switch":
            both = (primitive.untuned, primitive.tuned)
            made = tuple(dict.fromkeys(s.change(m) for m in made for s in both))
        elif tuned is not None:
            setting = primitive.setting(tuned)
            made = tuple(m for m in map(setting.change, made) if has(m) is tuned)
    return made


def setup(primitive: Primitive, tuned: bool, kernel: Kernel) -> Setup:
    """What times a setting of a contraction: both settings start from one schedule, that of a
    machine with fused multiply-add."""
    setting = primitive.setting(tuned)
    machines = {name: TARGETS[name].machine for name in setting.variants or _FUSED}
    return Setup(
        tuple(
            (name, setting.change(default_schedule(kernel, replace(machine, fma=True))))
            for name, machine in machines.items()
        ),
        setting.without,
    )


#: The untuned setting of fields that other schedules than a contraction's have.
LEAST = {"x0": 1, "r0": 1, "x1": 1, "cache": ""}


def untuned(kernel: Kernel, machine: Machine) -> Schedule:
    """Every primitive that the kernel's lowering knows at its untuned setting.

    The worst start that a tuner could be given; slow, but as correct as any schedule.
    """
    schedule = default_schedule(kernel, machine)
    if isinstance(schedule, ContractionSchedule):
        roles = form_as(kernel, Contraction).operands
        for primitive in PRIMITIVES:
            if primitive.concerns(roles):
                schedule = primitive.untuned.change(schedule)
        return schedule
    if isinstance(schedule, DepthSchedule):
        return replace(schedule, x0=1, y0=1, r0=1, x1=1, y1=1)
    least = {f.name: LEAST[f.name] for f in fields(schedule) if f.name in LEAST}
    if isinstance(schedule, MapSchedule | ReduceSchedule) and one_row(kernel):
        del least["x1"]  # a span of elements is no primitive
    return replace(schedule, **least)
