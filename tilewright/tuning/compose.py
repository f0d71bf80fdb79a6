"""In which order a device tries candidates: what others found best first, then what nobody knows.

Input: per kernel its space, what the store says of it, what this device has tried, and its share
of the time.  Output: the whole order, as pairs of kernel and candidate.  Pure: the same input gives
the same order, so any server can go on where another one stopped.

    exploitation (nnJIT 4.3)   default, shadow and ranked of the crowd; else of similar hardware
    exploration                the space in its order of trial; if its optimum is known, a tenth
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

#: Of a space whose optimum is known, the part that a device still looks at.
KNOWN_SHARE = 10

#: Speed-up that an unknown candidate is hoped to bring: below what a crowd has seen to be good.
HOPE = 1.01

#: One of so many kernels is asked a question whose answer is known.
GOLD_EVERY = 8


@dataclass(frozen=True)
class Known:
    """A candidate of which somebody reported: its speed over the default's."""

    candidate: int
    ratio: float


@dataclass(frozen=True)
class Subject:
    """One kernel to tune.

    share:   of the time that the model takes
    lite:    how many candidates the lite space has
    order:   candidates in their order of trial
    known:   the exploitation set, best first
    settled: whether the crowd has agreed on an optimum
    tried:   candidates that need not come again
    gold:    a candidate that is known to be slow, if one is
    """

    spec: int
    share: float
    lite: int
    order: tuple[int, ...]
    known: tuple[Known, ...] = ()
    settled: bool = False
    tried: frozenset[int] = frozenset()
    gold: int | None = None


@dataclass(frozen=True)
class Pick:
    """What to send next."""

    spec: int
    candidate: int


def compose(subjects: Sequence[Subject], seed: int) -> tuple[Pick, ...]:
    """All that these kernels have left to try, in order.

    First what is known, by what it should save of the whole time; then what is not, each kernel in
    proportion to its share of the time.
    """
    known = [
        (-subject.share * (1 - 1 / max(found.ratio, HOPE)), rank, number, found.candidate)
        for number, subject in enumerate(subjects)
        for rank, found in enumerate(_exploitation(subject))
    ]
    total = sum(s.share for s in subjects) or 1.0
    unknown = [
        ((rank + 1) / max(subject.share / total, 1e-6), number, candidate)
        for number, subject in enumerate(subjects)
        for rank, candidate in enumerate(_exploration(subject, seed))
    ]
    order = [(n, c) for *_, n, c in sorted(known)] + [(n, c) for _, n, c in sorted(unknown)]
    return tuple(
        Pick(subjects[number].spec, candidate)
        for number, candidate in order
        if candidate not in subjects[number].tried
    )


def asks_gold(spec: int, seed: int) -> bool:
    """Whether this device is asked this kernel's gold question."""
    return random.Random(f"gold {seed} {spec}").randrange(GOLD_EVERY) == 0


def _exploitation(subject: Subject) -> Iterator[Known]:
    seen = {0}
    for found in subject.known:
        if found.candidate not in seen:
            seen.add(found.candidate)
            yield found


def _exploration(subject: Subject, seed: int) -> list[int]:
    """What is in the order of trial and not known; the slow one of the gold task comes second.

    Of a settled space another tenth on each device: together they go on looking at all of it.
    """
    known = {k.candidate for k in _exploitation(subject)}
    order = [c for c in subject.order if c not in known]
    if subject.settled:
        chance = random.Random(f"{seed} {subject.spec}")
        chosen = set(chance.sample(order, min(len(order), -(-subject.lite // KNOWN_SHARE))))
        order = [c for c in order if c in chosen]
    if subject.gold is not None and subject.gold not in known:
        order = [c for c in order if c != subject.gold]
        order.insert(1, subject.gold)
    return order
