"""The camera page: pictures and a camera in, areas and labels drawn over them, on both devices.

Chromium has a camera for tests: a green picture with a disc that grows, and a clock.  The models
mark what is bright and name the commonest colour (pictures.py), so that the right answer can be
read off the picture; the test that is `slow` downloads the demo's own model.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.delivered import ROOT

from benchmarks.models.public import fetched
from tilewright.bundle import write
from tilewright.compiler import Options, compile_model

from . import pictures
from .bundles import BOTH, Library
from .conftest import Visit, on_software
from .driver import WIDE, Driver, Page, closing
from .patient import patient
from .replacing import replace_once
from .serving import Site, serving
from .test_frames import TEXTURED
from .test_page import fits

pytestmark = pytest.mark.one_in(2)

FAKE = "--use-fake-device-for-media-stream"
GRANTED = "--use-fake-ui-for-media-stream"
#: Left, top, width and height.  The picture is twice as large as the model's input.
LIGHTS = ((16, 16, 40, 24), (80, 48, 32, 32))
#: Pixels of the picture: a cell of the map is four, and the picture is sampled between its pixels.
NEAR = 4


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("camera")
    return {name: pictures.bundle(name, root / name) for name in pictures.MODELS}


@pytest.fixture(scope="module")
def lights(made: dict[str, Path]) -> Iterator[Site]:
    with serving({"areas": made["areas"]}) as site:
        yield site


@pytest.fixture(scope="module")
def colours(made: dict[str, Path]) -> Iterator[Site]:
    with serving({"labels": made["labels"]}) as site:
        yield site


@pytest.fixture(scope="module")
def filmed() -> Iterator[Driver]:
    """Chromium with a camera, and a GPU that takes its frames as textures."""
    with on_software(*TEXTURED, FAKE, GRANTED) as driver:
        yield driver


@pytest.fixture
def film(filmed: Driver) -> Iterator[Visit]:
    with closing(filmed) as opened:
        yield opened


def opened(visit: Visit, site: Site, width: int = WIDE, query: str = "") -> Page:
    """The page after it has looked at its sample."""
    page = visit(f"{site.url}/camera{query}", width)
    found = page.do("seen")
    assert found["state"] == "ready", found
    return page


def look_at(page: Page, path: Path, data: bytes) -> Any:
    path.write_bytes(data)
    page.do("unseen")
    page.do("chooseFile", path=str(path))
    return page.do("seen")


def on(page: Page, device: str) -> None:
    page.do("unseen")
    page.do("select", selector="#device-choice", value=device)
    assert page.do("seen")["device"] == device


def same_boxes(found: Any, lights: Any) -> None:
    boxes = [area["box"] for area in found["areas"]]
    np.testing.assert_allclose(boxes, lights, rtol=0, atol=NEAR)
    assert all(area["score"] > 0.9 for area in found["areas"])


def finds_lights(page: Page, folder: Path) -> None:
    """In pictures of the input's proportions, of others (between bars), and large ones."""
    found = look_at(page, folder / "two.png", pictures.dark(96, 128, *LIGHTS))
    same_boxes(found, LIGHTS)
    assert (found["width"], found["height"]) == (128, 96)
    assert found["text"] == "2 areas of light"
    assert found["label"] == "two.png: 2 areas of light"
    assert found["rate"]["text"].endswith("for the picture")
    assert float(found["rate"]["milliseconds"]) > 0
    # the mask tints what it marks, and nothing else
    assert min(page.do("pixel", x=100, y=64)) < 200
    assert page.do("pixel", x=70, y=10) == [0, 0, 0]
    wide, tall = (20, 8, 60, 20), (8, 100, 30, 60)
    same_boxes(look_at(page, folder / "wide.png", pictures.dark(40, 128, wide)), [wide])
    found = look_at(page, folder / "tall.png", pictures.dark(192, 96, tall))
    same_boxes(found, [tall])
    large = pictures.dark(1536, 2048, (256, 256, 640, 384))
    found = look_at(page, folder / "large.png", large)
    assert (found["width"], found["height"]) == (1280, 960)
    (area,) = found["areas"]
    np.testing.assert_allclose(area["box"], [160, 160, 400, 240], rtol=0, atol=10 * NEAR)
    assert look_at(page, folder / "none.png", pictures.dark(96, 128))["text"] == "No light found"


@pytest.mark.by_turns
def test_pictures_on_webassembly(visit: Visit, lights: Site, tmp_path: Path) -> None:
    page = opened(visit, lights)
    on(page, "wasm")
    finds_lights(page, tmp_path)
    assert page.do("log")["errors"] == []


@pytest.mark.browser
def test_pictures_on_webgpu(film: Visit, lights: Site, tmp_path: Path) -> None:
    page = opened(film, lights)
    on(page, "webgpu")
    finds_lights(page, tmp_path)
    assert page.do("log")["errors"] == []


