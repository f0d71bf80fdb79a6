"""The wgpu host where it cannot run, and its numbers; tests/conformance runs it where it can."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from cli_call import Called

from tilewright.base.errors import HostError
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


def test_nothing_is_tuned(capsys: pytest.CaptureFixture[str]) -> None:
    called = Called(capsys, "tune", "nowhere", "--host", "wgpu", "--json")
    assert "does not run the page's tuner" in called.json["error"]["message"]
