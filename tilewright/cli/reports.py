"""`reports preview`: what the pages of a site's visitors would send, before they do.

Input: a bundle (or none: then a small one of our own), a device class, perhaps the summary of a
real run.  Output: the messages, and what each field of them is.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tilewright.benchkernel import matmul
from tilewright.bundle import open_bundle, write
from tilewright.cli.options import Json
from tilewright.cli.output import Answer, pairs, table
from tilewright.targets import classes
from tilewright.tuning import queue
from tilewright.tuning.preview import FIELDS, KEPT, NEVER, Preview, kept, preview, read_summary

app = typer.Typer(name="reports", help="What devices report to a site's kernel database.")


@app.command("preview")
def show(
    bundle: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="The bundle; without it, one product as an example."),
    ] = None,
    summary: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Summary of a run (`tilewright tune BUNDLE --json`)."),
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="CLASS", help="The class of the visitor's device.")
    ] = "wasm-x86-relaxed-32k",
    _as_json: Json = False,
) -> Answer:
    """Show what kind of messages a site's visitors would send, if the site turns reports on."""
    found_class = classes.find(device)
    given = read_summary(summary.read_bytes()) if summary else None
    with TemporaryDirectory(prefix="tilewright-") as place:
        if bundle is None:
            write(matmul(64, 64, 64).contents, Path(place))
        opened = queue.opened(open_bundle(bundle or Path(place)))
    found = preview(opened, found_class, given)
    data = {
        "messages": [msgspec.to_builtins(message) for message in found.messages],
        "invented": ["ratio"] if found.invented else [],
        "fields": FIELDS,
        "stored": [kept(opened, found_class, report.spec) for report in found.reports],
        "kept": KEPT,
        "never": NEVER,
    }
    return Answer(data, _view(found))


def _view(found: Preview) -> Group:
    parts: list[Text | Table] = []
    for message in found.messages:
        plain = msgspec.to_builtins(message)
        name = plain.pop("type")
        parts += [Text(f"\n{name}", style="bold")]
        rows = [(field, _short(value), FIELDS[name][field]) for field, value in plain.items()]
        parts.append(table(["field", "value", "what it is"], rows))
    if found.invented:
        parts.append(Text("\nNobody measured these ratios: give --summary for those of a run."))
    parts += [Text("\nThe store keeps beside the votes", style="bold"), pairs(KEPT)]
    parts += [Text("\nNever sent", style="bold"), *(Text(f"  {what}") for what in NEVER)]
    return Group(*parts)


def _short(value: object) -> str:
    return msgspec.json.encode(value).decode()
