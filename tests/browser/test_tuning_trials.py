"""Trials in real browsers: hangs beside a busy page, faults of the host, interruptions.

No test looks at a time, and none of them tunes: verdicts come from web/tune/trial/trials.js itself.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from .bundles import Library
from .conftest import Visit
from .kernels import Kernels, Sent
from .patient import patient, shared
from .replacing import replace_once
from .serving import serving
from .steady import steady
from .test_swap import kernels

pytestmark = [pytest.mark.by_turns, pytest.mark.one_in(2)]

MEASURED = {"faster", "same", "slower"}


def tried(
    visit: Visit,
    library: Library,
    name: str,
    choose: Callable[[Kernels], list[Sent]],
    web: Path | None = None,
) -> list[dict[str, Any]]:
    """What a page finds of these candidates, one after the other."""
    with serving({name: library.path(name)}, web=web or shared()) as site:
        page = visit(site.blank)
        sent = choose(kernels(page, site, library, name))
        found: list[dict[str, Any]] = page.do("trials", url=site.bundle(name), kernels=sent)
    return found


def test_a_hang_is_noticed_while_runs_pause_the_trial(visit: Visit, library: Library) -> None:
    """As on a page that runs its model again and again; what does not hang gets a verdict."""
    with serving({"linear": library.path("linear")}) as site:
        page = visit(site.blank)
        known = kernels(page, site, library, "linear")
        right = known.others(0, 2)
        sent = [right[0], known.wrong("endless", 0), right[-1]]
        ask = {"url": site.bundle("linear"), "kernels": sent, "every": 20}
        found = page.do("trials", **ask)
    assert found[0]["verdict"] in MEASURED, found[0]
    assert found[1]["verdict"] == "hung", found[1]
    assert found[2]["verdict"] in MEASURED, found[2]


FAULTS: dict[str, dict[str, Any]] = {
    "script": {},
    # Firefox says nothing of it: what a worker may take for its first word is waited for
    "import": {"options": {"patience": 500}},
    "memory": {"options": {"bytes": 2**45}},
    "code": {"own": "AGFzbSBubw=="},
    "hang": {"options": {"patience": 1000}},
    "trap": {},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_the_host_are_no_verdicts(
    visit: Visit, library: Library, tmp_path: Path, fault: str
) -> None:
    """No worker, no memory, no code, a kernel of the bundle's own that is in trouble."""
    web = steady(tmp_path, gain=2)
    missing = {"script": "trial/trial_worker.js", "import": "trial/trial_memory.js"}.get(fault)
    with serving({"poor": library.path("poor")}, web=web) as site:
        page = visit(site.blank)
        known = kernels(page, site, library, "poor")
        sent = known.others(0, 1)
        ask = {"url": site.bundle("poor"), "kernels": sent, **FAULTS[fault]}
        if fault in {"hang", "trap"}:
            ask["own"] = known.wrong({"hang": "endless", "trap": "trap"}[fault], 0)["module"]
        with site.server.refusing(missing) if missing else nullcontext():
            (first,) = page.do("trials", **ask)
        (later,) = page.do("trials", url=site.bundle("poor"), kernels=sent)
    assert first.get("code") == "host", first
    assert first["hint"]
    assert later["verdict"] == "faster", later


def test_interruptions_end_a_trial(visit: Visit, library: Library, tmp_path: Path) -> None:
    """A pause in the middle of every pair: nothing is said of the candidate."""
    web = patient(tmp_path)
    breath = web / "tune" / "trial" / "yielding.js"
    replace_once(breath, "if (!pause) return false;", "if (!pause) return true;")
    with serving({"poor": library.path("poor")}, web=web) as site:
        page = visit(site.blank)
        sent = kernels(page, site, library, "poor").others(0, 1)
        (found,) = page.do("trials", url=site.bundle("poor"), kernels=sent)
    assert found["verdict"] == "same"
    assert found["why"].startswith("undecided")
    assert found["ratio"] is None


def test_an_undecided_candidate_is_tried_once_more(
    visit: Visit, library: Library, tmp_path: Path
) -> None:
    """A busy moment does not cost a session a kernel that is several times faster."""
    web = steady(tmp_path, gain=2)
    pairs = web / "tune" / "trial" / "paired_times.js"
    line = "const found = await ask(margin, overs[0]);"
    busy = "busy-- > 0 ? { ...NOTHING, pairs: 0, lost: LOST, undecided: true } : await"
    replace_once(pairs, line, line.replace("await", busy))
    replace_once(pairs, "const [LOST, ", "let busy = 1;\nconst [LOST, ")
    with serving({"poor": library.path("poor")}, web=web) as site:
        page = visit(site.blank)
        sent = kernels(page, site, library, "poor").others(0, 1)
        ask = {"url": site.bundle("poor"), "kernels": sent, "inputs": {"x": [0.5] * (96 * 256)}}
        found = page.do("tune", **ask, steady=True)
    assert [e["verdict"] for e in found["events"] if e["type"] == "trial"] == ["faster"]
    assert found["summary"]["rounds"] == 1


def test_what_a_refused_candidate_wrote_is_not_held_against_others(
    visit: Visit, library: Library, tmp_path: Path
) -> None:
    """It writes into the trial's memory as it is made, then traps."""

    def between(known: Kernels) -> list[Sent]:
        (right,) = known.others(0, 1)
        return [right, known.scribbling(0), right]

    found = tried(visit, library, "poor", between, steady(tmp_path, gain=2))
    assert [f["verdict"] for f in found] == ["faster", "refused", "faster"]


def test_attention_is_right_though_large_scores_are_not_exact(
    visit: Visit, library: Library
) -> None:
    """Scores of a million: the inputs' last bits move results by a part in a hundred."""

    def everything(known: Kernels) -> list[Sent]:
        return [*known.others(0, 99), known.wrong("value", 0)]

    found = tried(visit, library, "attention", everything)
    assert len(found) > 8
    assert {f["verdict"] for f in found[:-1]} <= MEASURED, [f.get("why") for f in found]
    assert found[-1]["verdict"] == "wrong"
