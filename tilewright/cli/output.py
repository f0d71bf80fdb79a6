"""Prints the answer, the error and the progress of a command.

Input: an `Answer` or an error.  Output: JSON or text on stdout, errors and progress on stderr.  The
commands themselves never print, except `serve`, which prints its address while it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from tilewright.base.errors import TilewrightError

# The width for files and pipes, which have none: each row stays on one line.
PIPE_COLUMNS = 400

Show = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Answer:
    """The result of a command: `data` is printed with `--json`, `view` without it."""

    data: object
    view: RenderableType
    code: int = 0


def print_answer(answer: Answer, as_json: bool) -> None:
    if as_json:
        print_json(answer.data)
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPE_COLUMNS
    console.print(answer.view, soft_wrap=isinstance(answer.view, (str, Text)))


def print_json(data: object) -> None:
    sys.stdout.write(msgspec.json.encode(data).decode() + "\n")
    sys.stdout.flush()


def print_error(error: TilewrightError, as_json: bool) -> None:
    """Prints an error: as JSON on stdout, where programs expect the answer; as text on stderr."""
    if as_json:
        print_json({"error": error.to_json()})
        return
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(f"[red]Error:[/red] {escape(error.message)}")
    for key, value in error.facts.items():
        console.print(f"  {escape(key.replace('_', ' '))}: {escape(str(value))}")
    if error.hint:
        console.print(f"[bold]What to do:[/bold] {escape(error.hint)}")


@contextmanager
def progress(as_json: bool) -> Generator[Show]:
    """Shows a progress bar on stderr if that is a terminal; gives `report(what, done, total)`."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=as_json or not console.is_terminal,
    )
    with bar:
        task = bar.add_task("", total=1)

        def report(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield report


def table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> Table:
    """A table without borders."""
    found = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        found.add_column(name)
    for row in rows:
        found.add_row(*(escape(str(cell)) for cell in row))
    return found


def pairs(values: Mapping[str, object]) -> Table:
    """Names and values, one pair a line."""
    found = Table(box=None, pad_edge=False, show_header=False)
    found.add_column(style="bold")
    found.add_column()
    for name, value in values.items():
        found.add_row(escape(name), escape(str(value)))
    return found


def size(count: int) -> str:
    """A number of bytes with a unit, such as "1.2 MB"."""
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
