"""Threads in real browsers: who takes part, what if one dies, preempting, hidden pages."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.errors import InputError

from .bundles import Library
from .conftest import Load, Visit
from .driver import Driver
from .patient import shared
from .serving import serving
from .test_run import normal, sentence
from .test_swap import kernels

pytestmark = [pytest.mark.by_turns, pytest.mark.one_in(2)]

BUSY = {"x": 1024 * 1024}


def test_threads_are_used_and_reported(load: Load) -> None:
    model, usual = load("busy", threads=2), load("busy")
    assert model.info["features"]["threads"] == 2
    assert not any("thread" in text for text in usual.info["lost"])
    fewer = usual.info["features"]["threads"] > 2
    assert any("2 of" in text and "as asked" in text for text in model.info["lost"]) is fewer
    x = normal(1024, 1024)
    want, found = (load("busy", threads=n).run({"x": x}).outputs["y"] for n in (1, 2))
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("threads", [0, -1, 33, 1.5])
def test_numbers_of_threads_that_make_no_sense(load: Load, threads: float) -> None:
    with pytest.raises(InputError, match="threads must be an integer from 1 to 32") as caught:
        load("linear", threads=threads)
    assert caught.value.facts["threads"] == threads


def test_more_threads_than_cores(load: Load) -> None:
    """Workers that wait sleep: what has work gets the cores."""
    few, many = load("bert", threads=1), load("bert", threads=16)
    assert many.info["features"]["threads"] == 16
    for length in (3, 9, 16):
        (want,), (found,) = (m.run(sentence(length)).outputs.values() for m in (few, many))
        np.testing.assert_array_equal(found, want)
    many.time(runs=20, warmup=0)


def test_without_isolation_one_thread_and_a_word_about_it(visit: Visit, library: Library) -> None:
    with serving({"linear": library.path("linear")}, isolation=False) as site:
        page = visit(site.blank)
        ask = {"url": site.bundle("linear"), "inputs": {"x": [1] * 96}}
        info = page.do("engine", **ask, options={"threads": 2})["info"]
        preempted = page.do("preempt", inputs={"x": [1] * 96})
    assert info["features"]["threads"] == 1
    lost = " ".join(info["lost"])
    assert "one thread" in lost
    assert "2 threads were asked for" in lost
    assert preempted["error"] == "host"


def test_a_helper_that_dies_in_mid_run(visit: Visit, library: Library) -> None:
    """The run it was part of fails with a typed error; the engine starts another and goes on."""
    with serving({"busy": library.path("busy")}) as site:
        found = visit(site.blank).do("killHelper", url=site.bundle("busy"), inputs=BUSY, times=3)
    assert found["before"] == "done"
    assert found["during"] == ["host"] * 3
    assert found["after"] == ["done"] * 3
    assert found["same"]
    error = found["error"]
    assert error["facts"]["step"] == 0
    assert error["facts"]["node"] in error["message"]
    assert error["hint"]
    # the engine's worker, two of the pool, and one more for each that died
    assert found["workers"] == 3 + 3


def test_helpers_that_die_before_their_first_word(visit: Visit, library: Library) -> None:
    """Nobody hears of their end: they are replaced after a while, which grows on slow devices."""
    with serving({"busy": library.path("busy")}, web=shared("start")) as site:
        page = visit(site.blank)
        found = page.do("stillborn", url=site.bundle("busy"), inputs=BUSY, deaths=3)
    # both of the pool, their successors, and one more for the successor that was dead, too
    assert sorted(found["waits"])[:4] == [10_000, 10_000, 20_000, 20_000]
    assert 40_000 in found["waits"]
    assert all(found["tickets"])


@pytest.mark.parametrize("how", ["kill", "error", "dispose"])
def test_the_end_is_told_once(visit: Visit, library: Library, how: str) -> None:
    """Whoever works beside the engine, as a tuner does, must learn that there is none any more."""
    with serving({"linear": library.path("linear")}) as site:
        page = visit(site.blank)
        ask = {"url": site.bundle("linear"), "inputs": {"x": [1] * 96}}
        found = page.do("endsOf", **ask, how=how)
    assert found == {"ends": 1, "later": "disposed" if how == "dispose" else "host"}


def test_preempting_between_tiles(visit: Visit, library: Library) -> None:
    with serving({"busy": library.path("busy")}) as site:
        page = visit(site.blank)
        page.do("engine", url=site.bundle("busy"), inputs=BUSY, options={"threads": 2}, show=False)
        found = page.do("preempt", inputs=BUSY)
    assert found == {"held": True, "after": "done", "same": True}


def test_two_models_in_one_page(visit: Visit, library: Library) -> None:
    """Each engine has its own memory and its own pool; their runs overlap."""
    served = {name: library.path(name) for name in ("busy", "linear")}
    with serving(served) as site:
        found = visit(site.blank).do(
            "twoModels",
            first={"url": site.bundle("busy"), "inputs": BUSY},
            second={"url": site.bundle("linear"), "inputs": {"x": [1] * 96}},
            times=10,
        )
    assert found == {"first": ["done"] * 10, "second": ["done"] * 10, "same": True}


def test_hidden_page(visit: Visit, library: Library) -> None:
    with serving({"busy": library.path("busy")}) as site:
        found = visit(site.blank).do("hidden", url=site.bundle("busy"), inputs=BUSY)
    assert found["outcomes"] == ["done"] * 3


@pytest.mark.slow
def test_many_models_one_after_the_other(visit: Visit, library: Library) -> None:
    """V8 reserves 8 GiB of addresses for every memory and stops at 1 TiB: those of closed engines
    must go in time, however they ended, and even if the page still has their engines."""
    with serving({"linear": library.path("linear")}) as site:
        page = visit(site.blank)
        change = kernels(page, site, library, "linear").wrong("value", 0)
        ask = {"url": site.bundle("linear"), "input": "x", "change": change}
        for _ in range(11):
            assert page.do("manyLoads", **ask, times=25) == ["done"] * 25


@pytest.mark.slow
def test_a_hundred_thousand_runs(visit: Visit, driver: Driver, library: Library) -> None:
    """As test_many_runs_keep_no_memory, for an hour's worth of runs."""
    from .test_run import runs_without_growth

    runs_without_growth(visit, driver, library, 100_000)
