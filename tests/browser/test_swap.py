"""Kernels are exchanged between two runs: in every worker, in the page, all of them or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .bundles import BERT_LENGTHS, Array, Library
from .conftest import Visit
from .driver import Page
from .kernels import MARK, Kernels, Sent
from .patient import patient, shared
from .replacing import replace_once
from .serving import Site, serving
from .test_run import sentence

pytestmark = [pytest.mark.by_turns, pytest.mark.one_in(2)]

BUSY = {"x": 1024 * 1024}


def plain(inputs: dict[str, Array]) -> dict[str, list[float]]:
    return {name: value.ravel().tolist() for name, value in inputs.items()}


def arrays(result: dict[str, Any]) -> list[list[Array]]:
    return [[np.array(data, np.float64) for data in run] for run in result["outputs"]]


def same(a: dict[str, Any], b: dict[str, Any], tolerance: float = 0.0) -> bool:
    pairs = zip(arrays(a), arrays(b), strict=True)
    return all(
        np.allclose(x, y, rtol=tolerance, atol=tolerance)
        for run, other in pairs
        for x, y in zip(run, other, strict=True)
    )


def kernels(page: Page, site: Site, library: Library, name: str) -> Kernels:
    """The bundle's kernels as this browser runs them."""
    return Kernels(library.path(name), page.do("variant", url=site.bundle(name)))


def back(spec: int) -> Sent:
    return {"spec": spec, "module": None}


@pytest.mark.parametrize("threads", [1, 2])
def test_results_stay_through_swaps(visit: Visit, library: Library, threads: int) -> None:
    """Buckets, several kernels at once, one after the other, and back."""
    with serving({"bert": library.path("bert")}) as site:
        page = visit(site.blank)
        known = kernels(page, site, library, "bert")
        others = {s: known.others(s) for s in known.specs("contract")}
        specs = [s for s, sent in others.items() if sent]
        first = [others[s][0] for s in specs]
        last = [others[s][-1] for s in specs]
        lengths = [plain(sentence(n)) for n in (3, *BERT_LENGTHS)]
        rounds = [first, last[:2], [back(specs[0])], last, [back(s) for s in specs]]
        # one that is visibly wrong shows that it runs
        marked = known.wrong("value", specs[-1])
        found = page.do(
            "swaps",
            url=site.bundle("bert"),
            inputs=lengths,
            rounds=[*rounds, [marked], [back(specs[-1])]],
            options={"threads": threads},
        )
    assert found["threads"] == threads
    start, *rest, wrong, again = found["results"]
    assert [r["error"] for r in found["results"]] == [None] * 8
    assert len(specs) > 2
    assert all(same(r, start, 1e-4) for r in rest)
    assert same(rest[-1], start)
    assert not same(wrong, start, 1e-2)
    assert same(again, start)


def test_a_swap_takes_its_place_among_the_runs(visit: Visit, library: Library) -> None:
    with serving({"linear": library.path("linear"), "busy": library.path("busy")}) as site:
        for name, inputs in (("linear", {"x": [1.0] * 96}), ("busy", BUSY)):
            page = visit(site.blank)
            known = kernels(page, site, library, name)
            change = known.wrong("value", 0)
            ask = {"url": site.bundle(name), "inputs": inputs, "change": change}
            found = page.do("swapInQueue", **ask)
            assert all(MARK not in ends for ends in (*found[:6], found[-1]))
            assert found[6:12] == [[MARK, MARK]] * 6


def test_a_worker_that_starts_later_has_it_too(visit: Visit, library: Library) -> None:
    with serving({"busy": library.path("busy")}) as site:
        page = visit(site.blank)
        change = kernels(page, site, library, "busy").wrong("value", 0)
        ask = {"url": site.bundle("busy"), "inputs": BUSY, "change": change, "mark": MARK}
        found = page.do("swapThenDeath", **ask)
    assert set(found["all"]) == {True}
    assert found["back"]
    assert found["workers"] >= 1


@pytest.mark.parametrize("isolation", [True, False])
def test_all_or_nothing(visit: Visit, library: Library, isolation: bool) -> None:
    """Whatever is wrong with one of two changes, neither is made."""
    with serving({"bert": library.path("bert")}, isolation=isolation) as site:
        page = visit(site.blank)
        known = kernels(page, site, library, "bert")
        one, other = known.specs("contract")[:2]
        good = known.wrong("value", one)
        shared = known.wrong("value", other)
        faults: list[Sent] = [
            known.wrong("scratch", other),
            shared | {"spec": 9999},
            shared | {"tiles": 0},
            shared | {"tiles": 1.5},
            shared | {"grains": {"0": -1}},
            shared | {"module": "AGFzbQEAAAA="},  # an empty module
        ]
        found = page.do(
            "swaps",
            url=site.bundle("bert"),
            inputs=[plain(sentence(3))],
            rounds=[*([good, fault] for fault in faults), [good], [back(one)]],
            options={"threads": 2},
        )
    start, *rest, changed, again = found["results"]
    assert [r["error"]["code"] for r in rest] == ["input"] * len(faults)
    assert all(r["error"]["hint"] for r in rest)
    assert "reserves" in rest[0]["error"]["hint"]
    assert all(same(r, start) for r in rest)
    assert changed["error"] is None
    assert not same(changed, start, 1e-2)
    assert same(again, start)


