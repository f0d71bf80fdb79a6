"""The wgpu host where it cannot run, and its numbers; tests/conformance runs it where it can."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from cli_call import Called

from tilewright.base.errors import BundleCorrupt, HostError, MemoryLimit
from tilewright.bundle.format import parse
from tilewright.hosts import vulkan, wgpu
from tilewright.kernel.extents import Count


def adapters(monkeypatch: pytest.MonkeyPatch, *known: tuple[str, str]) -> None:
    """What the package finds: kinds of adapters and of their drivers."""
    infos = [{"adapter_type": t, "backend_type": b, "device": f"{t} {b}"} for t, b in known]
    found = [SimpleNamespace(info=info) for info in infos]
    gpu = SimpleNamespace(enumerate_adapters_sync=lambda: found)
    monkeypatch.setitem(sys.modules, "wgpu", SimpleNamespace(gpu=gpu))  # type: ignore[misc]
    for name in ("loader", "software"):
        monkeypatch.setattr(vulkan, name, lambda: None)


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
    count: Any = Count(0, 3, 2, 4, 6, 64)
    assert wgpu._at(count.to_data(), [extent]) == count.at(extent)
    assert wgpu._at(7, [extent]) == 7


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
    host: Any = SimpleNamespace(_device=device, _memory=SimpleNamespace(size=4096), _banks=[])

    def dispatched() -> Any:
        steps = parse(json.dumps([CALL | wrong]).encode(), list[wgpu._Call], "a plan for WGSL")
        made = wgpu._Dispatches(host, None, [None], steps)
        made.resize([5])
        return made._groups

    if wrong:
        with pytest.raises(BundleCorrupt):
            dispatched()
    else:
        assert dispatched() == [(1, 1)]


@pytest.mark.parametrize("limits", [(2**27, 2**26), (2**26, 2**27)])
def test_the_smaller_limit_is_the_one_that_is_named(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int]
) -> None:
    monkeypatch.setitem(sys.modules, "wgpu", SimpleNamespace())  # type: ignore[misc]
    names = ("max-storage-buffer-binding-size", "max-buffer-size")
    found = SimpleNamespace(limits=dict(zip(names, limits, strict=True)))
    section: Any = SimpleNamespace(
        builds=(SimpleNamespace(plans=()),), plans=(), facts={"memory": {"bytes": 2**26 + 4}}
    )
    host = wgpu.WgpuHost.__new__(wgpu.WgpuHost)
    host.bundle = SimpleNamespace(manifest=SimpleNamespace(plans=()))  # type: ignore[assignment]
    with pytest.raises(MemoryLimit) as caught:
        host._load(found, section)
    assert caught.value.facts["limit"] == 2**26
    assert f"--bank {2**26}" in caught.value.hint


def test_nothing_is_tuned(capsys: pytest.CaptureFixture[str]) -> None:
    called = Called(capsys, "tune", "nowhere", "--host", "wgpu", "--json")
    assert "the tuner is part of the page" in called.json["error"]["message"]
    assert "dawn" in called.json["error"]["hint"]
