"""Tuning on WebGPU, in Chromium with its software adapter and in Node with Dawn; no test looks at a
time but to find a kernel that is many times as fast."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from helpers import halves
from onnx import TensorProto, helper, numpy_helper

from lab.subjects import compile_matmul
from tilewright.base.errors import HostError
from tilewright.bundle import open_bundle, write
from tilewright.cli import main
from tilewright.compiler import Options, compile_model
from tilewright.frontend import load
from tilewright.hosts import browser as browser_module
from tilewright.hosts.browser import BrowserHost
from tilewright.hosts.browser_programs import program
from tilewright.server import create_app
from tilewright.server.app import WEB
from tilewright.server.static import write_pages
from tilewright.targets.device_classes import CLASSES
from tilewright.tuning.candidate_folder import write_candidates
from tilewright.tuning.candidates import space_of
from tilewright.tuning.catalogue import kernels_of

from .driver import Visit
from .gpu_kernels import MARK, GpuKernels, write_poor
from .patient import patient
from .replacing import replace_once
from .rounds import only_rounds
from .serving import plain as plain_server
from .serving import serving
from .steady import steady
from .test_modes import write_blank
from .test_tuning import close, verdicts

pytestmark = pytest.mark.browser

GPU = {"device": "webgpu"}
ROWS = {"x": [(n * 5 % 11) / 8 - 0.5 for n in range(9 * 64)]}
X = {"x": [(n * 7 % 13) / 8 - 0.5 for n in range(4 * 512)]}


@pytest.fixture
def visit(gpu_visit: Visit) -> Visit:
    return gpu_visit


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An attention and a product for 8 or 16 rows: few kernels, since a software adapter compiles
    each for a second."""
    folder = tmp_path_factory.mktemp("gpu") / "mixed"
    info, rng = helper.make_tensor_value_info, np.random.default_rng(0)
    sizes = {"a": (64, 96), "b": (96, 48), "c": (48, 40)}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["m"]),
        helper.make_node("Softmax", ["m"], ["s"]),
        helper.make_node("MatMul", ["s", "b"], ["t"]),
        helper.make_node("MatMul", ["t", "c"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "mixed", [info("x", TensorProto.FLOAT, ["n", 64])],
        [info("y", TensorProto.FLOAT, ["n", 40])],
        [numpy_helper.from_array(rng.standard_normal(d, "f4"), n) for n, d in sizes.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = Options(buckets={"n": (8, 16)}, targets=("wgsl",))
    write(compile_model(load(model), options).contents, folder)
    return folder


@pytest.fixture(scope="module")
def poor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpu") / "poor"
    write_poor(folder)
    return folder


@pytest.mark.parametrize("stamps", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_whole_session(visit: Visit, mixed: Path, stamps: bool, tmp_path: Path) -> None:
    """Candidates of several kernels are tried, and change no result; timed by the device's clock,
    or by waiting."""
    web = patient(tmp_path)
    if not stamps:
        bench = web / "tune" / "trial" / "gpu_trial_memory.js"
        replace_once(bench, "device.features.has('timestamp-query')", "false")
    known = GpuKernels(mixed)
    assert len({known.kernels[s].anchor for s in known.specs()[:2]}) > 1
    sent = [k for s in known.specs()[:2] for k in known.others(s, 2)]
    with serving({"mixed": mixed}, web=web) as site:
        found = visit(site.blank).do(
            "tune", url=site.bundle("mixed"), kernels=sent, inputs=ROWS, limits=GPU,
            options={"report": True},
        )  # fmt: skip
    assert close(found)
    assert len(verdicts(found)) == len(sent)
    assert set(verdicts(found)) <= {"faster", "same", "slower"}
    tried = {(r["spec"], r["candidate"]) for r in found["log"]["results"]}
    assert tried == {(k["spec"], k["candidate"]) for k in sent}
    assert found["log"]["hello"]["variant"] == "core"
    assert found["bad"] == {}


WRONG = {
    "value": ("wrong", "on random inputs"),
    "outside": ("wrong", "on random inputs"),
    "input": ("wrong", "it changed input 1"),
    "nothing": ("wrong", "on random inputs"),
    "endless": ("refused", "'loop'"),
    "syntax": ("refused", "WGSL"),
    "types": ("refused", "WGSL"),
    "shared": ("refused", ""),
    "binding": ("refused", "bindings"),
    "scratch": ("refused", "scratch"),
}


def test_wrong_candidates_and_a_winner(visit: Visit, poor: Path, tmp_path: Path) -> None:
    """What is wrong is dropped and reported; what is much faster is adopted, and is there at the
    next visit."""
    known = GpuKernels(poor)
    sent = [known.wrong(how, 0, 900 + n) for n, how in enumerate(WRONG)]
    best = known.smallest(0)
    with serving({"poor": poor}, web=steady(tmp_path, gain=2)) as site:
        page = visit(site.blank)
        given = {"limits": GPU, "again": True, "steady": True}
        ask = {"url": site.bundle("poor"), "inputs": X, **given}
        found = page.do("tune", **ask, kernels=[*sent, best], options={"report": True})
        assert verdicts(found) == [*(verdict for verdict, _ in WRONG.values()), "faster"]
        trials = [e for e in found["events"] if e["type"] == "trial"]
        for (_, word), trial in zip(WRONG.values(), trials, strict=False):
            assert word in trial["why"]
        told = [(r["candidate"], r["verdict"]) for r in found["log"]["results"]]
        assert told[: len(sent)] == [(900 + n, w[0]) for n, w in enumerate(WRONG.values())]
        assert close(found)
        (swap,) = (e for e in found["events"] if e["type"] == "swap")
        assert swap["ratio"] > 1
        (kernel,) = found["summary"]["kernels"]
        assert kernel["current"]["schedule"] == best["schedule"]
        assert found["restored"] == 1
        assert found["later"] == found["after"]


def test_weights_in_halves(visit: Visit, tmp_path: Path) -> None:
    """Candidates read them as the bundle's kernels do, in trials and in the engine."""
    folder = tmp_path / "halves"
    write(compile_model(load(halves.model()), Options(targets=("wgsl",))).contents, folder)
    known = GpuKernels(folder)
    spec = next(n for n in known.specs() if any(b.as_f16 for b in known.kernels[n].buffers))
    sent = [*known.others(spec, 2), known.wrong("value", spec)]
    given = {name: value.ravel().tolist() for name, value in halves.inputs().items()}
    with serving({"halves": folder}) as site:
        ask = {"url": site.bundle("halves"), "inputs": given, "limits": GPU}
        found = visit(site.blank).do("tune", **ask, kernels=sent, options={"report": True})
    assert set(verdicts(found)[:-1]) <= {"faster", "same", "slower"}, verdicts(found)
    assert verdicts(found)[-1] in ("wrong", "slower")
    assert close(found)


def test_swaps_and_what_the_engine_refuses(visit: Visit, poor: Path) -> None:
    known = GpuKernels(poor)
    (other,) = known.others(0, 1)
    refused = {"endless": "'loop'", "syntax": "cannot become a pipeline", "binding": "bindings"}
    changes = [other, known.wrong("value", 0), *(known.wrong(how, 0) for how in refused)]
    with serving({"poor": poor}) as site:
        found = visit(site.blank).do("gpuSwaps", url=site.bundle("poor"), inputs=X, changes=changes)
    own, swapped, marked, *others, back = found
    assert [f["error"] for f in (own, swapped, marked, back)] == [None] * 4
    np.testing.assert_allclose(swapped["outputs"], own["outputs"], rtol=1e-4, atol=1e-4)
    assert set(marked["outputs"][0]) == {MARK}
    assert back["outputs"] == own["outputs"]
    for answer, word in zip(others, refused.values(), strict=True):
        assert answer["error"]["code"] == "input"
        assert word in answer["error"]["message"]
        assert answer["outputs"] == marked["outputs"]


#: Spoils the trial worker's device: `spoil(device)` is called when a candidate begins to run.
#: It is blamed for the second time then; the first time is when it is read.
SPOILED = """
let device;
let blamed = 0;
const { requestDevice } = GPUAdapter.prototype;
GPUAdapter.prototype.requestDevice = async function (...given) {
  return (device = await requestDevice.apply(this, given));
};
const { postMessage } = self;
self.postMessage = (data, ...more) => {
  if (data.trying && ++blamed === 2) spoil(device);
  postMessage.call(self, data, ...more);
};
"""
#: The device is lost whenever a candidate runs, or only for the first one.
ALWAYS = "const spoil = (device) => device.destroy();\n"
ONCE = """
const known = caches.has('lost-once');
const spoil = async (device) => {
  if (await known || await caches.has('lost-once')) return;
  await caches.open('lost-once');
  device.destroy();
};
"""
#: No memory that a kernel could be tried in.
FULL = """
const { createBuffer } = GPUDevice.prototype;
const MEMORY = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
GPUDevice.prototype.createBuffer = function (parts) {
  const size = parts.usage === MEMORY && parts.size > 64 ? 2 ** 40 : parts.size;
  return createBuffer.call(this, { ...parts, size });
};
"""
#: None for what memory must hold before a kernel runs, though the mapping of it is there.
FULL_OF_IMAGES = """
const { createBuffer } = GPUDevice.prototype;
const IMAGE = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC;
GPUDevice.prototype.createBuffer = function (parts) {
  if (parts.usage !== IMAGE) return createBuffer.call(this, parts);
  const real = createBuffer.call(this, parts);
  const full = createBuffer.call(this, { size: 2 ** 40, usage: IMAGE });
  full.getMappedRange = (...given) => real.getMappedRange(...given);
  full.unmap = () => real.unmap();
  return full;
};
"""


def spoiled(visit: Visit, poor: Path, folder: Path, how: str, count: int) -> Any:
    """A session in whose trial worker this runs first."""
    web = patient(folder)
    # after the imports, before the worker listens
    replace_once(web / "tune" / "trial" / "gpu_trial_worker.js", "judge({", how + "judge({")
    known = GpuKernels(poor)
    with serving({"poor": poor}, web=web) as site:
        return visit(site.blank).do(
            "tune", url=site.bundle("poor"), inputs=X, limits=GPU, kernels=known.others(0, count),
            options={"report": True},
        )  # fmt: skip


def test_a_device_that_is_lost_once_condemns_no_candidate(
    visit: Visit, poor: Path, tmp_path: Path
) -> None:
    found = spoiled(visit, poor, tmp_path, SPOILED + ONCE, 1)
    assert set(verdicts(found)) <= {"faster", "same", "slower"}, found["events"]
    assert found["bad"] == {}


def test_a_candidate_that_loses_every_device(visit: Visit, poor: Path, tmp_path: Path) -> None:
    found = spoiled(visit, poor, tmp_path, SPOILED + ALWAYS, 1)
    assert verdicts(found) == ["trapped"]
    (trial,) = (e for e in found["events"] if e["type"] == "trial")
    assert "GPU device was lost" in trial["why"]
    assert list(found["bad"]) == ["0"]


@pytest.mark.parametrize(
    ("full", "what"),
    [(FULL, "no room for a kernel that is tried"), (FULL_OF_IMAGES, "refused a part of the work")],
    ids=["memory", "images"],
)
def test_no_room_for_trials_is_no_verdict(
    visit: Visit, poor: Path, tmp_path: Path, full: str, what: str
) -> None:
    """The session ends soon, with what is missing."""
    found = spoiled(visit, poor, tmp_path, full, 4)
    assert found["error"]["code"] == "host", found
    assert what in found["error"]["message"]
    assert not any(e["type"] == "trial" for e in found["events"])


#: A candidate that never ends, and takes the GPU: the engine's device is silent from then on.
TAKES = """
const taken = new BroadcastChannel('taken');
let running = 0;
const { postMessage: say } = self;
const forever = () => new Promise(() => {});
self.postMessage = (data, ...more) => {
  if (data.trying && ++running === 2) {
    GPUBuffer.prototype.mapAsync = GPUQueue.prototype.onSubmittedWorkDone = forever;
    caches.open('taken').then(() => taken.postMessage(''));
  }
  say.call(self, data, ...more);
};
"""
#: For the engine's worker, which says when its device is silent.
SILENT = """
new BroadcastChannel('taken').onmessage = () => {
  const forever = () => new Promise(() => {});
  GPUBuffer.prototype.mapAsync = GPUQueue.prototype.onSubmittedWorkDone = forever;
  new BroadcastChannel('silent').postMessage('');
};
"""
#: The page's watchdog counts no look before that, so that nobody who is only slow is missed.
LOOK = "  #look() {\n"
LOOK_LATER = f"""  static silenced = false;
  static {{
    new BroadcastChannel('silent').onmessage = () => (TrialWorker.silenced = true);
  }}
{LOOK}    if (!this.#trying || !TrialWorker.silenced) return;
"""
#: What browsers say of another adapter then: nothing at all, or that there is none.
ADAPTERS = {
    "another": "",
    "silent": "await caches.has('taken') ? new Promise(() => {}) : ",
    "none": "await caches.has('taken') ? null : ",
}
ADAPTER = """
const { requestAdapter } = GPU.prototype;
GPU.prototype.requestAdapter = async function (...given) {
  return <answer>requestAdapter.apply(this, given);
};
"""


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_candidate_that_takes_the_gpu(visit: Visit, tmp_path: Path, adapter: str) -> None:
    """The engine goes on on a new device or on WebAssembly, and the candidate is never tried
    again.  No limit that a slow machine might miss runs before the GPU is taken, or for a new
    device that is to come."""
    options = Options(targets=("wasm", "wgsl"))
    write(compile_matmul(4, 512, 96, options).contents, tmp_path / "both")
    web = shutil.copytree(WEB, tmp_path / "web")
    replace_once(web / "tune" / "trial" / "gpu_trial_worker.js", "judge({", TAKES + "judge({")
    replace_once(web / "tune" / "trial" / "trials.js", LOOK, LOOK_LATER)
    if adapter == "another":
        silent = web / "tune" / "exchange" / "unresponsive_gpu.js"
        replace_once(silent, "const START = 1000;", "const START = 600_000;")
    worker = web / "engine" / "gpu_worker.js"
    answer = ADAPTER.replace("<answer>", ADAPTERS[adapter])
    worker.write_text(worker.read_text() + SILENT + answer)
    sent = GpuKernels(tmp_path / "both").others(0, 1)
    with serving({"both": tmp_path / "both"}, web=web) as site:
        found = visit(site.blank).do(
            "tune", url=site.bundle("both"), inputs=X, limits=GPU, kernels=sent,
            options={"patience": 4000},
        )  # fmt: skip
    assert verdicts(found) == ["hung"], found
    (fault,) = (e for e in found["events"] if e["type"] == "fault")
    assert (fault["spec"], fault["candidate"]) == (0, sent[0]["candidate"])
    assert "The GPU did not answer" in fault["why"]
    assert close(found)
    stayed = adapter == "another"
    assert ("a new device" if stayed else "WebAssembly") in fault["why"]
    # each device has a record of its own
    assert found["bad"] == ({"0": [sent[0]["candidate"]]} if stayed else {})


@pytest.mark.nightly
def test_a_candidate_that_takes_too_long(visit: Visit, poor: Path) -> None:
    """It is dropped and reported; others are tried as soon as the device is free again."""
    known = GpuKernels(poor)
    slow = known.wrong("slow", 0)
    with serving({"poor": poor}) as site:
        found = visit(site.blank).do(
            "tune", url=site.bundle("poor"), inputs=X, limits=GPU,
            kernels=[slow, *known.others(0, 2), known.smallest(0)],
            options={"report": True, "patience": 10_000},
        )  # fmt: skip
    first, *others = verdicts(found)
    assert first == "hung"
    assert "faster" in others
    assert found["bad"] == {"0": [slow["candidate"]]}
    assert close(found)


def test_a_static_build(visit: Visit, tmp_path: Path) -> None:
    """The class of the device is found by its adapter; its candidates are files."""
    write_poor(tmp_path / "poor")
    bundle = open_bundle(tmp_path / "poor")
    written = write_candidates(bundle, [CLASSES["webgpu"]])
    assert written.classes == ("webgpu",)
    files = sorted((tmp_path / "poor" / "tuning" / "blobs").glob("*.wgsl"))
    assert len(files) == written.candidates
    write_pages(tmp_path / "poor")
    write_blank(tmp_path / "poor")
    with plain_server(tmp_path) as url:
        page = visit(f"{url}/poor/blank.html")
        found = page.do("gpuFolder", base=f"{url}/poor/", inputs=X, rounds=2)
    assert found["summary"]["class"] == "webgpu"
    # The bundle's own is not in the space, so the compiler's is tried first.
    assert next(e["candidate"] for e in found["events"] if e["type"] == "trial") == 0
    assert set(verdicts(found)) <= {"faster", "same", "slower"}


def test_timing_leaves_states_alone(visit: Visit, tmp_path: Path) -> None:
    info = helper.make_tensor_value_info
    w = numpy_helper.from_array(np.linspace(-1, 1, 16, dtype="f4").reshape(4, 4), "w")
    nodes = [
        helper.make_node("MatMul", ["h", "w"], ["m"]),
        helper.make_node("Add", ["m", "x"], ["hn"]),
        helper.make_node("Tanh", ["hn"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [info(n, TensorProto.FLOAT, (2, 4)) for n in ("x", "h")],
        [info(n, TensorProto.FLOAT, (2, 4)) for n in ("hn", "y")], [w],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    made = compile_model(tmp_path / "model.onnx", Options(targets=("wgsl",), states={"h": "hn"}))
    write(made.contents, tmp_path / "bundle")
    with serving({"state": tmp_path / "bundle"}) as site:
        found = visit(site.blank).do(
            "gpuStates", url=site.bundle("state"), inputs={"x": [0.1 * n for n in range(8)]}
        )
    assert found["steps"] > 0
    assert any(found["before"][0])
    assert found["after"] == found["before"]
    assert found["next"] == found["wanted"]


@pytest.mark.parametrize("guarded", [False, True])
def test_a_lost_device(visit: Visit, poor: Path, guarded: bool) -> None:
    """A typed error; with the tuner's guard a new engine that goes on."""
    with serving({"poor": poor}) as site:
        found = visit(site.blank).do("gpuLost", url=site.bundle("poor"), inputs=X, guarded=guarded)
    if guarded:
        assert found["after"] == found["later"] == found["before"]
        return
    for answer in (found["after"], found["later"]):
        assert answer["error"]["code"] == "host"
        assert "GPU device was lost" in answer["error"]["message"]
        assert answer["error"]["facts"]["lost"]


@pytest.mark.by_turns
@pytest.mark.parametrize(
    "host",
    # Node has the files of the tuner itself, and so measures
    ["chromium-webgpu", pytest.param("dawn", marks=pytest.mark.nightly)],
)
def test_from_the_command_line(
    host: str,
    poor: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Against a server with a store; the winner is linked, and computes the same."""
    web = steady(tmp_path, gain=2)
    monkeypatch.setattr(browser_module, "create_app", partial(create_app, web=web))
    only_rounds(monkeypatch, 4)
    try:
        program(host)
    except HostError as error:
        pytest.skip(str(error))

    def said(*arguments: object) -> Any:
        with pytest.raises(SystemExit) as ended:
            main([*map(str, arguments), "--json"])
        (line,) = capsys.readouterr().out.splitlines()
        assert ended.value.code == 0, line
        return json.loads(line)

    report, winners = tmp_path / "report.json", tmp_path / "winners.json"
    found = said(
        "tune", poor, "--host", host, "--store", tmp_path / "votes.db",
        "--report", report, "--save", winners,
    )  # fmt: skip
    (kernel,) = found["kernels"]
    assert found["class"] == "webgpu"
    events = json.loads(report.read_text())["events"]
    assert kernel["current"]["candidate"] is not None, [e for e in events if e["type"] == "trial"]
    assert kernel["current"]["candidate"] != kernel["default"]["candidate"]
    messages = json.loads(report.read_text())["sent"]
    assert {"hello", "want", "report"} <= {m["type"] for m in messages}
    said("relink", poor, "--winners", winners, "-o", tmp_path / "new")
    (spec,) = kernels_of(open_bundle(poor))
    schedule = space_of(spec, GpuKernels(poor).device).schedules[kernel["current"]["candidate"]]
    assert json.loads(winners.read_text())["schedules"]["0"] == schedule.to_json()
    x = np.array(X["x"], np.float32).reshape(4, 512)
    with BrowserHost(host) as browser:
        old, new = (
            browser.load(folder).run({"x": x}).outputs["y"] for folder in (poor, tmp_path / "new")
        )
    np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-4)
