"""The wgpu host where it cannot run, and its numbers; tests/conformance runs it where it can."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.subjects import matmul
from tilewright.base.errors import BundleCorrupt, HostError, MemoryLimit
from tilewright.bundle import write
from tilewright.bundle.format import parse
from tilewright.cli.tune_local import facts
from tilewright.compiler import Options
from tilewright.hosts import browser_discovery, wgpu, wgpu_calls, wgpu_features
from tilewright.kernel.extents import RuntimeNumber
from tilewright.targets.device_classes import match


class GpuError(Exception):
    """Of the package."""


def adapters(monkeypatch: pytest.MonkeyPatch, *known: tuple[str, str]) -> list[Any]:
    """What the package finds: kinds of adapters and of their drivers."""
    infos: list[dict[str, Any]] = [
        {"adapter_type": t, "backend_type": b, "device": f"{t} {b}", "description": ""}
        for t, b in known
    ]
    found = [SimpleNamespace(info=info) for info in infos]
    gpu = SimpleNamespace(enumerate_adapters_sync=lambda: found)
    monkeypatch.setitem(sys.modules, "wgpu", SimpleNamespace(gpu=gpu, GPUError=GpuError))  # type: ignore[misc]
    for name in ("vulkan_loader", "vulkan_software"):
        monkeypatch.setattr(browser_discovery, name, lambda: None)
    return found


def test_the_fastest_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = ("CPU", "Vulkan"), ("IntegratedGPU", "Vulkan"), ("DiscreteGPU", "Vulkan")
    adapters(monkeypatch, ("DiscreteGPU", "OpenGL"), *kinds)
    assert wgpu.adapter().info["device"] == "DiscreteGPU Vulkan"
    adapters(monkeypatch, ("CPU", "Vulkan"))
    assert wgpu.adapter().info["device"] == "CPU Vulkan"


def test_no_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    adapters(monkeypatch, ("CPU", "OpenGL"))
    with pytest.raises(HostError, match=r"no adapter.*driver") as caught:
        wgpu.adapter()
    assert caught.value.facts["adapters"] == ["CPU OpenGL (OpenGL)"]


def test_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wgpu", None)
    with pytest.raises(HostError, match=r"not installed.*pip install"):
        wgpu.adapter()


@pytest.mark.parametrize("extent", [1, 5, 8, 9, 40])
def test_numbers_follow_extents_as_in_the_plan(extent: int) -> None:
    count: Any = RuntimeNumber(0, 3, 2, 4, 6, 64)
    assert wgpu_calls.number_at(count.to_data(), [extent]) == count.at(extent)
    assert wgpu_calls.number_at(7, [extent]) == 7


CALL = {"slot": 0, "tiles": 8, "group": 64, "words": [64], "scalars": [3, [0, 1, 0, 1, 8, 1]]}


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"slot": -1},
        {"group": 0},
        {"tiles": 1e30},
        {"tiles": "8"},
        {"tiles": -8},
        {"tiles": 2**45, "group": 1},
        {"tiles": [0, 1, 0]},
        {"tiles": [9, 1, 0, 1, 8, 1]},
        {"tiles": [0, 1, 0, 0, 8, 1]},
        {"words": [-64]},
        {"words": None},
        {"scalars": [2**70]},
    ],
    ids=str,
)
def test_a_step_that_no_device_can_run_is_a_damaged_bundle(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    usage = SimpleNamespace(UNIFORM=1, COPY_DST=2)
    monkeypatch.setitem(sys.modules, "wgpu", SimpleNamespace(BufferUsage=usage))  # type: ignore[misc]
    device = SimpleNamespace(
        create_buffer=lambda **_: None,
        create_bind_group=lambda **_: None,
        queue=SimpleNamespace(write_buffer=lambda *_: None),
    )
    host: Any = SimpleNamespace(
        _device=device,
        _buffers=SimpleNamespace(
            bindings=lambda *_: None,
            require_call=lambda *_: None,
        ),
    )

    def dispatched() -> Any:
        steps = parse(
            json.dumps([CALL | wrong]).encode(), list[wgpu_calls.WgpuCall], "a plan for WGSL"
        )
        made = wgpu.Dispatches(host, None, {0: None}, steps)
        made.resize([5])
        groups: list[Any] = []
        run: Any = SimpleNamespace(
            set_pipeline=lambda *_: None,
            set_bind_group=lambda *_: None,
            dispatch_workgroups=lambda *found: groups.append(found),
        )
        made.put(run, 0)
        return groups

    if wrong:
        with pytest.raises(BundleCorrupt):
            dispatched()
    else:
        assert dispatched() == [(1, 1)]


@pytest.mark.parametrize("limits", [(2**11, 2**10), (2**10, 2**11)])
def test_the_smaller_limit_is_the_one_that_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limits: tuple[int, int]
) -> None:
    write(matmul(16, 16, 16, Options(targets=("wgsl",))).contents, tmp_path)
    (found,) = adapters(monkeypatch, ("DiscreteGPU", "Vulkan"))
    names = ("max-storage-buffer-binding-size", "max-buffer-size")
    found.limits = dict(zip(names, limits, strict=True))
    with pytest.raises(MemoryLimit) as caught:
        wgpu.WgpuHost(tmp_path)
    assert caught.value.facts["limit"] == 2**10
    assert f"--bank {2**10}" in caught.value.hint


TWO = {"slot": 0, "tiles": 8, "group": 64, "words": [64], "scalars": []}
WAY = {"slot": 1, "tiles": 2, "group": 32, "scalars": []}


def steps(*listed: dict[str, Any]) -> list[wgpu_calls.WgpuCall]:
    found: list[wgpu_calls.WgpuCall] = parse(
        json.dumps(listed).encode(), list[wgpu_calls.WgpuCall], "a plan"
    )
    return found


def test_a_step_runs_the_first_way_that_the_device_can() -> None:
    calls = steps(TWO | {"better": [WAY | {"slot": 2}, WAY]})
    for lacking, slot in (({}, 2), ({2: {"shader-f16"}}, 1), ({2: {"a"}, 1: {"b"}}, 0)):
        (found,) = wgpu_calls.runnable_calls(calls, lacking)
        assert (found.slot, found.tiles) == (slot, 2 if slot else 8)
    with pytest.raises(HostError, match="a kernel needs c"):
        wgpu_calls.runnable_calls(steps(TWO), {0: {"c"}})


def test_joined_steps_run_as_one() -> None:
    """Unless no way to do so can run, or one of them has another kernel."""
    joined = {"steps": 2, "ways": [WAY], "words": [0, 64]}
    calls = wgpu_calls.runnable_calls(steps(TWO | {"joined": joined}, TWO, TWO), {})
    assert [call.slot for call in wgpu_calls.joined_dispatches(calls)] == [1, 0]
    assert wgpu_calls.joined_dispatches(calls)[0].words == [0, 64]
    alone = wgpu_calls.runnable_calls(steps(TWO | {"joined": joined}, TWO, TWO), {1: {"a"}})
    for found in (alone, wgpu_calls.separate_dispatches(calls)):
        assert [call.slot for call in wgpu_calls.joined_dispatches(found)] == [0, 0, 0]
    new = wgpu_calls.exchanged(calls, [5, 6, 7], {6: wgpu_calls.WgpuAlternative(9, 3, 16, [])})
    assert [call.slot for call in wgpu_calls.joined_dispatches(new)] == [0, 9, 0]
    with pytest.raises(ValueError, match="do not exist"):
        wgpu_calls.runnable_calls(steps(TWO | {"joined": joined}), {})


def test_steps_that_keep_their_kernel() -> None:
    """Their buffers lie elsewhere, or not at whole vectors."""
    new = {5: wgpu_calls.WgpuAlternative(9, 3, 16, [])}
    for more in ({"bank": 1}, {"annexes": [1]}, {"words": [65]}):
        (found,) = wgpu_calls.exchanged(steps(TWO | more), [5], new)
        assert found.slot == 0


class Device:
    """What makes pipelines of all texts but those with certain words."""

    def __init__(self, refused: str, features: set[str]) -> None:
        self.refused, self.features = refused, features

    def create_shader_module(self, code: str) -> str:
        if any(word in code for word in self.refused.split("|")):
            raise ValueError(code)
        return code

    def create_compute_pipeline(self, **_: Any) -> None: ...


def adapter_of(refused: str, *features: str, shared: int = 16384, vendor: int = 0) -> Any:
    def request(required_features: list[str], required_limits: dict[str, int]) -> Device:
        assert set(required_features) <= set(features)
        return Device(refused, set(required_features))

    limits = {wgpu_features.SHARED_LIMIT: shared}
    return SimpleNamespace(
        features=features, limits=limits, info={"vendor_id": vendor}, request_device_sync=request
    )


def test_features_are_those_that_texts_can_use() -> None:
    every = ("shader-f16", "subgroup", "timestamp-query")
    found = wgpu_features.open_device(adapter_of("enable subgroups", *every, shared=40000), {})
    packed = "packed_4x8_integer_dot_product"
    assert found.features == ("shader-f16", "subgroups", packed, "shared-memory-32768")
    assert found.clock
    assert found.text("enable f16;\nenable subgroups;\nfn") == "enable f16;\nfn"
    found = wgpu_features.open_device(adapter_of("f16|Shuffle|dot4", *every), {})
    assert found.features == ()
    found = wgpu_features.open_device(adapter_of("none", "subgroup", vendor=0x10DE), {})
    assert found.features == ("subgroups", packed, "subgroups-32")
    assert not found.clock


def test_the_vendor_names_the_class() -> None:
    for number, id in ((0x10DE, "webgpu-nvidia"), (0x8086, "webgpu-intel"), (1, "webgpu")):
        info = {"device": "d", "description": "", "adapter_type": "CPU", "vendor_id": number}
        about = wgpu.adapter_description(SimpleNamespace(info=info))
        assert match(facts(about)).id == id
