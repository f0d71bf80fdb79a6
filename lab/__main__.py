"""`python -m lab`: the commands of experiments.

Input: arguments.  Output: as for `tilewright`: text, or one JSON document with `--json`.
"""

from __future__ import annotations

from collections.abc import Sequence

import typer

from lab import bench_kernel, space
from lab.primitives.command import primitives
from tilewright.base.errors import UsageError
from tilewright.cli import entry
from tilewright.cli.options import Json

PROGRAM = "python -m lab"

app = typer.Typer(
    name=PROGRAM,
    help="Experiment with the kernels of Tilewright.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (bench_kernel.bench_kernel, space.space, primitives):
    app.command()(_command)


@app.callback(invoke_without_command=True)
def _root(context: typer.Context, _as_json: Json = False) -> None:
    if context.invoked_subcommand is None:
        raise UsageError("No command", hint=f"`{PROGRAM} --help` lists the commands")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command and ends the process with its exit code."""
    entry.call(app, PROGRAM, arguments)


if __name__ == "__main__":
    main()