@pytest.mark.by_turns
def test_labels_are_ranked(visit: Visit, colours: Site, tmp_path: Path) -> None:
    page = opened(visit, colours)
    found = look_at(page, tmp_path / "sea.png", pictures.plain(20, 80, 200))
    names, shares = zip(*found["labels"], strict=True)
    assert names == ("blue", "green", "red")
    powers = np.exp(20 * np.array([200, 80, 20]) / 255)
    np.testing.assert_allclose(shares, powers / powers.sum(), rtol=0, atol=0.01)
    assert found["text"] == "blue"
    assert "areas" not in found["text"]


@pytest.mark.by_turns
def test_a_dropped_picture_and_a_file_that_is_none(
    visit: Visit, lights: Site, tmp_path: Path
) -> None:
    page = opened(visit, lights)
    page.do("unseen")
    data = base64.b64encode(pictures.dark(96, 128, *LIGHTS)).decode()
    page.do("drop", name="dropped.png", base64=data)
    found = page.do("seen")
    same_boxes(found, LIGHTS)
    (tmp_path / "text.png").write_text("no picture")
    page.do("chooseFile", path=str(tmp_path / "text.png"))
    page.do("text", selector="#source-problem", contains="text.png is not a picture")
    assert page.do("seen")["label"] == found["label"], "the picture before stays"
    page.do("unseen")
    page.do("click", selector="#sample")
    assert page.do("seen")["label"].startswith("Sample: ")
    assert page.do("text", selector="#source-problem", contains="") == ""


@pytest.mark.browser
@pytest.mark.parametrize("device", ["wasm", "webgpu"])
def test_the_camera(film: Visit, colours: Site, device: str) -> None:
    """Frames go on; switching the device goes on with the same camera; the end frees it."""
    page = opened(film, colours)
    on(page, device)
    page.do("unseen")
    page.do("click", selector="#camera")
    found = page.do("seen", frames=5)
    assert found["status"] == "Looking at fake_device_0"
    assert found["text"] == "green"
    assert found["labels"][0][1] > 0.9
    assert (found["width"], found["height"]) == (640, 480)
    assert float(found["rate"]["rate"]) > 0
    assert "frames/s" in found["rate"]["text"]
    assert found["on"]
    on(page, {"wasm": "webgpu", "webgpu": "wasm"}[device])
    page.do("unseen")
    assert page.do("seen", frames=3)["text"] == "green"
    assert page.do("cameras") == ["live"]
    page.do("click", selector="#camera-end")
    assert page.do("cameras") == []
    found = page.do("seen")
    assert found["status"] == "Ready: the camera is off"
    assert not found["on"]
    assert page.do("log")["errors"] == []


@pytest.mark.browser
def test_a_camera_that_ends_by_itself(film: Visit, colours: Site) -> None:
    page = opened(film, colours)
    page.do("unseen")
    page.do("click", selector="#camera")
    page.do("seen", frames=2)
    page.do("unplug")
    page.do("text", selector="#source-problem", contains="The camera has ended")
    assert not page.do("seen", frames=0)["on"]
    page.do("unseen")
    page.do("click", selector="#camera")
    assert page.do("seen", frames=2)["on"]
    page.do("click", selector="#sample")
    page.do("text", selector="#status-text", contains="Ready: Sample")
    assert page.do("cameras") == []


@pytest.mark.browser
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((f"{FAKE}=device-count=0", GRANTED), "There is no camera on this device. Open a picture"),
        ((FAKE, "--deny-permission-prompts"), "The camera is not allowed for this page. Allow it"),
    ],
    ids=["none", "refused"],
)
def test_no_camera(colours: Site, flags: tuple[str, ...], said: str) -> None:
    with on_software(*flags) as driver, closing(driver) as visit:
        page = opened(visit, colours)
        page.do("click", selector="#camera")
        page.do("text", selector="#source-problem", contains=said)
        found = page.do("seen")
        assert not found["on"]
        assert found["label"].startswith("Sample: ")


@pytest.mark.by_turns
def test_without_a_safe_address_or_a_gpu(visit: Visit, colours: Site) -> None:
    page = opened(visit, colours)
    page.do("text", selector="#device-why", contains="no WebGPU adapter")
    page.do("noMediaDevices")
    page.do("click", selector="#camera")
    page.do("text", selector="#source-problem", contains="https or localhost")
    page.do("select", selector="#device-choice", value="webgpu")
    page.do("text", selector="#status-text", contains="WebGPU")
    assert page.do("seen")["state"] == "error"
    on(page, "wasm")


@pytest.mark.by_turns
def test_the_page_is_not_ready_before_its_first_picture(
    visit: Visit, made: dict[str, Path], tmp_path: Path
) -> None:
    """With a model that never answers."""
    web = patient(tmp_path)
    look = "  async look(frame) {\n"
    never = f"{look}    await new Promise(() => {{}});\n"
    replace_once(web / "page" / "picture_model.js", look, never)
    with serving({"labels": made["labels"]}, web=web) as site:
        page = visit(f"{site.url}/camera")
        page.do("text", selector="#device-why", contains="no WebGPU adapter")
        assert "Ready" not in page.do("text", selector="#status-text", contains="")


@pytest.mark.browser
def test_the_device_is_measured_and_shown(film: Visit, lights: Site) -> None:
    page = opened(film, lights, query="?software")
    why = page.do("text", selector="#device-why", contains="per picture")
    assert "Processor " in why
    assert "GPU " in why


