"""The vote: from the reports on one key to the candidate that new devices start with.

Input: voices (reports that count) and the key's stages so far.  Output: a ranking, and the next
stages.  Pure functions; the store keeps their results.  A vote only proposes: each device compares
the candidate with its own kernel before it adopts it.

The paper (nnJIT, section "Crowdsourcing and the kernel dataset") lets each client send its five
fastest kernels with rank weights and takes the majority.  Here rank weights give the ranking.  A
candidate with enough support becomes the shadow, and a trial decides whether it becomes the
default: devices that the server draws by lot measure it against the bundle's own kernel.
Devices that start with a default measure it in the same way, and a few refutations end it.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tilewright.store.records import TOP, StoredVote

#: Of ranks 1 to 6: five candidates and the bundle's own kernel.  Nearly flat on purpose: ranks of
#: near ties are noise, and a liar's first place must not outweigh honest second and third places.
WEIGHTS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
#: Half-widths of two-sided intervals in standard deviations: 95 %, and 99 %.
Z, SURE = 1.96, 2.576
#: Standard deviation of a normal distribution over its median absolute deviation.
MAD_SIGMA = 1.4826
#: Outliers are this many standard deviations from the median (Iglewicz and Hoaglin, 1993).
OUTLIER = 3.5
#: The compiler's default: everyone has it, and every ratio is relative to its time.
BUNDLE = 0


#: Votes on a key are counted again when its voices have grown by a twentieth: the result hardly
#: changes in between, and the work per report stays small.
VOTE_EVERY = 20


@dataclass(frozen=True)
class Thresholds:
    """The thresholds of the vote and their reasons.

    quorum:   least number of voices: with fewer than five, even if all agree, the interval does not
              exclude a share of a third
    same_day: voices of the quorum that must be of one day.  Sources of two days cannot be told
              apart, so one network that returns every day could make a quorum alone
    liars:    share of voices that may collude; what only they name is never promoted
    gain:     least speedup of a default over the compiler's own; below, a change is not worth it
    window:   number of newest voices that count; browsers change, and work stays bounded
    patience: fresh voices after which an undecided shadow is dropped for the next one
    answers:  least number of answers in a trial.  One device in three is asked, so on an empty
              store it takes about 35 networks to make a default
    traffic:  for each `traffic` voices on the key a trial needs one more answer: a default that
              many devices use takes more to change
    rounds:   a trial of this many quorums without a result has failed
    doubt:    a default is dropped once refutations outweigh confirmations by this weight
    proven:   weight of a device that answered a gold question right that day; of others: 1
    rate:     reports per source and day: a model has about fifty kernels, a network a few visitors
    days:     age in days after which reports are deleted
    """

    quorum: int = 5
    same_day: int = 3
    liars: float = 1 / 3
    gain: float = 1.02
    window: int = 400
    patience: int = 200
    answers: int = 10
    traffic: int = 20
    rounds: int = 3
    doubt: int = 8
    proven: int = 2
    rate: int = 1000
    days: int = 90


# A voice as ranks: candidate -> rank from 0, the compiler's default among them.
Ballot = Mapping[int, int]


@dataclass(frozen=True)
class Voice:
    """One report that counts.  `number` grows in order of arrival.

    answers: ratios of candidates that the server asked for;  proven: see `Thresholds`
    """

    number: int
    day: int
    top: tuple[StoredVote, ...]
    answers: tuple[StoredVote, ...] = ()
    proven: bool = False

    @cached_property
    def ratios(self) -> Mapping[int, float]:
        """Candidate -> ratio, with the compiler's default at 1."""
        return {v.candidate: v.ratio for v in self.top} | {BUNDLE: 1.0}

    @cached_property
    def ballot(self) -> Ballot:
        """`((7, 1.4), (3, 0.9))` → `{7: 0, 0: 1, 3: 2}`."""
        ordered = sorted(self.ratios, key=lambda c: -self.ratios[c])
        return {candidate: place for place, candidate in enumerate(ordered)}


