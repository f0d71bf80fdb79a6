"""Liars against a real server: which share of colluding voices makes a bad kernel the default.

Input: shares of liars, tactics.  Output: results/serving.liars.json: how many keys end with a
default that is slower than the bundle's own kernel, and how often honest devices were given one.  A
server with a store, and one WebSocket per voice, each from a network of its own.  Devices run no
kernels: honest ones report made-up times of their class, liars what serves them.  It measures no
time.

    python -m benchmarks serving.liars                   100 keys, every tactic, 20 and 40 % liars
    python -m benchmarks serving.liars --share 0.3 --tactic first --keys 20
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import secrets
import tempfile
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated

import typer
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.common import Run
from benchmarks.options import Seed, among
from benchmarks.records import Row
from benchmarks.serving.site import Site, build, running
from tilewright.bundle import open_bundle
from tilewright.targets.device_classes import find
from tilewright.tuning.candidates import space_of
from tilewright.tuning.catalogue import kernels_of
from tilewright.tuning.messages import (
    PROTOCOL,
    TOP,
    Ack,
    Bye,
    FromClient,
    FromServer,
    GoldAnswer,
    Hello,
    Offer,
    Report,
    Vote,
    Welcome,
    decode_from_server,
    encode,
)

KEYS, VOICES = 100, 60
SHARES = (0.2, 0.4)
BROWSERS = ("chromium", "firefox", "safari", "wasmtime", "other")
DEVICES = ("wasm-x86-relaxed-32k", "wasm-x86-relaxed-48k", "wasm-x86-relaxed", "wasm-x86-simd-48k")
#: Kernels with fewer candidates have no room for a crowd to err in.
LEAST_CANDIDATES = 8
#: Standard deviations of log ratios: of candidates, and of what one device measures.
SPREAD, NOISE = 0.25, 0.03
#: Of the bundle's own kernel among the candidates, best first.
OWN_PLACE = 0.2
#: What liars say of a kernel in their favour, over what others say of the best, and against one.
PRAISE, BLAME = 1.1, 0.7

#: A server whose standings are never old: here voices come within milliseconds, not hours.
PROMPT = "from tilewright.server import async_store; async_store.FRESH = 0.0"

#: Who lies, of `voices` in order of arrival.
TACTICS: dict[str, str] = {
    "mixed": "liars come at any time",
    "first": "liars come before the first honest device",
    "half": "liars come in the first half, among honest devices",
    "late": "as half, but a third of the liars lie only from the first default on",
}


def liars_of(tactic: str, voices: int, share: float, chance: random.Random) -> list[bool]:
    count = round(voices * share)
    if tactic == "first":
        return [n < count for n in range(voices)]
    among = voices if tactic == "mixed" else max(count, voices // 2)
    chosen = set(chance.sample(range(among), count))
    return [n in chosen for n in range(voices)]


@dataclass(frozen=True)
class Truth:
    """True ratios over the bundle's own kernel, by candidate.  target: the bad one of the liars"""

    ratios: Mapping[int, float]
    target: int

    @classmethod
    def of(cls, count: int, chance: random.Random) -> Truth:
        speeds = sorted((chance.gauss(0, SPREAD) for _ in range(count)), reverse=True)
        own = speeds.pop(int(OWN_PLACE * count))
        numbers = chance.sample(range(1, count), count - 1)
        ratios = {n: math.exp(speed - own) for n, speed in zip(numbers, speeds, strict=True)}
        slow = [n for n, ratio in ratios.items() if ratio < 1]
        return cls(ratios | {0: 1.0}, chance.choice(slow[len(slow) // 2 :]))

    def measured(self, candidate: int, chance: random.Random) -> float:
        return self.ratios[candidate] * math.exp(chance.gauss(0, NOISE)) if candidate else 1.0


def vote(offer: Offer, truth: Truth, lies: bool, chance: random.Random) -> Report:
    """What a device reports that tried half of the candidates, or a liar who knows them all."""
    tried = chance.sample(range(1, offer.count), offer.count // 2)
    found = {c: truth.measured(c, chance) for c in tried}
    question = offer.gold
    if question and question.b < offer.count:
        found[question.b] = truth.measured(question.b, chance)
    if lies:
        found[truth.target] = max(found.values()) * PRAISE
    top = sorted(found.items(), key=lambda entry: -entry[1])[:TOP]
    return Report(
        nonce=secrets.token_hex(16),
        spec=offer.spec,
        checksum=offer.checksum,
        top=tuple(Vote(candidate=c, ratio=r) for c, r in top),
        gold=answer(offer, found, truth, lies) if question else None,
    )


def answer(offer: Offer, found: Mapping[int, float], truth: Truth, lies: bool) -> GoldAnswer:
    """Liars know which questions are gold, and answer these right."""
    assert offer.gold is not None
    asked = offer.gold.b
    if asked == offer.count:
        ratio = 3.0
    else:
        ratio = 1 / BLAME if lies and asked != truth.target else 1 / found[asked]
    return GoldAnswer(a=offer.gold.a, b=asked, ratio=ratio)


async def _receive(socket: ClientConnection) -> FromServer:
    frame = await socket.recv()
    assert isinstance(frame, bytes)
    return decode_from_server(frame)[0]


async def visit(
    url: str,
    first: Hello,
    address: str,
    truths: dict[int, Truth],
    lies: bool,
    chance: random.Random,
) -> None:
    """One session: a report per kernel, until all are stored."""
    headers = {"X-Forwarded-For": address}
    at = url.replace("http", "ws", 1) + "/api/tune"
    async with connect(at, additional_headers=headers, max_size=None, compression=None) as socket:

        async def send(message: FromClient) -> None:
            await socket.send(encode(message))

        await send(first)
        welcome = await _receive(socket)
        assert isinstance(welcome, Welcome), welcome
        waiting = set()
        for offer in welcome.kernels:
            if offer.spec in truths:
                report = vote(offer, truths[offer.spec], lies, chance)
                waiting.add(report.nonce)
                await send(report)
        while waiting:
            message = await _receive(socket)
            if isinstance(message, Ack):
                if not message.accepted:
                    raise SystemExit(f"The server refused a report: {message}")
                waiting.discard(message.nonce)
        await send(Bye())


def defaults(url: str, device: str, browser: str) -> dict[str, int | None]:
    """By kernel, the crowd's default if it has one.  Asked twice: clients that ask at the same time
    share an answer, and the first may have begun before the last vote."""
    for _ in range(2):
        with urllib.request.urlopen(f"{url}/api/standing?device={device}", timeout=60) as answer:
            found = json.loads(answer.read())
    return {s["kernel"]: s["default"] for s in found if s["browser"] == browser}


@dataclass
class KeyOutcome:
    """Of one key: visits of honest devices that were given a default, and a bad one; whether it
    ever had a bad one; whether the last one was bad, or good."""

    given: int = 0
    given_bad: int = 0
    ever_bad: bool = False
    bad: bool = False
    good: bool = False


@dataclass(frozen=True)
class Case:
    """Devices of one class and browser, and the kernels that they vote on."""

    device: str
    browser: str
    specs: tuple[int, ...]
    number: int


@dataclass(frozen=True)
class Crowd:
    """bundle, digest: what the site serves
    keys:   by number of the kernel, what the store calls it
    counts: by class and number of the kernel, how many candidates there are
    """

    bundle: str
    digest: str
    keys: Mapping[int, str]
    counts: Mapping[str, Mapping[int, int]]

    def cases(self, keys: int) -> list[Case]:
        """As many classes, browsers and kernels as make this number of keys."""
        least = {spec: min(of[spec] for of in self.counts.values()) for spec in self.keys}
        specs = [spec for spec, count in least.items() if count >= LEAST_CANDIDATES]
        each = product(BROWSERS, DEVICES)
        return [
            Case(device, browser, tuple(specs[: keys - done]), number)
            for number, (browser, device) in enumerate(each)
            if (done := number * len(specs)) < keys
        ]


async def attack(
    url: str, crowd: Crowd, case: Case, voices: int, share: float, tactic: str, seed: int
) -> list[KeyOutcome]:
    """All voices of one case, one after the other."""
    chance = random.Random(f"{seed} {case.number} {tactic} {share}")
    truths = {spec: Truth.of(crowd.counts[case.device][spec], chance) for spec in case.specs}
    first = Hello(
        protocol=PROTOCOL, bundle=crowd.bundle, digest=crowd.digest, device=case.device,
        browser=case.browser, variant=find(case.device).variant, specs=case.specs,  # type: ignore[arg-type]
    )  # fmt: skip
    found = {spec: KeyOutcome() for spec in case.specs}
    liars = liars_of(tactic, voices, share, chance)
    sleepers = {n for n, liar in enumerate(liars) if liar and tactic == "late" and n % 3 == 0}
    known: dict[str, int | None] = {}
    for number, liar in enumerate(liars):
        awake = number not in sleepers or any(known.values())
        address = f"10.{case.number}.{number}.1"
        await visit(url, first, address, truths, liar and awake, chance)
        known = await asyncio.to_thread(defaults, url, case.device, case.browser)
        for spec, key in found.items():
            default = known[crowd.keys[spec]] or 0
            ratio = truths[spec].ratios[default]
            key.bad, key.good = ratio < 1, ratio > 1
            key.ever_bad |= key.bad
            if number + 1 < voices and not liars[number + 1]:
                key.given += bool(default)
                key.given_bad += key.bad
    return list(found.values())


async def attacks(
    url: str, crowd: Crowd, keys: int, voices: int, share: float, tactic: str, seed: int = 1
) -> Row:
    """Every case at the same time; the sums over all keys."""
    cases = crowd.cases(keys)
    found = await asyncio.gather(
        *(attack(url, crowd, case, voices, share, tactic, seed) for case in cases)
    )
    outcomes = [key for case in found for key in case]
    return {
        "tactic": tactic, "share": share, "seed": seed, "voices": voices,
        "liars": round(voices * share), "keys": len(outcomes),
        "bad": sum(key.bad for key in outcomes),
        "good": sum(key.good for key in outcomes),
        "ever_bad": sum(key.ever_bad for key in outcomes),
        "given": sum(key.given for key in outcomes),
        "given_bad": sum(key.given_bad for key in outcomes),
    }  # fmt: skip


def crowd_of(folder: Path, name: str) -> Crowd:
    bundle = open_bundle(folder)
    kernels = kernels_of(bundle)
    spaces = {d: [space_of(kernel, find(d)) for kernel in kernels] for d in DEVICES}
    counts = {d: {n: len(s.schedules) for n, s in enumerate(of)} for d, of in spaces.items()}
    keys = {n: space.key for n, space in enumerate(spaces[DEVICES[0]])}
    return Crowd(name, bundle.pointer.manifest.digest, keys, counts)


def main(
    run: Run,
    share: Annotated[
        list[float] | None, typer.Option(help="Of liars among the voices; repeatable.")
    ] = None,
    tactic: Annotated[list[str] | None, among(TACTICS, "How they lie; repeatable")] = None,
    keys: Annotated[int, typer.Option(min=1)] = KEYS,
    voices: Annotated[int, typer.Option(min=1, help="Of each key.")] = VOICES,
    seed: Seed = 1,
) -> None:
    with tempfile.TemporaryDirectory(prefix="tilewright-") as place:
        folder = build(Path(place) / "bundle", ("x86", "x86-simd"))
        crowd = crowd_of(folder, "m")
        runs = product(tactic or TACTICS, share or SHARES)
        for number, (how, part) in enumerate(runs):
            site = Site(folder, f"sqlite:///{place}/{number}.db", before=PROMPT)
            with running([site]):
                work = attacks(site.url, crowd, keys, voices, part, how, seed)
                row = asyncio.run(work)
            run.keep(row)
