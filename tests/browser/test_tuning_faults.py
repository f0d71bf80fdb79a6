"""The tuning loop in real browsers when something is wrong: candidates, hosts, sources, clocks.

Without faults: test_tuning.py.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.processes import port_of, serve

from tilewright.cli.compile_workers import makers
from tilewright.server import Tuning
from tilewright.store import KernelStore

from .bundles import Library
from .conftest import Visit
from .patient import patient
from .serving import serving
from .steady import steady
from .test_run import sentence
from .test_swap import kernels, plain
from .test_tuning import LINEAR, close, verdicts

pytestmark = pytest.mark.by_turns

WRONG = {
    "value": "wrong",
    "outside": "wrong",
    "nan": "wrong",
    "tile": "wrong",
    "trap": "trapped",
    "deep": "trapped",
    "endless": "hung",
    "bytes": "refused",
    "empty": "refused",
    "scratch": "refused",
}


@pytest.mark.each_browser
def test_wrong_candidates_are_never_adopted(visit: Visit, library: Library) -> None:
    """Each in its own way; a right one after them is tried as if nothing had been."""
    with serving({"linear": library.path("linear")}) as site:
        page = visit(site.blank)
        known = kernels(page, site, library, "linear")
        sent = [known.wrong(how, 0, 900 + n) for n, how in enumerate(WRONG)]
        sent += known.others(0, 1)
        ask = {"url": site.bundle("linear"), "kernels": sent, "inputs": LINEAR}
        found = page.do("tune", **ask)
        *wrong, right = verdicts(found)
        assert dict(zip(WRONG, wrong, strict=True)) == WRONG
        assert right in {"faster", "same", "slower"}
        assert close(found)
        # on the next visit nobody offers them again, whatever the source has
        later = page.do("tune", **ask)
    assert verdicts(later) == []
    assert later["log"]["hello"]["tried"]["0"] == [s["candidate"] for s in sent]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("how", ["flip", "cut", "compiler", "unlike", "relinked"])
def test_winners_that_do_not_fit_are_dropped(
    visit: Visit, library: Library, tmp_path: Path, how: str
) -> None:
    x = {"x": [0.5] * (96 * 256)}
    with serving({"poor": library.path("poor")}, web=steady(tmp_path, gain=2)) as site:
        page = visit(site.blank)
        best = kernels(page, site, library, "poor").others(0, 1)
        ask = {"url": site.bundle("poor"), "inputs": x, "steady": True}
        found = page.do("tune", **ask, kernels=best, again=True)
        assert found["restored"] == 1
        assert page.do("spoilWinners", url=site.bundle("poor"), how=how) == {
            "restored": int(how == "relinked"),
            "left": int(how in {"relinked", "unlike"}),
        }


@pytest.mark.parametrize("broken", [{"workers": 2}, {"swaps": 2}])
def test_faults_of_the_host_burn_no_candidate(
    visit: Visit, library: Library, tmp_path: Path, broken: dict[str, int]
) -> None:
    """They say nothing of it: it counts as untried, and a later session finds it to be good."""
    x = {"x": [0.5] * (96 * 256)}
    with serving({"poor": library.path("poor")}, web=steady(tmp_path, gain=2)) as site:
        page = visit(site.blank)
        known = kernels(page, site, library, "poor")
        best, others = known.others(0, 1), [known.wrong("value", 0)]
        sent = [*best, best[0] | {"candidate": 800}, *others]
        ask = {"url": site.bundle("poor"), "inputs": x, "kernels": sent, "steady": True}
        found = page.do("tune", **ask, broken=broken)
        faults = [e["candidate"] for e in found["events"] if e["type"] == "fault"]
        assert faults == [best[0]["candidate"], 800]
        assert verdicts(found) == ["wrong"]
        assert close(found)
        later = page.do("tune", **ask)
    assert later["log"]["hello"]["tried"] == {"0": [900]}
    assert verdicts(later)[0] == "faster"


@pytest.mark.parametrize("broken", [{"workers": 99}, {"swaps": 99}])
def test_a_host_that_fails_again_and_again_ends_the_session(
    visit: Visit, library: Library, tmp_path: Path, broken: dict[str, int]
) -> None:
    x = {"x": [0.5] * (96 * 256)}
    with serving({"poor": library.path("poor")}, web=steady(tmp_path, gain=2)) as site:
        page = visit(site.blank)
        (best,) = kernels(page, site, library, "poor").others(0, 1)
        sent = [best | {"candidate": n} for n in range(800, 805)]
        ask = {"url": site.bundle("poor"), "inputs": x, "kernels": sent, "steady": True}
        found = page.do("tune", **ask, broken=broken)
        later = page.do("tune", **ask, options={"rounds": 1})
    assert found["error"]["code"] == "host"
    assert found["error"]["hint"]
    assert [e["type"] for e in found["events"]].count("fault") == 2
    assert found["log"]["closed"]
    assert later["log"]["hello"]["tried"] == {"0": []}


def test_a_winner_that_traps_is_dropped(visit: Visit, library: Library) -> None:
    """The run that it spoiled says so; the next one, and the next visit, have the bundle's own."""
    with serving({"linear": library.path("linear")}) as site:
        page = visit(site.blank)
        header = kernels(page, site, library, "linear").wrong("trap", 0)
        ask = {"url": site.bundle("linear"), "inputs": LINEAR, "header": header}
        found = page.do("keptWinner", **ask, how="run")
    assert found["restored"] == 1
    assert found["runs"] == ["kernel-trap", found["before"]]
    assert found["winners"] == found["later"] == 0
    assert found["bad"] == found["tried"] == {"0": [900]}
    assert found["last"] == found["before"]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("lose", [[-1], [0], [1], [2, -2], [0, 1, 2]])
