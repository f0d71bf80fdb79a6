"""Checks reports of devices against the kernel's space and stores them; answers what the store
knows.

Input: a report and its client.  Output: the acknowledgement, after the commit; for a client, the
results of other devices for its kernels.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import cast, get_args

from tilewright.base.compiler_digest import compiler_name
from tilewright.server.async_store import AsyncStore, Unavailable
from tilewright.server.client import Client, CrowdResults, KernelResults, Page
from tilewright.server.rate_limits import TokenBuckets
from tilewright.server.session_resources import SessionResources
from tilewright.store import Key, Ranked, Standing, StoredGold, StoredVote, Thresholds
from tilewright.store import StoredReport as Stored
from tilewright.tuning import catalogue
from tilewright.tuning.candidate_order import HOPE, KnownCandidate
from tilewright.tuning.candidates import Space
from tilewright.tuning.catalogue import OpenedBundle, Winners
from tilewright.tuning.messages import MOST_VOTE, TOP, Ack, Browser, Busy, Reason, Report, Vote

#: The least number of voices from which results of a key are told to devices.
QUORUM = Thresholds().quorum

_REASONS = frozenset(get_args(Reason))


class StoredResults(CrowdResults):
    open = True

    def __init__(
        self, kernel_store: AsyncStore, resources: SessionResources, buckets: TokenBuckets
    ) -> None:
        self._kernel_store = kernel_store
        self._resources = resources
        self._buckets = buckets

    async def submit(self, report: Report, client: Client) -> Ack:
        reason = flaw(report, client)
        source = client.source()
        if not reason and not self._buckets.take(source):
            reason = "rate"
        if reason:
            return Ack(nonce=report.nonce, accepted=False, reason=reason)
        space = client.spaces[report.spec]
        key = key_of(space, client.hello.browser)
        # the gold answer is not a candidate, but clients with few results list it
        told = [vote for vote in report.top if vote.candidate != space.gold]
        top = over_the_first(told, client.offers[report.spec].default)
        if top is None:
            return Ack(nonce=report.nonce, accepted=False, reason="unknown")
        known = space.gold is not None and report.gold is not None and report.gold.b == space.gold
        gold = report.gold if known else None
        stored = Stored(
            nonce=report.nonce,
            key=key,
            top=top,
            gold=(StoredGold(gold.a, gold.b, gold.ratio),) if gold else (),
            answers=answers(report, client),
        )
        accepted, why = await self._kernel_store.submit(stored, source)
        reason = cast(Reason, why if why in _REASONS else "refused")
        return Ack(nonce=report.nonce, accepted=accepted, reason=reason)

    def close(self) -> None:
        self._kernel_store.close()

    async def crowd(self, client: Client) -> list[KernelResults]:
        keys = [key_of(client.spaces[spec], client.hello.browser) for spec in client.hello.specs]
        standings = await self._kernel_store.standings(keys)
        asked = zip(client.hello.specs, keys, standings, strict=True)
        return await asyncio.gather(*(self._one(client, *found) for found in asked))

    async def winners(self, opened: OpenedBundle, device: str, browser: Browser) -> Winners:
        try:
            settled = await self._kernel_store.settled(device, browser)
        except Unavailable:
            return {}
        best = {spec: settled[key] for spec, key in enumerate(opened.keys) if key in settled}
        return await self._resources.winners(opened, device, best) if best else {}

    def stats(self) -> dict[str, object]:
        kernel_store = self._kernel_store
        failures = dict(kernel_store.failures)
        return {"open": self.open, "failures": failures, "resting": kernel_store.resting}

    async def overview(self, device: str | None, number: int) -> Page:
        if device is not None:
            catalogue.device_class(device)  # raises Unknown if there is none
        try:
            return await self._kernel_store.page(device, number)
        except Unavailable as error:
            message = "The store does not answer, or others wait for pages"
            raise Busy(message, hint="Try again later", store=error.code or "busy") from error

    async def _one(
        self, client: Client, spec: int, key: Key, standing: Standing | None
    ) -> KernelResults:
        """The key's own standing; below the quorum the best candidates of other browsers and
        similar device classes come before it."""
        space = client.spaces[spec]
        if standing is None:
            return KernelResults()
        number = range(len(space.schedules))
        stages = [c if c in number else None for c in (standing.default, standing.shadow)]
        first = [c for c in stages if c is not None]
        ratios = {r.candidate: _believed(r) for r in standing.ranked if r.candidate in number}
        own = [KnownCandidate(c, ratios.get(c, 1.0)) for c in dict.fromkeys([*first, *ratios])]
        if first or standing.voices >= QUORUM:
            return KernelResults(tuple(own), *stages)
        near = [device.id for device in catalogue.similar_classes(space.device)]
        found = await self._kernel_store.similar(key, near)
        known = [k for r in found if (k := await self._translated(client, spec, r)) is not None]
        first_of: dict[int, KnownCandidate] = {}
        for each in (*known, *own):
            first_of.setdefault(each.candidate, each)
        return KernelResults(tuple(first_of.values()))

    async def _translated(self, client: Client, spec: int, ranked: Ranked) -> KnownCandidate | None:
        """A candidate of another class's space with its number in the client's; None if it has
        none."""
        objective = client.hello.objective
        try:
            theirs = await self._resources.space(client.opened, spec, ranked.device, objective)
        except Exception:
            # `space` logged it; the client's own space still works
            return None
        if theirs.checksum != ranked.space:
            return None
        number = catalogue.translate(ranked.candidate, theirs, client.spaces[spec])
        return None if number is None else KnownCandidate(number, ranked.ratio)


def _believed(ranked: Ranked) -> float:
    """The ratio of a candidate; below a quorum at most `HOPE`, so that few voices do not decide
    which kernel is tuned first."""
    known = ranked.stage != "candidate" or ranked.reporters >= QUORUM
    return ranked.ratio if known else min(ranked.ratio, HOPE)


def key_of(space: Space, browser: Browser) -> Key:
    """The key under which votes on this space are counted."""
    return Key(
        kernel=space.key,
        kind=space.kind,
        shape=space.shape,
        device=space.device.id,
        space=space.checksum,
        compiler=compiler_name(),
        browser=browser,
    )


def over_the_first(top: Iterable[Vote], default: int | None) -> tuple[StoredVote, ...] | None:
    """The votes, best first, with speedups over candidate 0; None if those are unknown.

    default: the bundle's own candidate, which the page measured against; None if the space lacks
        it.  If it is not candidate 0, the page must have measured candidate 0 too: taking that
        speedup from other reports would count their result as this page's.
    """
    ratios = {vote.candidate: vote.ratio for vote in top}
    if default != 0:
        if 0 not in ratios:
            return None
        scale = 1 / ratios[0]
        ratios |= {} if default is None else {default: 1.0}
        ratios = {candidate: ratio * scale for candidate, ratio in ratios.items()}
    votes = [StoredVote(candidate, ratio) for candidate, ratio in ratios.items()]
    return tuple(sorted(votes, key=lambda vote: -vote.ratio)[:TOP])


def flaw(report: Report, client: Client) -> Reason:
    """Why a report is refused; "" if it is not.

    The store checks whether a gold answer is right, and clients are not told.
    """
    space, offer = client.spaces.get(report.spec), client.offers.get(report.spec)
    if space is None or offer is None or not client.votes:
        return "unknown"
    if report.checksum != space.checksum:
        return "checksum"
    numbers = [vote.candidate for vote in report.top]
    if len(set(numbers)) < len(numbers) or any(space.schedule(n) is None for n in numbers):
        return "range"
    if any(not 1 / MOST_VOTE <= vote.ratio <= MOST_VOTE for vote in report.top):
        return "range"
    asked, told = offer.gold, report.gold
    if told is None:
        # a device that tried the crowd's candidate on an earlier visit has no answer
        return "gold" if asked is not None and asked.b == space.gold else ""
    return "" if asked is not None and (told.a, told.b) == (asked.a, asked.b) else "gold"


def answers(report: Report, client: Client) -> tuple[StoredVote, ...]:
    """Answers for the store, as ratios over the compiler's own candidate: for the candidate that
    was asked for, and for a voted default that the bundle already has."""
    offer, space = client.offers[report.spec], client.spaces[report.spec]
    found: dict[int, float] = {}
    if report.gold is not None and report.gold.b != space.gold:
        found[report.gold.b] = 1 / report.gold.ratio
    own = {vote.candidate: vote.ratio for vote in report.top}.get(0)
    if own is not None and offer.default and offer.default == client.crowd[report.spec].default:
        found[offer.default] = 1 / own
    return tuple(StoredVote(candidate, ratio) for candidate, ratio in found.items())
