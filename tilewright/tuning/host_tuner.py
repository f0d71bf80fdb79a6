"""The tuning session of a host without a page; web/tune/tuner.js is the same for pages.

Input: a model and a bench for trials on one device, kernels, a line to a tuning server, seconds.
Output: events and a summary in the page's words (web/tune/loop/active_session.js); the model keeps
the winners.  A candidate must be correct and faster by itself, then in the model, or it is removed.
"""

from __future__ import annotations

import math
import secrets
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from tilewright.base.errors import HostError, KernelTrap, MemoryLimit
from tilewright.kernel.spec import Kernel
from tilewright.tuning.messages import (
    MOST_VOTE,
    TOP,
    Done,
    GoldAnswer,
    Hello,
    KernelMessage,
    Offer,
    Report,
    Result,
    Vote,
)
from tilewright.tuning.paired_times import NOTHING, judged
from tilewright.tuning.socket_client import TuningSocket
from tilewright.tuning.trial import TrialBench, Trials, TrialVerdict
from tilewright.tuning.trial_inputs import MOST_DOUBT, Array, allowed, difference

Plain = dict[str, Any]
#: Kernels with a smaller share of the time are not tuned.
LEAST_SHARE = 0.002
#: Runs of the model per side to decide whether a kernel is slower there, and the ratio that counts.
LATENCY_RUNS, WORSE = 3, 1.02
#: Pairs of alternating whole runs at the end, and the share of the seconds reserved for them.
PAIRS, LAST_SHARE = (8, 60), 0.2
RIGHT = ("faster", "same", "slower")


#: A kernel that is ready to run on the device: the bench makes it, the model takes it.
R = TypeVar("R")
K = TypeVar("K", contravariant=True)


class BundledKernel(Protocol):
    """A kernel of the bundle: its text in the server's form for candidates, and its arguments."""

    @property
    def text(self) -> str: ...
    @property
    def tiles(self) -> int: ...
    @property
    def scalars(self) -> tuple[int, ...]: ...


class TunedModel(Protocol[K]):
    """A loaded model (hosts/tuned_plan.py)."""

    def results(self) -> dict[str, Array]: ...
    def time(self) -> float: ...
    def use(self, kernels: Mapping[int, K]) -> None: ...
    def profile(self) -> dict[int, float]: ...
    def own(self, spec: int) -> BundledKernel | None: ...
    def flops(self, spec: int) -> int: ...


@dataclass
class TunedKernel(Generic[R]):
    """A kernel that is tuned.

    original: the bundle's own;  runner: the winner, if there is one
    own, ratio: milliseconds of the bundle's kernel, and the speed-up of the kernel in use
    ratios: over the bundle's own, by candidate;  bad: candidates with wrong results
    """

    spec: int
    kernel: Kernel
    original: BundledKernel
    share: float
    flops: int
    offer: Offer | None = None
    own: float = math.nan
    ratio: float = 1.0
    winner: KernelMessage | None = None
    runner: R | None = None
    tried: int = 0
    ratios: dict[int, float] = field(default_factory=dict)
    bad: set[int] = field(default_factory=set)

    def told(self) -> Plain:
        offer = self.offer
        return {
            "spec": self.spec,
            "kind": offer.kind if offer else self.kernel.anchor,
            "shape": offer.shape if offer else "",
            "fixed": offer.fixed if offer else "",
            "node": self.kernel.name,
            "share": self.share,
        }

    def summary(self) -> Plain:
        default = self.offer.default if self.offer else 0
        won = self.winner

        def at(candidate: int | None, milliseconds: float, schedule: str) -> Plain:
            known = milliseconds > 0
            return {
                "candidate": candidate,
                "schedule": schedule,
                "milliseconds": milliseconds if known else None,
                "gflops": self.flops / milliseconds / 1e6 if known else None,
            }

        return self.told() | {
            "gain": self.ratio,
            "tried": self.tried,
            "default": at(default, self.own, self.offer.schedule if self.offer else ""),
            "current": at(
                won.candidate if won else default,
                self.own / self.ratio,
                won.schedule if won else "",
            ),
        }


