"""`space`: lists the candidates of a kernel on a class of devices.  Input: a product's sizes or a
bundle, and a device class.  Output: the numbered candidates, sizes of whole spaces, the table of
classes.  Nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group

from lab.paper_spaces import CACHE_READ, PAPER, READINGS, RELAXATIONS, block_tiles, naive, tiles
from lab.subjects import product_kernel
from tilewright.base.abi import WORD_BYTES
from tilewright.base.errors import MemoryLimit, NoSpace, UsageError, of_kind
from tilewright.bundle import is_bundle, open_bundle
from tilewright.cli.options import OBJECTIVES_HELP, Json, check_objective, sizes
from tilewright.cli.output import Answer, table
from tilewright.kernel.spec import Kernel
from tilewright.targets import target
from tilewright.targets.device_class import DeviceClass
from tilewright.targets.device_classes import CLASSES, USUAL, find, nearest
from tilewright.targets.device_classes import table as class_table
from tilewright.targets.lite_space import (
    KINDS,
    RELAXATION,
    Core,
    Objective,
    Product,
    limits,
    lite,
    product_of,
    tile_of,
)
from tilewright.targets.protocol import FIXED
from tilewright.targets.schedule import Schedule
from tilewright.tuning.candidates import Space, space_of
from tilewright.tuning.catalogue import kernels_of

KNOWN = ("matmul", "batchmatmul")

Device = Annotated[
    str,
    typer.Option(
        "--device", metavar="CLASS", help="Take this class of devices. --classes lists all."
    ),
]


def space(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="matmul|batchmatmul|BUNDLE",
            help="Show this kernel (matmul, batchmatmul), or one of the bundle in this folder.",
        ),
    ] = None,
    size: Annotated[
        str | None, typer.Argument(metavar="[B]xMxKxN", help="Give a product these sizes.")
    ] = None,
    device: Device = USUAL,
    spec: Annotated[
        int | None, typer.Option(min=0, help="Show the kernel of the bundle with this number.")
    ] = None,
    objective: Annotated[
        str, typer.Option(help=f"List first the candidates that need least of: {OBJECTIVES_HELP}.")
    ] = "latency",
    relaxation: Annotated[
        float,
        typer.Option(
            min=1.0, help="Accept lite tiles that use at least 1/RELAXATION of a resource."
        ),
    ] = RELAXATION,
    fallback: Annotated[
        bool, typer.Option("--fallback", help="Take the next wider class if CLASS is unknown.")
    ] = False,
    classes: Annotated[bool, typer.Option("--classes", help="List the device classes.")] = False,
    counts: Annotated[
        bool, typer.Option("--counts", help="Count the lite spaces of K0 to K3 on every class.")
    ] = False,
    readings: Annotated[
        bool,
        typer.Option(
            "--readings",
            help="Count the WebGPU space of the nnJIT paper, in every reading of its text.",
        ),
    ] = False,
    as_json: Json = False,
) -> Answer:
    """List the schedules that are worth trying for a kernel on a class of devices."""
    del as_json
    if classes:
        return _classes()
    if counts:
        return _counts()
    if readings:
        return _readings()
    if what is None:
        raise UsageError(
            "No kernel or bundle is named",
            hint=f"Name one: python -m lab space matmul 384x768x768 --device {USUAL}",
        )
    serves = check_objective(objective)
    chosen, note = _device(device, fallback)
    if what in KNOWN:
        kernel = _product(what, size or "", chosen)
    else:
        if spec is None:
            return _bundle(Path(what), chosen, note)
        kernel = _numbered(Path(what), spec)
    return _listed(kernel, chosen, serves, relaxation, note)


# ---- whose space ---------------------------------------------------------------------------------


def _device(name: str, fallback: bool) -> tuple[DeviceClass, str]:
    """The device class, and a note if it is not the one that was named."""
    if not fallback or name in CLASSES:
        return find(name), ""
    found = nearest(name)
    return found, f"There is no class {name}: {found.id} is the next wider one"


def _product(what: str, text: str, device: DeviceClass) -> Kernel:
    hint = "384x768x768" if what == "matmul" else "12x384x384x64"
    found = sizes(text, "x", hint)
    if len(found) != (3 if what == "matmul" else 4):
        raise UsageError(f"Not the sizes of a {what}: {text or 'none'}", hint=f"Write {hint}")
    *batch, m, k, n = found
    needed = WORD_BYTES * prod(batch) * (m * k + k * n + m * n)
    limit = 1 << target(device.target).facts.address_bits
    if needed > limit:
        raise MemoryLimit(
            f"The operands of {what} {text} do not fit into the memory of one model",
            hint="Use smaller sizes", target=device.target, bytes=needed, limit=limit,
        )  # fmt: skip
    if what == "matmul":
        return product_kernel("mk,kn->mn", (m, k), (k, n), weight=True)
    return product_kernel("bmk,bkn->bmn", (*batch, m, k), (*batch, k, n), weight=False)


def _numbered(path: Path, spec: int) -> Kernel:
    kernels = kernels_of(open_bundle(path))
    if spec >= len(kernels):
        raise UsageError(
            f"The bundle has no kernel {spec}",
            hint=f"Its kernels are numbered from 0 to {len(kernels) - 1}",
        )
    return kernels[spec]


# ---- what is shown -------------------------------------------------------------------------------


def _listed(
    kernel: Kernel, device: DeviceClass, objective: Objective, relaxation: float, note: str
) -> Answer:
    found = space_of(kernel, device, objective, relaxation)
    data: dict[str, Any] = {"note": note} if note else {}
    data |= _summary(found, kernel) | {"objective": objective, "relaxation": relaxation}
    data["useful"] = found.useful
    rows = [_row(found, kernel, n) for n in (0, *found.order)]
    view = Group(
        *([note] if note else []), table(rows[0], (r.values() for r in rows)), _words(data)
    )
    return Answer(data | {"candidates": rows}, view)


def _row(space: Space, kernel: Kernel, number: int) -> dict[str, object]:
    """One candidate; if it is a tile, with the figures of the paper's formulas in words and
    bytes."""
    schedule = space.schedules[number]
    matrix = product_of(kernel) if "x0" in schedule.to_json() else None
    row: dict[str, object] = {
        "number": number,
        "mark": space.marks[number],
        "schedule": str(schedule),
    }
    told = _figures(schedule, matrix, space.device.core) if matrix is not None else {}
    return {**row, **told}


def _figures(schedule: Schedule, matrix: Product, core: Core) -> dict[str, float]:
    """The figures of a product's schedule by the paper's formulas."""
    tile = tile_of(schedule, matrix)
    sizes: dict[str, float] = {"reg_thread": tile.reg_thread, "l1_block": tile.l1_block}
    if not KINDS[core.kind].shared:
        return sizes | {"block_core": 1}
    found = limits(tile, core)
    return sizes | {
        "thread_block": tile.thread_block(core),
        "block_core": round(min(core.warps, found.block_core), 2),
        "reg_limit": round(found.registers, 2),
        "l1_limit": round(found.l1, 2),
        "warp_limit": round(found.warps, 2),
    }


def _summary(space: Space, kernel: Kernel) -> dict[str, Any]:
    """Numbers of candidates: of the lite space with the settings that findings fix, of those that
    the extended space adds, and of all."""
    matrix = product_of(kernel)
    size = naive(matrix, space.device.core.kind) if matrix is not None else None
    return {
        "kind": space.kind,
        "shape": space.shape,
        "device": space.device.id,
        "checksum": space.checksum,
        "lite": space.marks.count("lite"),
        "extended": space.marks.count("extended"),
        "all": len(space.schedules),
        "fixed": space.fixed,
        "naive": size,
        "reduction": round(size / len(space.schedules)) if size else None,
    }


def _words(data: Mapping[str, Any]) -> str:
    words = (
        f"{data['shape']} on {data['device']}: {data['all']} candidates with the default; the lite "
        f"space has {data['lite']}, the extended one {data['extended']} more"
    )
    if data.get("objective", "latency") != "latency":
        words += f"; {data['useful']} of them need less {data['objective']} than the default"
    if data["fixed"]:
        words += f"; {FIXED[data['fixed']]}"
    if data["naive"]:
        words += f"; the naive space has {data['naive']:,}, {data['reduction']:,} times as many"
    return words


def _bundle(path: Path, device: DeviceClass, note: str) -> Answer:
    """One line for each kernel of a bundle."""
    if not is_bundle(path):
        raise UsageError(
            f"Neither a kernel nor a bundle: {path}",
            hint=f"Write {' or '.join(KNOWN)}, or the folder of a bundle",
        )
    kernels = kernels_of(open_bundle(path))
    rows: list[dict[str, Any]] = []
    for spec, kernel in enumerate(kernels):
        with suppress(NoSpace):
            found = _summary(space_of(kernel, device), kernel)
            rows.append({"spec": spec, "name": kernel.name} | found)
    if len(rows) < len(kernels):
        missing = f"{len(kernels) - len(rows)} kernels have no space on {device.id} yet"
        note = f"{note}; {missing}" if note else missing
    shown = (
        "spec", "name", "kind", "shape", "lite", "extended", "all", "fixed", "naive", "checksum",
    )  # fmt: skip
    view = table(shown, ([row[name] for name in shown] for row in rows))
    return Answer({"note": note, "kernels": rows}, Group(note, view) if note else view)


def _classes() -> Answer:
    rows = class_table()
    flat = [row | of_kind(row["core"], dict, "no core of a class") for row in rows]
    shown = ("id", "registers", "l1", "warps", "warp_width", "variant", "fallback")
    return Answer(rows, table(shown, ([r[name] for name in shown] for r in flat)))


def _counts() -> Answer:
    """The lite space of K0 to K3 on every class, at several relaxation ratios."""
    rows: list[dict[str, Any]] = []
    for device in CLASSES.values():
        for name, matrix in PAPER.items():
            found = {str(r): len(lite(matrix, device.core, r)) for r in RELAXATIONS}
            rows.append(
                {"device": device.id, "kernel": name, "naive": naive(matrix, device.core.kind)}
                | found
            )
    columns = ("device", "kernel", "naive", *map(str, RELAXATIONS))
    return Answer(rows, table(columns, ([row[c] for c in columns] for row in rows)))


def _readings() -> Answer:
    """The paper's WebGPU space of K0 and K2 on every class, as its text may be read."""
    rows: list[dict[str, Any]] = []
    for device in CLASSES.values():
        for reading in READINGS if device.core.kind == "gpu" else ():
            for name in ("K0", "K2"):
                matrix = PAPER[name]
                counts = {str(r): len(tiles(matrix, device.core, reading, r)) for r in RELAXATIONS}
                rows.append(
                    {"device": device.id, "kernel": name}
                    | asdict(reading)
                    | {"block_tiles": len(block_tiles(matrix, reading))}
                    | counts
                )
    said = f"Each tile once; with cache read on and off there are {len(CACHE_READ)} times as many."
    return Answer(rows, Group(table(rows[0], (r.values() for r in rows)), "", said))