@dataclass(frozen=True)
class Tally:
    """The votes on one candidate; see `Ranked`.  same_day: most voices of one day"""

    candidate: int
    score: float
    reporters: int
    same_day: int
    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Staged:
    """A candidate at a stage; `since`: number of the last voice before the stage began."""

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
    """A robust mean of ratios and its 95 % interval (mean, low, high); computed in logarithms.

    Values farther than 3.5 deviations (from the median absolute deviation) from the median are
    dropped; then the mean of the middle half, with the error of a median: 1.2533 deviations / √n.
    """
    logs = [math.log(r) for r in ratios]
    middle = statistics.median(logs)
    sigma = MAD_SIGMA * statistics.median([abs(v - middle) for v in logs])
    kept = sorted(v for v in logs if abs(v - middle) <= OUTLIER * sigma) or [middle]
    cut = len(kept) // 4
    mean = statistics.fmean(kept[cut : len(kept) - cut])
    error = Z * 1.2533 * sigma / math.sqrt(len(kept))
    return math.exp(mean), math.exp(mean - error), math.exp(mean + error)


def share(count: int, total: int, z: float = Z) -> tuple[float, float]:
    """The Wilson interval of a share, 95 % by default: `count` of `total`."""
    if not total:
        return 0.0, 1.0
    p, z2 = count / total, z * z
    middle = (p + z2 / (2 * total)) / (1 + z2 / total)
    half = z / (1 + z2 / total) * math.sqrt(p * (1 - p) / total + z2 / (4 * total * total))
    return middle - half, middle + half


def prefer(voices: Iterable[Voice], first: int, second: int) -> tuple[int, int]:
    """(number of voices that rank `first` before `second`, number that rank `second` before
    `first`); unnamed candidates are last.

    A ballot that names five candidates faster than the bundle's own says nothing of the others.
    """
    ahead = behind = 0
    for voice in voices:
        a, b = voice.ballot.get(first, TOP), voice.ballot.get(second, TOP)
        ahead += a < b
        behind += b < a
    return ahead, behind


def supported(found: Tally, total: int, limits: Thresholds) -> bool:
    """True if enough independent voices name the candidate, and more than could be liars, beyond
    chance."""
    return (
        total >= limits.quorum
        and found.same_day >= limits.same_day
        and share(found.reporters, total)[0] > limits.liars
    )


def winner(voices: Sequence[Voice], tallies: Sequence[Tally], limits: Thresholds) -> Tally | None:
    """The majority's choice among the supported ones: the one whose worst duel is best (minimax).

    Duels, not the sum of weights: liars can lift a candidate that honest clients rank fifth, but
    every voice that names both still says which is faster.
    """
    found = [
        t
        for t in tallies
        if supported(t, len(voices), limits) and not unfit(t.candidate, voices, limits)
    ]

    def worst(t: Tally) -> int:
        duels = [prefer(voices, t.candidate, o.candidate) for o in found if o is not t]
        return min((ahead - behind for ahead, behind in duels), default=0)

    return max(found, key=worst, default=None)  # the first of equals: best score


def advance(
    state: Stages, voices: Sequence[Voice], tallies: Sequence[Tally], limits: Thresholds
) -> Stages:
    """The next stages: candidate → shadow → default, each by voices that came after the last step.

    A shadow that fresh voices contradict, or that fails its trial, is dropped; a default that is
    contradicted or refuted falls back to the previous one, unless that is unfit too.
    voices: the newest `limits.window`, oldest first;  tallies: of these voices
    """
    now = voices[-1].number if voices else 0
    default, shadow, previous = state.default, state.shadow, state.previous
    if default and _falls(default.candidate, _since(voices, default), limits):
        again = previous is not None and not unfit(previous, voices, limits)
        default = Staged(previous, now) if again and previous is not None else None
        previous = None
    if shadow:
        fresh = _since(voices, shadow)
        if confirmed(shadow.candidate, fresh, voices, limits):
            previous = default.candidate if default else None
            default, shadow = Staged(shadow.candidate, now), None
        elif _hopeless(shadow.candidate, fresh, voices, limits):
            shadow = None
    if shadow is None:
        best = winner(voices, tallies, limits)
        if best and _worth(best, default, voices, limits):
            shadow = Staged(best.candidate, now)
    return Stages(default, shadow, previous)


def answers(candidate: int, voices: Iterable[Voice]) -> list[float]:
    """Ratios of a candidate over the bundle's own kernel, from devices that were asked for it."""
    return [a.ratio for voice in voices for a in voice.answers if a.candidate == candidate]


