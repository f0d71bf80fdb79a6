"""The order in which a device tries candidates: the best of other devices, then unknown ones.

Input: for each kernel its space, the store's results, what this device has tried, and the kernel's
share of the time.  Output: the whole order, as pairs of kernel and candidate.  The function is
pure: equal input gives an equal order, so any server can continue where another one stopped.

    exploitation (nnJIT 4.3)   default, shadow and ranked candidates of the class's votes; below the
                               quorum those of similar hardware come first
    exploration                the space in its order of trial; if its optimum is known, a tenth of
                               the lite space, or of all if there is no lite space
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import chain, islice

#: The most candidates of other devices that are tried before anything else.
KNOWN_MOST = 5

#: A device explores one part in this number of a space whose optimum is known.
KNOWN_SHARE = 10

#: The assumed speed-up of an unknown candidate: less than that of candidates known to be good.
HOPE = 1.01

#: The length of runs of one kernel's unknown candidates: changing kernels costs a device time.
RUN = 4

#: One kernel in this number gets a gold question, whose answer is known.
GOLD_EVERY = 8

#: One device in this number takes part in the trial of a kernel's candidate.
TRIAL_EVERY = 3


@dataclass(frozen=True)
class KnownCandidate:
    """A candidate with reports: its speed over the default's."""

    candidate: int
    ratio: float


@dataclass(frozen=True)
class Tunable:
    """One kernel to tune.

    share:   of the model's time
    lite:    the number of candidates in the lite space; 0: there is none
    order:   candidates that may be tried, in their order of trial
    default: the bundle's candidate, if the space has it
    known:   the exploitation set, best first
    settled: True if the votes have agreed on an optimum
    tried:   candidates to leave out
    gold:    the control question: a number outside the space that is known to be slow, or a
             candidate of the votes
    only_own: only the compiler's own default is wanted, since the bundle has another candidate
    """

    spec: int
    share: float
    lite: int
    order: tuple[int, ...]
    default: int | None = 0
    known: tuple[KnownCandidate, ...] = ()
    settled: bool = False
    tried: frozenset[int] = frozenset()
    gold: int | None = None
    only_own: bool = False


@dataclass(frozen=True)
class Pick:
    """The next candidate to send; without a candidate, the kernel has none left."""

    spec: int
    candidate: int | None


def compose(subjects: Sequence[Tunable], seed: int, skip: int = 0) -> Iterator[Pick]:
    """All remaining candidates of these kernels in order; each kernel's end follows its last one.

    Known candidates come first, kernels by the time that they should save.  Unknown ones follow in
    runs of one kernel, with kernels in proportion to their share of the time.  The first `skip`
    unknown ones, except gold questions, come last: a reconnecting device has tried most of them.
    """
    known, paces = [], []
    total = sum(s.share for s in subjects) or 1.0
    for number, subject in enumerate(subjects):
        found = list(_exploitation(subject))
        gain = 1 - 1 / max((HOPE, *(k.ratio for k in found)))
        known += [(-subject.share * gain, number, r, k.candidate) for r, k in enumerate(found)]
        paces.append(1 / max(subject.share / total, 1e-6))

    def unknown() -> Iterator[_Turn]:
        found = (_exploration(subject, seed) for subject in subjects)
        return merge(*map(_runs, range(len(subjects)), paces, found))

    golds = {number: subject.gold for number, subject in enumerate(subjects)}
    # Lazily: most of a thousand sessions never get this far.
    for _, number, _, candidate in chain(sorted(known), _put_off(unknown, skip, golds)):
        subject = subjects[number]
        if candidate not in subject.tried:
            yield Pick(subject.spec, candidate)


#: (when, number of the subject, rank, candidate or the end)
_Turn = tuple[float, int, int, int | None]


def _runs(number: int, pace: float, candidates: Iterable[int]) -> Iterator[_Turn]:
    """Candidates with their time: a run of them every `pace`; then the end."""
    when, rank = 0.0, -1
    for rank, candidate in enumerate(candidates):
        when = (rank // RUN + 1) * pace
        yield when, number, rank, candidate
    yield when, number, rank + 1, None


def _put_off(
    turns: Callable[[], Iterator[_Turn]], skip: int, golds: Mapping[int, int | None]
) -> Iterator[_Turn]:
    """Moves the first turns to the end, followed by the ends of their kernels."""
    rest = turns()
    late = set()
    for turn in islice(rest, skip):
        _, number, _, candidate = turn
        late.add(number)
        if candidate is not None and candidate == golds[number]:
            yield turn
    yield from (t for t in rest if t[3] is not None or t[1] not in late)
    first = islice(turns(), skip)
    yield from (t for t in first if t[3] is not None and t[3] != golds[t[1]])
    yield from ((0.0, number, 0, None) for number in sorted(late))


def asks_gold(spec: int, seed: int) -> bool:
    """True if this device is asked this kernel's gold question."""
    return random.Random(f"gold {seed} {spec}").randrange(GOLD_EVERY) == 0


def takes_part(spec: int, seed: int) -> bool:
    """True if this device is drawn for trials of this kernel.  The draw stays the same for a day,
    so a device cannot reconnect until it is drawn."""
    return random.Random(f"trial {seed} {spec}").randrange(TRIAL_EVERY) == 0


def _exploitation(subject: Tunable) -> Iterator[KnownCandidate]:
    """Candidates with votes.  If the bundle already has their choice, the compiler's default comes
    first, since devices judge the bundle's candidate against it."""
    seen, may = {subject.default, 0}, set(subject.order)
    if subject.default != 0:
        yield KnownCandidate(0, HOPE)
    if subject.only_own:
        return
    for found in subject.known:
        if found.candidate in may and found.candidate not in seen:
            seen.add(found.candidate)
            yield found
        if len(seen) > KNOWN_MOST + (subject.default != 0):
            return


def _exploration(subject: Tunable, seed: int) -> Iterator[int]:
    """Candidates without votes, in the order of trial; the gold question comes second.

    Of a settled space each device gets another tenth, so that together devices still explore all of
    it. This also holds for spaces without lite candidates.
    """
    if subject.only_own:
        return
    but = {subject.default, *(k.candidate for k in _exploitation(subject))}
    order: Iterable[int] = (c for c in subject.order if c not in but)
    if subject.settled:
        rest = list(order)
        chance = random.Random(f"{seed} {subject.spec}")
        part = -(-(subject.lite or len(subject.order)) // KNOWN_SHARE)
        chosen = set(chance.sample(rest, min(len(rest), part)))
        order = (c for c in rest if c in chosen)
    order = iter(order)
    yield from islice(order, 1)
    if subject.gold is not None and subject.gold not in but:
        yield subject.gold
    yield from order