@dataclass
class HostTuner(Generic[R]):
    """Tunes one model in one session.  `run` may be interrupted at any time; `summary` then has the
    results so far.

    fault: why the device or the server failed, which ended the session early
    """

    model: TunedModel[R]
    bench: TrialBench[R]
    kernels: Sequence[Kernel]
    device: str
    on_event: Callable[[Plain], None]
    share_reports: bool = False
    rounds: int = 0
    spent: float = 0.0
    targets: dict[int, TunedKernel[R]] = field(default_factory=dict)
    gain: Plain | None = None
    fault: HostError | None = None
    latency: float | None = None

    def run(
        self, line: TuningSocket, hello: Callable[..., Hello], seconds: float, most: int | None
    ) -> None:
        """Runs the session.  hello: the first message, without the kernels;  most: tune only this
        number of kernels, the hottest ones

        Raises HostError for failures before the first candidate.
        """
        begin, self._begun = time.monotonic(), False
        try:
            self._work(line, hello, seconds * (1 - LAST_SHARE), most)
            self._last(seconds * LAST_SHARE)
        except HostError as error:
            if not self._begun:
                raise
            self.fault = error
        finally:
            self.spent = time.monotonic() - begin

    def summary(self) -> Plain:
        return {
            "rounds": self.rounds,
            "seconds": self.spent,
            "class": self.device,
            "kernels": [target.summary() for target in self.targets.values()],
            "latency": self.latency,
            "gain": self.gain or (UNKNOWN if self._using() else NONE),
        }

    def _work(
        self, line: TuningSocket, hello: Callable[..., Hello], seconds: float, most: int | None
    ) -> None:
        """Tries candidates.  seconds: from the first candidate on; the server's start does not
        count"""
        self._wanted = self.model.results()
        self.targets = self._found(most)
        specs = tuple(self.targets)
        shares = tuple(min(1.0, target.share) for target in self.targets.values())
        for offer in line.begin(hello(specs=specs, shares=shares)).kernels if specs else ():
            self.targets[offer.spec].offer = offer
        told = [t.told() | {"flops": t.flops, "current": None} for t in self.targets.values()]
        self.on_event({"type": "start", "class": self.device, "kernels": told})
        self._measure_latency()
        self._trials: tuple[int, Trials[R]] | None = None
        self._begun, end = True, time.monotonic() + seconds
        while specs and time.monotonic() < end:
            message = line.next()
            if message is None:
                break
            if isinstance(message, Done):
                self._report(line, self.targets[message.spec])
                continue
            self._try(line, *message)
        for target in self.targets.values():
            self._report(line, target)

    def _found(self, most: int | None) -> dict[int, TunedKernel[R]]:
        """The kernels worth tuning, hottest first."""
        spent = self.model.profile()
        total = sum(spent.values()) or 1.0
        hot = sorted(spent, key=lambda spec: -spent[spec])
        found: dict[int, TunedKernel[R]] = {}
        for spec in hot:
            share, own = spent[spec] / total, self.model.own(spec)
            if share >= LEAST_SHARE and own is not None and (most is None or len(found) < most):
                flops = self.model.flops(spec)
                found[spec] = TunedKernel(spec, self.kernels[spec], own, share, flops)
        return found

    def _measure_latency(self) -> None:
        self.latency = statistics.median(self.model.time() for _ in range(LATENCY_RUNS))
        self.on_event({"type": "latency", "round": self.rounds, "milliseconds": self.latency})

    # ---- one candidate ---------------------------------------------------------------------------

    def _try(self, line: TuningSocket, message: KernelMessage, module: bytes) -> None:
        target = self.targets[message.spec]
        begin, before = time.monotonic(), target.ratio
        try:
            outcome = self._outcome(target, message, module.decode())
        except HostError as error:
            self._lost(line, message, error)
            raise
        if outcome is None:
            return
        # A gold question's candidate is outside the space.
        count = target.offer.count if target.offer else 0
        if outcome.verdict == "faster" and outcome.runner is not None and message.candidate < count:
            outcome = self._adopted(target, message, outcome, outcome.runner)
        self.rounds += 1
        target.tried += 1
        found = outcome.found
        if outcome.verdict in RIGHT and found.ratio > 0:
            target.ratios[message.candidate] = before * found.ratio
            if math.isnan(target.own):
                target.own = before * found.first
        elif outcome.verdict not in RIGHT:
            target.bad.add(message.candidate)
        self.on_event({
            "type": "trial", "round": self.rounds, "spec": message.spec,
            "candidate": message.candidate, "mark": message.mark, "schedule": message.schedule,
            "verdict": outcome.verdict, "why": outcome.why, "ratio": _plain(found.ratio),
            "low": _plain(found.low), "high": _plain(found.high), "own": _plain(target.own),
            "milliseconds": (time.monotonic() - begin) * 1e3,
        })  # fmt: skip
        if target.winner is message:
            self.on_event({
                "type": "swap", "spec": message.spec, "candidate": message.candidate,
                "ratio": target.ratio,
            })  # fmt: skip
            self._measure_latency()
        verdict: Any = outcome.verdict
        line.send(Result(spec=message.spec, candidate=message.candidate, verdict=verdict))

    def _lost(self, line: TuningSocket, message: KernelMessage, error: HostError) -> None:
        """The device failed in a trial, so its further behaviour is unknown."""
        spec, candidate = message.spec, message.candidate
        why = error.message
        self.on_event({"type": "fault", "spec": spec, "candidate": candidate, "why": why})
        line.send(Result(spec=spec, candidate=candidate, verdict="trapped"))

    def _outcome(
        self, target: TunedKernel[R], message: KernelMessage, text: str
    ) -> TrialVerdict[R] | None:
        """The verdict on a candidate alone; None if the kernel cannot be tried here."""
        try:
            if self._trials is None or self._trials[0] != target.spec:
                self._trials = target.spec, self._prepared(target)
            trials = self._trials[1]
        except MemoryLimit:
            return None
        if not trials.ready:
            return None
        trials.current = target.runner or trials.current
        return trials.attempt(text, message.tiles)

    def _prepared(self, target: TunedKernel[R]) -> Trials[R]:
        own = target.original
        runner = self.bench.runner(own.text, own.tiles)
        return Trials(self.bench, target.kernel, runner, own.scalars)

    def _adopted(
        self,
        target: TunedKernel[R],
        message: KernelMessage,
        outcome: TrialVerdict[R],
        runner: R,
    ) -> TrialVerdict[R]:
        """Swaps the candidate into the model and checks the model's results and time, too."""
        old = self._using()
        new = old | {target.spec: runner}
        wrong = self._wrong(new)
        if not wrong and not self._worse(old, new):
            target.winner, target.runner = message, runner
            target.ratio *= outcome.found.ratio
            self.model.use(new)
            return outcome
        self.model.use(old)
        self.on_event({
            "type": "rollback", "spec": message.spec, "candidate": message.candidate,
            "ratio": _plain(outcome.found.ratio),
        })  # fmt: skip
        if wrong:
            return TrialVerdict("wrong", f"in the model {wrong}")
        return TrialVerdict("slower", "the model was slower with it", outcome.found, outcome.runner)

    def _wrong(self, kernels: Mapping[int, R]) -> str:
        """How the results of the model with these kernels differ from the bundle's own; "" if they
        do not. Only float outputs are compared, if there are any."""
        self.model.use(kernels)
        try:
            found = self.model.results()
        except KernelTrap as trap:
            return trap.message
        floats = [name for name, data in self._wanted.items() if data.dtype.kind == "f"]
        for name in floats or self._wanted:
            wanted = self._wanted[name]
            most = MOST_DOUBT * allowed(wanted, rounds=True)
            if wrong := difference(found[name], wanted, most):
                return f"{name}: {wrong}"
        return ""

    def _worse(self, old: Mapping[int, R], new: Mapping[int, R]) -> bool:
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(LATENCY_RUNS):
            for kernels, found in zip((old, new), times, strict=True):
                self.model.use(kernels)
                self.model.time()
                found.append(self.model.time())
            before, after = times
            worse = statistics.median(after) > WORSE * statistics.median(before)
            if not (worse and min(after) > min(before)):
                return False
        return True

    def _using(self) -> dict[int, R]:
        return {t.spec: t.runner for t in self.targets.values() if t.runner is not None}

    # ---- at the end ------------------------------------------------------------------------------

    def _last(self, seconds: float) -> None:
        """Measures the gain of whole runs, alternating old and new, if anything changed."""
        tuned = self._using()
        if not tuned:
            return
        pairs: list[tuple[float, float]] = []
        end = time.monotonic() + seconds
        least, most = PAIRS
        while len(pairs) < most and (len(pairs) < least or time.monotonic() < end):
            found = {}
            for kernels in ({}, tuned)[:: -1 if len(pairs) % 2 else 1]:
                self.model.use(kernels)
                self.model.time()
                found[bool(kernels)] = self.model.time()
            pairs.append((found[False], found[True]))
            self.on_event({"type": "turns", "pairs": len(pairs)})
        self.model.use(tuned)
        self.gain = _gain(pairs, len(tuned))
        self.latency = self.gain["tuned"]

    def _report(self, line: TuningSocket, target: TunedKernel[R]) -> None:
        """Sends a vote on a kernel's tried candidates, once."""
        offer = target.offer
        if not self.share_reports or offer is None or not target.ratios:
            return
        found, target.ratios = target.ratios, {}
        # The server converts ratios to another default by the ratio of the compiler's own.
        if offer.default != 0 and 0 not in found:
            return

        def ratio(candidate: int) -> float:
            if candidate == offer.default:
                return 1.0
            return found.get(candidate, 1e-9 if candidate in target.bad else 0.0)

        asked = offer.gold
        sides = (ratio(asked.a), ratio(asked.b)) if asked else (0.0, 0.0)
        if asked and not all(sides) and asked.b >= offer.count:
            return
        gold = (
            GoldAnswer(a=asked.a, b=asked.b, ratio=_vote(sides[0] / sides[1]))
            if asked and all(sides)
            else None
        )
        ranked = sorted((c for c in found if c < offer.count), key=lambda c: -found[c])
        base = [0] if offer.default != 0 else []
        best = [c for c in ranked if c not in base][: TOP - len(base)] + base
        top = sorted(best, key=lambda c: -found[c])
        report = Report(
            nonce=secrets.token_hex(16), spec=target.spec, checksum=offer.checksum, gold=gold,
            top=tuple(Vote(candidate=c, ratio=_vote(found[c])) for c in top),
        )  # fmt: skip
        line.send(report)


