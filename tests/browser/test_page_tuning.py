"""The tuning panel against a recorded session: chart, table, buttons, sharing, errors, layout.

The stand-ins of tests/browser/recorded/ take the place of web/tune/; the page is the real one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tilewright.cli.compile_workers import makers
from tilewright.server import Tuning
from tilewright.tuning.messages import FIELDS

from .bundles import Library
from .conftest import Visit
from .driver import Page
from .patient import patient
from .serving import Site, serving

pytestmark = [pytest.mark.by_turns, pytest.mark.one_in(2)]

RECORDED = Path(__file__).with_name("recorded")
EVENTS = json.loads((RECORDED / "events.json").read_text())
(START,) = (e for e in EVENTS if e["type"] == "start")
TRIALS = [e for e in EVENTS if e["type"] == "trial"]
OPEN = ["running", "paused"]
ENDED = ["done", "error"]
#: Milliseconds after which the test is long over.
FOREVER = 10**9
GAIN = EVENTS[-1]["summary"]["gain"]
#: The same session, if every kernel had stayed: clocks say that it became faster all the same.
UNCHANGED = [
    e | {"verdict": "same"} if e["type"] == "trial" else e
    for e in EVENTS[:-1]
    if e["type"] not in ("swap", "rollback")
] + [
    {
        "type": "end",
        "summary": EVENTS[-1]["summary"]
        | {"gain": {"verdict": "none", "text": "no kernel changed, so no gain"}},
    }
]


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The web folder with the stand-ins."""
    web = patient(tmp_path_factory.mktemp("web"))
    (web / "tune").mkdir(exist_ok=True)
    shutil.copytree(RECORDED, web / "tune", dirs_exist_ok=True)
    shutil.copy(RECORDED / "events.json", web / "page")
    (web / "page" / "unchanged.json").write_text(json.dumps(UNCHANGED))
    return web


@pytest.fixture
def site(library: Library, web: Path) -> Iterator[Site]:
    with serving({"search": library.path("search")}, web=web) as site:
        yield site


def opened(visit: Visit, site: Site, width: int = 1280) -> Page:
    page = visit(site.url, width)
    assert page.wait("ready", "error")["state"] == "ready"
    return page


def tuned(page: Page) -> dict[str, Any]:
    page.do("click", selector="#tune")
    found: dict[str, Any] = page.do("tuning", states=ENDED, rounds=TRIALS[-1]["round"])
    assert found["state"] == "done", found["text"]
    return found


def test_a_whole_session(visit: Visit, site: Site) -> None:
    page = opened(visit, site)
    before = page.do("tuning", states=["idle"])
    assert before["buttons"] == ["tune"]
    assert not any("uPlot" in url and url.endswith(".js") for url in page.do("log")["requests"])
    found = tuned(page)
    assert found["class"] == START["class"]
    assert found["buttons"] == ["tune", "tune-measure", "tune-forget"]
    assert found["gain"] == "faster"
    assert GAIN["text"] in found["text"]
    assert f"{TRIALS[-1]['round']} rounds" in found["text"]
    counts = {o: int(found["chart"][o]) for o in ("adopted", "same", "slower", "rejected")}
    assert sum(counts.values()) == len(TRIALS)
    assert counts["adopted"] == sum(t["verdict"] == "faster" for t in TRIALS)
    assert counts["slower"] == sum(t["verdict"] == "slower" for t in TRIALS)
    assert int(found["chart"]["points"]) == sum(e["type"] == "latency" for e in EVENTS)
    assert found["chart"]["label"].startswith("Latency against rounds of tuning: 1.27× as fast as")
    assert found["colours"] > 20
    assert page.do("log")["errors"] == []


