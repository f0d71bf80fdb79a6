"""The vote: from the reports on one key to the candidate that new devices start with.

Input: voices (reports that count) and where the key stood.  Output: a ranking, and the next stages.
Pure functions; the store only keeps what they say.  It never decides for a device: each device
compares what the crowd names with its own incumbent before it adopts it.

The paper (nnJIT, section "Crowdsourcing and the kernel dataset") lets each client send its five
fastest kernels with rank weights and takes the majority.  Here rank weights make the ranking, and
what may become the default is guarded by four things more: independent voices, a support that a
third of liars cannot reach, robust statistics over ratios, and a second, fresh vote (`shadow`).
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tilewright.store.records import TOP, StoredVote

#: Of ranks 1 to 5.  Gentle on purpose: places order near ties, and a liar's first place must not
#: outweigh honest second and third places.
WEIGHTS = (1.0, 0.9, 0.8, 0.7, 0.6)
#: Two-sided 95 %.
Z = 1.96
#: From the median absolute deviation to the standard deviation of a normal distribution.
MAD_SIGMA = 1.4826
#: Values farther from the median than so many deviations are no noise (Iglewicz and Hoaglin, 1993).
OUTLIER = 3.5
#: The default of the bundle: everyone has it, and every ratio is over its time.
BUNDLE = 0


#: A key is voted on anew when its voices have grown by a twentieth: the outcome hardly changes in
#: between, and the work per report stays small.
VOTE_EVERY = 20


@dataclass(frozen=True)
class Thresholds:
    """The thresholds of the vote and their reasons.

    quorum:   voices before anything is said: five of five honest ones are needed to show that more
              than a third agree, so fewer could not decide anyway
    same_day: of these from different sources on one day; sources of two days cannot be told apart,
              so one address that comes back every day would otherwise make a quorum alone
    liars:    share of voices that may lie in concert; what only they name can never be promoted
    gain:     a default must be so much faster than the bundle's own, or changing is not worth it
    window:   the newest voices that are looked at; browsers change, and work stays bounded
    patience: fresh voices after which an undecided shadow is given up for the next one
    rate:     reports of one source a day: a model has some fifty kernels, a network some visitors
    days:     reports are forgotten after so many days
    """

    quorum: int = 5
    same_day: int = 3
    liars: float = 1 / 3
    gain: float = 1.02
    window: int = 400
    patience: int = 200
    rate: int = 1000
    days: int = 90


# A voice as ranks: candidate -> place from 0, the bundle's default among them.
Ballot = Mapping[int, int]


@dataclass(frozen=True)
class Voice:
    """One report that counts.  `number` grows in order of arrival."""

    number: int
    day: int
    top: tuple[StoredVote, ...]

    @cached_property
    def ratios(self) -> Mapping[int, float]:
        """Candidate -> ratio; everyone also knows the bundle's default, at 1."""
        return {v.candidate: v.ratio for v in self.top} | {BUNDLE: 1.0}

    @cached_property
    def ballot(self) -> Ballot:
        """`((7, 1.4), (3, 0.9))` → `{7: 0, 0: 1, 3: 2}`."""
        ordered = sorted(self.ratios, key=lambda c: -self.ratios[c])
        return {candidate: place for place, candidate in enumerate(ordered[:TOP])}


@dataclass(frozen=True)
class Tally:
    """What the voices say of one candidate; see `Ranked`.  `same_day`: most voices of one day."""

    candidate: int
    score: float
    reporters: int
    same_day: int
    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Staged:
    """A candidate at a stage; `since`: number of the last voice that came before."""

    candidate: int
    since: int


@dataclass(frozen=True)
class Stages:
    """The stages of a key.  `previous` is where a roll-back goes; None: the bundle's default."""

    default: Staged | None = None
    shadow: Staged | None = None
    previous: int | None = None


def tally(voices: Sequence[Voice]) -> tuple[Tally, ...]:
    """All candidates that are named, best score first; equal scores by number."""
    scores: dict[int, float] = {}
    days: dict[int, Counter[int]] = {}
    ratios: dict[int, list[float]] = {}
    for voice in voices:
        for candidate, place in voice.ballot.items():
            scores[candidate] = scores.get(candidate, 0.0) + WEIGHTS[place]
            days.setdefault(candidate, Counter())[voice.day] += 1
            ratios.setdefault(candidate, []).append(voice.ratios[candidate])
    found = [
        Tally(c, score / len(voices), len(ratios[c]), max(days[c].values()), *robust(ratios[c]))
        for c, score in scores.items()
    ]
    return tuple(sorted(found, key=lambda t: (-t.score, t.candidate)))


