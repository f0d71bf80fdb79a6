"""Buffers of the wgpu host: what a damaged section says of them, and what a device refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.base.errors import HostError, MemoryLimit
from tilewright.hosts.wgpu_buffers import Buffers
from tilewright.hosts.wgpu_types import working

API = SimpleNamespace(BufferUsage=SimpleNamespace(STORAGE=1, COPY_SRC=2, COPY_DST=4))
DEVICE = SimpleNamespace(create_buffer=lambda size, usage: SimpleNamespace(size=size))
FACTS: dict[str, Any] = {
    "memory": {"bytes": 1024},
    "tensors": [256, 0],
    "states": [512, 64],
    "annexes": {"bytes": [256, 128], "of": [0, 1]},
    "banks": {"bytes": [512], "of": [0, 1]},
}


def buffers(**wrong: Any) -> Buffers:
    return Buffers(API, DEVICE, FACTS | wrong)


def test_addresses_go_on_from_buffer_to_buffer() -> None:
    made = buffers()
    assert made.states == [512, 1024 + 64]
    assert made.weights == [256, 1024 + 256 + 128]
    assert [made.at(at, 4)[1] for at in (*made.states, *made.weights)] == [512, 64, 256, 0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"annexes": {"bytes": [0, 128], "of": [0, 1]}},
        {"annexes": {"bytes": [6, 128], "of": [0, 1]}},
        {"annexes": {"bytes": [256, 128], "of": [0, 3]}},
        {"annexes": {"bytes": [256, 128], "of": [0]}},
        {"banks": {"bytes": [512], "of": [0, -1]}},
        {"states": [1028, 64]},
        {"states": [512, 260]},
        {"tensors": [257, 0]},
    ],
)
def test_damaged_facts(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"not a buffer|shorter|longer"):
        buffers(**wrong)


def test_nothing_goes_on_in_the_next_buffer() -> None:
    made = buffers()
    with pytest.raises(ValueError, match="address"):
        made.at(1020, 8)
    with pytest.raises(ValueError, match="input or output"):
        made.require_own([0, 1028])


@pytest.mark.parametrize(
    "call",
    [([300], 0, ()), ([0], 2, ()), ([0], 0, (1, 1)), ([0], 0, (0,)), ([0], 0, (3,))],
)
def test_a_step_of_other_buffers(call: Any) -> None:
    buffers().require_call([256], 1, (1, 2))
    with pytest.raises(ValueError, match="a step's"):
        buffers().require_call(*call)


def test_what_wgpu_raises_is_typed() -> None:
    wgpu = pytest.importorskip("wgpu")
    with pytest.raises(HostError, match="was lost: Parent device is lost") as lost, working():
        raise wgpu.GPUValidationError("Validation Error\n  Parent device is lost")
    assert lost.value.facts["lost"]
    with pytest.raises(MemoryLimit, match="no room"), working():
        raise wgpu.GPUOutOfMemoryError("Not enough memory left.")