def test_table(visit: Visit, site: Site) -> None:
    page = opened(visit, site)
    rows = {int(r["spec"]): r for r in tuned(page)["rows"]}
    assert list(rows) == [k["spec"] for k in START["kernels"]]
    for kernel, summed in zip(START["kernels"], EVENTS[-1]["summary"]["kernels"], strict=True):
        spec, row = kernel["spec"], rows[kernel["spec"]]
        candidate, gain = summed["current"]["candidate"], summed["gain"]
        name, shape, share, use, gained, gflops, tried = row["cells"]
        assert kernel["kind"] in name
        assert shape == kernel["shape"]
        assert share == f"{kernel['share'] * 100:.1f} %"
        assert row["candidate"] == str(candidate or "default")
        assert (
            use.removesuffix(" (extended)") == f"default → #{candidate}" if candidate else "default"
        )
        assert gained == (f"{gain:.2f}×" if candidate else "–")
        assert float(gflops) == pytest.approx(summed["current"]["gflops"], abs=0.06)
        assert int(tried) == sum(t["spec"] == spec for t in TRIALS)


def test_the_end_is_shown_with_what_was_found(visit: Visit, site: Site) -> None:
    """At once, though the page draws what happens on the way in its next frame."""
    page = opened(visit, site)
    page.do("noFrames")
    found = tuned(page)
    assert found["gain"] == "faster"
    tried = [int(row["cells"][-1]) for row in found["rows"]]
    assert sum(tried) == len(TRIALS)


def test_without_an_exchange_no_gain_is_shown(visit: Visit, site: Site) -> None:
    page = opened(visit, site)
    page.do("globals", values={"session": "/unchanged.json"})
    found = tuned(page)
    assert (found["gain"], found["changed"]) == ("none", "0")
    assert found["text"].startswith("Done: no kernel changed, so no gain · ")
    words = [
        found["text"],
        found["chart"]["label"],
        *(c for r in found["rows"] for c in r["cells"]),
    ]
    assert not any("×" in text or "→" in text for text in words)
    assert found["buttons"] == ["tune"]


def test_the_gain_is_measured_on_request(visit: Visit, site: Site) -> None:
    """And the session, while it goes on, tells latencies alone."""
    page = opened(visit, site)
    swaps = next(n for n, e in enumerate(EVENTS) if e["type"] == "swap")
    first = EVENTS[swaps + 2]["round"] + 1
    page.do("globals", values={"most": first})
    page.do("click", selector="#tune")
    found = page.do("tuning", states=["running"], rounds=first)
    assert " ms so far · " in found["text"]
    assert "×" not in found["text"]
    assert not found["gain"]
    page.do("click", selector="#tune-stop")
    found = page.do("tuning", states=ENDED)
    assert found["buttons"] == ["tune", "tune-measure", "tune-forget"]
    page.do("globals", values={"pace": FOREVER})
    page.do("click", selector="#tune-measure")
    assert page.do("tuning", states=["measuring"])["buttons"][0] == "tune-stop"
    page.do("click", selector="#tune-stop")
    assert page.do("tuning", states=ENDED)["text"] == "gain not measured: it was cancelled"
    page.do("globals", values={"pace": 1})
    page.do("click", selector="#tune-measure")
    found = page.do("tuning", states=ENDED)
    assert (found["gain"], found["text"]) == ("faster", GAIN["text"])


def test_pause_and_stop(visit: Visit, site: Site) -> None:
    page = opened(visit, site)
    page.do("globals", values={"most": 2})
    page.do("click", selector="#tune")
    found = page.do("tuning", states=["running"], rounds=2)
    assert found["buttons"] == ["tune-pause", "tune-stop"]
    page.do("click", selector="#tune-pause")
    first = page.do("tuning", states=["paused"])
    assert first["text"].startswith("Paused")
    page.do("globals", values={"most": len(TRIALS)})
    page.ask("moon")  # the model works while tuning pauses
    page.ask("bread")
    later = page.do("tuning", states=["paused"])
    # the trial that was under way may have ended
    assert int(later["rounds"]) <= int(first["rounds"]) + 1
    page.do("globals", values={"most": int(later["rounds"]) + 2})
    page.do("click", selector="#tune-pause")
    page.do("tuning", states=["running"], rounds=int(later["rounds"]) + 2)
    page.do("click", selector="#tune-stop")
    ended = page.do("tuning", states=ENDED)
    assert ended["text"].startswith("Stopped")
    assert int(ended["rounds"]) < TRIALS[-1]["round"]
    assert "tune" in ended["buttons"]
    page.do("globals", values={"most": len(TRIALS)})
    assert int(tuned(page)["rounds"]) == TRIALS[-1]["round"]


