"""A page of results: the answer first, then what was measured for it.

Input: the records, and what each module of this package says of its own.  Output: Markdown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import NamedTuple

from benchmarks.records import Record, Records
from benchmarks.report.charts import title_of
from benchmarks.report.tables import Columns, listed, table, told

#: Name of a file, and SVG.
Pictures = Iterable[tuple[str, str]]

LEGEND = "[What figure, spread and the other words mean](README.md)"
HEAD = ["what you may expect", "figure", "cases or runs", "spread", "machine"]


class Answer(NamedTuple):
    """A line of a page's first table.  n: cases of a mean, or runs of a median"""

    what: str
    figure: str
    n: str
    spread: str
    machine: str


@dataclass(frozen=True)
class Section:
    """What one record says, or all of them if it names none.

    about: what was measured; body: the columns of its rows, or what makes the text
    """

    record: str
    title: str
    about: str
    body: Columns | Callable[[Record], str]
    pictures: Callable[[Record], Pictures] = lambda record: ()

    def found(self, records: Records) -> Record:
        return records[self.record] if self.record else records

    def lines(self, records: Records) -> Iterator[str]:
        record = self.found(records)
        yield from (f"## {self.title}", "", self.about, "")
        if self.record:
            command = f"`python -m benchmarks {benchmark_of(self.record)}`"
            yield from (f"{facts(record)} Made by {command}.", "")
        made = self.body
        yield from (made(record) if callable(made) else listed(record["rows"], made), "")
        for name, picture in self.pictures(record):
            yield from (f"![{title_of(picture)}]({name})", "")


@dataclass(frozen=True)
class Page:
    """verdict: one line, which the index has too; answers: at most five lines"""

    name: str
    title: str
    verdict: Callable[[Records], str]
    answers: Callable[[Records], Sequence[Answer]]
    sections: Sequence[Section]

    def text(self, records: Records) -> str:
        lines = [f"# {self.title}", "", self.verdict(records), ""]
        if answers := self.answers(records):
            lines += [table(HEAD, answers), "", LEGEND, ""]
        for section in self.sections:
            lines += section.lines(records)
        return "\n".join(lines)

    @property
    def benchmarks(self) -> Iterator[str]:
        """The benchmarks whose results it shows."""
        return (benchmark_of(section.record) for section in self.sections if section.record)

    def pictures(self, records: Records) -> Iterator[tuple[str, str]]:
        for section in self.sections:
            yield from section.pictures(section.found(records))


def benchmark_of(record: str) -> str:
    """What makes a record; a name has a third word if it is the second file of a benchmark."""
    return ".".join(record.split(".")[:2])


def facts(record: Record) -> str:
    machine = record["machine"]
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}"
    if "gpu" in machine:
        where += f", {machine['gpu']}"
    return f"{record['date']}, commit {record['commit']}, {where}."


def place(record: Record) -> str:
    """The card, or the processors of all rows: they may come from several machines."""
    machine = record["machine"]
    cpus = dict.fromkeys(str(row.get("cpu", machine["cpu"])) for row in record["rows"])
    return str(machine.get("gpu") or f"{' and '.join(cpus)}, {machine['cores']} cores")


def over(
    what: str,
    found: Iterable[float | None],
    record: Record,
    form: str = ".2f×",
    middle: Callable[[Sequence[float]], float] = geometric_mean,
) -> Answer:
    """The mean of cases, and the least and the most of them."""
    known = [value for value in found if value is not None]
    spread = f"{told(min(known), form)} to {told(max(known), form)}"
    return Answer(what, told(middle(known), form), str(len(known)), spread, place(record))


def one(what: str, shown: str, n: int, spread: float | None, record: Record) -> Answer:
    """A median of runs, and their quartile range as a share of it."""
    apart = "" if spread is None else f"{told(spread, '.1%')} between quartiles"
    return Answer(what, shown, f"{n:,}", apart, place(record))


def count(what: str, found: int, of: int, record: Record) -> Answer:
    """How many of all."""
    return Answer(what, f"{found:,}", f"{of:,}", "", place(record))
