"""Numbers of 16 bits become f32 in place (web/engine/weights.js), whatever follows them."""

from __future__ import annotations

import json

import pytest
from node import run

SCRIPT = """
const { widener } = await import('TUNE/../engine/weights.js');
const up = (bytes) => Math.ceil(bytes / 64) * 64;
let bytes = 0, memory = 0;
const tensors = <sizes>.map(([stored, n]) => {
  const tensor = { dtype: 'f32', shape: [n], stored, offset: bytes, bytes: n * (stored ? 2 : 4) };
  bytes += up(tensor.bytes);
  memory += up(4 * n);
  return tensor;
});
const files = { bytes: async () => new TextEncoder().encode(JSON.stringify(tensors)) };
const { start, arrived } = await widener({ weights: { bytes, memory, tensors: {} } }, files);
const region = new Uint8Array(memory);
for (const { stored, shape: [n], offset } of tensors) {
  const numbers = Float32Array.from({ length: n }, (_, i) => 1 + (i % 64));
  const words = new Uint32Array(numbers.buffer);
  if (stored) new Uint16Array(region.buffer, start + offset, n).set(words.map((w) => w >>> 16));
  else new Float32Array(region.buffer, start + offset, n).set(numbers);
}
arrived(region, bytes);
let to = 0, wrong = 0;
for (const { shape: [n] } of tensors) {
  new Float32Array(region.buffer, to, n).forEach((x, i) => { wrong += x !== 1 + (i % 64); });
  to += up(4 * n);
}
console.log(JSON.stringify(wrong));
"""

SIZES = [
    *([("bf16", n)] for n in (1, 10, 16, 17, 31, 32, 33, 40, 48, 64, 1000, 65544)),
    [("bf16", 1002), ("", 40)],
    [("", 7), ("bf16", 48), ("", 1), ("bf16", 40)],
]


@pytest.mark.parametrize("sizes", SIZES, ids=json.dumps)
def test_no_number_is_overtaken(sizes: list[tuple[str, int]]) -> None:
    assert run(SCRIPT, sizes=sizes) == 0
