"""The engine's loop over tokens (web/engine/generate.js), on an engine that is made up.

It chooses 10 * (the position of the last row) + 1; each run takes 5 ms of a clock of the test.
"""

from __future__ import annotations

from typing import Any

import pytest
from clock import CLOCK
from node import run

SCRIPT = """
const { generate } = await import('TUNE/../engine/generate.js');
const { device, outputs, room, broken, prompt, options } = <given>;
const events = [], tokens = [];
let count = 0;
const engine = {
  info: {
    device, outputs: outputs.map((name) => ({ name })), dims: { n: [1, 8] },
    inputs: [{ name: 'input_ids', shape: [1, 'n'] }, { name: 'seqlens_k', shape: [1] }],
  },
  parts: { program: { states: [{ shape: [1, 2, room, 4] }] } },
  async run({ input_ids: { data, shape }, seqlens_k: [last] }) {
    const number = count++;
    events.push(['begin', number, data.from ?? [...data], last]);
    if (shape[1] !== data.length) throw new Error('shape');
    await sleep(5);
    events.push(['end', number]);
    if (number === broken) throw new Error('trapped');
    const token = 10 * last + 1;
    const logits = Array.from({ length: 999 }, (_, n) => Number(n === token));
    const found = { token: { data: [BigInt(token)] }, logits: { data: logits } };
    return { outputs: Object.fromEntries(outputs.map((name) => [name, found[name]])) };
  },
};
let error = '';
freely();
try {
  for await (const token of generate(engine, prompt, options)) tokens.push(token);
} catch ({ message }) {
  error = message;
}
await sleep(20);
console.log(JSON.stringify({ events, tokens, error }));
process.exit(0);
"""


def generated(
    device: str = "webgpu",
    output: str = "token",
    room: int = 40,
    broken: int = -1,
    prompt: int = 3,
    **options: Any,
) -> Any:
    given = {
        "device": device, "outputs": [output], "room": room, "broken": broken,
        "prompt": list(range(prompt)), "options": options,
    }  # fmt: skip
    return run(CLOCK + SCRIPT, given=given)


def order(found: Any) -> list[tuple[str, int]]:
    return [(kind, number) for kind, number, *_ in found["events"]]


def test_a_step_begins_before_the_token_before_it_came_back() -> None:
    found = generated(most=4)
    assert found["tokens"] == [21, 31, 41, 51]
    assert order(found) == [
        ("begin", 0), ("begin", 1), ("end", 0), ("begin", 2), ("end", 1), ("begin", 3),
        ("end", 2), ("end", 3),
    ]  # fmt: skip
    given = [rest for kind, _, *rest in found["events"] if kind == "begin"]
    assert given == [[[0, 1, 2], 2], ["token", 3], ["token", 4], ["token", 5]]


def test_an_end_is_seen_a_step_late() -> None:
    """The step in vain takes in the last token, whose row is written again when one goes on."""
    found = generated(most=9, end=[31])
    assert found["tokens"] == [21, 31]
    assert order(found)[-1] == ("end", 2)


def test_a_full_cache() -> None:
    """No step begins without a row for it."""
    found = generated(room=10, prompt=8)
    assert found["tokens"] == [71, 81, 91]
    assert "full" in found["error"]
    assert sum(kind == "begin" for kind, _ in order(found)) == 3


@pytest.mark.parametrize("broken", [0, 1, 3])
def test_an_error_belongs_to_its_own_step(broken: int) -> None:
    found = generated(broken=broken, most=9)
    assert found["error"] == "trapped"
    assert found["tokens"] == [21, 31, 41, 51][:broken]


def test_a_long_prompt_is_taken_in_part_by_part() -> None:
    found = generated(prompt=11, most=2)
    assert found["tokens"] == [101, 111]
    assert order(found)[:5] == [("begin", 0), ("end", 0), ("begin", 1), ("begin", 2), ("end", 1)]


@pytest.mark.parametrize(("device", "output"), [("wasm", "token"), ("webgpu", "logits")])
def test_otherwise_one_step_after_the_other(device: str, output: str) -> None:
    found = generated(device, output, most=3)
    assert found["tokens"] == [21, 31, 41]
    assert order(found) == [(kind, n) for n in range(3) for kind in ("begin", "end")]
