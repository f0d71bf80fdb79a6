"""`relink`: a bundle with the schedules that won on a class of devices.

Input: a bundle, a file of winners.  Output: another bundle.  Nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from tilewright.base.errors import InputError, UsageError
from tilewright.base.invariants import required
from tilewright.bundle import open_bundle, write
from tilewright.bundle.format import MALFORMED
from tilewright.cli.options import Json, SignWith, signer_of
from tilewright.cli.output import Answer, pairs, size
from tilewright.kernel.spec import Kernel
from tilewright.targets import target
from tilewright.targets.classes import find
from tilewright.targets.device_class import DeviceClass
from tilewright.targets.schedule import Schedule
from tilewright.tuning.candidates import space_of
from tilewright.tuning.catalogue import kernels_of


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
        typer.Option(metavar="CLASS", help="The device class, if the file does not name one."),
    ] = None,
    sign_with: SignWith = None,
    as_json: Json = False,
) -> Answer:
    """Write the bundle again, with the schedules that won on a class of devices."""
    del as_json
    from tilewright.tuning.relink import relink as relinked

    opened = open_bundle(bundle)
    chosen, schedules = _winners(winners, kernels_of(opened), device)
    contents = relinked(opened, chosen, schedules)
    manifest = write(contents, output, signer_of(sign_with))
    section = manifest.section(chosen.target)
    build = required(section.build(chosen.variant), "it was not written", variant=chosen.variant)
    data = {
        "bundle": str(output),
        "device": chosen.id,
        "variant": build.variant,
        "code_bytes": build.code.bytes,
        "kernels": section.slots,
    }
    return Answer(data, pairs(data | {"code_bytes": size(build.code.bytes)}))


class Saved(msgspec.Struct):
    """What `tune --save` writes: the class that was measured, schedules by spec number."""

    device: str = msgspec.field(name="class")
    schedules: dict[int, dict[str, object]]


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
        given = msgspec.json.decode(data, type=dict[int, int | dict[str, object]])
        if device is None:
            raise UsageError(f"{path} does not name a device class", hint="Give --device CLASS")
        chosen = find(device)
        return chosen, {n: _schedule(s, kernels, n, chosen) for n, s in given.items()}
    except MALFORMED as error:
        raise InputError(
            f"{path} is not a list of winners: {error}",
            hint='Write {"3": 17} or {"3": {"form": "contraction", …}}: schedules by spec number',
        ) from error


def _schedule(
    given: int | dict[str, object], kernels: tuple[Kernel, ...], spec: int, device: DeviceClass
) -> Schedule:
    if isinstance(given, dict):
        found: Schedule = target(device.target).schedule(given)
        return found
    schedules = space_of(kernels[spec], device).schedules
    if not 0 <= given < len(schedules):
        raise IndexError(f"kernel {spec} has no candidate {given}")
    return schedules[given]