NONE = {"verdict": "none", "text": "no kernel changed, so no gain"}
UNKNOWN = {
    "verdict": "unknown",
    "text": "gain not measured: the session ended before the measurement",
}


def _gain(pairs: Sequence[tuple[float, float]], kernels: int) -> Plain:
    found = judged(pairs, 1.96) if pairs else NOTHING
    verdict = "faster" if found.low > 1 else "slower" if found.high < 1 else "same"
    text = (
        "no measurable difference from the bundle's own kernels"
        if verdict == "same"
        else f"{found.ratio:.2f}× as fast as with the bundle's own kernels"
    )
    text += f" (95 % interval {found.low:.2f}–{found.high:.2f}, {len(pairs)} pairs by turns, warm)"
    if verdict != "same":
        text += f": {found.first:.2f} → {found.second:.2f} ms"
    return {
        "verdict": verdict, "ratio": found.ratio, "low": _plain(found.low),
        "high": _plain(found.high), "pairs": len(pairs), "kernels": kernels,
        "own": found.first, "tuned": found.second, "text": text,
    }  # fmt: skip


def _vote(ratio: float) -> float:
    """The ratio with three digits, within the accepted range; more digits would identify a
    device."""
    return float(f"{min(MOST_VOTE, max(1 / MOST_VOTE, ratio)):.3g}")


def _plain(value: float) -> float | None:
    """None for infinities, which JSON lacks."""
    return value if math.isfinite(value) else None
