"""`serve`: bundles, engine and demo page over HTTP until a signal comes.

Input: bundle folders.  Output: the address, as soon as connections are accepted.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tilewright.bundle import open_bundle
from tilewright.cli.options import Json, bundle_names
from tilewright.cli.output import print_json


def serve(
    bundles: Annotated[
        list[str],
        typer.Argument(metavar="BUNDLE...", help="Folders, or NAME=FOLDER."),
    ],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free one.")] = 8000,
    isolation: Annotated[
        bool, typer.Option(help="Send the headers that threads need (COOP, COEP).")
    ] = True,
    as_json: Json = False,
) -> None:
    """Serve bundles and the demo page."""
    from tilewright.server import create_app
    from tilewright.server import serve as serve_app

    folders = bundle_names(bundles)
    for folder in folders.values():
        open_bundle(folder)

    def ready(url: str) -> None:
        if as_json:
            print_json({"url": url, "bundles": list(folders)})
        else:
            typer.echo(f"Serving {', '.join(folders)} at {url}  (Ctrl+C ends it)")

    serve_app(create_app(folders, isolation=isolation), host, port, ready)
