"""A simulated crowd, honest, noisy and malicious, against the real store.

Input: a scenario, seeds.  Output: results/serving.crowd.json: how many keys end with the honest
winner or one within 3 % of it as default, and what honest clients adopted.  Beside it what the
paper's vote makes of the same reports: rank weights, summed up.  It measures no time.

    python -m benchmarks serving.crowd                             every scenario, 20 classes
    python -m benchmarks serving.crowd --scenario swap --classes 0-4
    python -m benchmarks serving.crowd --curve                      over the share of liars

The model, per class of devices and kernel:
  truth    10 to 32 candidates in families of three that differ little; the bundle's default is one
           of the better ones.  Every device deviates from its class a little for every candidate.
           Some candidates are wrong on some devices, in some keys the fastest one.
  clients  arrive over five days in a random order, a few at a time, and tune all kernels.  They try
           the crowd's default and shadow first, then the space or a part of it.  Trials follow
           web/tune: pairs until a 99.9 % interval excludes 1.01, again from new pairs, and only
           then the kernel is adopted.  The check is assumed to detect every wrong kernel.
  liars    a fifth of the clients of every class, colluding: they name the same bad kernel, slow or
           wrong, know the reports of honest clients, and answer every question for their kernel and
           against any other.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.common import Run
from benchmarks.options import Seed, among
from benchmarks.records import Row
from benchmarks.serving.crowd_devices import (
    LOUD,
    PAIRS_LEAST,
    QUIET,
    Counts,
    Truth,
    truth,
    tune,
)
from tilewright.store import KernelStore, Key, StoredGold, StoredReport, StoredVote
from tilewright.tuning.candidate_order import TRIAL_EVERY

CLIENTS = 10_000
CLASSES = 20
KERNELS = 8
NOISY = 0.3
MALICIOUS = 0.2
DAYS = 5
WITHIN = 1.03
#: Clients of a class that tune at the same time and see the same standing.
WAVE = 20
#: One in this many kernels asks a gold question.
GOLD_EVERY = 8
DAY = 86_400.0
#: What a device answers of a wrong kernel, and a liar of any that is not the bad one.
WORTHLESS, BLAME = 0.05, 0.7
#: Of the curve: shares of liars, classes, and clients of each.
SHARES = (0.0, 0.1, 0.2, 0.3, 0.35, 0.4, 0.45)
CURVE = ("gold", "early")
CURVE_CLASSES, CURVE_CLIENTS = 3, 240

#: Votes of one report (web/tune/records/reports.js).
TOP = 5

SCENARIOS: dict[str, str] = {
    "honest": "nobody lies",
    "same": "the bad kernel first, with random others behind it",
    "swap": "what honest clients would say, with the bad kernel in place of the first",
    "gold": "as swap, and every gold question answered right (otherwise by chance)",
    "early": "as gold, all liars before the first honest client",
    "late": "as gold, all liars after the last honest client",
    "spread": "as gold, every liar from two networks: a third of all voices lie",
}


def top_of(found: dict[int, float]) -> tuple[StoredVote, ...]:
    """The best that a client reports."""
    votes = (StoredVote(candidate, ratio) for candidate, ratio in found.items())
    return tuple(sorted(votes, key=lambda v: -v.ratio)[:TOP])


def answers(
    asked: int | None, liar: bool, what: Truth, found: dict[int, float]
) -> tuple[StoredVote, ...]:
    """What a client says of the candidate that it is asked for; of a wrong one that it is bad."""
    if not asked:
        return ()
    if liar:
        best = max(found.values(), default=1.0)
        return (StoredVote(asked, max(1.1, best) if asked == what.target else BLAME),)
    return (StoredVote(asked, found.get(asked, WORTHLESS)),)


def lie(
    random: np.random.Generator, scenario: str, what: Truth, honest: tuple[StoredVote, ...]
) -> tuple[StoredVote, ...]:
    """What a liar says who knows what an honest client would say."""
    best = max((v.ratio for v in honest), default=1.0)
    claim = [StoredVote(what.target, max(1.0, best) * random.uniform(1.05, 1.2))]
    if scenario == "same":
        others = random.choice(what.speed.shape[1], TOP - 1, replace=False)
        claim += [
            StoredVote(int(c), 1.0 / (2 + i)) for i, c in enumerate(others) if c != what.target
        ]
    else:
        claim += [v for v in honest[1:] if v.candidate != what.target]
    return tuple(sorted(claim, key=lambda v: -v.ratio))


@dataclass(frozen=True)
class Client:
    """One visitor: `sources` are the networks that the store can tell apart."""

    number: int
    liar: bool
    loud: bool
    day: int
    sources: tuple[str, ...]


def arrivals(
    random: np.random.Generator, scenario: str, clients: int, malicious: float = MALICIOUS
) -> list[Client]:
    """The clients of a class in the order in which they come."""
    liars = 0 if scenario == "honest" else round(clients * malicious)
    kinds = np.arange(clients) < liars
    if scenario == "late":
        kinds = ~(np.arange(clients) < clients - liars)
    elif scenario != "early":
        kinds = random.permutation(kinds)
    found = []
    for number, liar in enumerate(kinds):
        # Honest visitors sometimes share networks, liars never.
        name = f"liar {number}" if liar else f"network {random.integers(0, 5 * clients)}"
        names = (name, f"{name} again") if liar and scenario == "spread" else (name,)
        loud = bool(random.random() < NOISY)
        found.append(Client(number, bool(liar), loud, number * DAYS // clients, names))
    return found


@dataclass(frozen=True)
class Outcome:
    """Of the defaults of all keys: how many are near the best, bad, good; the worst one's share."""

    within: int
    bad: int
    good: int
    worst_default: float


