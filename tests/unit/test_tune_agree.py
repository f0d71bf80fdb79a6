"""The comparison of two kernels in the model (adopt.js), in a made-up engine."""

from __future__ import annotations

from typing import Any

import pytest
from node import run

SCRIPT = """
const { disagreement } = await import('TUNE/exchange/adopt.js');
const given = <given>;
const [log, asked] = [[], []];
let tuned = false;
let looks = 0;
const engine = {
  parts: { lent: new Set(given.lent) },
  async swap([{ module }]) {
    tuned = Boolean(module);
    log.push(tuned ? 'in' : 'out');
  },
  async profile({ only }) {
    asked.push(only);
    looks++;
    log.push('look');
    // The page fills its array anew before these looks.
    const frame = given.refilled.filter((look) => look <= looks).length;
    return { read: Uint8Array.of(frame, tuned ? given.error : 0) };
  },
};
const pace = { job: (work) => work() };
const specs = { resultOf: () => ({ place: [0, 2] }), firstOf: (plan, step) => step - given.before };
const trials = {
  compare: async ({ found, wanted }) => (found.join() === wanted.join() ? '' : 'it differs'),
};
const target = { plan: 0, bucket: {}, step: given.before, alone: given.alone };
const tools = { engine, pace, specs, trials };
const found = await disagreement(tools, target, { module: {} }, { module: null });
console.log(JSON.stringify({ verdict: found && found.verdict, log, tuned, asked }));
"""


def compared(**given: Any) -> Any:
    return run(
        SCRIPT, given={"lent": [], "refilled": [], "error": 0, "alone": True, "before": 0} | given
    )


@pytest.mark.parametrize(("error", "verdict"), [(0, None), (1, "wrong")])
def test_results_are_compared_on_the_same_inputs(error: int, verdict: str | None) -> None:
    found = compared(error=error)
    assert found["verdict"] == verdict
    assert found["log"] == ["look", "in", "look", "out", "look"]


@pytest.mark.parametrize("look", [2, 3])
@pytest.mark.parametrize(("error", "verdict"), [(0, None), (1, "wrong")])
def test_inputs_that_the_page_refills_meanwhile_condemn_nobody(
    look: int, error: int, verdict: str | None
) -> None:
    """As a camera does with its one array: the comparison is made again."""
    found = compared(error=error, refilled=[look])
    assert found["verdict"] == verdict
    assert found["log"].count("look") == 6


def test_what_cannot_be_compared_is_not_adopted() -> None:
    found = compared(refilled=list(range(1, 20)))
    assert found["verdict"] == "refused"
    assert not found["tuned"]


@pytest.mark.parametrize("given", [{"alone": False}, {"lent": [7]}])
def test_steps_that_cannot_run_are_left_to_their_trial(given: dict[str, Any]) -> None:
    found = compared(error=1, **given)
    assert found["verdict"] is None
    assert not found["tuned"]


def test_what_runs_together_with_a_step_runs_before_it() -> None:
    """In whole runs it would leave nothing in memory that the step could read."""
    assert compared(before=2)["asked"] == [[0, 1, 2]] * 3
