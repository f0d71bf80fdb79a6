"""`space` and `relink`: what may be tried on a class of devices, and a bundle with what won.

Input: a product's sizes or a bundle, and a device class.  Output: the numbered candidates, counts
of whole spaces, the table of classes; or another bundle.  Nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Group

from tilewright.base.errors import InputError, MemoryLimit, NoSpace, UsageError
from tilewright.bundle import is_bundle, open_bundle, write
from tilewright.bundle.format import MALFORMED
from tilewright.cli.options import OBJECTIVES, Json, SignWith, check_objective, signer_of, sizes
from tilewright.cli.output import Answer, pairs, size, table
from tilewright.kernel.spec import Kernel
from tilewright.targets import target
from tilewright.targets.classes import CLASSES, USUAL, find, nearest
from tilewright.targets.classes import table as class_table
from tilewright.targets.device import DeviceClass
from tilewright.targets.lite import (
    RELAXATION,
    WORD,
    Objective,
    Product,
    figures,
    lite,
    naive,
    product_of,
)
from tilewright.targets.protocol import FIXED
from tilewright.targets.readings import CACHE_READ, READINGS, block_tiles, tiles
from tilewright.targets.schedule import Schedule
from tilewright.tuning.candidates import Space, space_of
from tilewright.tuning.catalogue import kernels_of

#: The paper's kernels; B and all sizes as it prints them.
PAPER = {
    "K0": Product(384, 768, 768),
    "K1": Product(640, 768, 3072),
    "K2": Product(384, 384, 64, batch=12),
    "K3": Product(64, 64, 64, batch=120),
}
RELAXATIONS = (1.0, 1.1, 1.25, 1.5, 2.0)
KNOWN = ("matmul", "batchmatmul")

Device = Annotated[
    str, typer.Option("--device", metavar="CLASS", help="A device class; --classes lists them.")
]


def space(
    what: Annotated[
        str | None, typer.Argument(metavar="matmul|batchmatmul|BUNDLE", help="Whose space.")
    ] = None,
    size: Annotated[
        str | None, typer.Argument(metavar="[B]xMxKxN", help="The sizes of a product.")
    ] = None,
    device: Device = USUAL,
    spec: Annotated[
        int | None, typer.Option(min=0, help="Which kernel of the bundle: its number.")
    ] = None,
    objective: Annotated[
        str, typer.Option(help=f"Order of trial: {', '.join(OBJECTIVES)}.")
    ] = "latency",
    relaxation: Annotated[
        float, typer.Option(min=1.0, help="How much of a resource a lite tile may leave unused.")
    ] = RELAXATION,
    fallback: Annotated[
        bool, typer.Option("--fallback", help="Take the next wider class if CLASS is unknown.")
    ] = False,
    classes: Annotated[bool, typer.Option("--classes", help="List the device classes.")] = False,
    counts: Annotated[
        bool, typer.Option("--counts", help="Count the lite spaces of K0 to K3 on every class.")
    ] = False,
    readings: Annotated[
        bool, typer.Option("--readings", help="Count the paper's WebGPU space in every reading.")
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
            "Whose space?", hint=f"tilewright space matmul 384x768x768 --device {USUAL}"
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


def relink(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="The folder of a bundle.")],
    winners: Annotated[
        Path,
        typer.Option(
            help='A JSON file, of `tune --save` or {"spec number": schedule or candidate, …}.'
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write.")],
    device: Annotated[
        str | None,
        typer.Option(metavar="CLASS", help="The device class, if the file names none."),
    ] = None,
    sign_with: SignWith = None,
    as_json: Json = False,
) -> Answer:
    """Write the bundle again with the schedules that won on a class of devices."""
    del as_json
    from tilewright.tuning.relink import relink as relinked

    opened = open_bundle(bundle)
    chosen, schedules = _winners(winners, kernels_of(opened), device)
    contents = relinked(opened, chosen, schedules)
    manifest = write(contents, output, signer_of(sign_with))
    section = manifest.section(chosen.target)
    build = section.build(chosen.variant)
    assert build is not None
    data = {
        "bundle": str(output),
        "device": chosen.id,
        "variant": build.variant,
        "code_bytes": build.code.bytes,
        "kernels": section.slots,
    }
    return Answer(data, pairs(data | {"code_bytes": size(build.code.bytes)}))


# ---- whose space ---------------------------------------------------------------------------------


def _device(name: str, fallback: bool) -> tuple[DeviceClass, str]:
    """The class, and a note where it is not the one that was named."""
    if not fallback or name in CLASSES:
        return find(name), ""
    found = nearest(name)
    return found, f"There is no class {name}: {found.id} is the next wider one"


def _product(what: str, text: str, device: DeviceClass) -> Kernel:
    hint = "384x768x768" if what == "matmul" else "12x384x384x64"
    found = sizes(text, "x", hint)
    if len(found) != (3 if what == "matmul" else 4):
        raise UsageError(f"Not the sizes of a {what}: {text or 'none'}", hint=f"Write {hint}")
    from tilewright.benchkernel import product_kernel

    *batch, m, k, n = found
    needed = WORD * prod(batch) * (m * k + k * n + m * n)
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
            f"The bundle has no kernel {spec}", hint=f"Its kernels end at {len(kernels) - 1}"
        )
    return kernels[spec]


class Saved(msgspec.Struct):
    """What `tune --save` writes: the class that was measured, schedules by spec number."""

    device: str = msgspec.field(name="class")
    schedules: dict[int, dict[str, Any]]


def _winners(
    path: Path, kernels: tuple[Kernel, ...], device: str | None
) -> tuple[DeviceClass, Mapping[int, Schedule]]:
    """The class of a file and its schedules by spec number; `UsageError` if it is another one."""
    try:
        data = path.read_bytes()
        if "class" in msgspec.json.decode(data, type=dict[str, msgspec.Raw]):
            saved = msgspec.json.decode(data, type=Saved)
            chosen = find(device or saved.device)
            if chosen.id != saved.device:
                raise UsageError(
                    f"{path} has the winners of class {saved.device}, not of {chosen.id}",
                    hint="Leave --device out, or tune on a device of that class",
                )
            schedule = target(chosen.target).schedule
            return chosen, {n: schedule(s) for n, s in saved.schedules.items()}
        given = msgspec.json.decode(data, type=dict[int, int | dict[str, Any]])
        if device is None:
            raise UsageError(f"{path} does not say for which class", hint="Give --device CLASS")
        chosen = find(device)
        return chosen, {n: _schedule(s, kernels, n, chosen) for n, s in given.items()}
    except MALFORMED as error:
        raise InputError(
            f"{path} is no list of winners: {error}",
            hint='Write {"3": 17} or {"3": {"form": "contraction", …}}: schedules by spec number',
        ) from error


def _schedule(
    given: int | dict[str, Any], kernels: tuple[Kernel, ...], spec: int, device: DeviceClass
) -> Schedule:
    if isinstance(given, dict):
        found: Schedule = target(device.target).schedule(given)
        return found
    schedules = space_of(kernels[spec], device).schedules
    if not 0 <= given < len(schedules):
        raise IndexError(f"kernel {spec} has no candidate {given}")
    return schedules[given]


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
    """One candidate: its tile by the paper's formulas, in words and bytes, if it has one."""
    schedule = space.schedules[number]
    matrix = product_of(kernel) if "x0" in schedule.to_json() else None
    row: dict[str, object] = {
        "number": number,
        "mark": space.marks[number],
        "schedule": str(schedule),
    }
    told = figures(schedule, matrix, space.device.core) if matrix is not None else {}
    return {**row, **told}


def _summary(space: Space, kernel: Kernel) -> dict[str, Any]:
    """Sizes: of the lite space under what findings fix, of what the extended one adds, of all."""
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
    shown = ("id", "registers", "l1", "warps", "warp_width", "variant", "fallback")
    return Answer(rows, table(shown, ([(r | r["core"])[name] for name in shown] for r in rows)))


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
