"""The kernel database: reports in, standings out.

Input: the URL of a database, reports of clients.  Output: receipts, standings, sizes.  Every write
is one transaction.  votes.py decides what the votes mean; here they are only stored.
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
from tilewright.store import records, schema, t4_export
from tilewright.store.database import Database
from tilewright.store.queries import (
    HAS_NONCE,
    IS_KEY,
    KEY,
    OF_SOURCE,
    ONE_MORE,
    columns_of,
    date_of,
    insert,
    key_of,
    lock_key,
    pairs_of,
    standing_of,
    state_of,
    voices_of,
)
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
from tilewright.store.schema import HEAD, keys, reports
from tilewright.store.votes import VOTE_EVERY, Thresholds, advance, tally

#: Limit of candidates that `similar` takes from one key.
SIMILAR = 3
SECONDS_A_DAY = 86_400
#: After this many days without reports the clock may be wrong, and reports are not deleted by it.
QUIET = 30
#: Days.  Sources of later dates come from a clock that was wrong and are forgotten.
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
                empty = schema.revision(connection) is None
            if empty and create:
                schema.upgrade(database)
            with database.read() as connection:
                schema.check(connection, database)
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

        A stored report that is sent again (same nonce) changes nothing and is accepted again.
        source: keyed hash of the network, the same during one day

        Raises InvalidReport; StoreError if it may not be stored: send it again.
        """
        records.check(report)
        day = self.today()
        self._sweep(day)
        told = {"top": pairs_of(report.top), "answers": pairs_of(report.answers)}
        honest = all(g.ratio > 1 for g in report.gold)
        names = {"day": day, "source": source, "nonce": report.nonce}
        with self.database.write() as connection:
            sent, trusted, proven = connection.execute(OF_SOURCE, names).one()
            reason = "rate"
            if sent < self.limits.rate:
                key_id = lock_key(connection, report.key, day)
                counts = honest and trusted != 0
                shown = counts and bool(proven or report.gold)
                row = names | told | {"key_id": key_id, "counts": counts, "proven": shown}
                stored = insert(connection, reports, row)
                if not honest:
                    _mark(connection, day, source, counts=False)
                elif report.gold and not proven:
                    _mark(connection, day, source, proven=True)
                if stored and counts:
                    refutes = any(a.ratio < 1 for a in report.answers)
                    self._count_voice(connection, key_id, day, refutes)
                if stored:
                    return Receipt(True)
                reason = "repeated"
            again = connection.execute(HAS_NONCE, names).scalar() is not None
        return Receipt(True) if again else Receipt(False, reason)

    def _count_voice(self, connection: sa.Connection, key_id: int, day: int, refutes: bool) -> None:
        row = connection.execute(ONE_MORE, {"key_id": key_id, "today": day}).one()
        # a default that is slow must not wait for the next vote
        if refutes or row.fresh >= max(1, row.voices // VOTE_EVERY):
            self._vote(connection, key_id)

    def _vote(self, connection: sa.Connection, key_id: int) -> None:
        """Counts the newest voices of a key and writes its standing.  The key's row is locked."""
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
        """The standing of this key; an empty one if the key is unknown."""
        with self.database.read() as connection:
            row = connection.execute(STANDING, asdict(key)).one_or_none()
        return standing_of(row) if row else Standing(None, None, (), 0)

    def similar(self, key: Key, classes: Sequence[str]) -> tuple[Ranked, ...]:
        """The best candidates of this kernel on these device classes, in their order.

        A class without data of its own tries them first (the paper's exploitation set).  They are
        numbers of another class's space: see `Ranked.device` and `.space`.  Only candidates with a
        quorum or a stage; the same browser family comes first.
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

        device: only this class;  settled: only keys with a default
        start: entries to skip;  limit: most entries to return
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
        """Numbers of keys, reports, stages and classes, and the days they span."""
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

    def rows(self) -> tuple[dict[str, object], ...]:
        """All reports as they are stored: each with every column, and those of its key.

        Row numbers are left out, and days are dates.  All rows are read into memory.
        """
        own = [column for column in reports.c if column.name not in ("id", "key_id")]
        of_key = [keys.c[name] for name in KEY]
        query = sa.select(*own, *of_key).join_from(reports, keys).order_by(reports.c.id)
        with self.database.read() as connection:
            found = connection.execute(query).mappings().all()
        return tuple({**row, "day": date_of(row["day"])} for row in found)

    def gc(self, days: int | None = None, *, force: bool = False) -> dict[str, int]:
        """Deletes sources of past days, old reports, and old keys without reports.

        days:  age in days beyond which reports are deleted; default: `limits.days`
        force: delete even if the clock may be ahead
        Returns how many of each.  Raises StoreClock if the clock may be ahead and reports would be
        deleted: then only sources are.
        """
        today = self.today()
        oldest = today - (self.limits.days if days is None else days)
        # A report sent again shortly after midnight must still find yesterday's source, and one
        # sent after the clock went back a little, tomorrow's.
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
        """Writes everything in the T4 schema, from one transaction; returns the reports' number."""
        with self.database.read() as connection:
            return t4_export.write(connection, stream)

    def import_(self, data: bytes) -> int:
        """Imports an export, all of it or nothing; returns how many reports were new.

        New keys keep their standing from the export; votes on the others are counted again.
        Raises InvalidReport.
        """
        document = t4_export.read(data, self.today())
        with self.database.write() as connection:
            changed, added = t4_export.load(connection, document)
            for key_id in changed:
                self._vote(connection, key_id)
        return added

    def _sweep(self, day: int) -> None:
        """Once a day and process: promised deletions must not depend on a cron job."""
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
    """Why these reports should not be deleted yet; None if they may be.

    old: the condition of the reports to delete
    """
    # today's reports prove nothing: their day comes from the same clock
    before = sa.select(sa.func.max(reports.c.day)).where(reports.c.day < today)
    newest = connection.execute(before).scalar()
    if newest is None or today - newest <= QUIET:
        return None
    number = connection.execute(sa.select(sa.func.count()).where(old)).scalar_one()
    if not number:
        return None
    return StoreClock(
        "Old reports are kept: no reports came for days, or the clock is ahead",
        hint="If the date is right, `tilewright db gc --force` deletes them",
        today=date_of(today), newest=date_of(newest), would_delete=number,
    )  # fmt: skip


def _mark(connection: sa.Connection, day: int, source: str, **values: bool) -> None:
    """Changes all reports of this source today; its keys change at their next vote."""
    today = (reports.c.day == day) & (reports.c.source == source)
    connection.execute(sa.update(reports).where(today).values(**values))