def robust(ratios: Sequence[float]) -> tuple[float, float, float]:
    """A ratio that outliers do not move, and its 95 % interval, all in logarithms.

    Median; values beyond 3.5 deviations (by the median absolute deviation) are dropped; of the rest
    the mean of the middle half, with the error of a median (1.2533 deviations over √n).
    """
    logs = [math.log(r) for r in ratios]
    middle = statistics.median(logs)
    sigma = MAD_SIGMA * statistics.median([abs(v - middle) for v in logs])
    kept = sorted(v for v in logs if abs(v - middle) <= OUTLIER * sigma) or [middle]
    cut = len(kept) // 4
    mean = statistics.fmean(kept[cut : len(kept) - cut])
    error = Z * 1.2533 * sigma / math.sqrt(len(kept))
    return math.exp(mean), math.exp(mean - error), math.exp(mean + error)


def share(count: int, total: int) -> tuple[float, float]:
    """Interval of Wilson for a share that was seen `count` times in `total`: 95 %."""
    if not total:
        return 0.0, 1.0
    p, z2 = count / total, Z * Z
    middle = (p + z2 / (2 * total)) / (1 + z2 / total)
    half = Z / (1 + z2 / total) * math.sqrt(p * (1 - p) / total + z2 / (4 * total * total))
    return middle - half, middle + half


def prefer(voices: Iterable[Voice], first: int, second: int) -> tuple[int, int]:
    """How many place `first` before `second`, and how many the other way; unnamed is last."""
    ahead = behind = 0
    for voice in voices:
        a, b = voice.ballot.get(first, TOP), voice.ballot.get(second, TOP)
        ahead += a < b
        behind += b < a
    return ahead, behind


def supported(found: Tally, total: int, limits: Thresholds) -> bool:
    """Enough independent voices, and more of them than could be liars, beyond chance."""
    return (
        total >= limits.quorum
        and found.same_day >= limits.same_day
        and share(found.reporters, total)[0] > limits.liars
    )


def winner(voices: Sequence[Voice], tallies: Sequence[Tally], limits: Thresholds) -> Tally | None:
    """The majority's choice among the supported ones: the one whose worst duel is best (minimax).

    Duels, and not the sum of weights: liars can lift a kernel that honest clients place fifth, but
    everyone who names both still says which is faster.
    """
    found = [t for t in tallies if supported(t, len(voices), limits)]

    def worst(t: Tally) -> int:
        duels = [prefer(voices, t.candidate, o.candidate) for o in found if o is not t]
        return min((ahead - behind for ahead, behind in duels), default=0)

    return max(found, key=worst, default=None)  # the first of equals: best score


def advance(
    state: Stages, voices: Sequence[Voice], tallies: Sequence[Tally], limits: Thresholds
) -> Stages:
    """The next stages: candidate → shadow → default, each by voices that came after the last step.

    A default or shadow that fresh voices contradict falls; the default falls to the previous one.
    voices: the newest `limits.window`;  tallies: of these voices
    """
    now = voices[-1].number if voices else 0
    default, shadow, previous = state.default, state.shadow, state.previous
    if default and contradicted(default.candidate, _since(voices, default), limits):
        default = None if previous is None else Staged(previous, now)
        previous = None
    if shadow:
        fresh = _since(voices, shadow)
        if contradicted(shadow.candidate, fresh, limits) or len(fresh) >= limits.patience:
            shadow = None
        elif confirmed(shadow.candidate, fresh, limits):
            previous = default.candidate if default else None
            default, shadow = Staged(shadow.candidate, now), None
    if shadow is None:
        best = winner(voices, tallies, limits)
        if best and _worth(best, default, voices, limits):
            shadow = Staged(best.candidate, now)
    return Stages(default, shadow, previous)


def confirmed(candidate: int, fresh: Sequence[Voice], limits: Thresholds) -> bool:
    """Fresh voices alone support it, and it is faster than the bundle's default beyond doubt."""
    return any(
        t.candidate == candidate and supported(t, len(fresh), limits) and _faster(t, limits)
        for t in tally(fresh)
    )


def contradicted(candidate: int, fresh: Sequence[Voice], limits: Thresholds) -> bool:
    """Fresh voices name it too seldom, or slower than the bundle's default, beyond chance."""
    if len(fresh) < limits.quorum:
        return False
    named = [v.ratio for voice in fresh for v in voice.top if v.candidate == candidate]
    ahead, behind = prefer(fresh, BUNDLE, candidate)
    return (
        share(len(named), len(fresh))[1] < limits.liars
        or (len(named) >= limits.quorum and robust(named)[2] < 1)
        or share(ahead, ahead + behind)[0] > 0.5
    )


def _since(voices: Sequence[Voice], stage: Staged) -> Sequence[Voice]:
    return [v for v in voices if v.number > stage.since]


def _faster(found: Tally, limits: Thresholds) -> bool:
    return found.ratio >= limits.gain and found.low > 1


def _worth(
    best: Tally, default: Staged | None, voices: Sequence[Voice], limits: Thresholds
) -> bool:
    """Faster than the bundle's default, and a majority puts it before the crowd's present one."""
    if best.candidate == BUNDLE or not _faster(best, limits):
        return False
    if default is None:
        return True
    if best.candidate == default.candidate:
        return False
    ahead, behind = prefer(voices, best.candidate, default.candidate)
    return share(ahead, ahead + behind)[0] > 0.5
