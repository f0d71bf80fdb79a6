"""Runs one foreign kernel on random data on the CPU, plain and elastic, and compares the bits.

Input: a compiled text and a kernel's parameters as they are written.  Output: a verdict.  Each run
is a process of its own: a kernel may write anywhere when its numbers make no sense, and all runs
find the same memory.
"""

from __future__ import annotations

import hashlib
import os
import re
import select
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tilewright.base.numpy_scalars import Array
from tilewright.elastic.transform.cpu_trial import (
    Extents,
    Trial,
    TrialLaunch,
    TrialWorkers,
    budget_checks,
)

#: Elements of an array that a kernel gets, and seconds that a run may take.
ELEMENTS, SECONDS = 1 << 18, 20
#: Runs that must agree before a difference counts.
TIMES = 8
Argument = Array | np.generic
Shape = tuple[Extents, Extents, int]
#: What is tried in turn: grid, block, and what whole numbers are.
SHAPES: tuple[Shape, ...] = (
    ((3, 3, 1), (16, 16, 1), 48),
    ((5, 1, 1), (64, 1, 1), 300),
    ((3, 1, 1), (256, 1, 1), 600),
    ((3, 1, 1), (128, 1, 1), 128),
    ((3, 2, 1), (32, 8, 1), 64),
    ((3, 1, 1), (32, 1, 1), 16),
    ((2, 2, 2), (8, 8, 4), 16),
    ((3, 1, 1), (512, 1, 1), 2),
    ((3, 3, 1), (16, 16, 1), 3),
    ((3, 3, 1), (16, 4, 1), 128),
    ((3, 3, 1), (16, 8, 1), 128),
    ((2, 2, 1), (8, 4, 2), 64),
    ((2, 2, 1), (8, 4, 4), 64),
)
SCALARS: Mapping[str, type[np.number]] = {
    "float": np.float32, "double": np.float64, "int": np.int32, "unsigned": np.uint32,
    "unsigned int": np.uint32, "uint": np.uint32, "char": np.int8, "signed char": np.int8,
    "unsigned char": np.uint8, "uchar": np.uint8, "short": np.int16, "unsigned short": np.uint16,
    "ushort": np.uint16, "long": np.int64, "unsigned long": np.uint64, "size_t": np.uint64,
    "long long": np.int64, "unsigned long long": np.uint64, "bool": np.uint8, "int32_t": np.int32,
    "uint32_t": np.uint32, "uint8_t": np.uint8, "long int": np.int64, "int64_t": np.int64,
    "uint64_t": np.uint64, "clock_t": np.int64,
}  # fmt: skip
_VECTOR = re.compile(r"(float|double|int|uint|char|uchar|short|ushort)([1234])$")
_NOISE = re.compile(r"\b(?:const|volatile|__restrict__|__restrict|restrict|register|struct)\b|&")


@dataclass(frozen=True)
class Parameter:
    """A number, or an array of them; lanes: numbers of an element"""

    kind: type[np.number]
    lanes: int
    array: bool


def parameter(text: str, names: Mapping[str, str]) -> Parameter | None:
    """A parameter from its declaration.  names: other names of types.  None: another kind."""
    text = re.sub(r"\[[^\]]*\]", "*", text)
    stars = text.count("*")
    words = _NOISE.sub(" ", text).replace("*", " ").split()
    kind = " ".join(words[:-1]) or " ".join(words)
    for _ in range(4):
        kind = names.get(kind, kind)
    stars += kind.count("*")
    kind = " ".join(_NOISE.sub(" ", kind).replace("*", " ").split())
    vector = _VECTOR.match(kind)
    base = SCALARS.get(vector[1] if vector else kind)
    if base is None or stars > 1 or "&" in text:
        return None
    return Parameter(base, int(vector[2]) if vector else 1, bool(stars))


def arguments(parameters: Sequence[Parameter], number: int, seed: int) -> tuple[Argument, ...]:
    """Random arrays of numbers that may be indices below `number`, and `number` itself."""
    rng = np.random.default_rng(seed)
    found: list[Argument] = []
    for given in parameters:
        floating = issubclass(given.kind, np.floating)
        if given.array:
            count = ELEMENTS * given.lanes
            values = rng.random(count) if floating else rng.integers(0, min(number, 127), count)
            found.append(values.astype(given.kind))
        else:
            most = 0.5
            if issubclass(given.kind, np.integer):
                most = min(number, np.iinfo(given.kind).max)
            values = np.full(given.lanes, most, given.kind)
            found.append(values[0] if given.lanes == 1 else np.void(values.tobytes()))
    return tuple(found)


