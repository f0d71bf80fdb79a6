"""`db`: the kernel database, which the server fills with reports of devices.

Input: the database's file or URL. Output: sizes, an export, or what changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tilewright.base.errors import UsageError
from tilewright.cli.options import Force, Json, database_url
from tilewright.cli.output import Answer, pairs
from tilewright.cli.output_files import Output

app = typer.Typer(
    name="db",
    help="Manage the kernel database, which says which candidates were fastest on which devices.",
)

Db = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="FILE|URL",
        envvar="TILEWRIGHT_STORE",
        help="Use this database: a file, sqlite:///FILE, or postgresql+psycopg://USER@HOST/NAME.",
    ),
]
#: The default database: a file in the current folder.
DEFAULT = "tilewright.db"


@app.command()
def upgrade(db: Db = DEFAULT, as_json: Json = False) -> Answer:
    """Make the tables, or bring them up to date."""
    del as_json
    from tilewright.store import schema
    from tilewright.store.database import Database

    database = Database(database_url(db))
    try:
        before, after = schema.upgrade(database)
    finally:
        database.close()
    return _told({"database": database.shown, "before": before, "after": after})


@app.command()
def stats(db: Db = DEFAULT, as_json: Json = False) -> Answer:
    """Print how many keys, reports and winners the database has."""
    del as_json
    from tilewright.store import KernelStore

    with KernelStore.open(database_url(db), create=False) as store:
        return _told(asdict(store.stats()))


@app.command()
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Write to this file. - is stdout.")],
    force: Force = False,
    db: Db = DEFAULT,
    as_json: Json = False,
) -> Answer | None:
    """Write all reports and standings in the T4 schema."""
    del as_json
    from tilewright.store import KernelStore
    from tilewright.store.t4_export import is_export

    output = Output(file, is_export, force)
    if str(file) != "-":
        output.check()
    with KernelStore.open(database_url(db), create=False) as store:
        if str(file) == "-":
            store.export(typer.get_binary_stream("stdout"))
            return None
        with output.open() as stream:
            number = store.export(stream)
    return _told({"file": str(file), "bytes": file.stat().st_size, "reports": number})


@app.command("import")
def import_(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Read this export. Import only files that you trust."),
    ],
    db: Db = DEFAULT,
    as_json: Json = False,
) -> Answer:
    """Add the reports of an export; reports that are already stored change nothing."""
    del as_json
    from tilewright.store import KernelStore

    data = file.read_bytes()
    with KernelStore.open(database_url(db)) as store:
        return _told({"file": str(file), "new reports": store.import_(data)})


@app.command()
def gc(
    days: Annotated[
        int | None,
        typer.Option(min=0, help="Delete reports that are older than this. By default 90 days."),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Delete even if nobody has reported for days. Check first that this machine's "
            "date is right.",
        ),
    ] = False,
    db: Db = DEFAULT,
    as_json: Json = False,
) -> Answer:
    """Delete sources of past days, old reports, and keys without reports.

    If the newest report is days old, the clock may be ahead. Then reports are kept without --force,
    and the command says how many it would delete.
    """
    del as_json
    from tilewright.store import KernelStore

    with KernelStore.open(database_url(db), create=False) as store:
        return _told({f"{name} forgotten": n for name, n in store.gc(days, force=force).items()})


@app.callback(invoke_without_command=True)
def _root(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        raise UsageError("No command", hint="`tilewright db --help` lists the commands")


def _told(found: Mapping[str, object]) -> Answer:
    view = {k.replace("_", " "): v for k, v in found.items()}
    return Answer({k.replace(" ", "_"): v for k, v in found.items()}, pairs(view))
