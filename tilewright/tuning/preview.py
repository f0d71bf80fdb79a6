"""What a visitor's page sends, before anybody sends it: the very messages, and what each field is.

Input: a bundle and a device class, and if there is one what a tuning run measured.  Output: all
messages of a session as records, and the meaning of every field.  Nothing is sent.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from tilewright import TOOL
from tilewright.base.errors import InputError, UsageError
from tilewright.targets.classes import CLASSES
from tilewright.targets.device import DeviceClass
from tilewright.tuning.candidates import Space, space_of
from tilewright.tuning.catalogue import Opened
from tilewright.tuning.messages import (
    MOST_SPECS,
    MOST_VOTE,
    PROTOCOL,
    TOP,
    Browser,
    Bye,
    FromClient,
    GoldAnswer,
    Hello,
    Report,
    Result,
    Verdict,
    Vote,
    Want,
)

#: Of an example: the family of the browser, and ratios that nobody measured.
BROWSER: Browser = "chromium"
INVENTED = (1.25, 1.1, 1.02, 0.95, 0.8)
#: Kernels that a page wants at first (web/tune/sources/socket.js).
AHEAD = 2
#: Shares are powers of this, down to the last (web/tune/sources/told.js).
STEP, LAST = 4.0, -5
#: What is sent only if results are shared; all else by every page that tunes with a server.
SHARED = ("result", "report")

#: What each field of a message is, by message.
FIELDS: Mapping[str, Mapping[str, str]] = {
    "hello": {
        "protocol": "number of the protocol",
        "bundle": "name of the bundle that the page loaded",
        "digest": "SHA-256 of its manifest",
        "device": "id of a class of devices: one of the public list at /api/classes",
        "browser": "family of the browser: chromium, firefox, safari, wasmtime or other",
        "variant": "which of the bundle's code runs",
        "objective": "what is asked for: latency, traffic or scratch",
        "specs": "numbers of the kernels to tune, hottest first",
        "shares": "share of the time of each, rounded to 1, 1/4, 1/16, ... 1/1024",
        "tried": "numbers of candidates that were tried, by kernel: of this visit alone, if the "
        "connection was lost in it",
        "skip": "how many candidates were tried in all, rounded down to a power of two: that many "
        "of the first come last",
    },
    "want": {"count": "how many candidates more the server may send; again after each of them"},
    "result": {
        "spec": "number of the kernel",
        "candidate": "number of the candidate",
        "verdict": "faster, same, slower, wrong, trapped, hung or refused; none is sent of "
        "what an earlier visit tried",
    },
    "report": {
        "nonce": "128 random bits, new for each report: so that none is counted twice",
        "spec": "number of the kernel",
        "checksum": "which space the numbers of candidates mean",
        "top": "the fastest candidates, at most 5, that of an earlier visit among them: number, "
        "and time of the default over its time, three digits",
        "gold": "answer to a question whose answer is known, if one was asked: two candidates and "
        "the ratio of their times",
    },
    "bye": {},
}

#: What the store keeps of a report beside its votes.
KEPT: Mapping[str, str] = {
    "kernel": "digest of the kernel's specification",
    "kind, shape": "the same for people, such as contract 384x768x768",
    "device, browser, compiler, space": "class, family, version, checksum",
    "day": "the date (UTC)",
    "source": "for two days: keyed hash of the network (/24 or /48), and of the site if the server "
    "lists it, with a key that changes daily",
}

NEVER = (
    "inputs, outputs or weights of the model",
    "the address of the visitor, a cookie, or an id that lasts longer than one report",
    "the user agent, the name of the processor or of the graphics card",
    "times: only ratios of times",
    "code",
)


class _Tuned(msgspec.Struct):
    spec: int
    share: float


class Trial(msgspec.Struct, tag_field="type", tag="trial"):
    """A candidate that was tried; ratio: to the kernel that was in use then, if it was measured.

    refuted: the one in use was wrong, which nobody is told (web/tune/loop/candidate.js).
    """

    spec: int
    candidate: int
    verdict: Verdict
    ratio: float | None = None
    refuted: bool = False


class Swap(msgspec.Struct, tag_field="type", tag="swap"):
    """A candidate that is in use from now on; ratio: to the default."""

    spec: int
    candidate: int
    ratio: float


class Rollback(msgspec.Struct, tag_field="type", tag="rollback"):
    """At the end, a candidate of this run is in use no more; ratio: of the one that is to it."""

    spec: int
    candidate: int
    ratio: float


_Told: TypeAlias = Trial | Swap | Rollback


class _Event(msgspec.Struct):
    type: str


class _Written(msgspec.Struct, rename={"device": "class"}):
    kernels: list[_Tuned]
    events: list[msgspec.Raw]
    device: str
    host: Browser


@dataclass(frozen=True)
class TuningRun:
    """Of a tuning run what messages are made of: class and browser of the device, share of the time
    by kernel, and what happened."""

    device: str
    browser: Browser
    shares: Mapping[int, float]
    told: tuple[_Told, ...]


@dataclass(frozen=True)
class Preview:
    """What would be sent, in order.  invented: fields whose values nobody measured."""

    messages: tuple[FromClient, ...]
    invented: tuple[str, ...] = ()

    @property
    def hello(self) -> Hello:
        return next(m for m in self.messages if isinstance(m, Hello))

    @property
    def reports(self) -> tuple[Report, ...]:
        return tuple(m for m in self.messages if isinstance(m, Report))


def read_run(data: bytes) -> TuningRun:
    """What `tilewright tune BUNDLE --report FILE` wrote."""
    kinds: Mapping[str, type[_Told]] = {"trial": Trial, "swap": Swap, "rollback": Rollback}
    try:
        written = msgspec.json.decode(data, type=_Written)
        named = [(msgspec.json.decode(e, type=_Event).type, e) for e in written.events]
        told = [msgspec.json.decode(e, type=kinds[name]) for name, e in named if name in kinds]
    except msgspec.DecodeError as error:
        raise InputError(
            "These are no measurements of a tuning run",
            hint="`tilewright tune BUNDLE --report FILE` writes them", reason=error,
        ) from error  # fmt: skip
    shares = {kernel.spec: kernel.share for kernel in written.kernels}
    return TuningRun(written.device, written.host, shares, tuple(_lasting(told)))


def _lasting(told: Iterable[_Told]) -> Iterator[_Told]:
    """Without rollbacks of what was in use for its looks alone: its trial says all of it."""
    last: dict[int, int] = {}
    for event in told:
        if isinstance(event, Swap):
            last[event.spec] = event.candidate
        if not isinstance(event, Rollback) or last.get(event.spec) == event.candidate:
            yield event


def preview(opened: Opened, device: DeviceClass, run: TuningRun | None = None) -> Preview:
    """All messages that a visitor with this bundle and class sends: of the run, or an example.

    `UsageError` for a class that a server refuses.
    """
    if not opened.runs(device, device.variant):
        raise UsageError(
            f"The bundle has no code for devices of class {device.id}: none of them tunes it",
            hint="Name one of the known classes with --device",
            known=[c.id for c in CLASSES.values() if opened.runs(c, c.variant)],
        )
    shares = _coarse(run.shares if run else _shares(opened))
    spaces = _spaces(opened, device, shares)
    own = {spec: opened.default(spec, device.variant, space) for spec, space in spaces.items()}
    told = run.told if run else tuple(_example(spaces, own))
    invented = () if run else ("shares", "ratio")
    found = _ratios(told, spaces)
    hello = Hello(
        protocol=PROTOCOL, bundle=opened.bundle.manifest.name, digest=opened.digest,
        device=device.id, browser=run.browser if run else BROWSER, variant=device.variant,
        specs=tuple(shares), shares=tuple(shares.values()),
    )  # fmt: skip
    results = [
        _result(event)
        for event in told
        if isinstance(event, Rollback) or (isinstance(event, Trial) and not event.refuted)
    ]
    reports = [
        _report(spaces[spec], spec, ratios, own[spec])
        for spec, ratios in found.items()
        # another default is counted over the compiler's own
        if ratios and (own[spec] == 0 or 0 in ratios)
    ]
    return Preview((hello, Want(count=AHEAD), *results, *reports, Bye()), invented)


def _shares(opened: Opened) -> dict[int, float]:
    """Of each kernel in all operations, the most first: an example of shares of the time."""
    steps = [step for plan in opened.bundle.manifest.plans for step in plan.steps]
    flops: dict[int, int] = dict.fromkeys((step.spec for step in steps), 0)
    for step in steps:
        flops[step.spec] += step.flops
    total = sum(flops.values()) or 1
    return {spec: flops[spec] / total for spec in sorted(flops, key=lambda s: (-flops[s], s))}


def _coarse(shares: Mapping[int, float]) -> dict[int, float]:
    """As web/tune/sources/told.js: what devices of one class have in common; hottest first."""
    most = sorted(shares, key=lambda spec: -shares[spec])[:MOST_SPECS]
    steps = {spec: math.log(max(shares[spec], STEP**LAST), STEP) for spec in most}
    rounded = {spec: STEP ** min(0, math.floor(step + 0.5)) for spec, step in steps.items()}
    return dict(sorted(rounded.items(), key=lambda known: (-known[1], known[0])))


def _spaces(opened: Opened, device: DeviceClass, specs: Iterable[int]) -> dict[int, Space]:
    unknown = [spec for spec in specs if not 0 <= spec < len(opened.kernels)]
    if unknown:
        raise InputError(
            f"The bundle has no kernel {unknown[0]}",
            hint="Give the bundle of this run", bundle=opened.bundle.manifest.name,
        )  # fmt: skip
    return {spec: space_of(opened.kernels[spec], device) for spec in specs}


def _example(spaces: Mapping[int, Space], own: Mapping[int, int | None]) -> Iterator[_Told]:
    """Of each kernel as many tries as a report has votes, the first adopted; one gold question.

    Where the bundle's own candidate is another, the compiler's is tried as well.
    """
    asked = next((spec for spec, space in spaces.items() if space.gold is not None), None)
    for spec, space in spaces.items():
        if own[spec] != 0:
            yield Trial(spec, 0, "slower", 0.9)
        others = (candidate for candidate in space.trial if candidate != own[spec])
        numbers = list(zip(others, INVENTED, strict=False))
        for candidate, ratio in numbers:
            verdict: Verdict = "faster" if (candidate, ratio) == numbers[0] else "slower"
            now = ratio if verdict == "faster" else ratio / numbers[0][1]
            yield Trial(spec, candidate, verdict, now)
            if verdict == "faster":
                yield Swap(spec, candidate, ratio)
        if spec == asked and space.gold is not None:
            yield Trial(spec, space.gold, "slower", 0.1)


def _ratios(told: Iterable[_Told], spaces: Mapping[int, Space]) -> dict[int, dict[int, float]]:
    """Of each kernel the ratios to its default, as the tuner keeps them (web/tune/tuner.js)."""
    found: dict[int, dict[int, float]] = {spec: {} for spec in spaces}
    gain = dict.fromkeys(spaces, 1.0)
    for event in told:
        space = spaces.get(event.spec)
        if space is None or space.schedule(event.candidate) is None:
            raise InputError(
                "The run tried what the bundle has not",
                hint="Give the bundle and the class of this run", spec=event.spec,
            )  # fmt: skip
        if isinstance(event, Swap):
            gain[event.spec] = event.ratio
        elif isinstance(event, Rollback):
            # nothing was faster than what came back (web/tune/records/ledger.js, humble)
            most = gain[event.spec] = gain[event.spec] * event.ratio
            found[event.spec] = {c: min(r, most) for c, r in found[event.spec].items()}
        elif event.refuted:
            # if it took the place of the wrong one, nothing that was measured against that counts
            if event.verdict == "faster":
                found[event.spec].clear()
        elif event.ratio:
            found[event.spec][event.candidate] = gain[event.spec] * event.ratio
    return found


def _result(event: Trial | Rollback) -> Result:
    if isinstance(event, Rollback):
        return Result(spec=event.spec, candidate=event.candidate, verdict="slower")
    return Result(spec=event.spec, candidate=event.candidate, verdict=event.verdict)


def _report(space: Space, spec: int, ratios: Mapping[int, float], own: int | None) -> Report:
    """As web/tune/records/reports.js makes it.  own: the candidate that the bundle itself has."""
    base = () if own == 0 else (0,)
    ranked = sorted(ratios, key=lambda candidate: -ratios[candidate])
    best = {*[c for c in ranked if c not in base][: TOP - len(base)], *base}
    asked = space.gold if space.gold in ratios else None
    first = 1.0 if own == 0 else ratios[0]
    return Report(
        nonce=secrets.token_hex(16),
        spec=spec,
        checksum=space.checksum,
        top=tuple(Vote(candidate=c, ratio=_clamped(ratios[c])) for c in ranked if c in best),
        gold=GoldAnswer(a=0, b=asked, ratio=_clamped(first / ratios[asked])) if asked else None,
    )


def _clamped(ratio: float) -> float:
    return float(f"{min(MOST_VOTE, max(1 / MOST_VOTE, ratio)):.3g}")


def kept(found: Preview, opened: Opened, device: DeviceClass, spec: int) -> dict[str, str]:
    """Under which key the store counts a report on this kernel."""
    space = space_of(opened.kernels[spec], device)
    return {
        "kernel": space.key,
        "kind": space.kind,
        "shape": space.shape,
        "device": device.id,
        "space": space.checksum,
        "compiler": TOOL,
        "browser": found.hello.browser,
    }
