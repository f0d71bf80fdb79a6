"""Device `auto`: both devices are measured, one stays, the verdict is remembered, and a lost device
is replaced.  Chromium's WebGPU is software, so WebAssembly wins; no test looks at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from lab.subjects import compile_graph
from tilewright.bundle import write
from tilewright.compiler import Options, compile_model

from . import bundles
from .bundles import Library
from .conftest import Visit, on_software
from .driver import WIDE
from .patient import with_gpu_worker
from .replacing import replace_once
from .serving import Site, serving
from .test_page import ready

X, Z = np.arange(96.0), np.arange(96.0)[::-1] / 8
pytestmark = pytest.mark.one_in(2)

INPUTS = {"x": X.tolist(), "z": Z.tolist()}
#: With the only adapter that the machines of tests have.
AUTO = {"device": "auto", "software": True}


@pytest.fixture
def doomed() -> Iterator[Visit]:
    """Pages of a browser of their own: one whose GPU process ends a few times gives no adapters."""
    with on_software() as driver:
        yield driver.open


@pytest.fixture(scope="module")
def site(library: Library) -> Iterator[Site]:
    served = {"both": library.path("difference on both"), "wasm": library.path("difference")}
    with serving(served) as running:
        yield running


def same(outputs: Any) -> bool:
    return bool(np.array_equal(outputs[0], X - Z))


@pytest.mark.browser
@pytest.mark.parametrize("plant", [None, "webgpu"], ids=["measured", "planted"])
def test_both_are_measured_once(gpu_visit: Visit, site: Site, plant: str | None) -> None:
    """The second visit loads one device: the one that the verdict names."""
    page = gpu_visit(site.blank)
    first, second = page.do("autoTwice", url=site.bundle("both"), inputs=INPUTS, plant=plant)
    choice = first["info"]["choice"]
    assert first["info"]["device"] == choice["chosen"]
    assert set(choice["milliseconds"]) == {"wasm", "webgpu"}
    assert not choice["remembered"]
    assert (first["workers"], second["workers"]) == (2, 1)
    assert "measure" in first["phases"]
    assert "measure" not in second["phases"]
    expected = choice | {"remembered": True, "chosen": plant or choice["chosen"]}
    assert second["info"]["choice"] == expected
    assert second["info"]["device"] == expected["chosen"]
    assert same(first["outputs"])
    assert same(second["outputs"])


@pytest.mark.browser
def test_a_lost_device(doomed: Visit, site: Site) -> None:
    """The engine goes on, first on a new device, then on WebAssembly, and tells each time."""
    page = doomed(site.blank)
    page.do("autoTwice", url=site.bundle("both"), inputs=INPUTS, plant="webgpu")
    again, moved = page.do("autoLost", inputs=INPUTS, times=2)
    assert same(again["outputs"])
    assert same(moved["outputs"])
    assert (again["told"], moved["told"]) == (1, 2)
    assert "GPU device was lost" in again["info"]["choice"]["why"]
    assert moved["info"]["device"] == moved["info"]["choice"]["chosen"] == "wasm"
    assert "went over to WebAssembly" in moved["info"]["choice"]["why"]


#: A GPU whose memory is full, for the engine's worker.
FULL = "GPUDevice.prototype.popErrorScope = async () => new GPUOutOfMemoryError('full');\n"


@pytest.mark.browser
def test_a_gpu_without_room(gpu_visit: Visit, library: Library, tmp_path: Path) -> None:
    web = with_gpu_worker(tmp_path, FULL)
    with serving({"both": library.path("difference on both")}, web=web) as site:
        page = gpu_visit(site.blank)
        ask = {"url": site.bundle("both"), "inputs": INPUTS}
        alone = page.do("engine", **ask, options={"device": "webgpu"})
        found = page.do("engine", **ask, options=AUTO)
    assert alone["error"]["code"] == "memory-limit"
    assert found["info"]["device"] == "wasm"
    assert found["info"]["choice"]["milliseconds"] == {}
    assert alone["error"]["message"] in found["info"]["choice"]["why"]
    assert same([found["outputs"]["y"]])


#: A GPU whose driver takes for ever to compile, for the engine's worker.
SLOW = "GPUDevice.prototype.createComputePipelineAsync = () => new Promise(() => {});\n"


#: The same once a verdict is remembered.
SLOW_LATER = """
const { createComputePipelineAsync } = GPUDevice.prototype;
GPUDevice.prototype.createComputePipelineAsync = async function (...given) {
  const verdicts = await (await caches.open('tilewright-chosen-1')).keys();
  return verdicts.length ? new Promise(() => {}) : createComputePipelineAsync.apply(this, given);
};
"""


def impatient(folder: Path, more: str, *, remembered: bool = False) -> Path:
    """The web files with this in the worker of WebGPU, which has 2 s to start; `remembered`: not
    before there is a verdict, since until then it does start."""
    web = with_gpu_worker(folder, more, but=("auto",))
    kept = "(await (await caches.open('tilewright-chosen-1')).keys()).length"
    limit = f"{kept} ? patience : 600_000" if remembered else "patience"
    for line, patience in (
        ("[TIMEOUT, TIMES] = [10_000, 2]", "[TIMEOUT, TIMES] = [2000, 0]"),
        ("within(patience, starting)", f"within({limit}, starting)"),
    ):
        replace_once(web / "engine" / "auto.js", line, patience)
    return web


@pytest.mark.browser
def test_a_gpu_that_takes_long_to_start(gpu_visit: Visit, library: Library, tmp_path: Path) -> None:
    """It is waited for in bounded time, and measured anew at the next visit."""
    web = impatient(tmp_path, SLOW)
    with serving({"both": library.path("difference on both")}, web=web) as site:
        page = gpu_visit(site.blank)
        found = page.do("autoTwice", url=site.bundle("both"), inputs=INPUTS, plant=None)
    for one in found:
        choice = one["info"]["choice"]
        assert (one["info"]["device"], choice["milliseconds"]) == ("wasm", {})
        assert "WebGPU did not start within 2 s" in choice["why"]
        assert not choice["remembered"]
        assert same(one["outputs"])
        assert one["workers"] == 2


@pytest.mark.browser
def test_a_remembered_gpu_that_takes_long_to_start(
    gpu_visit: Visit, library: Library, tmp_path: Path
) -> None:
    """It is waited for in bounded time, too; then there is a new choice."""
    web = impatient(tmp_path, SLOW_LATER, remembered=True)
    with serving({"both": library.path("difference on both")}, web=web) as site:
        page = gpu_visit(site.blank)
        ask = {"url": site.bundle("both"), "inputs": INPUTS, "plant": "webgpu"}
        first, second = page.do("autoTwice", **ask)
    assert set(first["info"]["choice"]["milliseconds"]) == {"wasm", "webgpu"}
    choice = second["info"]["choice"]
    assert (second["info"]["device"], choice["remembered"]) == ("wasm", False)
    assert "WebGPU did not start within 2 s" in choice["why"]
    assert same(second["outputs"])
    assert second["workers"] == 3


@pytest.mark.browser
def test_software_is_measured_only_if_that_was_asked_for(gpu_visit: Visit, site: Site) -> None:
    ask = {"url": site.bundle("both"), "inputs": INPUTS}
    found = gpu_visit(site.blank).do("engine", **ask, options={"device": "auto"})
    choice = found["info"]["choice"]
    assert (choice["chosen"], choice["milliseconds"]) == ("wasm", {})
    assert "is software" in choice["why"]


#: A GPU that is lost as soon as it runs anything.
LOST = """
const { requestDevice } = GPUAdapter.prototype;
GPUAdapter.prototype.requestDevice = async function (...given) {
  const device = await requestDevice.apply(this, given);
  device.queue.submit = () => device.destroy();
  return device;
};
"""


@pytest.mark.browser
def test_a_gpu_that_is_lost_while_it_is_measured(
    gpu_visit: Visit, library: Library, tmp_path: Path
) -> None:
    web = with_gpu_worker(tmp_path, LOST)
    with serving({"both": library.path("difference on both")}, web=web) as site:
        page = gpu_visit(site.blank)
        found, later = page.do("autoTwice", url=site.bundle("both"), inputs=INPUTS, plant=None)
    for one in (found, later):
        choice = one["info"]["choice"]
        assert one["info"]["device"] == "wasm"
        assert "WebGPU failed while it was measured: The GPU device was lost" in choice["why"]
        assert not choice["remembered"]
        assert same(one["outputs"])


@pytest.mark.browser
@pytest.mark.parametrize("phase", ["code", "measure"])
def test_cancel(gpu_visit: Visit, site: Site, phase: str) -> None:
    """At any moment; no worker goes on."""
    found = gpu_visit(site.blank).do("autoAborted", url=site.bundle("both"), phase=phase)
    assert found["outcome"] == "AbortError"
    assert found["started"] == found["ended"] > 0


@pytest.mark.browser
def test_states_are_zero_after_it_and_lost_with_the_device(doomed: Visit, state: Site) -> None:
    page = doomed(state.blank)
    asked = {"url": state.bundle("state"), "inputs": STATE_INPUTS}
    first, second = page.do("autoTwice", **asked, plant="webgpu")
    lost, later = page.do("autoLost", inputs=STATE_INPUTS, times=2)
    assert first["states"] == second["states"] == [[0.0] * 8]
    for answer in (lost, later):
        assert answer["error"]["code"] == "host"
        assert "states are zero" in answer["error"]["hint"]
    assert (lost["info"]["device"], later["info"]["device"]) == ("webgpu", "wasm")


@pytest.mark.browser
def test_recovery_without_auto(doomed: Visit, site: Site) -> None:
    """With `recover` the interrupted runs are repeated on a new device, and the engine says so."""
    page = doomed(site.blank)
    before, after = page.do("gpuRecovers", url=site.bundle("both"), inputs=INPUTS, times=1)
    for found in (before, after):
        assert same(found["first"]["outputs"])
        assert same(found["second"]["outputs"])
    assert (before["told"], after["told"]) == (0, 1)
    (sentence,) = set(after["lost"]) - set(before["lost"])
    assert "GPU device was lost" in sentence
    assert sentence.endswith("The engine has a new device.")


@pytest.mark.browser
def test_recovery_never_goes_on_with_zeros_silently(doomed: Visit, state: Site) -> None:
    page = doomed(state.blank)
    asked = {"url": state.bundle("state"), "inputs": STATE_INPUTS}
    before, after = page.do("gpuRecovers", **asked, times=1)
    assert any(before["states"][0])
    for answer in (after["first"], after["second"]):
        assert answer["error"]["code"] == "host"
        assert "GPU device was lost" in answer["error"]["message"]
        assert "states are zero" in answer["error"]["hint"]
        assert answer["error"]["facts"]["restarted"]
    assert after["states"] == [[0.0] * 8]
    assert after["lost"][-1].endswith("its states are zero again.")


STATEFUL = Options(targets=bundles.BOTH, states={"h": "hn"})
STATE_INPUTS = {"x": [0.1 * n for n in range(8)]}


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Site]:
    write(compile_model(stateful(tmp_path), STATEFUL).contents, tmp_path / "bundle")
    with serving({"state": tmp_path / "bundle"}) as running:
        yield running


def stateful(folder: Path) -> Path:
    """A model whose state is the sum of all inputs so far."""
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Add", ["h", "x"], ["hn"]),
        helper.make_node("Tanh", ["hn"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [info(n, TensorProto.FLOAT, (2, 4)) for n in ("x", "h")],
        [info(n, TensorProto.FLOAT, (2, 4)) for n in ("hn", "y")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


@pytest.mark.by_turns
def test_what_was_not_measured_is_said(visit: Visit, site: Site) -> None:
    page = visit(site.blank)
    ask = {"inputs": INPUTS, "options": AUTO}
    reasons = {"wasm": "no code for WebGPU", "both": "no WebGPU adapter"}
    for name, reason in reasons.items():
        found = page.do("engine", url=site.bundle(name), **ask)
        choice = found["info"]["choice"]
        assert (choice["chosen"], choice["milliseconds"]) == ("wasm", {})
        assert reason in choice["why"]
        assert same([found["outputs"]["y"]])


@pytest.mark.by_turns
def test_a_bundle_without_code_for_any_device(visit: Visit, tmp_path: Path) -> None:
    made = compile_graph(bundles.difference(), Options(targets=("c",)))
    write(made.contents, tmp_path / "none")
    with serving({"none": tmp_path / "none"}) as site:
        page = visit(site.blank)
        found = page.do("engine", url=site.bundle("none"), inputs=INPUTS, options=AUTO)
    assert found["error"]["code"] == "unsupported-host"
    assert found["error"]["facts"]["known"] == ["c"]


@pytest.mark.browser
def test_a_bucket_that_does_not_exist(gpu_visit: Visit, library: Library) -> None:
    with serving({"search": library.path("search on both")}) as site:
        found = gpu_visit(site.blank).do(
            "engine", url=site.bundle("search"), inputs={}, options={**AUTO, "bucket": {"n": 999}}
        )
    assert found["error"]["code"] == "input"
    assert found["error"]["facts"]["sizes"] == {"n": 999}


@pytest.mark.browser
@pytest.mark.parametrize("width", [WIDE, 375])
def test_the_page_shows_and_switches(
    gpu_visit: Visit, library: Library, tmp_path: Path, width: int
) -> None:
    with serving({"search": library.path("search on both")}) as site:
        page = gpu_visit(f"{site.url}/?software", width)
        ready(page)
        page.do("text", selector="#device", contains="Processor (WebAssembly)")
        why = page.do("text", selector="#device-why", contains="per sentence")
        assert "Processor " in why
        assert "GPU " in why
        ranking = page.ask("hot soup")
        layout = page.do("layout", screenshot=str(tmp_path / "page.png"))
        assert not layout["overflow"]
        assert layout["outside"] == []
        before = page.do("chart")["runs"]
        page.do("select", selector="#device-choice", value="webgpu")
        page.do("text", selector="#device", contains="GPU (WebGPU")
        page.do("text", selector="#device-why", contains="As you chose")
        ready(page)
        texts = page.wait("ready")["texts"]
        assert any(text.startswith("Making kernels: 0 of ") for text in texts), texts
        assert "SIMD" not in page.do("text", selector="#fact-variant", contains="core (")
        # the processor's runs are not shown beside the GPU's
        assert 0 < page.do("chart")["runs"] < before
        other = page.ask("hot soup")
        assert [hit["text"] for hit in other] == [hit["text"] for hit in ranking]
        page.do("select", selector="#device-choice", value="auto")
        page.do("text", selector="#device-why", contains="earlier visit")
        ready(page)
        assert page.ask("hot soup") == ranking


@pytest.mark.by_turns
def test_the_page_without_webgpu(visit: Visit, library: Library) -> None:
    with serving({"search": library.path("search on both")}) as site:
        page = visit(site.url)
        ready(page)
        page.do("text", selector="#device", contains="Processor")
        page.do("text", selector="#device-why", contains="no WebGPU adapter")