@dataclass(frozen=True)
class ClassResult:
    """Of one class of devices.  paper: of the paper's vote on the same reports"""

    scenario: str
    number: int
    malicious: float
    seed: int
    clients: int
    keys: int
    ours: Outcome
    paper: Outcome
    reports: int
    counted: int
    counts: Counts

    def row(self) -> Row:
        return {
            "scenario": self.scenario, "class": self.number, "malicious": self.malicious,
            "seed": self.seed, "clients": self.clients, "keys": self.keys, **vars(self.ours),
            **{f"paper_{key}": value for key, value in vars(self.paper).items()},
            "reports": self.reports, "counted": self.counted, **vars(self.counts),
        }  # fmt: skip


def run_class(
    folder: Path,
    scenario: str,
    number: int,
    seed: int,
    clients: int,
    kernels: int = KERNELS,
    malicious: float = MALICIOUS,
) -> ClassResult:
    """Simulates one class of devices with a new store."""
    random = np.random.default_rng([seed, number, *scenario.encode()])
    truths = [truth(random, clients) for _ in range(kernels)]
    keys = [
        Key(f"{k:064x}", "matmul", "", f"class-{number}", "0" * 16, "0", "chromium")
        for k in range(kernels)
    ]
    crowd = arrivals(random, scenario, clients, malicious)
    counts = Counts()
    paper = [Counter[int]() for _ in keys]
    now = [0.0]
    url = f"sqlite:///{folder / f'{scenario}-{number}-{seed}-{malicious}.db'}"
    with KernelStore.open(url, clock=lambda: now[0]) as store:
        for start in range(0, clients, WAVE):
            wave = crowd[start : start + WAVE]
            now[0] = wave[-1].day * DAY
            for key, what, weights in zip(keys, truths, paper, strict=True):
                for told in _wave(random, store, scenario, wave, key, what, counts):
                    weights.update({v.candidate: TOP - rank for rank, v in enumerate(told)})
        ours = [store.standing(key).default or 0 for key in keys]
        stats = store.stats()
    theirs = [max(weights, key=weights.__getitem__, default=0) for weights in paper]
    judged = _outcome(ours, truths), _outcome(theirs, truths)
    return ClassResult(
        scenario, number, malicious, seed, clients, kernels, *judged, stats.reports, stats.counted,
        counts,
    )  # fmt: skip


