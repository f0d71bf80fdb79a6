"""The order in which a device tries candidates: the best of other devices, then unknown ones.

Input: per kernel its space, what the store says of it, what this device has tried, and its share
of the time.  Output: the whole order, as pairs of kernel and candidate.  Pure: the same input gives
the same order, so any server can go on where another one stopped.

    exploitation (nnJIT 4.3)   default, shadow and ranked of the crowd; below its quorum after
                               those of similar hardware
    exploration                the space in its order of trial; if its optimum is known, a tenth
                               of the lite one, or of all where there is none
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import chain, islice

#: The most candidates of other devices that are tried before anything else.
KNOWN_MOST = 5

#: Of a space whose optimum is known, the part that a device still looks at.
KNOWN_SHARE = 10

#: Speed-up that an unknown candidate is hoped to bring: below what a crowd has seen to be good.
HOPE = 1.01

#: A kernel's unknown candidates come in runs of this length: changing kernels costs a device time.
RUN = 4

#: One kernel in this number is asked a question whose answer is known.
GOLD_EVERY = 8

#: One device in this number takes part in the trial of a kernel's candidate.
TRIAL_EVERY = 3


@dataclass(frozen=True)
class Known:
    """A candidate of which somebody reported: its speed over the default's."""

    candidate: int
    ratio: float


@dataclass(frozen=True)
class Tunable:
    """One kernel to tune.

    share:   of the time that the model takes
    lite:    how many candidates the lite space has; 0: there is none
    order:   candidates that may be tried, in their order of trial
    default: the one that the bundle has, if it is of the space
    known:   the exploitation set, best first
    settled: whether the crowd has agreed on an optimum
    tried:   candidates that need not come again
    gold:    what the device is asked for: a number beyond the space that is known to be slow, or
             a candidate of the crowd
    only_own: only the compiler's own candidate is wanted, where the bundle has another one
    """

    spec: int
    share: float
    lite: int
    order: tuple[int, ...]
    default: int | None = 0
    known: tuple[Known, ...] = ()
    settled: bool = False
    tried: frozenset[int] = frozenset()
    gold: int | None = None
    only_own: bool = False


@dataclass(frozen=True)
class Pick:
    """What to send next; without a candidate: nothing is left to try of this kernel."""

    spec: int
    candidate: int | None


def compose(subjects: Sequence[Tunable], seed: int, skip: int = 0) -> Iterator[Pick]:
    """All that these kernels have left to try, in order, each time a kernel's end after its last.

    First what is known, kernels by what it should save of the whole time; then what is not, in runs
    of one kernel, kernels in proportion to their share of the time.  The first `skip` of these come
    last, but for gold's: a device that came before has tried most of them.
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
    # lazily: a thousand sessions need not hold what most of them never get to
    for _, number, _, candidate in chain(sorted(known), _put_off(unknown, skip, golds)):
        subject = subjects[number]
        if candidate not in subject.tried:
            yield Pick(subject.spec, candidate)


#: (when, number of the subject, rank, candidate or the end)
_Turn = tuple[float, int, int, int | None]


def _runs(number: int, pace: float, candidates: Iterable[int]) -> Iterator[_Turn]:
    """Candidates with their turn: every `pace` a run of them; then the end."""
    when, rank = 0.0, -1
    for rank, candidate in enumerate(candidates):
        when = (rank // RUN + 1) * pace
        yield when, number, rank, candidate
    yield when, number, rank + 1, None


def _put_off(
    turns: Callable[[], Iterator[_Turn]], skip: int, golds: Mapping[int, int | None]
) -> Iterator[_Turn]:
    """The first turns last; then the ends of the kernels that they are of."""
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
    """Whether this device is asked this kernel's gold question."""
    return random.Random(f"gold {seed} {spec}").randrange(GOLD_EVERY) == 0


def takes_part(spec: int, seed: int) -> bool:
    """Whether this device is drawn for trials of this kernel: the same all day, so that nobody can
    connect again until it is."""
    return random.Random(f"trial {seed} {spec}").randrange(TRIAL_EVERY) == 0


def _exploitation(subject: Tunable) -> Iterator[Known]:
    """What the crowd knows; where a bundle has its choice already, the compiler's comes before all,
    for devices judge the bundle's by it."""
    seen, may = {subject.default, 0}, set(subject.order)
    if subject.default != 0:
        yield Known(0, HOPE)
    if subject.only_own:
        return
    for found in subject.known:
        if found.candidate in may and found.candidate not in seen:
            seen.add(found.candidate)
            yield found
        if len(seen) > KNOWN_MOST + (subject.default != 0):
            return


def _exploration(subject: Tunable, seed: int) -> Iterator[int]:
    """What is in the order of trial and not known; the slow one of the gold task comes second.

    Of a settled space another tenth on each device: together they go on looking at all of it, be it
    a space without lite candidates, too.
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
