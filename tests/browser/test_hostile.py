"""Hostile candidates, from a server or a folder, and hostile code in a bundle, in real browsers.

None runs where it could reach the page, changes an output, or hangs the page; each is refused or
found out, and right candidates after it are tried as if nothing had been.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.hostile import FORGED, ILL_BEHAVED, turning

from tilewright.server.static import write_pages

from .bundles import Library, edit_manifest
from .conftest import Visit
from .kernels import Kernels, Sent
from .patient import shared
from .serving import plain, serving
from .steady import steady
from .test_tuning import LINEAR, close, verdicts

POOR = {"x": [0.5] * (96 * 256)}
#: A kernel that is far slower is dropped without a look at its results.
CAUGHT = {"wrong", "trapped", "hung", "slower"}


@contextmanager
def addresses(library: Library, folder: Path, csp: bool) -> Iterator[tuple[str, str]]:
    """A blank page and a bundle, with or without a content security policy."""
    if csp:
        with serving({"linear": library.path("linear")}) as site:
            yield site.blank, site.bundle("linear")
        return
    site_of = library.copied("linear", folder / "site")
    write_pages(site_of)
    (site_of / "blank.html").write_text("<!doctype html><link rel=icon href=data:,>")
    with plain(site_of) as url:
        yield f"{url}/blank.html", f"{url}/"


def candidates(modules: Mapping[str, bytes], first: int) -> list[Sent]:
    """Headers as an honest server would send them; only the modules are not honest."""
    return [
        {
            "type": "kernel",
            "spec": 0,
            "candidate": first + number,
            "mark": "extended",
            "schedule": name,
            "checksum": "0" * 16,
            "digest": hashlib.sha256(module).hexdigest(),
            "tiles": 4,
            "grains": {0: 1},
            "scratch": 0,
            "bytes": len(module),
            "module": base64.b64encode(module).decode(),
        }
        for number, (name, module) in enumerate(modules.items())
    ]


def told(found: dict[str, Any]) -> dict[str, str]:
    """The verdict on each candidate, by its schedule's text."""
    return {e["schedule"]: e["verdict"] for e in found["events"] if e["type"] == "trial"}


@pytest.mark.by_turns
@pytest.mark.parametrize("csp", [True, False], ids=["csp", "no-csp"])
def test_forged_candidates_are_refused(
    visit: Visit, library: Library, tmp_path: Path, csp: bool
) -> None:
    with addresses(library, tmp_path, csp) as (blank, bundle):
        page = visit(blank)
        known = Kernels(library.path("linear"), page.do("variant", url=bundle))
        sent = [*candidates(FORGED, 1000), *known.others(0, 1)]
        ask = {"url": bundle, "kernels": sent, "inputs": LINEAR}
        # one of these servers has the tuner as it is
        found = page.do("tune", **ask, options={"patience": 600_000})
    *refused, right = verdicts(found)
    assert dict(zip(FORGED, refused, strict=True)) == dict.fromkeys(FORGED, "refused")
    assert right in {"faster", "same", "slower"}
    assert close(found)


def test_kernels_that_misbehave_are_found_out(visit: Visit, library: Library) -> None:
    with serving({"linear": library.path("linear")}) as site:
        page = visit(site.blank)
        url = site.bundle("linear")
        known = Kernels(library.path("linear"), page.do("variant", url=url))
        ill = [header | {"hangs": True} for header in candidates(ILL_BEHAVED, 1000)]
        sent = [*ill, *known.others(0, 1)]
        ask = {"url": url, "kernels": sent, "inputs": LINEAR}
        found = page.do("tune", **ask)
    *caught, right = verdicts(found)
    by_name = dict(zip(ILL_BEHAVED, caught, strict=True))
    assert {name: v for name, v in by_name.items() if v not in CAUGHT} == {}
    assert right in {"faster", "same", "slower"}
    assert close(found)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "name",
    ["imports constructor.constructor", "starts and never ends", "exports a promise",
     "brings data", "has a huge memory", "is cut off"],
)  # fmt: skip
@pytest.mark.parametrize("part", ["code", "driver"])
@pytest.mark.by_turns
def test_forged_code_of_a_bundle_is_not_instantiated(
    visit: Visit, library: Library, tmp_path: Path, name: str, part: str
) -> None:
    """Though all its digests are right, as a server that means harm sends them."""
    folder = library.copied("linear", tmp_path / "linear")
    put(folder, part, FORGED[name])
    with serving({"linear": folder}) as site:
        found = visit(site.blank).do("engine", url=site.bundle("linear"), inputs=LINEAR)
    assert found["error"]["code"] == "bundle-corrupt"
    assert "is not code of Tilewright" in found["error"]["message"]