def test_two_of_which_one_cannot_be_linked(visit: Visit, library: Library) -> None:
    """Neither is taken, in the page and in the workers, and the error says which kind it is."""
    with serving({"bert": library.path("bert")}) as site:
        page = visit(site.blank)
        known = kernels(page, site, library, "bert")
        one, other = known.specs("contract")[:2]
        good = known.wrong("value", one)
        found = page.do(
            "swaps",
            url=site.bundle("bert"),
            inputs=[plain(sentence(3))],
            rounds=[[good, known.unlinkable(other)], [good], [back(one)]],
            options={"threads": 2},
        )
    start, failed, changed, again = found["results"]
    assert failed["error"]["code"] == "host"
    assert failed["error"]["hint"]
    assert same(failed, start)
    assert changed["error"] is None
    assert not same(changed, start, 1e-2)
    assert same(again, start)


@pytest.mark.parametrize("how", ["stillborn", "dies", "deaf"])
def test_nobody_serves_with_an_older_table(visit: Visit, library: Library, how: str) -> None:
    """A worker that is dead, dies or answers nobody stops no swap, and takes part in no run before
    it has the kernels of now: they have the same table entry each time, and other results."""
    with serving({"busy": library.path("busy")}, web=shared("take")) as site:
        page = visit(site.blank)
        known = kernels(page, site, library, "busy")
        changes = [known.marked(0, mark) for mark in (3.0, 5.0, 9.0)]
        ask = {"url": site.bundle("busy"), "inputs": BUSY, "changes": changes}
        found = page.do("swapsInTrouble", **ask, how=how)
    assert found["outcomes"] == ["done"] * 4
    assert found["values"][:3] == [[3], [5], [9]]
    assert {tuple(values) for values in found["values"][3:]} == {(9,)}
    assert found["back"] == [0]
    if how == "deaf":
        assert found["idle"], "it cannot have had the kernels of now"


def test_the_pool_serves_again_once_who_was_late_is_gone(
    visit: Visit, library: Library, tmp_path: Path
) -> None:
    """Not only from the next swap on, and with the kernels of before."""
    web = patient(tmp_path)
    engine, own = web / "engine", "within(TAKE_LIMIT,"
    replace_once(engine / "pool.js", "within(START_LIMIT, helpers", "within(3000, helpers")
    # the second swap's
    replace_once(engine / "exchange.js", own, own.replace("TAKE", "turns > 1 ? 2000 : TAKE"))
    with serving({"busy": library.path("busy")}, web=web) as site:
        page = visit(site.blank)
        known = kernels(page, site, library, "busy")
        changes = [known.marked(0, mark) for mark in (3.0, 5.0)]
        found = page.do("swapBesideUndead", url=site.bundle("busy"), inputs=BUSY, changes=changes)
    assert found["outcomes"] == ["done", "host"]
    assert found["idle"]
    assert {tuple(values) for values in found["values"]} == {(3,)}


def test_swaps_while_runs_are_held_back(visit: Visit, library: Library) -> None:
    """Who woke too late for the run before must not wait there for the next one."""
    with serving({"busy": library.path("busy")}) as site:
        page = visit(site.blank)
        known = kernels(page, site, library, "busy")
        marks = [3.0, 5.0, 9.0] * 4
        changes = [known.marked(0, mark) for mark in marks]
        ask = {"url": site.bundle("busy"), "inputs": BUSY, "changes": changes}
        found = page.do("swapsWhileHeld", **ask)
    wanted = [{"swapped": "done", "held": True, "values": [mark]} for mark in marks]
    assert found["found"] == wanted
    assert found["workers"] == 3


@pytest.mark.parametrize("name", ["linear", "busy"])
def test_a_kernel_that_traps_is_named(visit: Visit, library: Library, name: str) -> None:
    """In the page's own runs and in those of the pool: who tunes can take it back."""
    with serving({name: library.path(name)}) as site:
        page = visit(site.blank)
        change = kernels(page, site, library, name).wrong("trap", 0)
        inputs = BUSY if name == "busy" else {"x": [1.0] * 96}
        ask = {"url": site.bundle(name), "inputs": inputs, "change": change}
        found = page.do("swapInTrap", **ask, options={"threads": 2})
    assert found["error"]["code"] == "kernel-trap"
    assert found["error"]["facts"]["spec"] == 0
    assert found["error"]["facts"]["tuned"] is True
    assert found["same"]


def test_disposed_while_it_swaps(visit: Visit, library: Library) -> None:
    with serving({"linear": library.path("linear")}) as site:
        page = visit(site.blank)
        change = kernels(page, site, library, "linear").wrong("value", 0)
        ask = {"url": site.bundle("linear"), "inputs": {"x": [1.0] * 96}, "change": change}
        found = page.do("swapThenDispose", **ask)
        assert not page.do("log")["errors"]
    for run, *open_jobs, later in found:
        assert run == "done"
        assert set(open_jobs) <= {"done", "host"}
        assert later == "disposed"


def test_a_worker_of_the_pool_that_cannot_take_it_on(visit: Visit, library: Library) -> None:
    """Then no worker has it: the run goes on with the kernels of before, on all threads."""
    with serving({"busy": library.path("busy")}) as site:
        page = visit(site.blank)
        known = kernels(page, site, library, "busy")
        good = known.wrong("value", 0)
        found = page.do(
            "swaps",
            url=site.bundle("busy"),
            inputs=[BUSY],
            rounds=[[known.crowded(0)], [good], [known.crowded(0)], [back(0)]],
            options={"threads": 2},
            brief=True,
        )
    start, failed, changed, again, restored = found["results"]
    assert [r["error"] and r["error"]["code"] for r in (failed, again)] == ["host", "host"]
    assert "pool worker" in failed["error"]["message"]
    assert same(failed, start)
    assert not same(changed, start, 1e-2)
    assert same(again, changed)
    assert restored["error"] is None
    assert same(restored, start)
