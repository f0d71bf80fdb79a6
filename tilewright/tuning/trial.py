"""Trials of a kernel's candidates in this process, by the rules of the page's worker
(web/tune/trial): a candidate must first be correct, then fast.

Input: a bench that runs kernels (`TrialBench`), a kernel, the kernel in use, candidates.  Output:
verdicts. A kernel that never ends is not handled here.  A page can end its worker, but this runs in
the process itself.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tilewright.base.errors import BundleCorrupt
from tilewright.kernel.spec import Kernel
from tilewright.tuning.paired_times import LONG, NOTHING, Judgement, Over, Pair, contest
from tilewright.tuning.trial_inputs import (
    DOUBTS,
    MOST_DOUBT,
    SETS,
    Array,
    allowed,
    computes_with_floats,
    dense,
    difference,
    inputs_of,
    largest_difference,
    perturbed_inputs,
)

#: Seconds of a comparison; a candidate slower by the factor `FAR` is not compared further.
LIMIT, FAR = 0.65, 1.5
#: The most runs in one submission; the number of runs whose shortest is a rough time.
MOST_TIMES, ROUGH_RUNS = 2048, 3


#: A kernel that is ready to run on the bench's device.
R = TypeVar("R")


@dataclass(frozen=True)
class TrialBuffer:
    """A buffer as a device stores it (`inputs.dense`)."""

    dtype: str
    size: int
    dense: str


class TrialBench(Protocol[R]):
    """A device's bench for trials (hosts/wgpu_tuning.py, hosts/cuda_tuning.py)."""

    @property
    def batch(self) -> float:
        """The least milliseconds of a timed run."""

    def runner(self, text: str, tiles: int) -> R:
        """Prepares a kernel.  text: in the server's form for candidates.  Raises BundleCorrupt if
        it is not a kernel."""

    def lay(self, buffers: Sequence[TrialBuffer], scalars: Sequence[int]) -> None:
        """Allocates memory for a kernel; called before it runs.  Raises MemoryLimit."""

    def begin(self, inputs: Sequence[Array]) -> None:
        """Writes the inputs, and canaries everywhere else."""

    def run(self, runner: R) -> tuple[Array, str]:
        """The output after one run, and what is wrong with the rest of memory: "" for nothing.

        Raises BundleCorrupt for a kernel that the device does not start.
        """

    def milliseconds(self, runner: R, times: int) -> float:
        """Milliseconds of one run, from about `times` runs; NaN if the clock did not advance."""


@dataclass(frozen=True)
class TrialVerdict(Generic[R]):
    """verdict: as on the tuning socket;  why: the reason of a bad one;  runner: the candidate"""

    verdict: str
    why: str = ""
    found: Judgement = NOTHING
    runner: R | None = None


@dataclass
class _Set:
    inputs: list[Array]
    wanted: Array
    most: float
    doubted: bool = False


class Trials(Generic[R]):
    """Trials of one kernel.  Every candidate must compute the same as `own`, the model's kernel.

    Raises KeyError for an index out of range in the own kernel; MemoryLimit.
    """

    def __init__(
        self, bench: TrialBench[R], kernel: Kernel, own: R, scalars: Sequence[int]
    ) -> None:
        self._bench, self._kernel = bench, kernel
        laid = [TrialBuffer(b.dtype.name, b.size, dense(b)) for b in kernel.buffers]
        bench.lay(laid, scalars)
        self._own = self.current = own
        self._sets: dict[str, _Set] = {}
        for number, name in enumerate(SETS):
            inputs = inputs_of(kernel, name, number)
            bench.begin(inputs)
            wanted, wrong = bench.run(own)
            # A correct kernel may trap on unusual numbers; then this input set is dropped.
            if not wrong:
                most = allowed(wanted, rounds=computes_with_floats(kernel))
                self._sets[name] = _Set(inputs, wanted, most)

    @property
    def ready(self) -> bool:
        """True if there is an input set to compare with."""
        return SETS[0] in self._sets

    def attempt(self, text: str, tiles: int) -> TrialVerdict[R]:
        """Tries a candidate against the kernel in use."""
        try:
            runner = self._bench.runner(text, tiles)
            wrong = self._check(runner)
        except BundleCorrupt as error:
            return TrialVerdict("refused", error.message)
        if wrong:
            return TrialVerdict("trapped" if "trapped" in wrong else "wrong", wrong)
        self._bench.begin(self._sets[SETS[0]].inputs)
        times = self.rough(self.current), self.rough(runner)
        if times[1] > FAR * times[0]:
            ratio = times[0] / times[1]
            return TrialVerdict("slower", "", Judgement(ratio, ratio, ratio, *times), runner)
        if not all(map(math.isfinite, times)):
            return TrialVerdict("same", "undecided: the clock did not advance")
        verdict, found = contest(self._pairs(runner, times), _limit, long=sum(times) > LONG)
        return TrialVerdict(verdict, "", found, runner)

    def rough(self, runner: R) -> float:
        """Milliseconds of one run, by the shortest of several batches."""
        times, found = 1, math.inf
        for _ in range(ROUGH_RUNS):
            spent = self._bench.milliseconds(runner, times)
            if not math.isfinite(spent):
                continue
            found = min(found, spent)
            times = self._times(found)
        return found

    def _times(self, milliseconds: float) -> int:
        """The number of runs in a batch."""
        wanted = self._bench.batch / max(milliseconds, 1e-4)
        return max(1, min(MOST_TIMES, round(wanted)))

    def _pairs(self, runner: R, rough: Pair) -> Callable[[bool], Pair | None]:
        sides = self.current, runner
        times = [self._times(ms) for ms in rough]

        def measure(second_first: bool) -> Pair | None:
            found = [math.nan, math.nan]
            for side in (1, 0) if second_first else (0, 1):
                found[side] = self._bench.milliseconds(sides[side], times[side])
            return (found[0], found[1]) if all(map(math.isfinite, found)) else None

        return measure

    def _check(self, runner: R) -> str:
        """What is wrong with a kernel on any input set, or ""."""
        for name, given in self._sets.items():
            self._bench.begin(given.inputs)
            found, wrong = self._bench.run(runner)
            wrong = wrong or self._differs(given, found)
            if wrong:
                return f"on {name} inputs {wrong}"
        return ""

    def _differs(self, given: _Set, found: Array) -> str:
        """How a result differs, or "".  At the first difference the tolerance is raised once, to
        the accuracy that the own kernel has on perturbed inputs."""
        wrong = difference(found, given.wanted, given.most)
        if not wrong or given.wanted.dtype.kind != "f" or given.doubted:
            return wrong
        given.doubted = True
        self._bench.begin(perturbed_inputs(given.inputs, 7))
        other, trapped = self._bench.run(self._own)
        if not trapped:
            doubt = DOUBTS * largest_difference(other, given.wanted)
            given.most += min(doubt, MOST_DOUBT * given.most)
        return difference(found, given.wanted, given.most)


def _limit() -> Over:
    begin = time.monotonic()
    return lambda times: time.monotonic() - begin > times * LIMIT