@pytest.mark.one_in(3)
@pytest.mark.by_turns
@pytest.mark.parametrize("isolation", [True, False], ids=["shared", "alone"])
@pytest.mark.parametrize(
    ("how", "verdicts_on_it"),
    [
        ("does nothing", {"wrong"}),
        ("never ends", {"hung"}),
        ("traps", {"trapped"}),
        ("erases all and returns", {"wrong", "hung"}),
        ("erases all and traps", {"trapped", "hung"}),
    ],
)
def test_a_kernel_that_waits_until_its_trial_is_over(
    visit: Visit,
    library: Library,
    tmp_path: Path,
    how: str,
    verdicts_on_it: set[str],
    isolation: bool,
) -> None:
    """It wins its trial, and the engine finds it out before a run of the page has its results."""
    web = steady(tmp_path, gain=2, but=("job",))
    with serving({"poor": library.path("poor")}, isolation=isolation, web=web) as site:
        page = visit(site.blank)
        known = Kernels(library.path("poor"), page.do("variant", url=site.bundle("poor")))
        (best,) = known.others(0, 1)
        module = turning(base64.b64decode(best["module"]), how)
        digest = hashlib.sha256(module).hexdigest()
        sent = best | {"digest": digest, "module": base64.b64encode(module).decode()}
        ask = {"url": site.bundle("poor"), "kernels": [sent], "inputs": POOR, "steady": True}
        found = page.do("tune", **ask)
        later = page.do("tune", **ask)
    (verdict,) = verdicts(found)
    assert verdict in verdicts_on_it
    assert found["before"] == found["after"], "weights are as they were"
    assert verdicts(later) == [], "it is never tried again"


@pytest.mark.by_turns
@pytest.mark.parametrize("isolation", [True, False], ids=["shared", "alone"])
def test_a_run_that_does_not_end_is_repeated_without_the_kernel(
    visit: Visit, library: Library, isolation: bool
) -> None:
    """A winner of an earlier visit: the run takes long, and gives what the bundle's own does."""
    served = {"linear": library.path("linear")}
    with serving(served, isolation=isolation, web=shared("job")) as site:
        page = visit(site.blank)
        header = Kernels(
            library.path("linear"), page.do("variant", url=site.bundle("linear"))
        ).wrong("endless", 0)
        ask = {"url": site.bundle("linear"), "inputs": LINEAR, "header": header}
        found = page.do("keptWinner", **ask, how="run")
    assert found["restored"] == 1
    assert found["runs"] == [found["before"]] * 2
    assert found["winners"] == found["later"] == 0
    assert found["bad"] == {"0": [900]}
    assert found["last"] == found["before"]


def put(folder: Path, part: str, module: bytes) -> None:
    """Puts a module in place of all builds' code, or of the driver."""
    digest = hashlib.sha256(module).hexdigest()
    ref = {"file": f"blobs/{digest}.wasm", "digest": digest, "bytes": len(module)}
    (folder / ref["file"]).write_bytes(module)  # type: ignore[operator]

    def edit(manifest: dict[str, Any]) -> None:
        section = manifest["targets"]["wasm"]
        if part == "driver":
            section["programs"]["driver"] = ref
        else:
            section["builds"] = [build | {"code": ref} for build in section["builds"]]

    edit_manifest(folder, edit)


@pytest.mark.by_turns
@pytest.mark.parametrize("isolation", [True, False], ids=["shared", "alone"])
def test_a_winner_that_blames_another_kernel_goes(
    visit: Visit, library: Library, isolation: bool
) -> None:
    """It writes another step's number where the engine reads which one trapped."""
    with serving({"linear": library.path("linear")}, isolation=isolation) as site:
        page = visit(site.blank)
        url = site.bundle("linear")
        (best,) = Kernels(library.path("linear"), page.do("variant", url=url)).others(0, 1)
        module = turning(base64.b64decode(best["module"]), "says it is another and traps")
        digest = hashlib.sha256(module).hexdigest()
        header = best | {"digest": digest, "module": base64.b64encode(module).decode()}
        found = page.do("keptWinner", url=url, inputs=LINEAR, header=header, how="run")
    assert found["restored"] == 1
    assert found["runs"] == ["kernel-trap", found["before"]]
    assert found["winners"] == found["later"] == 0
