"""Records that go into the store and come out of it, and the validation of reports.

Input: values from clients, which are not trusted.  Output: records, or `InvalidReport`.  Nothing
here identifies a person, a device or an address: a report has a random nonce, and its source is
known only as a keyed hash that changes every day.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Literal, cast

from tilewright.base.errors import InvalidReport

#: Limit of candidates in a report: the paper's N (nnJIT, "Crowdsourcing").
TOP = 5
#: Limit of answers in a report: the default and a candidate in its trial.
ANSWERS = 2
#: Limit of candidates in a key's ranking.
RANKED = 16
#: Limit of a candidate's number; no space is larger.
MOST_CANDIDATES = 1 << 20
#: Limit of the speed ratio of two schedules of a kernel: larger ones are not believed.
MOST_RATIO = 1000.0
#: Limit of the length of names, checksums and shapes.
MOST_LETTERS = 200

NONCE = re.compile(r"[0-9A-Za-z_-]{8,64}")

StageName = Literal["candidate", "shadow", "default"]


@dataclass(frozen=True)
class Key:
    """What votes are about: one kernel on one device class, by one compiler.

    kernel:   digest of the kernel's specification; `kind` and `shape` describe it for people
    device:   id of the device class
    space:    checksum of the space of candidates: numbers of candidates mean nothing without it.
              The paper's key has the vector rho; what it fixes is in this space instead
    compiler: version and digest of its source;  browser: family of the browser
    """

    kernel: str
    kind: str
    shape: str
    device: str
    space: str
    compiler: str
    browser: str


@dataclass(frozen=True)
class StoredVote:
    """A candidate and how many times faster than the default (candidate 0) it was."""

    candidate: int
    ratio: float


@dataclass(frozen=True)
class StoredGold:
    """An answer to a question whose answer is known: `a` is much faster than `b`.

    ratio: time of `b` over time of `a`, as the client measured it; an honest one is above 1
    """

    a: int
    b: int
    ratio: float


@dataclass(frozen=True)
class StoredReport:
    """The best that one client found for a key, best first; empty: nothing beats the default.

    answers: candidates that the server asked for, however slow they are
    """

    nonce: str
    key: Key
    top: tuple[StoredVote, ...]
    gold: tuple[StoredGold, ...] = ()
    answers: tuple[StoredVote, ...] = ()


@dataclass(frozen=True)
class Receipt:
    """Whether the report is stored.  reason: "" if it is, else

    "repeated": this source has voted on this key today;  "rate": too many reports of this source.
    A stored report that is sent again is accepted again.
    """

    accepted: bool
    reason: str = ""


@dataclass(frozen=True)
class Ranked:
    """A candidate in the order of the votes.

    score:     mean rank weight over all voices, 0 to 1
    reporters: number of voices that name it
    ratio:     robust mean of its speedup over candidate 0; low, high: its 95 % interval
    device, space, browser: of its key; the number is one of that space
    """

    candidate: int
    stage: StageName
    score: float
    reporters: int
    ratio: float
    low: float
    high: float
    device: str
    space: str
    browser: str


@dataclass(frozen=True)
class Standing:
    """The result of the votes on a key.

    default: candidate that new devices start with; None: the bundle's own schedule (candidate 0)
    shadow:  candidate that they try first
    voices:  number of reports behind the ranking
    """

    default: int | None
    shadow: int | None
    ranked: tuple[Ranked, ...]
    voices: int


@dataclass(frozen=True)
class KeyStanding:
    """A key with its standing, for pages and statistics.  `day` is that of the last report."""

    key: Key
    standing: Standing
    day: str


@dataclass(frozen=True)
class Stats:
    """Sizes of the store.  counted: reports whose votes count;  days: YYYY-MM-DD, or "" """

    url: str
    schema: str
    keys: int
    reports: int
    counted: int
    defaults: int
    shadows: int
    devices: int
    first_day: str
    last_day: str


def check(report: StoredReport) -> None:
    """Raises `InvalidReport` for anything that no client of ours would send."""
    if not NONCE.fullmatch(report.nonce):
        raise _invalid("nonce", "8 to 64 letters, digits, - or _")
    check_key(report.key)
    for field, votes, most in (("top", report.top, TOP), ("answers", report.answers, ANSWERS)):
        if len(votes) > most:
            raise _invalid(field, f"at most {most} candidates")
        if len({v.candidate for v in votes}) != len(votes):
            raise _invalid(field, "each candidate once")
        for vote in votes:
            _check_candidate(field, vote.candidate)
            _check_ratio(field, vote.ratio)
    ratios = [v.ratio for v in report.top]
    if ratios != sorted(ratios, reverse=True):
        raise _invalid("top", "best first")
    for gold in report.gold:
        _check_candidate("gold", gold.a)
        _check_candidate("gold", gold.b)
        _check_ratio("gold", gold.ratio)


def check_key(key: Key) -> None:
    for field in fields(key):
        text = getattr(key, field.name)
        # Of `shape` and `kind` only the length matters: they are for people.
        short = isinstance(text, str) and len(text) <= MOST_LETTERS and text.isprintable()
        if not short or (not text and field.name not in ("kind", "shape")):
            raise _invalid(field.name, f"1 to {MOST_LETTERS} printable characters")


def _check_candidate(field: str, value: object) -> None:
    if type(value) is not int or not 0 <= value < MOST_CANDIDATES:
        raise _invalid(field, f"candidates from 0 to {MOST_CANDIDATES - 1}")


def _check_ratio(field: str, value: object) -> None:
    # NaN is in no range.
    if type(value) not in (int, float) or not 1 / MOST_RATIO <= cast(float, value) <= MOST_RATIO:
        raise _invalid(field, f"ratios from {1 / MOST_RATIO:g} to {MOST_RATIO:g}")


def _invalid(field: str, allowed: str) -> InvalidReport:
    return InvalidReport(
        f"The field {field} of a report is wrong", hint=f"Allowed: {allowed}", field=field
    )
