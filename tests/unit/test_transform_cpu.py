"""Elastic forms of foreign kernels: the same bits as the kernel, wherever workers are sent away.

Kernels run on the CPU; each is one of tests/elastic_sources/samples.cu.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.looks import growing

from tilewright.base.errors import HostError
from tilewright.elastic.transform import ElasticOptions, transform
from tilewright.elastic.transform.cpu_trial import (
    Extents,
    Trial,
    TrialLaunch,
    TrialWorkers,
    bits,
    budget_checks,
    copies,
)
from tilewright.hosts.cuda_on_cpu import compiler

SOURCE = Path(__file__).parents[1] / "elastic_sources" / "samples.cu"
RNG = np.random.default_rng(5)
I = np.int32  # noqa: E741


def _f(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def _i(low: int, high: int, *shape: int) -> Any:
    return RNG.integers(low, high, shape).astype(np.int32)


def _every_check(launch: TrialLaunch, workers: int) -> range:
    """Numbers of budget checks after which workers may be made to leave with some work done."""
    return range(2, budget_checks(launch, workers) + 1)


def _dim3(*extents: int) -> Any:
    return np.void(np.array(extents, np.uint32).tobytes())


def _launch(grid: Extents, block: Extents, *args: Any, shared: int = 0) -> TrialLaunch:
    return TrialLaunch(grid, block, args, shared)


BYTES = RNG.integers(0, 256, 1000).astype(np.uint8)
#: How C++ calls each kernel, and a launch with an odd grid.
CASES: dict[str, tuple[str, TrialLaunch]] = {
    "reduce": ("reduce", _launch((7, 1, 1), (64, 1, 1), _f(425), _f(7), I(425), shared=256)),
    "scan": ("scan", _launch((5, 1, 1), (64, 1, 1), _i(0, 9, 300), _i(0, 1, 300), I(300))),
    "transpose": (
        "transpose", _launch((3, 2, 1), (32, 4, 1), _f(50, 70), _f(70, 50), I(70), I(50))
    ),
    "gram": ("gram", _launch((2, 1, 1), (32, 4, 1), _f(35, 40), _f(35, 35), I(35), I(40))),
    "histogram": (
        "histogram", _launch((3, 1, 1), (64, 1, 1), BYTES, np.zeros(256, np.uint32), I(1000))
    ),
    "stencil": (
        "stencil", _launch((3, 3, 3), (4, 2, 2), _f(5, 6, 9), _f(5, 6, 9), _dim3(9, 6, 5))
    ),
    "bodies": ("bodies", _launch((3, 1, 1), (32, 1, 1), _f(75, 4), _f(75, 4), I(75))),
    "softmax": ("softmax", _launch((3, 1, 1), (64, 1, 1), _f(21, 30), _f(21, 30), I(21), I(30))),
    "gemm": (
        "gemm<double, 8>",
        _launch((3, 2, 1), (8, 8, 1), *(RNG.standard_normal(s) for s in (170, 187, 110)),
                I(10), I(17), I(11)),
    ),
    "votes": ("votes", _launch((3, 1, 1), (48, 1, 1), _i(-1, 5, 130), _i(0, 1, 130), I(130))),
    "last_block": (
        "last_block",
        _launch((5, 1, 1), (32, 1, 1), _i(0, 99, 150), _i(0, 1, 5), _i(0, 1, 1), I(150)),
    ),
    "by_hand": (
        "by_hand",
        _launch((5, 1, 1), (16, 1, 1), _i(0, 99, 75), np.zeros(1), _i(0, 1, 1), I(75)),
    ),
    "scaled": (
        "scaled",
        _launch((5, 1, 1), (16, 1, 1), _f(75), np.float32(3), I(75), I(0), np.float32(2)),
    ),
    "shifted": ("shifted<5>", _launch((5, 1, 1), (16, 1, 1), _i(0, 99, 75), I(75))),
    "specialised": ("shifted<1>", _launch((5, 1, 1), (16, 1, 1), _i(0, 99, 75), I(75))),
    "triangle": ("triangle", _launch((3, 3, 1), (32, 1, 1), _f(9, 20), _f(9 * 32), I(20))),
}  # fmt: skip
#: One thread can do the work of several: nothing is done together.
ALONE = ("stencil", "by_hand", "scaled", "shifted", "specialised")


@pytest.fixture(scope="module")
def trial() -> Trial:
    return _trial(ElasticOptions(), CASES)


def _trial(options: ElasticOptions, cases: Any) -> Trial:
    try:
        compiler()
    except HostError as error:
        pytest.skip(str(error))
    made = transform(SOURCE.read_text(), SOURCE.name, options=options)
    return Trial(made.text, {name: CASES[name][0] for name in cases})


def _expected(trial: Trial, name: str) -> list[bytes]:
    plain = copies(CASES[name][1])
    trial.plain(name, plain)
    found = bits(plain)
    assert found != bits(CASES[name][1]), "the kernel does nothing"
    return found


@pytest.mark.parametrize("name", CASES)
def test_sent_away_at_every_look(trial: Trial, name: str) -> None:
    expected = _expected(trial, name)
    launch = CASES[name][1]
    for count in (1, 3):
        for look in _every_check(launch, count):
            given = copies(launch)
            workers = TrialWorkers(count, looks=lambda n, look=look: 0 if n else look)
            assert trial.elastic(name, given, workers) <= 2
            assert bits(given) == expected, (count, look)


@pytest.mark.seldom(4)
@pytest.mark.parametrize("name", CASES)
def test_sent_away_again_and_again(trial: Trial, name: str) -> None:
    expected = _expected(trial, name)
    launch = CASES[name][1]
    rounds = []
    for count in (1, 2, launch.tiles, launch.tiles + 3):
        for looks in (2, 3, 5):
            given = copies(launch)
            workers = TrialWorkers(count, processors=2, looks=growing(looks))
            rounds.append(trial.elastic(name, given, workers))
            assert bits(given) == expected, (count, looks)
    assert max(rounds) > 1


@pytest.mark.parametrize("each", [2, 7])
@pytest.mark.parametrize("name", CASES)
def test_tasks_of_several_tiles(trial: Trial, name: str, each: int) -> None:
    """Also where the last task has fewer, in shards that begin anywhere, and by few workers."""
    expected = _expected(trial, name)
    launch = CASES[name][1]
    for first in (0, 1):
        for look in (2, 3, 0):
            given = copies(launch)
            workers = TrialWorkers(2, processors=2, looks=growing(look), each=each)
            trial.elastic(name, given, TrialWorkers(1), (0, first))
            trial.elastic(name, given, workers, (first, launch.tiles))
            assert bits(given) == expected, (first, look)


@pytest.mark.parametrize("name", CASES)
def test_slices_of_any_size(trial: Trial, name: str) -> None:
    """In tiles of a grid that no power of two divides, and by workers that take several."""
    expected = _expected(trial, name)
    launch = CASES[name][1]
    for borders in ([0, 1, launch.tiles], [0, 2, 3, launch.tiles]):
        for kind in ("slice", "elastic"):
            given = copies(launch)
            for first, last in pairwise(borders):
                if kind == "slice":
                    trial.slice(name, given, first, last, workers=2)
                else:
                    trial.elastic(name, given, TrialWorkers(2), (first, last))
            assert bits(given) == expected, (borders, kind)


def test_a_table_of_blocks(trial: Trial) -> None:
    """Memory-based index: tiles in another order, and without the last row of blocks."""
    expected = _expected(trial, "transpose")
    launch = CASES["transpose"][1]
    x, y = np.meshgrid(np.arange(3), np.arange(2))
    table = np.stack([x, y, 0 * x], -1).reshape(-1, 3).astype(np.uint32)[::-1].copy()
    for each in (0, 1, 4):
        given = copies(launch)
        if each:
            trial.elastic("transpose", given, TrialWorkers(2, each=each), table=table)
        else:
            trial.slice("transpose", given, 0, len(table), table=table)
        assert bits(given) == expected
    given = copies(launch)
    given.args[1][:] = 0
    trial.elastic("transpose", given, TrialWorkers(2), (0, 3), table=table)
    assert (given.args[1][:, :32] == 0).all()
    assert (given.args[1][:, 32:] == launch.args[0][32:].T).all()


@pytest.fixture(scope="module")
def folded() -> Trial:
    return _trial(ElasticOptions(fold=True), ALONE)


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("threads", [1, 5, 16])
def test_blocks_of_fewer_threads(folded: Trial, name: str, threads: int) -> None:
    expected = _expected(folded, name)
    launch = CASES[name][1]
    for look in _every_check(launch, 2):
        given = copies(launch)
        workers = TrialWorkers(2, looks=lambda n, look=look: 0 if n else look, threads=threads)
        folded.elastic(name, given, workers)
        assert bits(given) == expected


@pytest.mark.parametrize("name", ["transpose", "gram"])
def test_padded_rows_hold_the_same(name: str) -> None:
    padded = _trial(ElasticOptions(pad=True), [name])
    expected = _expected(padded, name)
    given = copies(CASES[name][1])
    padded.elastic(name, given, TrialWorkers(2))
    assert bits(given) == expected


def test_what_never_ends_is_an_error(trial: Trial) -> None:
    with pytest.raises(HostError, match="does not end"):
        trial.elastic("scan", copies(CASES["scan"][1]), TrialWorkers(looks=lambda _: 1))
