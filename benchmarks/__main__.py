"""`python -m benchmarks NAME [options]`: runs a benchmark; `--list` names all, with a line each.

A benchmark is a file in a folder of this package whose `main` takes a `Run` and options: NAME is
the folder and the file ("wasm.kernels").  Its options are the parameters of `main` and those of
`Command`; its help is the file's docstring.  Listing imports no benchmark.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from inspect import Parameter, Signature, signature
from pathlib import Path

import typer

from benchmarks.common import Run
from benchmarks.options import Commit, Write
from tilewright.base.errors import UsageError
from tilewright.cli import entry

PROGRAM = "python -m benchmarks"
HERE = Path(__file__).parent


def benchmarks() -> Mapping[str, str]:
    """Names, each with the first line of its file."""
    found = {}
    for path in sorted(HERE.glob("*/*.py")):
        tree = ast.parse(path.read_text())
        mains = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "main")
        if any(main.args.args[:1] and main.args.args[0].arg == "run" for main in mains):
            about = (ast.get_docstring(tree) or "").splitlines()[0]
            found[f"{path.parent.name}.{path.stem}"] = about
    return found


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


def listing(found: Mapping[str, str]) -> str:
    width = max(map(len, found))
    return "\n".join(f"{name:{width}}  {about}" for name, about in found.items())


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a benchmark and ends the process with its exit code."""
    name, *rest = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    found = benchmarks()
    if name == "--list":
        print(listing(found))
    elif name in ("-h", "--help"):
        print(f"Usage: {PROGRAM} NAME [options]\n       {PROGRAM} NAME --help\n")
        print(listing(found))
    elif name not in found:
        near = get_close_matches(name, found, 1) or [n for n in found if n.endswith(f".{name}")]
        hint = f"`{PROGRAM} --list` names all" + (f"; {near[0]} is near" if near else "")
        raise SystemExit(str(UsageError(f"Unknown benchmark: {name}", hint=hint)))
    else:
        entry.call(application(name), PROGRAM, [name, *rest])


if __name__ == "__main__":
    main()
