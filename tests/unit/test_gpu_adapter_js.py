"""Which of several GPUs the engine asks for (web/engine/gpu_device.js), in a browser that is made
up."""

from __future__ import annotations

from typing import Any

import pytest
from node import run

SCRIPT = """
const asked = [];
const limits = { maxStorageBufferBindingSize: 4096, maxBufferSize: 2048, maxComputeWorkgroupStorageSize: 16384 };
const adapter = { limits, features: new Set(), info: { vendor: 'v' }, requestDevice: async () => ({}) };
const gpu = { requestAdapter: async (options) => (asked.push(options), adapter) };
Object.defineProperty(globalThis, 'navigator', { value: { gpu } });
const { deviceFor } = await import('TUNE/../engine/gpu_device.js');
const error = await deviceFor(<bytes>, <limits>).then(() => null, (thrown) => thrown.toJSON());
console.log(JSON.stringify({ asked, error }));
"""  # noqa: E501


def device_for(bytes: int, **limits: Any) -> Any:
    return run(SCRIPT, bytes=bytes, limits=limits)


@pytest.mark.parametrize(
    ("given", "asked"),
    [({}, "high-performance"), ({"powerPreference": "low-power"}, "low-power")],
    ids=["usual", "chosen"],
)
def test_the_faster_gpu_unless_the_page_prefers_another(given: Any, asked: str) -> None:
    assert device_for(1024, **given) == {"asked": [{"powerPreference": asked}], "error": None}


def test_too_large_for_the_adapter() -> None:
    error = device_for(4000)["error"]
    assert "the limit of the adapter is 2048" in error["message"]
    assert "--bank 2048" in error["hint"]
    assert error["facts"] == {"estimate": 4000, "limit": 2048}


SCOPED = """
globalThis.GPUOutOfMemoryError = class { message = 'full'; };
const found = { 'out-of-memory': new GPUOutOfMemoryError(), validation: { message: 'invalid' } };
const open = [];
const device = { pushErrorScope: (kind) => open.push(kind), popErrorScope: async () => found[open.pop()] };
const { isFull, requireMade, scoped } = await import('TUNE/../engine/gpu_device.js');
const { problem } = scoped(device, () => {});
const error = await requireMade(problem, 'it', 8, '').then(() => null, (thrown) => thrown.toJSON());
console.log(JSON.stringify({ full: isFull(await problem), error }));
"""  # noqa: E501


def test_no_room_is_said_before_what_follows_from_it() -> None:
    found = run(SCOPED)
    assert found["full"]
    assert found["error"]["message"] == "The GPU has no room for it of 8 bytes: full"
