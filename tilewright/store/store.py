"""The kernel database: reports in, standings out.

Input: the URL of a database, reports of clients.  Output: receipts, standings, sizes.  Every public
function is one transaction.  What the votes mean is in votes.py; here they are only kept.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Any

import sqlalchemy as sa

from tilewright.store import migrate, records
from tilewright.store.database import Database
from tilewright.store.records import (
    Entry,
    Key,
    Ranked,
    Receipt,
    Report,
    StageName,
    Standing,
    Stats,
    Vote,
)
from tilewright.store.schema import HEAD, keys, reports
from tilewright.store.votes import Limits, Stage, State, Voice, advance, tally

#: A key's ranking keeps so many candidates.
RANKED = 16
#: `similar` takes so many candidates of one key.
SIMILAR = 3
SECONDS_A_DAY = 86_400

#: A key is voted on anew when its voices have grown by a twentieth: the outcome hardly changes in
#: between, and the work per report stays small.
VOTE_EVERY = 20

UNIQUE = ("kernel", "device", "space", "compiler", "browser")


class Store:
    """An open kernel database.  Threads may share it; processes open their own."""

    def __init__(
        self, database: Database, limits: Limits, clock: Callable[[], float] = time.time
    ) -> None:
        self.database = database
        self.limits = limits
        self._clock = clock
        self._swept = -1

    @classmethod
    def open(
        cls, url: str, limits: Limits | None = None, clock: Callable[[], float] = time.time
    ) -> Store:
        """Opens the database; an empty one gets its tables.

        url: sqlite:///FILE or postgresql+psycopg://…;  limits: thresholds of the vote
        clock: seconds since 1970; it may go backwards
        Raises StoreVersion, StoreDown, StoreLocked, StoreReadOnly, StoreFull, StoreCorrupt.
        """
        database = Database(url)
        try:
            with database.read() as connection:
                empty = migrate.revision(connection) is None
            if empty:
                migrate.upgrade(database)
            with database.read() as connection:
                migrate.check(connection, database)
        except BaseException:
            database.close()
            raise
        return cls(database, limits or Limits(), clock)

    def close(self) -> None:
        self.database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    # ---- reports ---------------------------------------------------------------------------------

    def submit(self, report: Report, source: str) -> Receipt:
        """Takes a report and, if it is time, votes anew; on disk when this returns.

        A report that comes again (same nonce) changes nothing and gets the same receipt.
        source: who reports, as a keyed hash that is the same for one network during one day
        Raises InvalidReport, and StoreError if nothing was stored, or nobody knows: send it again.
        """
        records.check(report)
        day = self.today()
        self._sweep(day)
        top = [[v.candidate, v.ratio] for v in report.top]
        honest = all(g.ratio > 1 for g in report.gold)
        today = (reports.c.day == day) & (reports.c.source == source)
        known = reports.c.nonce == report.nonce
        with self.database.write() as connection:
            if _count(connection, today) >= self.limits.rate:
                return Receipt(True) if _exists(connection, known) else Receipt(False, "rate")
            counts = honest and not _exists(connection, today & ~reports.c.counts)
            key_id = _lock_key(connection, report.key, day)
            row = {"key_id": key_id, "day": day, "source": source, "counts": counts, "top": top}
            insert = _insert(connection, reports).values(nonce=report.nonce, **row)
            if not connection.execute(insert.on_conflict_do_nothing()).rowcount:
                return Receipt(True) if _exists(connection, known) else Receipt(False, "repeated")
            if not honest:
                connection.execute(sa.update(reports).where(today).values(counts=False))
            if counts:
                self._count_voice(connection, key_id, day)
        return Receipt(True)

    def _count_voice(self, connection: sa.Connection, key_id: int, day: int) -> None:
        where = keys.c.id == key_id
        row = connection.execute(sa.select(keys.c.fresh, keys.c.voices).where(where)).one()
        due = max(1, row.voices // VOTE_EVERY)
        values = {"day": day, "fresh": row.fresh + 1}
        connection.execute(sa.update(keys).where(where).values(**values))
        if row.fresh + 1 >= due:
            self._vote(connection, key_id)

    def _vote(self, connection: sa.Connection, key_id: int) -> None:
        """Counts the newest voices of a key, whose row is locked, and writes what they say."""
        where = keys.c.id == key_id
        state = _state(connection.execute(sa.select(keys).where(where)).one())
        voices = _voices(connection, key_id, self.limits.window)
        after = advance(state, voices, self.limits)
        ranked = [
            [t.candidate, t.score, t.reporters, t.ratio, t.low, t.high]
            for t in tally(voices)[:RANKED]
        ]
        values = _columns(after) | {"fresh": 0, "voices": len(voices), "ranked": ranked}
        connection.execute(sa.update(keys).where(where).values(**values))

    # ---- standings -------------------------------------------------------------------------------

    def standing(self, key: Key) -> Standing:
        """What the crowd says of this key; of an unknown one nothing."""
        with self.database.read() as connection:
            row = connection.execute(sa.select(keys).where(_is(key))).one_or_none()
        return _standing(row) if row else Standing(None, None, (), 0)

    def similar(self, key: Key, classes: Sequence[str]) -> tuple[Ranked, ...]:
        """The crowd's best for this kernel on these device classes, in their order.

        What a class without data of its own tries first (the paper's exploitation set).  Candidates
        are numbers in the space of the class that they come from: see `Ranked.device` and `.space`.
        Only candidates with a quorum or a stage; the same browser family comes first.
        """
        where = (
            (keys.c.kernel == key.kernel)
            & (keys.c.compiler == key.compiler)
            & keys.c.device.in_(classes)
            & ~_is(key)
        )
        with self.database.read() as connection:
            rows = connection.execute(sa.select(keys).where(where)).all()
        order = {name: place for place, name in enumerate(classes)}
        rows = sorted(
            rows, key=lambda r: (order[r.device], r.browser != key.browser, -r.voices, r.id)
        )
        found: list[Ranked] = []
        for row in rows:
            ranked = _standing(row).ranked
            known = [r for r in ranked if r.candidate and self._is_known(r)]
            found += sorted(known, key=lambda r: r.stage != "default")[:SIMILAR]
        return tuple(found)

    def _is_known(self, ranked: Ranked) -> bool:
        return ranked.stage != "candidate" or ranked.reporters >= self.limits.quorum

    def overview(self, device: str | None = None, limit: int = 10_000) -> tuple[Entry, ...]:
        """All keys with their standings, by device class, kind and shape."""
        query = sa.select(keys).order_by(
            keys.c.device, keys.c.kind, keys.c.shape, keys.c.browser, keys.c.compiler, keys.c.id
        )
        if device is not None:
            query = query.where(keys.c.device == device)
        with self.database.read() as connection:
            rows = connection.execute(query.limit(limit)).all()
        return tuple(Entry(_key(r), _standing(r), _date(r.day)) for r in rows)

    # ---- upkeep ----------------------------------------------------------------------------------

    def stats(self) -> Stats:
        """How much is in it."""
        one = sa.select(
            sa.func.count(),
            sa.func.count(keys.c.default_candidate),
            sa.func.count(keys.c.shadow_candidate),
            sa.func.count(keys.c.device.distinct()),
        ).select_from(keys)
        two = sa.select(
            sa.func.count(),
            sa.func.count(sa.case((reports.c.counts, 1))),
            sa.func.min(reports.c.day),
            sa.func.max(reports.c.day),
        ).select_from(reports)
        with self.database.read() as connection:
            count, defaults, shadows, devices = connection.execute(one).one()
            total, counted, first, last = connection.execute(two).one()
        return Stats(
            url=self.database.shown,
            schema=HEAD,
            keys=count,
            reports=total,
            counted=counted,
            defaults=defaults,
            shadows=shadows,
            devices=devices,
            first_day=_date(first) if total else "",
            last_day=_date(last) if total else "",
        )

    def gc(self, days: int | None = None) -> dict[str, int]:
        """Forgets sources of past days, old reports, and keys that have none left.

        days: reports older than this go; default: `limits.days`
        """
        today = self.today()
        oldest = today - (self.limits.days if days is None else days)
        # A report that comes again shortly after midnight must still find its source of yesterday.
        past = (reports.c.day < today - 1) & reports.c.source.is_not(None)
        with self.database.write() as connection:
            forgotten = connection.execute(sa.update(reports).where(past).values(source=None))
            old = connection.execute(sa.delete(reports).where(reports.c.day < oldest))
            empty = ~sa.exists().where(reports.c.key_id == keys.c.id)
            gone = connection.execute(sa.delete(keys).where(empty & (keys.c.day < oldest)))
        return {"sources": forgotten.rowcount, "reports": old.rowcount, "keys": gone.rowcount}

    def _sweep(self, day: int) -> None:
        """Once a day and process: promises about forgetting must not hang on a timer of others."""
        if day > self._swept:
            self.gc()
            self._swept = day

    def today(self) -> int:
        """Days since 1970, UTC."""
        return int(self._clock() // SECONDS_A_DAY)


def _is(key: Key) -> sa.ColumnElement[bool]:
    return sa.and_(*(keys.c[name] == getattr(key, name) for name in UNIQUE))


def _lock_key(connection: sa.Connection, key: Key, day: int) -> int:
    """The key's number; its row is made if it is missing, and locked until the transaction ends."""
    query = sa.select(keys.c.id).where(_is(key)).with_for_update()
    found = connection.execute(query).scalar()
    if found is None:
        row = asdict(key) | {"day": day, "fresh": 0, "voices": 0, "ranked": []}
        connection.execute(_insert(connection, keys).values(**row).on_conflict_do_nothing())
        found = connection.execute(query).scalar_one()
    return int(found)


def _insert(connection: sa.Connection, table: sa.Table) -> Any:
    """An INSERT that knows ON CONFLICT, which both databases spell alike."""
    from sqlalchemy.dialects import postgresql, sqlite

    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    return dialect.insert(table)


def _exists(connection: sa.Connection, where: sa.ColumnElement[bool]) -> bool:
    return bool(connection.execute(sa.select(sa.exists().where(where))).scalar())


def _count(connection: sa.Connection, where: sa.ColumnElement[bool]) -> int:
    return int(connection.execute(sa.select(sa.func.count()).where(where)).scalar_one())


def _voices(connection: sa.Connection, key_id: int, window: int) -> list[Voice]:
    query = (
        sa.select(reports.c.id, reports.c.day, reports.c.top)
        .where((reports.c.key_id == key_id) & reports.c.counts)
        .order_by(reports.c.id.desc())
        .limit(window)
    )
    rows = reversed(connection.execute(query).all())
    return [Voice(r.id, r.day, tuple(Vote(c, ratio) for c, ratio in r.top)) for r in rows]


def _state(row: Any) -> State:
    return State(
        default=_stage(row.default_candidate, row.default_since),
        shadow=_stage(row.shadow_candidate, row.shadow_since),
        previous=row.previous_candidate,
    )


def _stage(candidate: int | None, since: int | None) -> Stage | None:
    return None if candidate is None else Stage(candidate, since or 0)


def _columns(state: State) -> dict[str, Any]:
    return {
        "default_candidate": state.default and state.default.candidate,
        "default_since": state.default and state.default.since,
        "shadow_candidate": state.shadow and state.shadow.candidate,
        "shadow_since": state.shadow and state.shadow.since,
        "previous_candidate": state.previous,
    }


def _standing(row: Any) -> Standing:
    default, shadow = row.default_candidate, row.shadow_candidate
    stages: dict[int | None, StageName] = {shadow: "shadow", default: "default"}
    ranked = tuple(
        Ranked(
            c, stages.get(c, "candidate"), s, n, r, low, high, row.device, row.space, row.browser
        )
        for c, s, n, r, low, high in row.ranked
    )
    return Standing(default, shadow, ranked, row.voices)


def _key(row: Any) -> Key:
    names = ("kernel", "kind", "shape", "device", "space", "compiler", "browser")
    return Key(**{name: getattr(row, name) for name in names})


def _date(day: int) -> str:
    return (datetime.date(1970, 1, 1) + datetime.timedelta(days=day)).isoformat()
