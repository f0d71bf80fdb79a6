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


@pytest.mark.parametrize(
    ("given", "whose", "limit"),
    [
        ({}, "the limit of the adapter is 2048", 2048),
        ({"memoryLimit": 99}, "memoryLimit is 99", 99),
    ],
)
def test_a_limit_is_named_after_who_set_it(given: Any, whose: str, limit: int) -> None:
    error = device_for(4000, **given)["error"]
    assert whose in error["message"]
    assert error["facts"] == {"estimate": 4000, "limit": limit}
    assert ("Raise memoryLimit" in error["hint"]) == bool(given)
