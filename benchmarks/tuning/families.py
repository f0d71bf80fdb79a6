"""Whether a choice at load among a few families of schedules would beat one default for all.

A family is a rule that makes a schedule of a kernel and a machine.  Input: sweeps of whole spaces.
Output: results/tuning.families.json: per kernel, host and processor the shares of the
optimum of candidates, and of each family's schedule.  report/spaces.py compares them.

    python -m benchmarks tuning.families sweep --host chromium [--kernel K0]
    python -m benchmarks tuning.families again       stored sweeps, after a change of the families
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypedDict, cast

import typer

from benchmarks.common import Run, stored_rows
from benchmarks.options import BROWSERS, Hosts, among
from benchmarks.tuning.candidate_times import (
    check_candidates,
    device_here,
    time_candidates,
    write_candidates,
)
from benchmarks.tuning.subjects import ALL_SUBJECTS
from tilewright.api.host_registry import engine_of
from tilewright.cli.tools import cpu
from tilewright.kernel.form import Attention, Contraction, form_as
from tilewright.kernel.spec import Kernel
from tilewright.targets.device_classes import DeviceClass, find
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.attention import AttentionSchedule
from tilewright.targets.simd.contraction import (
    PAGED_ROWS,
    PAGED_STEPS,
    ContractionSchedule,
    tiled_schedule,
)
from tilewright.targets.simd.machine import Machine, unroll
from tilewright.targets.simd.register_tiles import register_tile, register_tiles
from tilewright.targets.simd.strategies import VectorStrategy, default_schedule, strategy_of
from tilewright.targets.wasm import VARIANTS
from tilewright.tuning.candidates import space_of

#: Schedule of a kernel, from its default.
Rule = Callable[[Schedule, Kernel, Machine], Schedule]

#: Candidates below this share of the optimum are not stored, unless a family has them.
STORED = 0.8

# ---- families ------------------------------------------------------------------------------------


def scaled(name: str, factor: float) -> Rule:
    """A size some times as large, where a schedule has it."""

    def rule(s: Schedule, kernel: Kernel, machine: Machine) -> Schedule:
        size = getattr(s, name, 0)
        return replace(s, **{name: max(1, round(size * factor))}) if size else s

    return rule


def tile(
    s: Schedule, kernel: Kernel, machine: Machine, pick: Callable[[int, int], bool]
) -> Schedule:
    """The best register tile that `pick` takes, of rows and vectors."""
    if isinstance(s, ContractionSchedule):
        roles = form_as(kernel, Contraction).operands
        m, n, panel = roles.m.extent, roles.n.extent, roles.panel
    elif isinstance(s, AttentionSchedule):
        heads = form_as(kernel, Attention)
        m, n, panel = heads.m.extent, heads.keys.extent, 1
    else:
        return s
    tiles = register_tiles(m, n, machine, panel, (1, 2, 3, 4, 6))
    found = next(((x, y) for _, x, y in tiles if pick(x, y // machine.lanes)), None)
    if found is None:
        return s
    if isinstance(s, ContractionSchedule):
        return tiled_schedule(kernel, roles, found, machine)
    return replace(s, x0=found[0], y0=found[1], x1=max(1, s.x1 // found[0]) * found[0])


def unpaged(s: Schedule, kernel: Kernel, machine: Machine, rows: int = 4) -> Schedule:
    """Register tiles and passes as where no row's steps lie pages apart, `rows` in a tile."""
    if not isinstance(s, ContractionSchedule) or s.x0 > PAGED_ROWS or s.r0 != PAGED_STEPS:
        return s
    roles = form_as(kernel, Contraction).operands
    x0, y0 = register_tile(roles.m.extent, roles.n.extent, machine, roles.panel)
    r0 = unroll(roles.depth[-1].extent if roles.depth else 1)
    return replace(s, x0=x0, y0=y0, r0=r0, x1=s.x1 // s.x0 * rows // 4 * x0)


def turned(s: Schedule, kernel: Kernel, machine: Machine) -> Schedule:
    if not isinstance(s, ContractionSchedule):
        return s
    return replace(s, order="mn" if s.order == "nm" else "nm")


def copied(s: Schedule, kernel: Kernel, machine: Machine) -> Schedule:
    """Columns are copied first where the default does not, and the other way round."""
    if isinstance(s, AttentionSchedule):
        return replace(s, cache="" if s.cache else "kv")
    return replace(s, stage=not s.stage) if isinstance(s, ContractionSchedule) else s


def blocked(part: int) -> Rule:
    """The reduction in blocks whose rows take 1/part of L1; 0: at once."""

    def rule(s: Schedule, kernel: Kernel, machine: Machine) -> Schedule:
        if not isinstance(s, ContractionSchedule):
            return s
        return replace(s, r1=machine.l1 // (4 * s.x0) // part if part else 0)

    return rule


def chained(s: Schedule, kernel: Kernel, machine: Machine) -> Schedule:
    """As on a machine with chained sums."""
    return default_schedule(kernel, replace(machine, chained=True))


FAMILIES: Mapping[str, Rule] = {
    "default": lambda s, kernel, machine: s,
    "chained sums": chained,
    "passes half as long": scaled("r0", 1 / 2),
    "passes twice as long": scaled("r0", 2),
    "five rows": partial(tile, pick=lambda x, v: (x, v) == (5, 2)),
    "four rows": partial(tile, pick=lambda x, v: (x, v) == (4, 2)),
    "one vector": partial(tile, pick=lambda x, v: v == 1),
    "three vectors": partial(tile, pick=lambda x, v: v == 3),
    "six vectors": partial(tile, pick=lambda x, v: v == 6),
    "pages as other rows": unpaged,
    "pages as other rows, half the tile": partial(unpaged, rows=2),
    "loops turned": turned,
    "copies turned": copied,
    "blocks of half L1": blocked(2),
    "no blocks": blocked(0),
    "half the rows of a tile": scaled("x1", 1 / 2),
    "twice the rows of a tile": scaled("x1", 2),
    "half the columns of a tile": scaled("y1", 1 / 2),
    "twice the columns of a tile": scaled("y1", 2),
}


def machine_of(device: DeviceClass) -> Machine:
    return VARIANTS[device.variant].machine


def families(kernel: Kernel, machine: Machine) -> dict[str, Schedule]:
    """Each family's schedule, in normal form."""
    first = default_schedule(kernel, machine)
    strategy = strategy_of(kernel)
    assert isinstance(strategy, VectorStrategy)
    normal = strategy.rules(kernel, first, machine).normal
    return {name: normal(rule(first, kernel, machine)) for name, rule in FAMILIES.items()}


# ---- kernels -------------------------------------------------------------------------------------


#: Kind of kernel: its kernels.
KINDS: Mapping[str, Sequence[str]] = {
    "product with weights": (
        "K0", "K1", "MiniLM 384>384", "MiniLM 384>1536", "MiniLM 1536>384",
    ),
    "batched product": ("K2", "K3"),
    "costly epilogue": ("SiLU 1600x576x64", "SiLU 240x384x768"),
    "few rows": ("one row",),
    "3x3": ("conv 3x3", "3x3 128>128@28", "3x3 256>256@14"),
    "1x1": ("conv 1x1", "1x1 1024>256@14", "1x1 144>24@56", "1x1 384>64@14"),
    "depthwise": ("depthwise 3x3", "dw 576>576@14"),
    "attention": ("attention", "attention 384"),
    "rows": ("softmax", "layer norm", "rms norm", "sum last"),
}  # fmt: skip
KIND = {kernel: kind for kind, kernels in KINDS.items() for kernel in kernels}
# ---- sweeps --------------------------------------------------------------------------------------


class FamilyRow(TypedDict):
    """A row of results/tuning.families.json: shares of the optimum of the families' schedules, and
    of all candidates that have `STORED` or more."""

    kernel: str
    kind: str
    host: str
    engine: str
    device: str
    machine: str
    candidates: int
    families: Mapping[str, float]
    shares: Mapping[str, float]


def row(
    kernel: str,
    host: str,
    device: DeviceClass,
    machine: str,
    times: Mapping[Schedule, float],
    own: Mapping[str, Schedule],
) -> FamilyRow:
    """times: milliseconds, or anything in proportion to them"""
    least = min(times.values())
    share = {s: round(least / t, 4) for s, t in times.items()}
    shown = sorted(times, key=times.__getitem__)
    return {
        "kernel": kernel, "kind": KIND[kernel], "host": host, "engine": engine_of(host),
        "device": device.id,
        "machine": machine, "candidates": len(times),
        "families": {name: share[s] for name, s in own.items() if s in share},
        "shares": {str(s): share[s] for s in shown if share[s] >= STORED},
    }  # fmt: skip


def sweep(hosts: Sequence[str], name: str, device: DeviceClass) -> Iterator[FamilyRow]:
    """The whole space and all families, on each host."""
    step = ALL_SUBJECTS[name]()
    own = families(step.kernel, machine_of(device))
    space = space_of(step.kernel, device)
    schedules = list(dict.fromkeys([own["default"], *space.schedules[1:], *own.values()]))
    with tempfile.TemporaryDirectory(prefix="tilewright-families-") as folder:
        path = write_candidates(step, schedules, device, Path(folder) / "bundle")
        check_candidates(path)
        for host in hosts:
            times = time_candidates(host, path, len(schedules)).times
            found = dict(zip(schedules, times, strict=True))
            yield row(name, host, device, cpu(), found, own)


def again(rows: Sequence[FamilyRow]) -> Iterator[FamilyRow]:
    """The stored sweeps with the families of today, as far as their schedules are stored."""
    for r in rows:
        kernel, machine = ALL_SUBJECTS[r["kernel"]]().kernel, machine_of(find(r["device"]))
        own = {name: r["shares"].get(str(s)) for name, s in families(kernel, machine).items()}
        known = {name: share for name, share in own.items() if share is not None}
        yield {**r, "families": {**r["families"], **known}}


# ---- command -------------------------------------------------------------------------------------


def main(
    run: Run,
    step: Annotated[
        Literal["sweep", "again"],
        typer.Argument(help="again: stored sweeps, after a change of the families."),
    ],
    host: Hosts = None,
    kernel: Annotated[list[str] | None, among(ALL_SUBJECTS, "Kernels; repeatable")] = None,
) -> None:
    if step == "again":
        run.save(list(again(cast("list[FamilyRow]", stored_rows("tuning.families")))))
        return
    for name in kernel or ALL_SUBJECTS:
        for found in sweep(host or (*BROWSERS, "wasmtime"), name, device_here()):
            print(name, found["host"], found["families"], flush=True)
            run.save([found])