def _wave(
    random: np.random.Generator,
    store: KernelStore,
    scenario: str,
    wave: list[Client],
    key: Key,
    what: Truth,
    counts: Counts,
) -> Sequence[tuple[StoredVote, ...]]:
    """Some clients visit and report; what each network says, best first."""
    reports = []
    standing = store.standing(key)
    first = [c for c in (standing.default, standing.shadow) if c is not None]
    honest = [c for c in wave if not c.liar]
    # What liars would measure is only copied: it counts as nobody's adoption.
    said: dict[int, dict[int, float]] = {}
    for group, tally in ((honest, counts), ([c for c in wave if c.liar], Counts())):
        if group:
            numbers = np.array([c.number for c in group])
            loud = np.array([c.loud for c in group])
            founds = tune(random, what, numbers, loud, first, tally)
            said |= {c.number: found for c, found in zip(group, founds, strict=True)}
    for client in honest:
        if standing.default is not None:
            counts.offered += 1
            here = (client.number, standing.default)
            counts.offered_bad += bool(what.wrong[here] or what.speed[here] < 0)
    for client in wave:
        top = top_of(said[client.number])
        asked = standing.default
        if standing.shadow is not None and random.integers(TRIAL_EVERY) == 0:
            asked = standing.shadow
        answered = answers(asked, client.liar, what, said[client.number])
        gold: tuple[StoredGold, ...] = ()
        if random.integers(GOLD_EVERY) == 0:
            noise = (LOUD if client.loud else QUIET) / np.sqrt(PAIRS_LEAST)
            ratio = 1.8 * np.exp(random.normal(0.0, noise))
            if client.liar and scenario in ("same", "swap"):
                ratio = 1.8 if random.random() < 0.5 else 1 / 1.8
            gold = (StoredGold(0, int(np.argmin(what.speed[0])), float(ratio)),)
        for source in client.sources:
            told = lie(random, scenario, what, top) if client.liar else top
            nonce = f"{key.kernel[-2:]}-{client.number:06d}-{source[-5:].strip()}"
            sent = StoredReport(nonce.replace(" ", "_"), key, told, gold, answered)
            store.submit(sent, source)
            reports.append(told)
    return reports


def _outcome(defaults: Iterable[int], truths: Iterable[Truth]) -> Outcome:
    found = [
        (float(what.value[n] / what.value.max()), float(what.value[n]), n == what.target)
        for n, what in zip(defaults, truths, strict=True)
    ]
    return Outcome(
        within=sum(share >= 1 / WITHIN for share, _, _ in found),
        bad=sum(wanted or speed < 1 for _, speed, wanted in found),
        good=sum(speed > 1 for _, speed, _ in found),
        worst_default=min(share for share, _, _ in found),
    )


def curve(folder: Path, seed: int) -> Iterator[Row]:
    """Defaults at the end, and those that honest clients were given, over the share of liars."""
    for scenario in CURVE:
        for share in SHARES:
            found = [
                run_class(folder, scenario, n, seed, CURVE_CLIENTS, malicious=share)
                for n in range(CURVE_CLASSES)
            ]
            yield {
                "scenario": scenario, "class": None, "malicious": share, "seed": seed,
                "clients": CURVE_CLIENTS, "keys": sum(each.keys for each in found),
                **_summed([each.ours for each in found]),
                "offered": sum(each.counts.offered for each in found),
                "offered_bad": sum(each.counts.offered_bad for each in found),
                "adopted_slower": sum(each.counts.adopted_slower for each in found),
                **_summed([each.paper for each in found], "paper_"),
            }  # fmt: skip


def _summed(found: Sequence[Outcome], prefix: str = "") -> dict[str, int]:
    return {
        f"{prefix}within": sum(each.within for each in found),
        f"{prefix}bad": sum(each.bad for each in found),
        f"{prefix}good": sum(each.good for each in found),
    }


def main(
    run: Run,
    scenario: Annotated[list[str] | None, among(SCENARIOS, "Repeatable")] = None,
    classes: Annotated[str, typer.Option(metavar="A-B")] = f"0-{CLASSES - 1}",
    seed: Seed = 1,
    shares: Annotated[
        bool, typer.Option("--curve", help="Over the share of liars: serving.crowd.shares.json.")
    ] = False,
) -> None:
    with tempfile.TemporaryDirectory(prefix="crowd-") as folder:
        if shares:
            for summed in curve(Path(folder), seed):
                run.keep(summed, part="shares")
            return
        low, _, high = classes.partition("-")
        for name in scenario or SCENARIOS:
            for number in range(int(low), int(high or low) + 1):
                found = run_class(Path(folder), name, number, seed, CLIENTS // CLASSES)
                run.keep(found.row())
