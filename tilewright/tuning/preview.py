"""What a visitor's page sends, before anybody sends it: the very messages, and what each field is.

Input: a bundle and a device class, and if there is one the summary of a tuning run.  Output: a
hello, a result and the reports as records, and the meaning of every field.  Nothing is sent.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tilewright import TOOL
from tilewright.base.errors import InputError
from tilewright.targets.classes import DeviceClass
from tilewright.tuning.candidates import Space, space_of
from tilewright.tuning.messages import (
    PROTOCOL,
    TOP,
    FromClient,
    Hello,
    Report,
    Result,
    Vote,
)
from tilewright.tuning.queue import Opened

#: Ratios of an example that nobody measured.
INVENTED = (1.25, 1.1, 1.02)

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
        "shares": "share of the time of each",
        "tried": "numbers of candidates that were tried, by kernel",
    },
    "result": {
        "spec": "number of the kernel",
        "candidate": "number of the candidate",
        "verdict": "faster, same, slower, wrong, trapped, hung or refused",
        "ratio": "time of what was in use over time of the candidate",
        "low": "lower end of its interval",
        "high": "upper end of its interval",
    },
    "report": {
        "nonce": "128 random bits, new for each report: so that none is counted twice",
        "spec": "number of the kernel",
        "checksum": "which space the numbers of candidates mean",
        "top": "the fastest candidates, at most 5: number, and time of the default over its time",
        "gold": "answer to a question whose answer is known, if one was asked: two candidates and "
        "the ratio of their times",
    },
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
    "the address of the visitor, a cookie, or any number that lasts longer than one report",
    "the user agent, the name of the processor or of the graphics card",
    "times: only ratios of times",
    "code",
)


class _At(msgspec.Struct):
    candidate: int


class _Tuned(msgspec.Struct):
    spec: int
    current: _At
    gain: float


class Summary(msgspec.Struct):
    """Of what a tuning run says at its end (web/tune), the part that a report is made of."""

    kernels: list[_Tuned]


class _Wrapped(msgspec.Struct):
    summary: Summary


@dataclass(frozen=True)
class Preview:
    """What would be sent.  invented: whether nobody measured these ratios."""

    hello: Hello
    result: Result
    reports: tuple[Report, ...]
    invented: bool

    @property
    def messages(self) -> tuple[FromClient, ...]:
        return (self.hello, self.result, *self.reports)


def read_summary(data: bytes) -> Summary:
    """The summary of a run, bare or in the report of `tilewright tune --json`."""
    try:
        try:
            return msgspec.json.decode(data, type=_Wrapped).summary
        except msgspec.ValidationError:
            return msgspec.json.decode(data, type=Summary)
    except msgspec.DecodeError as error:
        raise InputError(
            "This is no summary of a tuning run",
            hint="`tilewright tune BUNDLE --json` prints one", reason=error,
        ) from error  # fmt: skip


def preview(opened: Opened, device: DeviceClass, summary: Summary | None = None) -> Preview:
    """The messages for this bundle: of the run, or of its kernel with the most operations."""
    manifest = opened.bundle.manifest
    if summary is None:
        flops = {step.spec: step.flops for plan in manifest.plans for step in plan.steps}
        specs: Sequence[int] = [max(flops, key=lambda spec: flops[spec])]
    else:
        specs = [kernel.spec for kernel in summary.kernels]
    unknown = [spec for spec in specs if not 0 <= spec < len(opened.kernels)]
    if unknown:
        raise InputError(
            f"The bundle has no kernel {unknown[0]}",
            hint="Give the bundle of this run", bundle=manifest.name,
        )  # fmt: skip
    spaces = {spec: space_of(opened.kernels[spec], device) for spec in specs}
    votes = {spec: _invented(spaces[spec]) for spec in specs}
    for kernel in summary.kernels if summary else ():
        found = Vote(candidate=kernel.current.candidate, ratio=kernel.gain)
        votes[kernel.spec] = (found,) if kernel.gain > 1 else ()
    best = next((v[0] for v in votes.values() if v), Vote(candidate=0, ratio=1.0))
    return Preview(
        hello=Hello(
            protocol=PROTOCOL, bundle=manifest.name, digest=opened.digest, device=device.id,
            browser="chromium", variant=device.variant, specs=tuple(specs),
        ),
        result=Result(
            spec=specs[0], candidate=best.candidate, verdict="faster",
            ratio=best.ratio, low=best.ratio * 0.99, high=best.ratio * 1.01,
        ),
        reports=tuple(
            Report(
                nonce=secrets.token_hex(16), spec=spec, checksum=spaces[spec].checksum,
                top=votes[spec][:TOP],
            )
            for spec in specs
        ),
        invented=summary is None,
    )  # fmt: skip


def _invented(space: Space) -> tuple[Vote, ...]:
    pairs = zip(space.order, INVENTED, strict=False)
    return tuple(Vote(candidate=candidate, ratio=ratio) for candidate, ratio in pairs)


def kept(opened: Opened, device: DeviceClass, spec: int) -> dict[str, str]:
    """Under which key the store counts a report on this kernel."""
    space = space_of(opened.kernels[spec], device)
    return {
        "kernel": space.key,
        "kind": space.kind,
        "shape": space.shape,
        "device": device.id,
        "space": space.checksum,
        "compiler": TOOL,
        "browser": "chromium",
    }
