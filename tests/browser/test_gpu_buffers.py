"""Engines on a device of the page: tensors in GPUBuffers, what is refused, what is left of them.

In Chromium with its software adapter, and in Node with Dawn, by the same scenarios (buffers.mjs).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from helpers.once import made_once, shared_root
from onnx import TensorProto, helper, numpy_helper

from lab.subjects import compile_graph
from tilewright.base.dtypes import F32
from tilewright.bundle import write
from tilewright.compiler import Options, compile_model
from tilewright.graph.node import Graph, elementwise, graph_input
from tilewright.hosts.browser_dawn import Dawn

from .bundles import Library
from .conftest import Visit
from .serving import Site, serving
from .test_auto import STATEFUL, stateful

pytestmark = [pytest.mark.browser, pytest.mark.one_in(2)]

OPTIONS = Options(targets=("wgsl",))
#: Bytes of WebGPU's default limit for the binding of a buffer.
USUAL = 2**27
NODE_SECONDS = 300.0
Do = Callable[..., Any]


def tensors(folder: Path) -> Path:
    """A model with tensors of all kinds; two of its axes are open."""
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Add", ["x", "x"], ["y"]),
        helper.make_node("Add", ["k", "one"], ["j"]),
        helper.make_node("Add", ["l", "l"], ["m"]),
        helper.make_node("Not", ["b"], ["c"]),
    ]
    kinds = {"x": TensorProto.FLOAT, "k": TensorProto.INT32}
    graph = helper.make_graph(
        nodes,
        "tensors",
        [
            *(info(name, kind, (2, "n", 4)) for name, kind in kinds.items()),
            info("l", TensorProto.INT64, (3,)),
            info("b", TensorProto.BOOL, (3,)),
        ],
        [
            info("y", TensorProto.FLOAT, (2, "n", 4)),
            info("j", TensorProto.INT32, (2, "n", 4)),
            info("m", TensorProto.INT64, (3,)),
            info("c", TensorProto.BOOL, (3,)),
        ],
        [numpy_helper.from_array(np.asarray(1, "i4"), "one")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "tensors.onnx")
    return folder / "tensors.onnx"


def large() -> Graph:
    """More than a device has in one buffer unless it was asked for that."""
    x = graph_input("x", (6000, 6000), F32)
    return Graph("large", (("x", x),), (("y", elementwise("add", x, x)),))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, library: Library) -> Iterator[Site]:
    own = tmp_path_factory.mktemp("models")
    makers: dict[str, Callable[[], Any]] = {
        "tensors": lambda: compile_model(
            tensors(own), Options(targets=("wgsl",), buckets={"n": (2, 4)})
        ),
        "state": lambda: compile_model(stateful(own), STATEFUL),
        "large": lambda: compile_graph(large(), OPTIONS),
    }
    root = shared_root(tmp_path_factory)
    bundles = {
        name: made_once(root / f"buffers {name}", lambda to, make=make: write(make().contents, to))
        for name, make in makers.items()
    }
    names = {"both": "difference on both", "search": "search on both"}
    with serving(bundles | {key: library.path(name) for key, name in names.items()}) as running:
        yield running


@pytest.fixture(params=["chromium", "dawn"])
def do(request: pytest.FixtureRequest, site: Site) -> Do:
    """Runs a scenario."""
    if request.param == "chromium":
        return request.getfixturevalue("gpu_visit")(site.blank).do  # type: ignore[no-any-return]
    dawn: Dawn = request.getfixturevalue("dawn")
    script = Path(__file__).with_name("dawn_buffers.mjs")
    words = " ".join(dawn.options)
    command = [dawn.path, "--no-warnings", script, dawn.package, words, site.url]

    def done(scenario: str, **params: Any) -> Any:
        ran = subprocess.run(
            [*command, scenario, json.dumps(params)],
            env={**os.environ, **dawn.environment},
            capture_output=True, text=True, check=False, timeout=NODE_SECONDS,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout.splitlines()[-1])

    return done


@pytest.mark.parametrize("n", [3, 4])
def test_tensors_in_buffers(do: Do, site: Site, n: int) -> None:
    """As arrays give, whether or not the bucket is larger; nothing but the trap's word and what
    was not asked for in a buffer comes back."""
    found = do("buffers", url=site.bundle("tensors"), n=n)
    wanted = found["wanted"]
    x = np.arange(8 * n) / 4 - 1
    np.testing.assert_array_equal(wanted["y"], 2 * x)
    y = found["found"].pop("y")
    assert y[0] == y[-1] == -9
    assert {"y": y[1:-1], **found["found"]} == wanted
    # what a trap says, and the three bools that are a word each
    assert found["sizes"] == [16 + 3 * 4]
    assert found["told"] == {"same": True, "offset": 4, "none": True, "shape": [2, n, 4]}
    np.testing.assert_array_equal(found["next"], 4 * x)
    np.testing.assert_array_equal(found["half"][: 8 * n], 4 * x)
    assert found["j"] == wanted["j"]
    assert found["steps"] > 0
    assert (found["info"]["device"], found["workers"]) == ("webgpu", 0)
    assert "gave a device" in found["info"]["variant"]["why"]


def test_the_device_outlives_the_engine(do: Do, site: Site) -> None:
    """All that the engine made is destroyed, and nothing else."""
    found = do("buffers", url=site.bundle("tensors"), n=4)
    assert found["left"] == "there"
    assert found["own"] > 0
    assert found["destroyed"]
    assert not found["theirs"]


def test_what_is_refused(do: Do, site: Site) -> None:
    """With a typed error that says what is wrong, and no run has begun: states are as before."""
    found = do("wrongBuffers", url=site.bundle("tensors"), state=site.bundle("state"))
    parts = {
        "source": "COPY_SRC",
        "target": "COPY_DST",
        "small": "takes 128 bytes from byte 4 on, and it has 128",
        "smallTarget": "takes 128 bytes from byte 0 on, and it has 12",
        "offset": "offset 2",
        "open": "open dimensions",
        "dtype": "bool",
        "dtypeTarget": "bool",
        "mapped": "is mapped",
        "destroyed": "refused",
        "destroyedTarget": "refused",
        "other": "refused",
        "otherTarget": "refused",
        "unknown": "no output 'z'",
        "shape": "wrong rank",
        "state": "refused",
    }
    errors = found["errors"]
    assert set(errors) == set(parts)
    for name, part in parts.items():
        assert errors[name] is not None, name
        assert errors[name]["code"] == "input", errors[name]
        assert part in errors[name]["message"], errors[name]
        assert errors[name]["hint"]
    assert "f32, i32, i64" in errors["dtype"]["hint"]
    assert found["after"] == found["wanted"]
    assert any(found["states"][0])
    assert found["states"][0] == found["states"][1]


def test_devices(do: Do, site: Site) -> None:
    """Kernels by the features of the device; a device without room; one that is lost."""
    found = do("devices", url=site.bundle("both"), large=site.bundle("large"))
    assert found["features"] == [[], found["known"]]
    small = found["small"]
    assert small["code"] == "memory-limit"
    assert small["facts"]["limit"] == USUAL < small["facts"]["estimate"]
    assert f"maxStorageBufferBindingSize: {small['facts']['estimate']}" in small["hint"]
    assert found["capped"]["facts"]["limit"] == 1000
    assert "and memoryLimit is 1000" in found["capped"]["message"]
    assert "Raise memoryLimit" in found["capped"]["hint"]
    assert "--bank" not in found["capped"]["hint"]  # the sum of all buffers counts
    for error in found["lost"]:
        assert error["code"] == "host"
        assert "GPU device was lost" in error["message"]
        assert error["facts"]["lost"]
        assert "on a new device" in error["hint"]
    assert found["before"] == found["after"] == 2
    assert found["disposed"]["code"] == "disposed"


def test_a_device_that_is_lost_during_the_load(do: Do, site: Site) -> None:
    """In every phase that uses it."""
    for error in do("lostLoading", url=site.bundle("state"), phases=["code", "weights"]):
        assert error is not None
        assert error["code"] == "host"
        assert "GPU device was lost" in error["message"]
        assert error["facts"]["lost"]


def test_buffers_that_the_device_does_not_make(do: Do, site: Site) -> None:
    """No load succeeds and no run gives zeros without them, and states are as before."""
    found = do("noRoom", url=site.bundle("state"))
    named = {"numbers": "numbers", "carried": "numbers", "results": "results", "copy": "states"}
    for name, what in named.items():
        error = found["errors"][name]
        assert error["code"] == "memory-limit", name
        assert what in error["message"], name
        assert f"{error['facts']['estimate']} bytes" in error["message"], name
        assert error["hint"], name
    for name, error in found["other"].items():
        assert error["code"] == "host", name
        assert "GPU refused a part of the work: " in error["message"], name
    assert any(found["before"])
    assert found["before"] == found["after"]


def test_a_submission_that_the_device_refuses(do: Do, site: Site) -> None:
    """The run rejects, and never has the results of the one before."""
    before, refused, after = do("refusedSubmission", url=site.bundle("both"))
    assert (before["y"], after["y"]) == (1, 3)
    assert refused["error"]["code"] == "host"
    assert "GPU refused a part of the work: " in refused["error"]["message"]


def test_a_page_keeps_the_files(gpu_visit: Visit, site: Site) -> None:
    """As workers do, though it has no synchronous files."""
    found = gpu_visit(site.blank).do("devices", url=site.bundle("both"), large=site.bundle("large"))
    assert found["cache"]["state"] == "on", found["cache"]
    assert found["cache"]["downloadedBytes"] == 0


@pytest.mark.parametrize("phase", ["code", "weights", "ready"])
def test_a_load_that_is_ended(do: Do, site: Site, phase: str) -> None:
    """Nothing is left on the device, and nothing more is made there."""
    found = do("abortedHere", url=site.bundle("state"), phase=phase)
    assert (found["count"] > 0) == (phase != "code")
    assert found["outcome"] == "AbortError"
    assert found["left"] == 0


def test_engines_on_no_device_of_the_page(gpu_visit: Visit, site: Site) -> None:
    found = gpu_visit(site.blank).do("farBuffers", url=site.bundle("both"))
    assert {error["code"] for error in found} == {"input"}
    where = ["in a worker"] * 2 + ["on WebAssembly"] * 2 + ["no device 'gpu'", "no device"]
    where.append("cannot be replaced")
    for error, part in zip(found, where, strict=True):
        assert part in error["message"]
    assert all("load(url, { device })" in error["hint"] for error in found[:4])


def test_progress_counts_pipelines(gpu_visit: Visit, site: Site) -> None:
    """All that the steps use, from none to all; WebAssembly has none."""
    devices = ["own", "webgpu", "wasm"]
    found = gpu_visit(site.blank).do("pipelines", url=site.bundle("search"), devices=devices)
    *on_gpu, on_wasm = found
    for heard in on_gpu:
        told = [one for one in heard if "made" in one]
        (all_of_them,) = {one["of"] for one in told}
        assert all_of_them > 1
        assert (told[0]["phase"], told[0]["made"]) == ("code", 0)
        assert (told[-1]["phase"], told[-1]["made"]) == ("ready", all_of_them)
        assert sorted(one["made"] for one in told) == [one["made"] for one in told]
    assert on_wasm
    assert not any("made" in one for one in on_wasm)


def test_runs_are_in_the_order_of_their_calls(do: Do, site: Site) -> None:
    """Arrays are copied before `run` returns, beside buffers too; and an output has its own shape
    wherever it goes, and one dtype."""
    found = do("hurried", url=site.bundle("tensors"))
    assert found["order"] == [1, 2, 3]
    assert found["j"] == found["wanted"]
    assert found["short"] == [2, 2, 4]
    assert found["error"]["code"] == "input"
    assert "i32" in found["error"]["message"]
