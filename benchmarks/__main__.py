"""`python -m benchmarks NAME [options]`: runs a benchmark; `--list` names all, with a line each.

NAME is one of catalogue.py: the folder and the file ("wasm.kernels"), whose `main` takes a `Run`
and options.  Its options are the parameters of `main` and those of `Command`; its help is the
file's docstring.  Listing imports no benchmark.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from inspect import Parameter, Signature, signature

import typer

from benchmarks.catalogue import CATALOGUE, listing
from benchmarks.common import Run
from benchmarks.options import Commit, Write
from tilewright.base.errors import UsageError
from tilewright.cli import entry

PROGRAM = "python -m benchmarks"


class Command:
    """`main` of a benchmark.  The options of all benchmarks stand for its first parameter."""

    def __init__(self, name: str, main: Callable[..., None]) -> None:
        self.name, self.main = name, main
        self.__annotations__ = {}  # Typer finds the types in the signature

    def __call__(self, commit: Commit = "", write: Write = True, **own: object) -> None:
        self.main(Run(self.name, commit, write), **own)

    @property
    def __signature__(self) -> Signature:
        """What Typer makes options of."""
        _, *own = signature(self.main, eval_str=True).parameters.values()
        _, *shared, _ = signature(type(self).__call__, eval_str=True).parameters.values()
        return Signature([p.replace(kind=Parameter.KEYWORD_ONLY) for p in (*own, *shared)])


def application(name: str) -> typer.Typer:
    """The commands: one."""
    module = import_module(f"benchmarks.{name}")
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    # \b: the lines of a paragraph stay as they are
    about = "\n\n".join(f"\b\n{part}" for part in (module.__doc__ or "").split("\n\n"))
    app.command(name, help=about)(Command(name, module.main))
    app.callback()(lambda: None)  # its presence makes the name a part of the command line
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a benchmark and ends the process with its exit code."""
    name, *rest = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name == "--list":
        print(listing())
    elif name in ("-h", "--help"):
        print(f"Usage: {PROGRAM} NAME [options]\n       {PROGRAM} NAME --help\n")
        print(listing())
    elif name not in CATALOGUE:
        near = get_close_matches(name, CATALOGUE, 1) or [
            known for known in CATALOGUE if known.endswith(f".{name}")
        ]
        hint = f"`{PROGRAM} --list` names all" + (f"; {near[0]} is near" if near else "")
        raise SystemExit(str(UsageError(f"Unknown benchmark: {name}", hint=hint)))
    else:
        entry.call(application(name), PROGRAM, [name, *rest])


if __name__ == "__main__":
    main()
