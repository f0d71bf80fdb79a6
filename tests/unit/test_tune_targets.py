"""What is worth tuning (hot_kernels.js), from the profiles of an engine that is made up."""

from __future__ import annotations

from typing import Any

import pytest
from node import run

SCRIPT = """
import { findTargets } from 'TUNE/loop/hot_kernels.js';

const { gathers, all, joined = [] } = <plan>;
const plans = all.map(({ kernels }, dims) => (
  { dims, steps: kernels.map((spec) => ({ spec, kernel: `k${spec}`, node: '', flops: 1e6, bytes: 0 })) }));
const ran = [];
let spent = 0;
const engine = {
  parts: { lent: new Set(), manifest: { plans } },
  async profile({ bucket, only }) {
    const { steps } = plans[bucket];
    const times = only.map((step) => all[bucket].milliseconds[step]);
    spent += times.reduce((sum, time) => sum + time);
    ran.push(...only);
    return { steps: only.map((step, at) => ({ ...steps[step], step, milliseconds: times[at] })) };
  },
};
const pace = { latest: -1, get spent() { return spent; }, job: (work) => work() };
const specs = { bytesOf: () => 1, gathers: (spec) => gathers.includes(spec), exchangeable: () => true, joined: (spec) => joined.includes(spec) };
const found = await findTargets(engine, pace, specs);
const told = [...found.values()].map(({ spec, plan, part, share, milliseconds, whole, joined }) => ({ spec, plan, part, share, milliseconds, whole, joined }));
console.log(JSON.stringify({ ran, told }));
"""  # noqa: E501


def targets(
    kernels: list[int], milliseconds: list[float], gathers: tuple[int, ...] = ()
) -> dict[str, Any]:
    plan = {"kernels": kernels, "milliseconds": milliseconds}
    found = run(SCRIPT, plan={"gathers": gathers, "all": [plan]})
    assert isinstance(found, dict)
    return found


def test_of_several_plans_each_counts_the_same() -> None:
    """A kernel's part is of its own plan, whose latency it can change; its share is of all."""
    plans = [
        {"kernels": [0, 1], "milliseconds": [1, 1]},
        {"kernels": [2, 3], "milliseconds": [30, 10]},
    ]
    told = run(SCRIPT, plan={"gathers": [], "all": plans})["told"]
    assert [(t["spec"], t["plan"], t["part"], t["share"]) for t in told] == [
        (2, 1, 0.75, 0.375), (3, 1, 0.25, 0.125), (0, 0, 0.5, 0.25), (1, 0, 0.5, 0.25),
    ]  # fmt: skip


def test_what_is_joined_is_told() -> None:
    plan = {"kernels": [0, 1, 2], "milliseconds": [3, 2, 1]}
    told = run(SCRIPT, plan={"gathers": [], "joined": [1, 2], "all": [plan]})["told"]
    assert [(t["spec"], t["joined"]) for t in told] == [(0, False), (1, True), (2, True)]


LAYERS = 12
#: Layers of three kernels each, then one that comes once.
KERNELS = [0, 1, 2] * LAYERS + [3]


def test_a_short_plan_is_looked_at_whole_and_more_than_once() -> None:
    found = targets(KERNELS, [0.3, 0.1, 0.2] * LAYERS + [0.4])
    assert found["ran"] == [*range(len(KERNELS))] * 3
    assert [t["spec"] for t in found["told"]] == [0, 2, 1, 3]


@pytest.mark.parametrize("gathers", [(), (0,), (3,)])
def test_of_a_plan_that_takes_long_each_kernel_is_timed_once(gathers: tuple[int, ...]) -> None:
    """Shares are as if all steps had run; what reads by index needs all that comes before it."""
    found = targets(KERNELS, [60.0, 20.0, 40.0] * LAYERS + [80.0], gathers)
    everything = [*range(len(KERNELS))]
    assert found["ran"] == (everything if 3 in gathers else [*everything[:8], everything[-1]])
    whole = LAYERS * 120 + 80
    assert [(t["spec"], t["milliseconds"]) for t in found["told"]] == [
        (0, 60), (2, 40), (1, 20), (3, 80),
    ]  # fmt: skip
    assert [t["share"] for t in found["told"]] == pytest.approx(
        [LAYERS * 60 / whole, LAYERS * 40 / whole, LAYERS * 20 / whole, 80 / whole]
    )
    assert {t["whole"] for t in found["told"]} == {whole}


@pytest.mark.parametrize("noisy", [0, 1, 4])
def test_a_step_that_was_disturbed_does_not_count_for_its_kernel(noisy: int) -> None:
    """One profile of a long plan: the machine did something else during one step."""
    times = [60.0, 20.0, 40.0] * LAYERS + [80.0]
    times[noisy] *= 40
    found = targets(KERNELS, times)
    assert [(t["spec"], t["milliseconds"]) for t in found["told"]] == [
        (0, 60), (2, 40), (1, 20), (3, 80),
    ]  # fmt: skip