def test_stop_while_it_pauses(visit: Visit, site: Site) -> None:
    page = opened(visit, site)
    page.do("globals", values={"most": 1})
    page.do("click", selector="#tune")
    page.do("tuning", states=["running"], rounds=1)
    page.do("click", selector="#tune-pause")
    page.do("click", selector="#tune-stop")
    assert page.do("tuning", states=ENDED)["text"].startswith("Stopped")


def test_sharing_is_off_and_can_be_looked_at(visit: Visit, site: Site) -> None:
    page = opened(visit, site)
    tuned(page)
    asked = page.do("globals", name="asked")
    assert asked == {"name": "search", "budget": 1, "report": False}
    assert page.do("globals", name="remembered") == START["class"]
    page.do("click", selector="#tune-details > summary")
    sent = json.loads(page.do("text", selector="#tune-preview", contains="report"))
    assert [message["type"] for message in sent["always"]] == ["hello", "want", "bye"]
    assert set(sent["always"][0]) == {"type", *FIELDS["hello"]}
    assert sent["always"][1]["count"] == len(TRIALS)  # what was sent, not an example
    shared = {kind: [m for m in sent["if shared"] if m["type"] == kind] for kind in FIELDS}
    assert [r["candidate"] for r in shared["result"]] == [t["candidate"] for t in TRIALS]
    for kind in ("result", "report"):
        assert {tuple(message)[1:] for message in shared[kind]} == {tuple(FIELDS[kind])}
    assert all(1 <= len(report["top"]) <= 5 for report in shared["report"])
    page.do("click", selector="#tune-share")
    page.do("select", selector="#tune-budget", value="0.05")
    tuned(page)
    asked = page.do("globals", name="asked")
    assert asked == {"name": "search", "budget": 0.05, "report": True}


def test_forget(visit: Visit, site: Site) -> None:
    page = opened(visit, site)
    tuned(page)
    page.do("click", selector="#tune-forget")
    found = page.do("tuning", states=["idle"])
    assert found["text"].startswith("Deleted")
    assert found["buttons"] == ["tune"]


def test_error_in_words(visit: Visit, site: Site) -> None:
    page = opened(visit, site)
    page.do("globals", values={"session": "/nothing.json"})
    page.do("click", selector="#tune")
    found = page.do("tuning", states=ENDED)
    assert found["state"] == "error"
    assert "cannot reach its server" in found["text"]
    assert found["buttons"] == ["tune"]
    assert page.ask("moon")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("width", [320, 768, 1280])
def test_nothing_overflows(visit: Visit, site: Site, tmp_path: Path, width: int) -> None:
    page = opened(visit, site, width)
    tuned(page)
    page.do("click", selector="#tune-details > summary")
    found = page.do("layout", screenshot=str(tmp_path / f"tuning-{width}.png"))
    assert not found["overflow"], found["outside"]
    assert found["outside"] == []


def test_the_real_tuner(visit: Visit, library: Library) -> None:
    """A few rounds against the real server; what comes of them is the device's business."""
    with serving({"search": library.path("search")}, tuning=Tuning(makers(0))) as site:
        page = opened(visit, site)
        page.do("click", selector="#tune")
        page.do("tuning", states=["running", "done"], rounds=2)
        page.do("click", selector="#tune-stop")
        found = page.do("tuning", states=ENDED)
        assert found["state"] == "done", found["text"]
        assert found["class"].startswith("wasm-")
        assert sum(int(row["cells"][-1]) for row in found["rows"]) >= 2
        assert all(row["cells"][1] for row in found["rows"])
        for row in found["rows"]:
            assert (row["cells"][-3] == "–") == (row["candidate"] == "default")
        assert found["gain"] == ("unknown" if int(found["changed"]) else "none")
        assert page.wait("ready", "loading")["state"] == "ready"  # though the tuner read files
        assert page.ask("bread and butter")
        assert page.do("log")["errors"] == []
