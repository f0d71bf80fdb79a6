"""How far results of a trial may be apart (web/tune/inputs.js)."""

from __future__ import annotations

import pytest
from node import run

SCRIPT = """
import { allowed, difference, spread } from 'TUNE/inputs.js';
globalThis.self = { postMessage() {} };
const wanted = Float32Array.from({ length: 1024 }, (_, at) => at % 7);
const shaken = wanted.slice();
shaken[100] += 1; // it is at a step of the kernel: a last bit of an input decides
const set = { wanted, allowed: await allowed(wanted, 'f32', true), spread: <doubted> ? await spread(shaken, wanted) : null };
const found = wanted.slice();
found[<at>] += <by>;
console.log(JSON.stringify(await difference(found, set)));
"""  # noqa: E501


@pytest.mark.parametrize(
    ("doubted", "at", "by", "right"),
    [
        (True, 100, 1.0, True),
        (True, 120, 1.0, True),
        (True, 100, 5.0, False),
        (True, 300, 0.01, False),
        (True, 300, 1e-5, True),
        (False, 100, 1.0, False),
        (True, 300, float("1e9"), False),
    ],
)
def test_a_step_at_one_element_excuses_its_neighbours_alone(
    doubted: bool, at: int, by: float, right: bool
) -> None:
    found = run(SCRIPT, doubted=doubted, at=at, by=by)
    assert (found == "") == right, found
