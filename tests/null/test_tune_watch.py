"""Jobs of an engine that do not end (web/tune/exchange/watch.js); the test turns the clock."""

from __future__ import annotations

from typing import Any

import pytest
from node import run

SCRIPT = """
const { watch } = await import('TUNE/exchange/watch.js');
const given = <given>;
let look = () => {};
globalThis.setInterval = (work) => (look = work, 1);
globalThis.clearInterval = () => (look = () => {});
const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true });
let acts = 0;
const engine = { info: { plans: [{ flops: given.flops ?? 1 }] }, parts: { memory } };
const watched = watch(engine, () => acts++);
if (given.ran) await watched(Promise.resolve({ milliseconds: given.ran }));
Atomics.store(new Int32Array(memory.buffer), 0, Number(given.held ?? false));
let end;
const done = watched(new Promise((resolve) => (end = resolve)));
const seen = [];
for (let looks = 0; looks < given.looks; looks++) look();
seen.push(acts);
end({ value: 7 });
seen.push((await done).value);
for (let looks = 0; looks < given.looks; looks++) look();
console.log(JSON.stringify([...seen, acts]));
"""


@pytest.mark.parametrize(
    ("given", "acts"),
    [
        ({"looks": 9}, 0),
        ({"looks": 10}, 1),
        ({"looks": 100}, 1),
        ({"looks": 10, "flops": 1e9}, 0),
        ({"looks": 20, "flops": 1e9}, 1),
        ({"looks": 10, "ran": 200}, 0),
        ({"looks": 20, "ran": 200}, 1),
        ({"looks": 100, "held": True}, 0),
    ],
)
def test_a_job_is_given_up_once_it_took_too_long(given: dict[str, Any], acts: int) -> None:
    """Two looks a second: 5 s, or what its operations or earlier runs allow; never while held."""
    assert run(SCRIPT, given=given) == [acts, 7, acts]