def quorum(voices: Sequence[Voice], limits: Thresholds) -> int:
    """Answers that a trial needs: more where more devices vote."""
    return max(limits.answers, len(voices) // limits.traffic)


def beats(ratios: Sequence[float], limits: Thresholds) -> bool:
    """True if a candidate is faster on more than half of the devices, beyond chance, and by enough
    on the median.

    It uses a median and a majority, so less than half of the answers can change neither.  The
    interval is one of 99 %, since a trial is looked at again with every answer.
    """
    ahead = sum(ratio > 1 for ratio in ratios)
    return share(ahead, len(ratios), SURE)[0] > 0.5 and statistics.median(ratios) >= limits.gain


def unfit(candidate: int, voices: Sequence[Voice], limits: Thresholds) -> bool:
    """True if by all answers so far, old ones too, the candidate is not worth another trial."""
    heard = answers(candidate, voices)
    return len(heard) >= limits.quorum and statistics.median(heard) < limits.gain


def confirmed(
    candidate: int, fresh: Sequence[Voice], voices: Sequence[Voice], limits: Thresholds
) -> bool:
    """True if fresh voices alone support the candidate, and it has passed its trial.

    It must beat the bundle's own kernel both in the fresh answers and in all answers.  So a new
    trial after a fall neither reuses the old answers alone nor ignores them.
    """
    heard = answers(candidate, fresh)
    return (
        len(heard) >= quorum(voices, limits)
        and beats(heard, limits)
        and beats(answers(candidate, voices), limits)
        and any(
            t.candidate == candidate and supported(t, len(fresh), limits) and _faster(t, limits)
            for t in tally(fresh)
        )
    )


def refuted(candidate: int, fresh: Iterable[Voice], limits: Thresholds) -> bool:
    """True if refutations outweigh confirmations by `doubt`, counted from the candidate's best
    moment on.

    The count is a cumulative sum that never falls below zero (Page, 1954), so early confirmations
    cannot be saved up.  While most answers are honest it grows for a slow kernel and not for a fast
    one.
    """
    doubt = 0
    for voice in fresh:
        weight = limits.proven if voice.proven else 1
        for ratio in answers(candidate, [voice]):
            doubt = max(0, doubt + (weight if ratio < 1 else -weight))
            if doubt >= limits.doubt:
                return True
    return False


def contradicted(candidate: int, fresh: Sequence[Voice], limits: Thresholds) -> bool:
    """True if fresh voices name the candidate too seldom, or as slower than the bundle's default,
    beyond chance."""
    if len(fresh) < limits.quorum:
        return False
    named = [v.ratio for voice in fresh for v in voice.top if v.candidate == candidate]
    ahead, behind = prefer(fresh, BUNDLE, candidate)
    return (
        share(len(named), len(fresh))[1] < limits.liars
        or (len(named) >= limits.quorum and robust(named)[2] < 1)
        or share(ahead, ahead + behind)[0] > 0.5
    )


def _falls(candidate: int, fresh: Sequence[Voice], limits: Thresholds) -> bool:
    """Whether the voices since it became the default end it."""
    return contradicted(candidate, fresh, limits) or refuted(candidate, fresh, limits)


def _hopeless(
    candidate: int, fresh: Sequence[Voice], voices: Sequence[Voice], limits: Thresholds
) -> bool:
    """Whether a shadow is dropped: contradicted, measured slower by most, or undecided too long."""
    heard = answers(candidate, fresh)
    ahead = sum(ratio > 1 for ratio in heard)
    return (
        contradicted(candidate, fresh, limits)
        or (len(heard) >= limits.quorum and share(ahead, len(heard))[1] < 0.5)
        or len(heard) >= limits.rounds * quorum(voices, limits)
        or len(fresh) >= limits.patience
    )


def _since(voices: Sequence[Voice], stage: Staged) -> Sequence[Voice]:
    return [v for v in voices if v.number > stage.since]


def _faster(found: Tally, limits: Thresholds) -> bool:
    return found.ratio >= limits.gain and found.low > 1


def _worth(
    best: Tally, default: Staged | None, voices: Sequence[Voice], limits: Thresholds
) -> bool:
    """True if it is faster than the bundle's default, and most voices rank it before the present
    default."""
    if best.candidate == BUNDLE or not _faster(best, limits):
        return False
    if default is None:
        return True
    if best.candidate == default.candidate:
        return False
    ahead, behind = prefer(voices, best.candidate, default.candidate)
    return share(ahead, ahead + behind)[0] > 0.5