@pytest.mark.one_in(2)
@pytest.mark.by_turns
@pytest.mark.parametrize(
    ("camera", "said"),
    [
        ({"result": {"kind": "poems"}}, "unknown kind of result: poems"),
        ({"result": {"kind": "areas", "output": "z", "label": "x"}}, "unknown output: z"),
        ({"result": {"kind": "labels", "labels": ["one"]}}, "24 numbers"),
        ({"result": {"kind": "areas"}}, "does not say what the areas are"),
        ({}, "unknown kind of result: undefined"),
    ],
    ids=["kind", "output", "labels", "label", "empty"],
)
def test_a_wrong_camera_file(
    visit: Visit, tmp_path: Path, camera: dict[str, Any], said: str
) -> None:
    with serving({"wrong": pictures.bundle("areas", tmp_path / "wrong", camera)}) as site:
        found = visit(f"{site.url}/camera").do("seen")
    assert found["code"] == "input"
    assert said in found["status"]
    assert found["hint"]


@pytest.mark.by_turns
def test_no_bundle_that_fits(visit: Visit, library: Library) -> None:
    with serving({"search": library.path("search")}) as site:
        found = visit(f"{site.url}/camera").do("seen")
    assert found["code"] == "input"
    assert "No bundle of this server looks at pictures (it has 1 bundle)" in found["status"]
    assert "camera.json" in found["hint"]


@pytest.mark.by_turns
def test_without_the_server(visit: Visit, made: dict[str, Path], tmp_path: Path) -> None:
    with ExitStack() as running:
        site = running.enter_context(serving({"areas": made["areas"]}))
        page = opened(visit, site)
        page.do("serviceWorker")
        running.close()
        page.do("reload")
        page.do("seen")
        found = look_at(page, tmp_path / "two.png", pictures.dark(96, 128, *LIGHTS))
        same_boxes(found, LIGHTS)


@pytest.mark.one_in(3)
@pytest.mark.browser
@pytest.mark.parametrize("width", [320, 768, WIDE])
def test_nothing_overflows(
    film: Visit, lights: Site, colours: Site, tmp_path: Path, width: int
) -> None:
    """With areas, with labels, and with an error."""
    for name, site in (("areas", lights), ("labels", colours)):
        page = opened(film, site, width)
        page.do("unseen")
        page.do("click", selector="#camera")
        page.do("seen", frames=3)
        fits(page, tmp_path / f"{name}.png", width)
    page.do("noMediaDevices")
    page.do("click", selector="#camera-end")
    page.do("click", selector="#camera")
    page.do("text", selector="#source-problem", contains="https")
    fits(page, tmp_path / "error.png", width)


#: Words of the page's sample, in its pixels: left, top, width, height of their letters.
SIGNS = {
    "BOOKSHOP": (106, 111, 240, 32),
    "Station": (451, 123, 130, 28),
    "400 m": (475, 165, 80, 20),
    "New": (123, 220, 74, 26),
    "open": (286, 247, 53, 22),
    "arrivals": (104, 262, 114, 24),
}
#: Of what two boxes cover, both cover at least so much: the model leaves room round letters.
OVERLAP = 1 / 3


def overlap(one: Any, other: Any) -> float:
    sides = [
        max(0.0, min(a + size_a, b + size_b) - max(a, b))
        for a, b, size_a, size_b in zip(one[:2], other[:2], one[2:], other[2:], strict=True)
    ]
    both = sides[0] * sides[1]
    return both / (one[2] * one[3] + other[2] * other[3] - both)


@pytest.mark.slow
@pytest.mark.browser
def test_text_by_the_model_of_the_demo(film: Visit, tmp_path: Path) -> None:
    """It finds every sign of the sample, and the clock in the film, on both devices."""
    model = fetched("ocr4-det", tmp_path)
    options = Options(
        targets=BOTH,
        assets={"camera.json": (ROOT / "examples" / "camera" / "camera.json").read_bytes()},
        shapes={"x": (1, 3, 320, 320)},
    )
    write(compile_model(model, options).contents, tmp_path / "text")
    with serving({"text": tmp_path / "text"}) as site:
        page = film(f"{site.url}/camera")
        # not measured: a software GPU takes a second for each run
        page.do("select", selector="#device-choice", value="wasm")
        for device in ("wasm", "webgpu"):
            on(page, device)
            page.do("unseen")
            page.do("click", selector="#sample")
            found = page.do("seen")
            assert found["text"] == "6 areas of text"
            for sign, place in SIGNS.items():
                best = max(overlap(place, area["box"]) for area in found["areas"])
                assert best > OVERLAP, (device, sign, best)
            page.do("click", selector="#camera")
            clock = page.do("seen", frames=3)
            assert clock["text"] == "1 area of text"
            ((left, top, wide, high),) = [area["box"] for area in clock["areas"]]
            assert 60 < left < 120
            assert 0 < top < 60
            assert 200 < wide < 400
            assert 20 < high < 60
            page.do("click", selector="#camera-end")
