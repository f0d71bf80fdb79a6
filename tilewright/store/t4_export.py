"""Export and import in T4, the open schema of the auto-tuning community for results.

Input: a connection, or the bytes of an export.  Output: a JSON document, or rows.  One result per
candidate in a report, and one for the default that it was measured against: configuration, speedup
over the default, correctness.  What T4 has no field for (standings, which rows are one report) is
in extra members, which other readers skip.

Schema: T4.json 1.1.0 of the Auto-Tuning Association's autotuning_methodology; results need
configuration, times, invalidity and correctness.  Sources of reports are never exported.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Annotated, Literal, TypeAlias

import msgspec
import sqlalchemy as sa
from msgspec import Meta

from tilewright import __version__
from tilewright.base.errors import InvalidReport
from tilewright.store import records
from tilewright.store.queries import (
    FIND_KEY,
    KEY,
    Row,
    date_of,
    day_of,
    insert,
    key_of,
    lock_key,
    pairs_of,
)
from tilewright.store.records import Key, StoredReport, StoredVote
from tilewright.store.schema import keys, reports
from tilewright.store.votes import BUNDLE

SCHEMA = "1.1.0"
OBJECTIVE = "speedup"


Candidate: TypeAlias = Annotated[int, Meta(ge=0, lt=records.MOST_CANDIDATES)]
#: A count that fits the database's integers.
Count: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 31)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Ratio: TypeAlias = Annotated[float, Meta(ge=0)]
#: The fields of votes.Tally, in order.
Tallied: TypeAlias = tuple[Candidate, Share, Count, Count, Ratio, Ratio, Ratio]


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """A key and a candidate of its space."""

    kernel: str
    kind: str
    shape: str
    device: str
    space: str
    compiler: str
    browser: str
    candidate: int


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: float
    unit: str = ""


class T4Result(msgspec.Struct, frozen=True, kw_only=True):
    """`times` is empty: clients report ratios only.  Rows with one `report` are one report.

    answer: the server asked for it (a candidate may have both, so it is a row of its own)
    """

    timestamp: str
    configuration: Configuration
    objectives: tuple[str, ...] = (OBJECTIVE,)
    times: dict[str, float] = {}
    invalidity: Literal["correct"] = "correct"
    correctness: Literal[1] = 1
    measurements: tuple[Measurement, ...]
    report: str
    counts: bool
    proven: bool = False
    answer: bool = False


class StandingRow(msgspec.Struct, frozen=True, kw_only=True):
    """The standing of a key.  `default_after`, `shadow_after`: number of reports since that stage
    began."""

    kernel: str
    kind: str
    shape: str
    device: str
    space: str
    compiler: str
    browser: str
    day: str
    fresh: Count
    voices: Count
    default: Candidate | None
    default_after: Count
    shadow: Candidate | None
    shadow_after: Count
    previous: Candidate | None
    ranked: Annotated[tuple[Tallied, ...], Meta(max_length=records.RANKED)]


class OwnMembers(msgspec.Struct, frozen=True, kw_only=True):
    """Members that T4 has no field for; format: their version."""

    format: Literal[1] = 1
    keys: tuple[StandingRow, ...]


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    platform: str
    autotuner: Literal["Tilewright"]
    autotuner_version: str
    timeunit: str
    tilewright: OwnMembers


class T4Document(msgspec.Struct, frozen=True, kw_only=True):
    schema_version: str
    metadata: Metadata
    results: tuple[T4Result, ...]


def write(connection: sa.Connection, stream: IO[bytes]) -> int:
    """Writes the document row by row; returns the number of reports."""
    rows = connection.execute(sa.select(keys)).all()
    rows = sorted(rows, key=lambda row: [getattr(row, name) for name in KEY])
    metadata = Metadata(
        platform="WebAssembly",
        autotuner="Tilewright",
        autotuner_version=__version__,
        timeunit="milliseconds",
        tilewright=OwnMembers(keys=tuple(_stand(connection, r) for r in rows)),
    )
    encode = msgspec.json.encode
    stream.write(b'{"schema_version":%b,\n"metadata":%b,\n' % (encode(SCHEMA), encode(metadata)))
    stream.write(b'"results":[\n')
    query = sa.select(reports, *(keys.c[name] for name in KEY)).join(keys).order_by(reports.c.id)
    number = 0
    for row in connection.execute(query.execution_options(yield_per=1000)):
        stream.write(b",\n" if number else b"")
        stream.write(b",\n".join(encode(result) for result in _results(row)))
        number += 1
    stream.write(b"\n]}\n")
    return number


def _results(row: Row) -> Iterator[T4Result]:
    """The default with ratio 1, then the candidates that a report names, best first, then its
    answers."""
    named = [(*vote, False) for vote in [(BUNDLE, 1.0), *row.top]]
    for candidate, ratio, answer in [*named, *((*vote, True) for vote in row.answers)]:
        yield T4Result(
            timestamp=date_of(row.day),
            configuration=Configuration(**{k: getattr(row, k) for k in KEY}, candidate=candidate),
            measurements=(Measurement(name=OBJECTIVE, value=ratio),),
            report=row.nonce,
            counts=row.counts,
            proven=row.proven,
            answer=answer,
        )


def _stand(connection: sa.Connection, row: Row) -> StandingRow:
    def after(since: int | None) -> int:
        if since is None:
            return 0
        later = (reports.c.key_id == row.id) & (reports.c.id > since)
        query = sa.select(sa.func.count()).where(later)
        return int(connection.execute(query).scalar_one())

    return StandingRow(
        **{name: getattr(row, name) for name in KEY},
        day=date_of(row.day),
        fresh=row.fresh,
        voices=row.voices,
        default=row.default_candidate,
        default_after=after(row.default_since),
        shadow=row.shadow_candidate,
        shadow_after=after(row.shadow_since),
        previous=row.previous_candidate,
        ranked=tuple(tuple(r) for r in row.ranked),
    )


def is_export(path: Path) -> bool:
    """Whether `write` made the file, complete or not."""
    with path.open("rb") as stream:
        return _OURS.match(stream.read(1000)) is not None


_OURS = re.compile(
    rb'\{"schema_version":"[^"]*",\s*"metadata":\{"platform":"[^"]*","autotuner":"Tilewright"'
)


def read(data: bytes, today: int) -> T4Document:
    """The document, if it is one of ours and sound.  today: the last day that it may name."""
    try:
        document = msgspec.json.decode(data, type=T4Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidReport(
            "Not an export of Tilewright", hint="See docs/store.md", reason=error
        ) from error
    for stand in document.metadata.tilewright.keys:
        records.check_key(key_of(stand))
        _past(stand.day, today)
    for number, (report, first) in enumerate(_reports(document.results)):
        _past(first.timestamp, today)
        try:
            records.check(report)
        except InvalidReport as error:
            raise InvalidReport(error.message, hint=error.hint, report=number) from error
    return document


def load(connection: sa.Connection, document: T4Document) -> tuple[Sequence[int], int]:
    """Inserts the keys and reports that are missing; returns the ids of keys whose votes must be
    counted again, and the number of new reports."""
    ids: dict[Key, int] = {}
    fresh: dict[Key, StandingRow] = {}
    for stand in document.metadata.tilewright.keys:
        key = key_of(stand)
        if connection.execute(FIND_KEY, asdict(key)).scalar() is None:
            fresh[key] = stand
        ids[key] = lock_key(connection, key, _day(stand.day))
    changed: dict[int, None] = {}
    added = 0
    for report, first in _reports(document.results):
        if report.key not in ids:
            ids[report.key] = lock_key(connection, report.key, _day(first.timestamp))
        row = {
            "nonce": report.nonce,
            "key_id": ids[report.key],
            "day": _day(first.timestamp),
            "counts": first.counts,
            "proven": first.proven,
            "top": pairs_of(report.top),
            "answers": pairs_of(report.answers),
        }
        if insert(connection, reports, row):
            added += 1
            if report.key not in fresh:
                changed[ids[report.key]] = None
    for key, stand in fresh.items():
        _restore(connection, ids[key], stand)
    return tuple(changed), added


def _restore(connection: sa.Connection, key_id: int, stand: StandingRow) -> None:
    """Writes an exported standing.  Its stages refer to reports by the row numbers of this
    database."""
    query = sa.select(reports.c.id).where(reports.c.key_id == key_id).order_by(reports.c.id)
    numbers = [0, *connection.execute(query).scalars()]

    def since(candidate: int | None, after: int) -> int | None:
        return None if candidate is None else numbers[max(0, len(numbers) - 1 - after)]

    values = {
        "fresh": stand.fresh,
        "voices": stand.voices,
        "default_candidate": stand.default,
        "default_since": since(stand.default, stand.default_after),
        "shadow_candidate": stand.shadow,
        "shadow_since": since(stand.shadow, stand.shadow_after),
        "previous_candidate": stand.previous,
        "ranked": stand.ranked,
    }
    connection.execute(sa.update(keys).where(keys.c.id == key_id).values(**values))


def _reports(results: Sequence[T4Result]) -> Iterator[tuple[StoredReport, T4Result]]:
    """Rows → reports, each with its first row: `[default, a, b], [default, c], …`."""
    for nonce, group in itertools.groupby(results, key=lambda r: r.report):
        first, *named = group
        _require(first.configuration.candidate == BUNDLE, nonce, "begins with the default")
        top: list[StoredVote] = []
        answers: list[StoredVote] = []
        for row in named:
            _require(len(row.measurements) == 1, nonce, "has one measurement a row")
            _require(key_of(row.configuration) == key_of(first.configuration), nonce, "has one key")
            vote = StoredVote(row.configuration.candidate, row.measurements[0].value)
            (answers if row.answer else top).append(vote)
        key = key_of(first.configuration)
        yield StoredReport(nonce, key, tuple(top), answers=tuple(answers)), first


def _day(date: str) -> int:
    try:
        return day_of(date)
    except ValueError as error:
        raise InvalidReport(f"Not a date: {date}", hint="Write it as 2026-11-21") from error


def _past(date: str, today: int) -> None:
    """Raises InvalidReport for a day in the future: its reports would never be deleted."""
    if not 0 <= _day(date) <= today:
        raise InvalidReport(
            f"Not a past day: {date}", hint=f"1970-01-01 to {date_of(today)}", day=date
        )


def _require(holds: bool, nonce: str, what: str) -> None:
    if not holds:
        raise InvalidReport("A report of the import is wrong", hint=f"It {what}", report=nonce)
