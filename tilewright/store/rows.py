"""Between rows of the database and records: the queries that more than one function needs.

Input: connections, keys, rows.  Output: records and states.  No decisions are made here.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from tilewright.store.records import Key, Ranked, StageName, Standing, Vote
from tilewright.store.schema import keys, reports
from tilewright.store.votes import Stage, State, Tally, Voice

#: What makes a key one; kind and shape only say the kernel for people.
UNIQUE = ("kernel", "device", "space", "compiler", "browser")
KEY = tuple(f.name for f in fields(Key))
EPOCH = datetime.date(1970, 1, 1)


def is_key(key: Key) -> sa.ColumnElement[bool]:
    return sa.and_(*(keys.c[name] == getattr(key, name) for name in UNIQUE))


def lock_key(connection: sa.Connection, key: Key, day: int) -> int:
    """The key's number; its row is made if it is missing, and locked until the transaction ends."""
    query = sa.select(keys.c.id).where(is_key(key)).with_for_update()
    found = connection.execute(query).scalar()
    if found is None:
        row = asdict(key) | {"day": day, "fresh": 0, "voices": 0, "ranked": []}
        insert(connection, keys, row)
        found = connection.execute(query).scalar_one()
    return int(found)


def insert(connection: sa.Connection, table: sa.Table, row: Mapping[str, Any]) -> bool:
    """Puts a row in; False if one with the same name is there already."""
    # Both databases spell ON CONFLICT alike, and SQLAlchemy has it twice.
    dialect: Any = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement = dialect.insert(table).values(**row).on_conflict_do_nothing()
    return connection.execute(statement.returning(table.c.id)).scalar() is not None


def exists(connection: sa.Connection, where: sa.ColumnElement[bool]) -> bool:
    return bool(connection.execute(sa.select(sa.exists().where(where))).scalar())


def voices_of(connection: sa.Connection, key_id: int, window: int) -> list[Voice]:
    query = (
        sa.select(reports.c.id, reports.c.day, reports.c.top)
        .where((reports.c.key_id == key_id) & reports.c.counts)
        .order_by(reports.c.id.desc())
        .limit(window)
    )
    rows = reversed(connection.execute(query).all())
    return [Voice(r.id, r.day, tuple(Vote(c, ratio) for c, ratio in r.top)) for r in rows]


def state_of(row: Any) -> State:
    return State(
        default=_stage(row.default_candidate, row.default_since),
        shadow=_stage(row.shadow_candidate, row.shadow_since),
        previous=row.previous_candidate,
    )


def _stage(candidate: int | None, since: int | None) -> Stage | None:
    return None if candidate is None else Stage(candidate, since or 0)


def columns_of(state: State) -> dict[str, Any]:
    return {
        "default_candidate": state.default and state.default.candidate,
        "default_since": state.default and state.default.since,
        "shadow_candidate": state.shadow and state.shadow.candidate,
        "shadow_since": state.shadow and state.shadow.since,
        "previous_candidate": state.previous,
    }


def standing_of(row: Any) -> Standing:
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


def key_of(row: Any) -> Key:
    return Key(**{name: getattr(row, name) for name in KEY})


def date_of(day: int) -> str:
    """Days since 1970 → "2026-11-21"."""
    return (EPOCH + datetime.timedelta(days=day)).isoformat()


def day_of(date: str) -> int:
    """The other way; ValueError for anything that is no date."""
    return (datetime.date.fromisoformat(date) - EPOCH).days
