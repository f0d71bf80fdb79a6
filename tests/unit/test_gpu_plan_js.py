"""Dispatches of a plan in the engine (web/engine/gpu_plan.js), on a device that is made up: joined
steps are one dispatch of whole runs, unless another kernel is in use for one of them."""

from __future__ import annotations

from typing import Any

import pytest
from node import run

SCRIPT = """
const { callsOf, planOf, slotsOf } = await import('TUNE/../engine/gpu_plan.js');
globalThis.GPUBufferUsage = { UNIFORM: 1, COPY_DST: 2 };
const { listed, features, tuned, spans } = <given>;
const written = [];
const device = {
  createBuffer: () => ({}),
  createBindGroup: ({ entries }) => entries[1].resource.offset,
  queue: { writeBuffer: (buffer, at, words) => written.push([...words]) },
};
const lacking = ['dots'].filter((name) => !features.includes(name));
const lack = { needs: {}, bySlot: [[], [], [], lacking, []] };
const steps = listed.map((_, spec) => ({ spec }));
let found = {};
try {
  const calls = callsOf(listed, 'plan', { steps, extents: [] }, lack, 4096);
  const plan = planOf(device, {}, {}, ['p0', 'p1', 'p2', 'p3', 'p4'], calls, steps);
  const told = ({ pipeline, groups }) => [pipeline, groups[0]];
  const of = ([first, last]) => plan.dispatches(first, last).map(told);
  plan.resize([]);
  const before = spans.map(of);
  const other = { pipeline: 'tuned', tiles: 96, group: 32, lanes: 1 };
  plan.use(new Map(tuned.map((spec) => [spec, other])));
  plan.resize([]);
  const parts = plan.parts().map(({ first, last }) => [first, last]);
  found = { before, after: spans.map(of), parts, slots: slotsOf([calls]), blocks: written[0] };
} catch ({ code, message }) {
  found = { code, message };
}
console.log(JSON.stringify(found));
"""


def call(slot: int, *words: int, **more: Any) -> dict[str, Any]:
    return {"slot": slot, "tiles": 64, "group": 64, "scalars": [], "words": list(words), **more}


def way(slot: int, tiles: int) -> dict[str, Any]:
    return {"slot": slot, "tiles": tiles, "group": 64, "scalars": []}


def joined(*ways: dict[str, Any], steps: int = 2) -> dict[str, Any]:
    return {"steps": steps, "ways": list(ways), "words": [64, 128, 192]}


#: Four steps, of which the second and the third are joined; slot 3 needs a feature.
PLAN = [
    call(0, 64),
    call(1, 128, joined=joined(way(3, 128), way(4, 192))),
    call(1, 192),
    call(2, 256),
]


def planned(listed: Any, features: tuple[str, ...] = (), tuned: tuple[int, ...] = ()) -> Any:
    spans = [[0, len(listed)], [1, 2], [1, 3], [2, 4]]
    given = {"listed": listed, "features": features, "tuned": tuned, "spans": spans}
    return run(SCRIPT, given=given)


@pytest.mark.parametrize(("features", "one"), [((), ["p4", 3]), (("dots",), ["p3", 2])])
def test_joined_steps_are_one_dispatch(features: tuple[str, ...], one: list[Any]) -> None:
    """Of whole runs, and wherever both are asked for; each step can still run by itself."""
    found = planned(PLAN, features)
    assert found["before"] == [
        [["p0", 1], one, ["p2", 1]],
        [["p1", 1]],
        [one],
        [["p1", 1], ["p2", 1]],
    ]
    assert found["after"] == found["before"]
    assert found["parts"] == [[0, 1], [1, 3], [3, 4]]
    assert sorted(found["slots"]) == [0, 1, 2, int(one[0][1])]
    stride = len(found["blocks"]) // 5
    assert found["blocks"][4 * stride : 4 * stride + 4] == [64 * one[1], 64, 128, 192]


def test_an_exchanged_kernel_runs_by_itself() -> None:
    found = planned(PLAN, tuned=(2,))
    assert found["parts"] == [[0, 1], [1, 2], [2, 3], [3, 4]]
    assert found["after"][0] == [["p0", 1], ["p1", 1], ["tuned", 3], ["p2", 1]]
    assert found["after"][2] == [["p1", 1], ["tuned", 3]]
    assert planned(PLAN, tuned=(0,))["parts"] == [[0, 1], [1, 3], [3, 4]]


def test_no_kernel_that_the_device_can_run() -> None:
    listed = [*PLAN[:1], call(1, 128, joined=joined(way(3, 128))), *PLAN[2:]]
    assert planned(listed)["parts"] == [[0, 1], [1, 2], [2, 3], [3, 4]]


@pytest.mark.parametrize(
    "broken",
    [
        joined(way(4, 64), steps=1),
        joined(way(4, 64), steps=4),
        joined(way(5, 64)),
        joined(way(4, -1)),
        {**joined(way(4, 64)), "words": [2048]},
        {**joined(way(4, 64)), "bank": 1},
        {**joined(way(4, 64)), "ways": None},
        7,
    ],
)
def test_broken_joins(broken: Any) -> None:
    listed = [*PLAN[:1], call(1, 128, joined=broken), *PLAN[2:]]
    assert planned(listed)["code"] == "bundle-corrupt"
