"""The entry point: the list of commands, and the code that prints answers and errors and sets exit
codes.

Input: arguments.  Output: the exit code; see output.py for what is printed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from tilewright import TOOL, __version__
from tilewright.base.errors import TilewrightError, UsageError
from tilewright.cli import (
    corun,
    database,
    elastic,
    language,
    models,
    reports,
    serve,
    tools,
    tune,
)
from tilewright.cli.options import Json
from tilewright.cli.output import Answer, print_answer, print_error

app = typer.Typer(
    name="tilewright",
    help="Compile models into kernels for WebAssembly, WebGPU and CUDA, and tune them where "
    "they run.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (
    models.build,
    models.check,
    models.run,
    language.generate,
    language.chat,
    language.transcribe,
    serve.serve,
    models.show,
    corun.corun,
    corun.broker,
    models.relink,
    elastic.elastic,
    tune.tune,
    tools.doctor,
    tools.keygen,
):
    app.command()(_command)
app.add_typer(database.app)
app.add_typer(reports.app)

# Newer versions of Typer contain a copy of click, older ones import it.  The base class of Typer's
# public exception is click's UsageError in both.
_Usage: Any = typer.BadParameter.__bases__[0]


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    _as_json: Json = False,
) -> Answer | None:
    if version:
        return Answer({"version": __version__}, TOOL)
    if context.invoked_subcommand is None:
        raise UsageError("No command", hint="`tilewright --help` lists the commands")
    return None


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command and ends the process with its exit code."""
    call(app, "tilewright", arguments)


def call(commands: typer.Typer, program: str, arguments: Sequence[str] | None) -> None:
    """As `main`, for any list of commands that return answers."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(_run(commands, program, given, as_json="--json" in given))


def _run(commands: typer.Typer, program: str, arguments: list[str], as_json: bool) -> int:
    try:
        answer = typer.main.get_command(commands).main(
            arguments, prog_name=program, standalone_mode=False
        )
        if not isinstance(answer, Answer):
            return answer if isinstance(answer, int) else 0
        print_answer(answer, as_json)
        return answer.code
    except TilewrightError as error:
        return _failed(error, as_json)
    except _Usage as error:
        hint = f"`{program} --help` lists the commands, `{program} COMMAND --help` its options"
        return _failed(UsageError(error.format_message().rstrip("."), hint=hint), as_json)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        # The reader closed the pipe (`| head`).  Without this, Python would report an error at
        # exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        message = error.strerror or str(error)
        return _failed(
            UsageError(message, hint="Check the path and its permissions", path=error.filename),
            as_json,
        )


def _failed(error: TilewrightError, as_json: bool) -> int:
    print_error(error, as_json)
    return error.exit_code
