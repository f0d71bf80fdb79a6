"""The kernel database: reports in, standings out.

Input: the URL of a database, reports of clients.  Output: receipts, standings, sizes.  Every public
function is one transaction.  What the votes mean is in votes.py; here they are only kept.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple
from types import TracebackType
from typing import IO

import sqlalchemy as sa

from tilewright.base.errors import StoreClock
from tilewright.store import migrate, records, t4
from tilewright.store.database import Database
from tilewright.store.records import (
    RANKED,
    Key,
    KeyStanding,
    Ranked,
    Receipt,
    Standing,
    Stats,
    StoredReport,
)
from tilewright.store.rows import (
    HAS_NONCE,
    IS_KEY,
    OF_SOURCE,
    ONE_MORE,
    columns_of,
    date_of,
    insert,
    key_of,
    lock_key,
    standing_of,
    state_of,
    voices_of,
)
from tilewright.store.schema import HEAD, keys, reports
from tilewright.store.votes import VOTE_EVERY, Thresholds, advance, tally

#: `similar` takes so many candidates of one key.
SIMILAR = 3
SECONDS_A_DAY = 86_400
#: Days without reports after which the clock is doubted, before anything is deleted by it.
QUIET = 30
#: A source that is farther ahead is of a clock that was wrong; nearer it may still come again.
AHEAD = 7

log = logging.getLogger(__name__)

STANDING = sa.select(keys).where(IS_KEY)


class KernelStore:
    """An open kernel database.  Threads may share it; processes open their own."""

    def __init__(
        self, database: Database, limits: Thresholds, clock: Callable[[], float] = time.time
    ) -> None:
        self.database = database
        self.limits = limits
        self._clock = clock
        self._swept = -1

    @classmethod
    def open(
        cls,
        url: str,
        limits: Thresholds | None = None,
        clock: Callable[[], float] = time.time,
        create: bool = True,
    ) -> KernelStore:
        """Opens the database; an empty one gets its tables.

        url: sqlite:///FILE or postgresql+psycopg://…;  limits: thresholds of the vote
        clock: seconds since 1970; it may go backwards
        create: False leaves a missing or empty database alone
        Raises StoreVersion, StoreDown, StoreLocked, StoreReadOnly, StoreFull, StoreCorrupt.
        """
        database = Database(url, create)
        try:
            with database.read() as connection:
                empty = migrate.revision(connection) is None
            if empty and create:
                migrate.upgrade(database)
            with database.read() as connection:
                migrate.check(connection, database)
        except BaseException:
            database.close()
            raise
        return cls(database, limits or Thresholds(), clock)

    def close(self) -> None:
        self.database.close()

    def __enter__(self) -> KernelStore:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    # ---- reports ---------------------------------------------------------------------------------

    def submit(self, report: StoredReport, source: str) -> Receipt:
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
        names = {"day": day, "source": source, "nonce": report.nonce}
        with self.database.write() as connection:
            sent, trusted = connection.execute(OF_SOURCE, names).one()
            reason = "rate"
            if sent < self.limits.rate:
                key_id = lock_key(connection, report.key, day)
                counts = honest and trusted != 0
                row = names | {"key_id": key_id, "counts": counts, "top": top}
                stored = insert(connection, reports, row)
                if not honest:
                    _distrust(connection, day, source)
                if stored and counts:
                    self._count_voice(connection, key_id, day)
                if stored:
                    return Receipt(True)
                reason = "repeated"
            again = connection.execute(HAS_NONCE, names).scalar() is not None
        return Receipt(True) if again else Receipt(False, reason)

    def _count_voice(self, connection: sa.Connection, key_id: int, day: int) -> None:
        row = connection.execute(ONE_MORE, {"key_id": key_id, "today": day}).one()
        if row.fresh >= max(1, row.voices // VOTE_EVERY):
            self._vote(connection, key_id)

    def _vote(self, connection: sa.Connection, key_id: int) -> None:
        """Counts the newest voices of a key, whose row is locked, and writes what they say."""
        where = keys.c.id == key_id
        state = state_of(connection.execute(sa.select(keys).where(where)).one())
        voices = voices_of(connection, key_id, self.limits.window)
        tallies = tally(voices)
        after = advance(state, voices, tallies, self.limits)
        ranked = [astuple(t) for t in tallies[:RANKED]]
        values = columns_of(after) | {"fresh": 0, "voices": len(voices), "ranked": ranked}
        connection.execute(sa.update(keys).where(where).values(**values))

    # ---- standings -------------------------------------------------------------------------------

    def standing(self, key: Key) -> Standing:
        """What the crowd says of this key; of an unknown one nothing."""
        with self.database.read() as connection:
            row = connection.execute(STANDING, asdict(key)).one_or_none()
        return standing_of(row) if row else Standing(None, None, (), 0)

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
            & ~IS_KEY
        )
        with self.database.read() as connection:
            rows = connection.execute(sa.select(keys).where(where), asdict(key)).all()
        order = {name: place for place, name in enumerate(classes)}
        rows = sorted(
            rows, key=lambda r: (order[r.device], r.browser != key.browser, -r.voices, r.id)
        )
        found: list[Ranked] = []
        for row in rows:
            ranked = standing_of(row).ranked
            known = [r for r in ranked if r.candidate and self._is_known(r)]
            found += sorted(known, key=lambda r: r.stage != "default")[:SIMILAR]
        return tuple(found)

    def _is_known(self, ranked: Ranked) -> bool:
        return ranked.stage != "candidate" or ranked.reporters >= self.limits.quorum

    def overview(
        self,
        device: str | None = None,
        *,
        settled: bool = False,
        start: int = 0,
        limit: int | None = None,
    ) -> tuple[KeyStanding, ...]:
        """Keys with their standings, by device class, kind and shape.

        device: only this class;  settled: only those with a default
        start, limit: so many of them, after so many
        """
        names = ("device", "kind", "shape", "browser", "compiler", "kernel", "space")
        query = sa.select(keys).order_by(*(keys.c[name] for name in names))
        if device is not None:
            query = query.where(keys.c.device == device)
        if settled:
            query = query.where(keys.c.default_candidate.is_not(None))
        with self.database.read() as connection:
            rows = connection.execute(query.limit(limit).offset(start)).all()
        return tuple(KeyStanding(key_of(r), standing_of(r), date_of(r.day)) for r in rows)

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
            number, defaults, shadows, devices = connection.execute(one).one()
            total, counted, first, last = connection.execute(two).one()
        return Stats(
            url=self.database.shown,
            schema=HEAD,
            keys=number,
            reports=total,
            counted=counted,
            defaults=defaults,
            shadows=shadows,
            devices=devices,
            first_day=date_of(first) if total else "",
            last_day=date_of(last) if total else "",
        )

    def gc(self, days: int | None = None, *, force: bool = False) -> dict[str, int]:
        """Forgets sources of other days, old reports, and keys that have none left.

        days: reports older than this go; default: `limits.days`
        force: also where the clock may be ahead
        Raises StoreClock where it may be and reports would go: then only sources are forgotten.
        """
        today = self.today()
        oldest = today - (self.limits.days if days is None else days)
        # A report that comes again shortly after midnight must still find its source of yesterday,
        # and after a clock that went back a little that of tomorrow.
        other = (reports.c.day < today - 1) | (reports.c.day > today + AHEAD)
        named = other & reports.c.source.is_not(None)
        old = reports.c.day < oldest
        with self.database.write() as connection:
            forgotten = connection.execute(sa.update(reports).where(named).values(source=None))
            doubt = None if force else _doubt(connection, today, old)
            if doubt is None:
                deleted = connection.execute(sa.delete(reports).where(old))
                empty = ~sa.exists().where(reports.c.key_id == keys.c.id)
                gone = connection.execute(sa.delete(keys).where(empty & (keys.c.day < oldest)))
        if doubt is not None:
            raise doubt
        return {"sources": forgotten.rowcount, "reports": deleted.rowcount, "keys": gone.rowcount}

    def export(self, stream: IO[bytes]) -> int:
        """Writes everything in the T4 schema, one state of the database; gives the reports."""
        with self.database.read() as connection:
            return t4.write(connection, stream)

    def import_(self, data: bytes) -> int:
        """Takes an export, all of it or nothing; gives how many of its reports were new.

        Keys that are new here come with their standing, the others are voted on anew.
        Raises InvalidReport.
        """
        document = t4.read(data, self.today())
        with self.database.write() as connection:
            changed, added = t4.load(connection, document)
            for key_id in changed:
                self._vote(connection, key_id)
        return added

    def _sweep(self, day: int) -> None:
        """Once a day and process: promises about forgetting must not hang on a timer of others."""
        if day != self._swept:
            try:
                self.gc()
            except StoreClock as doubt:
                log.warning("%s", doubt)
            self._swept = day

    def today(self) -> int:
        """Days since 1970, UTC."""
        return int(self._clock() // SECONDS_A_DAY)


def _doubt(connection: sa.Connection, today: int, old: sa.ColumnElement[bool]) -> StoreClock | None:
    """Why these reports should not go yet, if there are any."""
    # today's own say nothing: they have their day from the same clock
    before = sa.select(sa.func.max(reports.c.day)).where(reports.c.day < today)
    newest = connection.execute(before).scalar()
    if newest is None or today - newest <= QUIET:
        return None
    number = connection.execute(sa.select(sa.func.count()).where(old)).scalar_one()
    if not number:
        return None
    return StoreClock(
        "Old reports are kept: nobody reported for days, or the clock is ahead",
        hint="If the date is right, `tilewright db gc --force` deletes them",
        today=date_of(today), newest=date_of(newest), would_delete=number,
    )  # fmt: skip


def _distrust(connection: sa.Connection, day: int, source: str) -> None:
    """Nothing that this source said today counts any more; its keys see it at their next vote."""
    today = (reports.c.day == day) & (reports.c.source == source)
    connection.execute(sa.update(reports).where(today).values(counts=False))