class Run:
    """What a run left: a digest of its arrays, or why there is none."""

    def __init__(self, launch: TrialLaunch, run: Callable[[], object]) -> None:
        self.digest, self.why = "", ""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            _child(launch, run, write)
        os.close(write)
        ready, _, _ = select.select([read], [], [], SECONDS)
        answer = os.read(read, 400).decode() if ready else ""
        os.close(read)
        if not ready:
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        if answer.startswith("ok "):
            self.digest = answer[3:]
        else:
            crashed = (
                f"crashes ({os.waitstatus_to_exitcode(status)})" if ready else "takes too long"
            )
            self.why = answer or crashed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and bool(self.digest) and self.digest == other.digest

    __hash__ = None  # type: ignore[assignment]


def _child(launch: TrialLaunch, run: Callable[[], object], pipe: int) -> None:
    try:
        run()
        digest = hashlib.sha256()
        for array in launch.args:
            if isinstance(array, np.ndarray):
                digest.update(array.tobytes())
        answer = f"ok {digest.hexdigest()}"
    except Exception as error:
        answer = str(error)[:300]
    os.write(pipe, answer.encode())
    os._exit(0)


@dataclass(frozen=True)
class Outcome:
    """equal: None: not run;  order: the original depends on the order of its blocks"""

    equal: bool | None
    why: str = ""
    order: bool = False
    runs: int = 0
    shape: Shape | None = None


def judge(
    trial: Trial, name: str, parameters: Sequence[Parameter], control: Callable[[], Trial]
) -> Outcome:
    """The first shape on which the original runs, does something, and repeats itself.

    Shapes on which the order of blocks matters come last: the kernel is hardly meant for them.
    control: the same kernels with checks of indices, made where bits differ
    """
    why, later = "the original does nothing on random data", []
    for shape in SHAPES:
        grid, block, number = shape
        launch = TrialLaunch(grid, block, arguments(parameters, number, 1), shared=32 << 10)

        def plain(launch: TrialLaunch = launch) -> None:
            trial.plain(name, launch)

        first = Run(launch, plain)
        if not first.digest:
            why = f"the original {first.why}"
        elif first == Run(launch, lambda: None):
            continue
        elif first != Run(launch, plain):
            why = "the original does not repeat itself"
        elif first != Run(launch, partial(_backwards, trial, name, launch)):
            later.append((launch, first, shape, True))
        else:
            later.insert(0, (launch, first, shape, False))
            break
    for launch, first, shape, order in later:
        found = _compared(trial, name, launch, first, shape, order)
        if found.equal or not (other := unsteady(trial, control(), name, launch, first)):
            return found
        why = other
    return Outcome(None, why)


def _backwards(trial: Trial, name: str, launch: TrialLaunch) -> None:
    x, y, _ = launch.grid
    numbers = np.arange(launch.tiles)[::-1]
    table = np.stack([numbers % x, numbers // x % y, numbers // (x * y)], -1).astype(np.uint32)
    trial.slice(name, launch, 0, launch.tiles, table=table)


def unsteady(trial: Trial, control: Trial, name: str, launch: TrialLaunch, first: Run) -> str:
    """Why the original's own bits are no measure on this launch, or ""."""
    if any(first != Run(launch, lambda: trial.plain(name, launch)) for _ in range(TIMES)):
        return "the original does not repeat itself"
    if any(first != Run(launch, lambda: trial.plain(name, launch, 2)) for _ in range(TIMES)):
        return "the original depends on which of its blocks run at once"
    if first != Run(launch, lambda: control.plain(name, launch)):
        return "the original goes beyond its arrays on random data"
    return ""


def _first(look: int, round_: int) -> int:
    """Workers leave in the first round only."""
    return 0 if round_ else look


def _compared(
    trial: Trial, name: str, launch: TrialLaunch, plain: Run, shape: Shape, order: bool
) -> Outcome:
    forces = [
        (f"{workers} workers, look {look}", TrialWorkers(workers, looks=partial(_first, look)))
        for workers in ((1,) if order else (1, 3))
        for look in (0, *range(2, budget_checks(launch, workers) + 1))
    ]
    if not order:
        away = TrialWorkers(4, processors=2, looks=lambda n: 3 if n < 2 else 0)
        forces.append(("two processors", away))
    for runs, (what, force) in enumerate(forces, 1):

        def elastic(force: TrialWorkers = force) -> None:
            trial.elastic(name, launch, force)

        found = Run(launch, elastic)
        if found != plain:
            return Outcome(False, f"{what}: {found.why or 'other bits'}", order, runs, shape)
    return Outcome(True, "", order, len(forces), shape)
