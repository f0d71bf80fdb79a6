"""Pictures as inputs: textures on WebGPU, external or copied; a canvas on WebAssembly.

The pictures are four quarters of plain colours; the model returns its input twice as large.  Both
devices must agree with numpy away from the edges, where filters differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.once import made_once, shared_root

from lab.subjects import compile_graph
from tilewright.base.dtypes import F32
from tilewright.bundle import write
from tilewright.compiler import Options
from tilewright.graph.node import Graph, elementwise, graph_input

from .bundles import BOTH, Array
from .conftest import Visit, on_software
from .driver import Driver, closing
from .serving import Site, serving

pytestmark = pytest.mark.one_in(2)

SHAPES = {
    "planes": (1, 3, 16, 24),
    "grey": (1, 1, 16, 24),
    "pixels": (1, 16, 24, 3),
    "four": (1, 4, 16, 24),
}
#: The colours of the quarters, row by row.
COLOURS = np.array([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [204, 128, 64]]]) / 255
SCALE, BIAS = [1 / 0.229, 1 / 0.224, 1 / 0.225], [-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225]
#: A picture with the model's proportions; one that is wider, so that `contain` and `cover` matter.
SAME, WIDE = [48, 32], [96, 32]
TEXTURED = (
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--enable-features=Vulkan",
    "--use-vulkan=swiftshader",
    "--ignore-gpu-blocklist",
)
#: Steps of 8 bits, twice: a video frame may be converted from one form to another.
NEAR = 2 * 2.5 / 255


@pytest.fixture(scope="module")
def textured() -> Iterator[Driver]:
    """Chromium has external textures only where it draws with the driver of its adapter."""
    with on_software(*TEXTURED) as driver:
        yield driver


def doubled(shape: tuple[int, ...]) -> Graph:
    x = graph_input("x", shape, F32)
    return Graph("doubled", (("x", x),), (("y", elementwise("add", x, x)),))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    def put(name: str) -> Path:
        compiled = compile_graph(doubled(SHAPES[name]), Options(targets=BOTH))
        root = shared_root(tmp_path_factory) / f"frames {name}"
        return made_once(root, lambda to: write(compiled.contents, to))

    with serving({name: put(name) for name in SHAPES}) as running:
        yield running


def quarters(height: int, width: int) -> Array:
    return COLOURS.repeat(height // 2, 0).repeat(width // 2, 1)


def expected(fit: str) -> Array:
    """Colours [16, 24, 3] of the wide picture (or with `stretch` of any)."""
    if fit == "contain":
        whole = np.zeros((16, 24, 3))
        whole[4:12] = quarters(8, 24)
        return whole
    return quarters(16, 24)


def away_from_edges(fit: str) -> Array:
    """Where no filter mixes two colours."""
    rows, columns = np.ones(16, bool), np.ones(24, bool)
    rows[7:9] = columns[11:13] = False
    if fit == "contain":
        rows[3:5] = rows[11:13] = False
    return np.outer(rows, columns)


def right_pictures(page: Any, site: Site, device: str) -> None:
    normal = {"scale": SCALE, "bias": BIAS}
    kinds = ["canvas", "image", "bitmap"] + (["frame"] if device == "webgpu" else [])
    cases = [{"size": SAME, "kind": kind, "options": normal} for kind in kinds]
    fits = ["stretch", "contain", "cover"]
    cases += [{"size": WIDE, "options": {**normal, "fit": fit}} for fit in fits]
    found = page.do("frames", url=site.bundle("planes"), device=device, cases=cases)
    assert not [one for one in found if "error" in one], found[0]
    for case, one in zip(cases, found, strict=True):
        fit = case["options"].get("fit", "stretch")
        want = 2 * (expected(fit) * SCALE + BIAS)
        got = np.reshape(one["y"], (3, 16, 24)).transpose(1, 2, 0)
        off = np.abs(got - want)[away_from_edges(fit)] / SCALE
        assert off.max() <= NEAR, (case, off.max())
        assert one["same"]
        assert one["open"]
        assert one["steps"] > 0


def other_layouts(page: Any, site: Site, device: str) -> None:
    case = {"size": SAME, "options": {"scale": 2, "bias": 0.5}}
    (pixels,) = page.do("frames", url=site.bundle("pixels"), device=device, cases=[case])
    (grey,) = page.do("frames", url=site.bundle("grey"), device=device, cases=[case])
    inside = away_from_edges("stretch")
    want = 2 * (2 * quarters(16, 24) + 0.5)
    assert np.abs(np.reshape(pixels["y"], (16, 24, 3)) - want)[inside].max() <= 2 * NEAR
    want = 2 * (2 * quarters(16, 24) @ [0.299, 0.587, 0.114] + 0.5)
    assert np.abs(np.reshape(grey["y"], (16, 24)) - want)[inside].max() <= 2 * NEAR


def wrong_frames(page: Any, site: Site, device: str) -> None:
    cases = [
        {"size": SAME, "kind": "bitmap", "closed": True},
        {"size": SAME, "options": {"scale": [1, 2]}},
        {"size": SAME, "options": {"fit": "fill"}},
        {"size": SAME, "options": {"shape": [1, 3, 16, 16]}},
    ]
    found = page.do("frames", url=site.bundle("planes"), device=device, cases=cases)
    (four,) = page.do("frames", url=site.bundle("four"), device=device, cases=[{"size": SAME}])
    errors = [one["error"] for one in [*found, four]]
    assert {error["code"] for error in errors} == {"input"}
    parts = ["is closed", "expected 3 numbers", "fit 'fill'", "wrong size", "[1, 4, 16, 24]"]
    for error, part in zip(errors, parts, strict=True):
        assert part in error["message"]


@pytest.mark.by_turns
@pytest.mark.parametrize("check", [right_pictures, other_layouts, wrong_frames])
def test_on_webassembly(visit: Visit, site: Site, check: Any) -> None:
    check(visit(site.blank), site, "wasm")


@pytest.mark.browser
@pytest.mark.parametrize("check", [right_pictures, other_layouts, wrong_frames])
def test_on_webgpu(textured: Driver, site: Site, check: Any) -> None:
    with closing(textured) as opened:
        check(opened(site.blank), site, "webgpu")


@pytest.mark.browser
@pytest.mark.parametrize("check", [right_pictures, other_layouts, wrong_frames])
@pytest.mark.parametrize("device", ["webgpu", "own"])
def test_on_webgpu_without_external_textures(
    gpu_visit: Visit, site: Site, check: Any, device: str
) -> None:
    """The driver of the adapter draws no pages here, so that frames are copied."""
    check(gpu_visit(site.blank), site, device)
