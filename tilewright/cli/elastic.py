"""`elastic`: writes a CUDA source whose kernels can be stopped between tiles and resumed.

Input: a .cu file.  Output: the source with an elastic form added for each kernel, and a report on
each kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group

from tilewright.base.errors import UsageError
from tilewright.cli.options import Force, Json
from tilewright.cli.output import Answer, table
from tilewright.cli.output_files import Output
from tilewright.elastic.transform import (
    KEPT,
    ElasticOptions,
    KernelReport,
    is_ours,
    text_of,
    transform,
)


def elastic(
    source: Annotated[Path, typer.Argument(metavar="KERNEL.cu", help="Read this CUDA C++ source.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Write the new source to this file.")
    ],
    headers: Annotated[
        list[Path] | None,
        typer.Option(
            "-I", help="Read headers of device code in this folder. You can repeat this option."
        ),
    ] = None,
    fold_threads: Annotated[
        bool,
        typer.Option(
            "--fold-threads",
            help="Allow launches with fewer threads in a block than the kernel expects.",
        ),
    ] = False,
    pad_shared: Annotated[
        bool,
        typer.Option(
            "--pad-shared", help="Lengthen rows of shared arrays that threads read by columns."
        ),
    ] = False,
    device_only: Annotated[
        bool, typer.Option("--device-only", help="Leave out the host's code, as NVRTC needs it.")
    ] = False,
    threads: Annotated[
        list[str] | None,
        typer.Option(
            "--threads",
            metavar="NAME=COUNT",
            help="Expect at most this number of threads in a block of this kernel. You can repeat "
            "this option.",
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> Answer:
    """Write a CUDA source again, with kernels that can be stopped and resumed."""
    del as_json
    written = Output(output, is_ours, force)
    written.check()
    counts = _threads(threads or ())
    options = ElasticOptions(fold_threads, pad_shared, device_only, counts)
    folders = (source.parent, *(headers or ()))
    made = transform(text_of(source), source.name, folders, options)
    made.require()
    written.write(made.text.encode(errors=KEPT))
    data = {"output": str(output), "kernels": [kernel.to_json() for kernel in made.kernels]}
    rows = [(k.name, k.place, "elastic" if k.elastic else "refused", _why(k)) for k in made.kernels]
    return Answer(data, Group(table(("kernel", "line", "", "why, or what to know"), rows)))


def _threads(given: Sequence[str]) -> dict[str, int]:
    """The options NAME=COUNT as counts by kernel name.  Raises UsageError."""
    found: dict[str, int] = {}
    for one in given:
        name, equals, count = one.partition("=")
        if not (name and equals and count.isdecimal()):
            raise UsageError(
                f"--threads {one} is not NAME=COUNT", hint="Such as --threads scale=256"
            )
        if name in found:
            raise UsageError(f"--threads has {name} twice", hint="Give each kernel one count")
        found[name] = int(count)
    return found


def _why(kernel: KernelReport) -> str:
    """The first reason why a kernel is refused, and how many more --json lists."""
    more = len(kernel.reasons) - 1
    return "; ".join(
        [*map(str, kernel.reasons[:1]), *kernel.notes, *([f"{more} more"] if more > 0 else [])]
    )
