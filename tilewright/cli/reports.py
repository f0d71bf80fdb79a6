"""`reports preview`: what the pages of a site's visitors would send, before they do.

Input: a bundle (or none: then a small one of our own), a device class, perhaps the measurements of
a real run.  Output: all messages of a session, and what each field of them is.
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

from tilewright.bundle import open_bundle, write
from tilewright.cli.options import Json
from tilewright.cli.output import Answer, pairs, table
from tilewright.targets import classes
from tilewright.tuning import queue
from tilewright.tuning.preview import (
    FIELDS,
    KEPT,
    NEVER,
    SHARED,
    Preview,
    kept,
    preview,
    read_run,
)

app = typer.Typer(name="reports", help="What devices report to a site's kernel database.")


@app.command("preview")
def show(
    bundle: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="The bundle; without it, one product as an example."),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Measurements of a run (`tilewright tune BUNDLE --report FILE`); without them, "
            "ratios are invented.",
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            metavar="CLASS",
            help="The class of the visitor's device; otherwise that of the run, or "
            f"{classes.USUAL}.",
        ),
    ] = "",
    _as_json: Json = False,
) -> Answer:
    """Show all that a site's visitors send, and what more if the site turns reports on."""
    given = read_run(run.read_bytes()) if run else None
    found_class = classes.find(device or (given.device if given else classes.USUAL))
    with TemporaryDirectory(prefix="tilewright-") as place:
        if bundle is None:
            from tilewright.benchkernel import matmul

            write(matmul(64, 64, 64).contents, Path(place))
        opened = queue.opened(open_bundle(bundle or Path(place)))
    found = preview(opened, found_class, given)
    data = {
        "messages": [msgspec.to_builtins(message) for message in found.messages],
        "invented": list(found.invented),
        "fields": FIELDS,
        "shared": list(SHARED),
        "stored": [kept(found, opened, found_class, report.spec) for report in found.reports],
        "kept": KEPT,
        "never": NEVER,
    }
    return Answer(data, _view(found))


def _view(found: Preview) -> Group:
    """By kind of message: what its fields are, and all that would be sent of it."""
    parts: list[Text | Table] = []
    sent: dict[str, list[dict[str, object]]] = {name: [] for name in FIELDS}
    for message in found.messages:
        plain = msgspec.to_builtins(message)
        sent[plain.pop("type")].append(plain)
    for name, messages in sent.items():
        times = f" ({len(messages)} of them)" if len(messages) > 1 else ""
        when = "only if results are shared" if name in SHARED else "whenever a page tunes"
        parts += [Text(f"\n{name}{times}: {when}", style="bold")]
        fields = FIELDS[name].items()
        if len(messages) == 1:
            (one,) = messages
            rows = [(field, _short(one[field]), what) for field, what in fields if field in one]
            parts.append(table(["field", "value", "what it is"], rows))
        elif messages:
            parts += [pairs(FIELDS[name])]
            values = ([_short(m[f]) if f in m else "" for f in FIELDS[name]] for m in messages)
            parts.append(table(list(FIELDS[name]), values))
    if found.invented:
        parts.append(Text("\nNobody measured these ratios: give --run for those of a run."))
    parts += [Text("\nThe store keeps beside the votes", style="bold"), pairs(KEPT)]
    parts += [Text("\nNever sent", style="bold"), *(Text(f"  {what}") for what in NEVER)]
    return Group(*parts)


def _short(value: object) -> str:
    return msgspec.json.encode(value).decode()