def test_a_lost_source_is_opened_again(visit: Visit, library: Library, lose: list[int]) -> None:
    """While it is opened, before, between and after kernels: each is tried once."""
    with serving({"bert": library.path("bert")}) as site:
        page = visit(site.blank)
        known = kernels(page, site, library, "bert")
        sent = known.others(known.specs("contract")[0], 3)
        found = page.do(
            "tune", url=site.bundle("bert"), kernels=sent, inputs=plain(sentence(9)), lose=lose
        )
    assert len(verdicts(found)) == len(sent) >= 2
    assert sum(e["type"] == "lost" for e in found["events"]) == len([n for n in lose if n >= -1])
    assert found["log"]["opened"] == 1 + len(lose)
    # what is taken back at the end has one more result
    told = dict.fromkeys(r["candidate"] for r in found["log"]["results"])
    assert list(told) == [s["candidate"] for s in sent]
    tried = [e["candidate"] for e in found["events"] if e["type"] == "trial"]
    assert tried == list(told)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("after", ["", "start", "latency", "trial"])
@pytest.mark.parametrize("how", ["dispose", "death", "abort"])
def test_the_end_in_mid_session(visit: Visit, library: Library, how: str, after: str) -> None:
    """Tuning ends with what it has; an engine that is still there works on."""
    with serving({"linear": library.path("linear")}) as site:
        page = visit(site.blank)
        known = kernels(page, site, library, "linear")
        sent = [*known.others(0, 1), known.wrong("endless", 0)]
        ask = {"url": site.bundle("linear"), "kernels": sent, "inputs": LINEAR}
        found = page.do("tuneEnds", **ask, how=how, after=after)
        assert not page.do("log")["errors"]
    assert found["closed"]
    assert found["types"][-1] == "end"
    assert found["rounds"] <= 1, found
    assert found["later"] == {"dispose": "disposed", "death": "host", "abort": "done"}[how]
    if how == "abort":
        np.testing.assert_allclose(found["found"], found["before"], 1e-5, 1e-5)


BACKWARDS = """
const now = performance.now.bind(performance);
let looks = 0;
performance.now = () => (++looks % 3 ? now() : now() - 1e6 * (looks % 2 ? 1 : -1));
"""


def test_a_clock_that_jumps(visit: Visit, library: Library, tmp_path: Path) -> None:
    """Forwards and backwards: the session ends, and no result changes."""
    web = patient(tmp_path)
    worker = web / "tune" / "trial" / "trial_worker.js"
    worker.write_text(BACKWARDS + worker.read_text())
    with serving({"linear": library.path("linear")}, web=web) as site:
        page = visit(site.blank)
        sent = kernels(page, site, library, "linear").others(0, 2)
        found = page.do("tune", url=site.bundle("linear"), kernels=sent, inputs=LINEAR)
    assert len(verdicts(found)) == len(sent)
    assert set(verdicts(found)) <= {"faster", "same", "slower"}, found["events"]
    assert close(found)
    assert found["summary"]["seconds"] < 1e3


def test_a_server_that_is_killed_and_started_again(
    visit: Visit, library: Library, tmp_path: Path
) -> None:
    """In mid-session: the page computes on without it, and tunes on with the new process."""
    poor, store = library.path("poor"), f"sqlite:///{tmp_path / 'kernels.db'}"
    process, url = serve(poor, store=store)
    try:
        page = visit(f"{url}/host/host.html")
        ask = {"url": f"{url}/bundles/m/", "inputs": {"x": [0.5] * (96 * 256)}}
        page.do("tuneOnline", **ask, options={"rounds": 8, "report": True}, hold=2)
        process.kill()
        process.wait()
        during = page.do("runOnline", type="lost")
        process, again = serve(poor, port_of(url), store)
        assert again == url
        since = page.do("runOnline", type="resumed")
        found = page.do("tunedOnline")
    finally:
        process.kill()
        process.communicate()
    assert len(verdicts(found)) == 8
    assert all(close(found | {"after": outputs}) for outputs in (during, since, found["after"]))
    kinds = [e["type"] for e in found["events"]]
    assert kinds.count("lost") == kinds.count("resumed") == 1
    resumed = kinds.index("resumed")
    assert kinds.index("lost") < resumed
    assert kinds[:resumed].count("trial") >= 2
    assert kinds[resumed:].count("trial") >= 1
    assert kinds[-1] == "end"
    tried = [e["candidate"] for e in found["events"] if e["type"] == "trial"]
    assert len(set(tried)) == len(tried)
    # the vote came to the new process, and was stored where the old one's would have been
    assert [ack["accepted"] for ack in found["acks"]] == [True]
    with KernelStore.open(store) as kept:
        assert kept.stats().reports == 1


def test_a_server_that_refuses(visit: Visit, library: Library) -> None:
    """An error of the server is the error of the session; the engine works on."""
    with serving({"poor": library.path("poor")}, tuning=Tuning(makers=makers(0))) as site:
        page = visit(site.blank)
        ask = {"url": site.bundle("poor"), "inputs": {"x": [0.5] * (96 * 256)}}
        found = page.do("tuneOnline", **ask, options={"device": "no-such-class"})
        again = page.do("tuneOnline", **ask, options={"rounds": 1})
    assert found["error"]["code"] == "input"
    assert found["error"]["facts"]["code"] == "unknown"
    assert found["error"]["hint"]
    assert len(verdicts(again)) == 1
