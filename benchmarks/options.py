"""The options that several benchmarks share, and options whose values are known names.

Each benchmark gives an option its own default; a list that is not given is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer

BROWSERS = ("chromium", "firefox")

Browser = Annotated[Literal["chromium", "firefox"], typer.Option(help="The browser.")]
Commit = Annotated[
    str, typer.Option(metavar="HASH", help="What was measured, where there is no git.")
]
Write = Annotated[bool, typer.Option(help="Whether results are written.")]
Hosts = Annotated[
    list[str] | None, typer.Option("--host", metavar="HOST", help="Where to run; repeatable.")
]
Only = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="Cases whose names begin so; repeatable."),
]
Rounds = Annotated[int, typer.Option(min=1, help="Rounds of all that is compared.")]
Host = Annotated[str, typer.Option(help="Where to run.")]
Runs = Annotated[int, typer.Option(min=1, help="How often each is run.")]
Seconds = Annotated[float, typer.Option(help="Time for each case.")]
SessionSeconds = Annotated[float, typer.Option(help="Of one session.")]
Seed = Annotated[int, typer.Option(help="Of random numbers.")]
Smoke = Annotated[
    bool, typer.Option("--smoke", help="Small forms, to see that it works; writes nothing.")
]
Models = Annotated[Path, typer.Option(metavar="FOLDER", help="The folder of the models.")]
Other = Annotated[Path, typer.Option(metavar="FOLDER", help="The other checkout.")]


def one_of(names: Iterable[str]) -> Callable[[str], str]:
    """Reads one of these names."""
    known = tuple(names)

    def name(text: str) -> str:
        if text not in known:
            raise typer.BadParameter(f"Unknown is {text!r}. Known are {', '.join(known)}")
        return text

    return name


def among(names: Iterable[str], what: str) -> object:
    """An option whose values are names out of these; for a list it is repeatable."""
    known = tuple(names)
    return typer.Option(parser=one_of(known), metavar="NAME", help=f"{what}: {', '.join(known)}.")


def separated(text: str) -> list[str]:
    """The names in a text with commas."""
    return [name for name in text.split(",") if name]


def chosen(names: Iterable[str], only: Iterable[str] | None) -> list[str]:
    """The names that begin with one of `only`; all if it is empty."""
    return [name for name in names if begins(name, only)]


def begins(name: str, only: Iterable[str] | None) -> bool:
    return name.startswith(tuple(only or ("",)))
