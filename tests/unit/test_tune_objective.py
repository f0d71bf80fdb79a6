"""Objectives other than latency: what a device adopts (tune/loop/objective.js), what it is told.

In real browsers: tests/browser/test_tuning_objective.py.
"""

from __future__ import annotations

from typing import Any, get_args

import pytest
from node import run
from tuned_page import PAGE

from lab.subjects import product_kernel
from tilewright.cli import options
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.lite_space import Objective
from tilewright.tuning.candidates import needs_of, ordered, space_of

X86 = CLASSES["wasm-x86-relaxed-32k"]
OBJECTIVES = get_args(Objective)

BARS = """
const { barOf, OBJECTIVES } = await import('TUNE/loop/objective.js');
const bars = <asked>.map((asked) => barOf(...asked));
const told = bars.map(({ margin, grant }) => [margin === Infinity ? 'never' : margin, grant]);
console.log(JSON.stringify({ told, objectives: OBJECTIVES }));
"""
LITTLE, MUCH = {"traffic": 10, "scratch": 64}, {"traffic": 10, "scratch": 128}
USUAL, EVEN, NEVER = [1.01, 1], [1.01, 1.04], ["never", 1]


def test_what_each_objective_asks() -> None:
    asked = {
        ("latency", "less"): (["latency", LITTLE, MUCH], USUAL),
        ("latency", "more"): (["latency", MUCH, LITTLE], USUAL),
        ("scratch", "less"): (["scratch", LITTLE, MUCH], EVEN),
        ("scratch", "as much"): (["scratch", MUCH, MUCH], USUAL),
        ("scratch", "more"): (["scratch", MUCH, LITTLE], NEVER),
        ("traffic", "as much"): (["traffic", LITTLE, MUCH], USUAL),
        ("scratch", "none at all"): (["scratch", LITTLE | {"scratch": 0}, LITTLE], EVEN),
        # of a bundle with a schedule of its own, and of one that an earlier version kept
        ("scratch", "unknown"): (["scratch", LITTLE, None], USUAL),
        ("traffic", "unknown"): (["traffic", {}, LITTLE], USUAL),
    }
    found = run(BARS, asked=[given for given, _ in asked.values()])
    assert dict(zip(asked, found["told"], strict=True)) == {k: bar for k, (_, bar) in asked.items()}
    assert found["objectives"] == list(OBJECTIVES) == list(options.OBJECTIVES)


SERVING = """
const { serving } = await import('TUNE/loop/candidate_order.js');
console.log(JSON.stringify(<objectives>.map((objective) => serving(<listed>, objective))));
"""


def test_a_folder_has_the_order_of_every_objective() -> None:
    """It is written for latency; the page makes of it what a server would send."""
    kernel = product_kernel("mk,nk->mn", (96, 512), (96, 512), weight=False)
    space = space_of(kernel, X86)
    listed = ordered(0, space, 0, ()) | {
        "candidates": [{"needs": needs_of(space, n)} for n in range(len(space.schedules))]
    }
    wanted = [list(space_of(kernel, X86, objective).trial) for objective in OBJECTIVES]
    assert len({tuple(order) for order in wanted}) == 3
    assert run(SERVING, objectives=OBJECTIVES, listed=listed) == wanted
    # of a relinked bundle the compiler's own comes before all
    relinked = listed | ordered(0, space, 3, ())
    order = [[0, *(n for n in all_of if n != 3)] for all_of in wanted]
    assert run(SERVING, objectives=OBJECTIVES, listed=relinked) == order
    # the compiler's own could not be made: of nobody is known that it needs less
    broken = listed | {"candidates": [None, *listed["candidates"][1:]]}
    assert run(SERVING, objectives=OBJECTIVES, listed=broken) == [wanted[0], [], []]


def test_what_a_kernel_needs_is_said_where_it_is_known() -> None:
    space = space_of(product_kernel("mk,nk->mn", (96, 512), (96, 512), weight=False), X86)
    assert space.gold is not None
    assert needs_of(space, None) is needs_of(space, space.gold) is None
    assert ordered(0, space, 3, ())["needs"] == needs_of(space, 3)
    assert ordered(0, space, None, ())["needs"] is None
    assert ordered(0, space, 3, ())["schedule"] == str(space.schedules[3])
    assert ordered(0, space, None, ())["schedule"] == ""


def page(script: str, *candidates: int, **given: Any) -> Any:
    found = run(PAGE + script, given={"candidates": candidates} | given)
    assert found["inUse"] == found["winner"]
    return found


#: What needs less and is as fast as the kernel in use, as the trial worker says it.
AS_FAST = {"verdict": "same", "ratio": 0.998, "low": 0.98, "high": 1.01}


def test_an_adopted_equal_is_told_as_an_equal() -> None:
    script = "await session({ objective: 'scratch', report: true }); await out();"
    found = page(script, 1, needs=[128, 64], outcome=AS_FAST)
    assert (found["winner"], found["verdicts"]) == (1, ["same"])
    assert found["events"].count("swap") == 1
    (told,) = found["results"]
    assert told == {"spec": 0, "candidate": 1, "verdict": "same"}


def test_who_needs_more_than_the_kernel_in_use_is_not_tried() -> None:
    """However fast it may be, and it is not counted as tried: by latency it is."""
    script = """
    await session({ objective: <objective> });
    const first = events.filter(({ type }) => type === 'trial').length;
    await session({ objective: 'latency' });
    await out({ first });
    """.replace("<objective>", "'scratch'")
    found = page(script, 1, 2, needs=[128, 64, 96])
    assert (found["first"], found["verdicts"]) == (1, ["faster", "faster"])
    assert (found["winner"], found["tried"]) == (2, [1, 2])


@pytest.mark.parametrize("objectives", [["latency", "scratch"], ["latency", "latency"]])
def test_another_objective_judges_anew(objectives: list[str]) -> None:
    """What was tried by latency may be what this one wants; what is bad is not tried again."""
    script = """
    const Real = globalThis.Worker;
    const equal = { verdict: 'same', ratio: 0.998, low: 0.98, high: 1.01 };
    const answers = [equal, { verdict: 'wrong' }];
    globalThis.Worker = class extends Real {
      postMessage(message) {
        const told = message.kind === 'attempt' && answers.shift();
        if (told) given.outcome = { ...told, module: undefined };
        else if (message.kind === 'attempt') given.outcome = equal;
        super.postMessage(message);
      }
    };
    for (const objective of <objectives>) await session({ objective });
    await out();
    """
    found = run(
        PAGE + script, given={"candidates": [1, 2], "needs": [9, 5, 4]}, objectives=objectives
    )
    again = objectives[1] != objectives[0]
    assert found["verdicts"] == ["same", "wrong", *["same"] * again]
    assert (found["winner"], found["bad"]) == (int(again), [2])
    assert sorted(found["tried"]) == [1, 2]


def test_an_objective_that_nobody_knows() -> None:
    script = """
    const told = await session({ objective: 'beauty' }).catch(({ code, hint }) => [code, hint]);
    await out({ told });
    """
    assert page(script, 1)["told"] == ["input", "Choose one of latency, traffic, scratch"]
