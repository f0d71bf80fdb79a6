"""Conversions between database rows and records, and shared queries.

Input: connections, keys, rows.  Output: records and states.  No decisions are made here.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from tilewright.store.records import Key, Ranked, StageName, Standing, StoredVote
from tilewright.store.schema import keys, reports
from tilewright.store.votes import Staged, Stages, Tally, Voice

#: Columns that identify a key; kind and shape only describe the kernel for people.
UNIQUE = ("kernel", "device", "space", "compiler", "browser")
KEY = tuple(f.name for f in fields(Key))
EPOCH = datetime.date(1970, 1, 1)


# The statements of a report are built once: that takes SQLAlchemy longer than the database takes to
# run them.
IS_KEY = sa.and_(*(keys.c[name] == sa.bindparam(name) for name in UNIQUE))
FIND_KEY = sa.select(keys.c.id).where(IS_KEY)
LOCK_KEY = FIND_KEY.with_for_update()
#: How many reports a source (:day, :source) has sent; 0 if one of them failed a gold question; 1 if
#: one answered it right.
OF_SOURCE = sa.select(
    sa.func.count(),
    sa.func.min(sa.case((reports.c.counts, 1), else_=0)),
    sa.func.max(sa.case((reports.c.proven, 1), else_=0)),
).where((reports.c.day == sa.bindparam("day")) & (reports.c.source == sa.bindparam("source")))
HAS_NONCE = sa.select(reports.c.id).where(reports.c.nonce == sa.bindparam("nonce"))
ONE_MORE = (
    sa.update(keys)
    .where(keys.c.id == sa.bindparam("key_id"))
    .values(day=sa.bindparam("today"), fresh=keys.c.fresh + 1)
    .returning(keys.c.fresh, keys.c.voices)
)
VOICES = (
    sa.select(reports.c.id, reports.c.day, reports.c.top, reports.c.answers, reports.c.proven)
    .where((reports.c.key_id == sa.bindparam("key_id")) & reports.c.counts)
    .order_by(reports.c.id.desc())
    .limit(sa.bindparam("window"))
)


def lock_key(connection: sa.Connection, key: Key, day: int) -> int:
    """The key's number; its row is made if it is missing, and locked until the transaction ends."""
    facts = asdict(key)
    found = connection.execute(LOCK_KEY, facts).scalar()
    if found is None:
        insert(connection, keys, facts | {"day": day, "fresh": 0, "voices": 0, "ranked": []})
        found = connection.execute(LOCK_KEY, facts).scalar_one()
    return int(found)


#: A row of any table; its columns are attributes.
Row: TypeAlias = "sa.Row[Any]"


def insert(connection: sa.Connection, table: sa.Table, row: Mapping[str, object]) -> bool:
    """Inserts a row; False if that breaks a unique constraint."""
    statement = _insert(connection.dialect.name, table)
    return connection.execute(statement, row).scalar() is not None


@functools.cache
def _insert(dialect: str, table: sa.Table) -> sa.Executable:
    # Both databases spell ON CONFLICT alike, and SQLAlchemy has it twice.
    made = sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)
    return made.on_conflict_do_nothing().returning(table.c.id)


def voices_of(connection: sa.Connection, key_id: int, window: int) -> list[Voice]:
    """The newest voices that count, oldest first."""
    found = connection.execute(VOICES, {"key_id": key_id, "window": window}).all()
    return [
        Voice(n, day, votes_of(top), votes_of(answers), proven)
        for n, day, top, answers, proven in reversed(found)
    ]


def votes_of(pairs: Iterable[tuple[int, float]]) -> tuple[StoredVote, ...]:
    """Votes from the pairs [candidate, ratio] that the database stores."""
    return tuple(StoredVote(candidate, ratio) for candidate, ratio in pairs)


def pairs_of(votes: Iterable[StoredVote]) -> list[list[float]]:
    """The inverse of `votes_of`."""
    return [[v.candidate, v.ratio] for v in votes]


def state_of(row: Row) -> Stages:
    return Stages(
        default=_stage(row.default_candidate, row.default_since),
        shadow=_stage(row.shadow_candidate, row.shadow_since),
        previous=row.previous_candidate,
    )


def _stage(candidate: int | None, since: int | None) -> Staged | None:
    return None if candidate is None else Staged(candidate, since or 0)


def columns_of(state: Stages) -> dict[str, object]:
    return {
        "default_candidate": state.default and state.default.candidate,
        "default_since": state.default and state.default.since,
        "shadow_candidate": state.shadow and state.shadow.candidate,
        "shadow_since": state.shadow and state.shadow.since,
        "previous_candidate": state.previous,
    }


def standing_of(row: Row) -> Standing:
    default, shadow = row.default_candidate, row.shadow_candidate
    stages: dict[int | None, StageName] = {shadow: "shadow", default: "default"}
    ranked = tuple(
        Ranked(
            candidate=t.candidate,
            stage=stages.get(t.candidate, "candidate"),
            score=t.score,
            reporters=t.reporters,
            ratio=t.ratio,
            low=t.low,
            high=t.high,
            device=row.device,
            space=row.space,
            browser=row.browser,
        )
        for t in (Tally(*values) for values in row.ranked)
    )
    return Standing(default, shadow, ranked, row.voices)


def key_of(row: object) -> Key:
    return Key(**{name: getattr(row, name) for name in KEY})


def date_of(day: int) -> str:
    """Days since 1970 → "2026-11-21"."""
    return (EPOCH + datetime.timedelta(days=day)).isoformat()


def day_of(date: str) -> int:
    """The inverse of `date_of`.  Raises ValueError if the text is not a date."""
    return (datetime.date.fromisoformat(date) - EPOCH).days
