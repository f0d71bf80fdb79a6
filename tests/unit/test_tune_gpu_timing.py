"""Times of trials on WebGPU (web/tune/trial/gpu_timing.js) on a made-up device."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from node import run

from tilewright.server.app import WEB

#: A device that compiles a pipeline when it first runs, as Mesa's does.
DEVICE = """
const compiled = new Set();
const spent = (runner, work) => {
  const first = !compiled.has(runner);
  compiled.add(runner);
  return work + (first ? runner.compilation : 0);
};
export const hasStamps = () => true;
export const timed = async (runner, times) => spent(runner, times * runner.cost);
export const touch = async (runner) => { spent(runner, 0); };
"""


def test_compilation_does_not_count_in_the_first_look(tmp_path: Path) -> None:
    """Else a candidate that takes long to compile is dropped as hopeless, however fast it is."""
    web = shutil.copytree(WEB, tmp_path / "web")
    place = web / "tune" / "trial" / "gpu_trial_memory.js"
    place.write_text(DEVICE)
    found = run(
        """
        globalThis.self = { postMessage() {} };
        const { coldEstimate } = await import(<place> + '/gpu_timing.js');
        console.log(JSON.stringify(await coldEstimate({ cost: 2, compilation: 3000 })));
        """,
        place=place.parent.as_uri(),
    )
    assert found == {"whole": 2, "spent": 2}


#: A device whose clock is rounded to 0.1 ms, as browsers do; of what took less, nobody can tell.
ROUNDED = """
export const hasStamps = () => true;
export const timed = async (runner, times) => {
  const ticks = Math.floor(times * runner.cost / 0.1 + 1e-9);
  return ticks ? ticks * 0.1 : NaN;
};
export const touch = async () => {};
"""


@pytest.mark.parametrize("cost", [0.004, 0.03, 0.35, 7])
def test_times_by_a_rounded_clock(cost: float, tmp_path: Path) -> None:
    """Kernels run so often that a tick of the clock is a few hundredths of a batch."""
    web = shutil.copytree(WEB, tmp_path / "web")
    place = web / "tune" / "trial" / "gpu_trial_memory.js"
    place.write_text(ROUNDED)
    found = run(
        """
        globalThis.self = { postMessage() {} };
        const { pairsOf, warmEstimate, readClock, warm } = await import(<place> + '/gpu_timing.js');
        readClock();
        const [one, other] = [{ cost: <cost> }, { cost: 1.1 * <cost> }];
        const times = [await warm(one, NaN), await warm(other, NaN)];
        const pair = await pairsOf(one, other, times).measure(0, 0);
        console.log(JSON.stringify({ warmEstimate: await warmEstimate(one), times, pair }));
        """,
        place=place.parent.as_uri(),
        cost=cost,
    )
    assert found["warmEstimate"] == pytest.approx(cost, rel=0.07)
    assert found["times"] == pytest.approx([cost, 1.1 * cost], rel=0.07)
    assert found["pair"]["second"] / found["pair"]["first"] == pytest.approx(1.1, rel=0.07)


#: A page that uses its model without a break: after `gap` sides of pairs it interrupts the next
#: one.  The clock is not read, so only these events count.
BUSY = """
import { rest } from './yielding.js';
let [sides, pauses] = [0, 0];
export const told = [];
self.postMessage = ({ rests }) => rests && setImmediate(() => rest(0));
export const hasStamps = () => true;
export const timed = async (runner, times) => {
  const broken = ++sides % (globalThis.gap + 1) === 0;
  if (broken) rest(++pauses);
  told.push(`${runner.name}${broken ? '!' : ''}`);
  return times * runner.cost * (broken ? 5 : 1 + 0.001 * (sides % 7));
};
export const touch = async () => {};
"""


def contested(gap: int, folder: Path) -> Any:
    """A kernel against one that is 1.25 times as fast, on that page."""
    place = shutil.copytree(WEB, folder / "web") / "tune" / "trial" / "gpu_trial_memory.js"
    place.write_text(BUSY)
    return run(
        """
        globalThis.self = {};
        globalThis.gap = <gap>;
        const { pairsOf } = await import(<place> + '/gpu_timing.js');
        const { told } = await import(<place> + '/gpu_trial_memory.js');
        const { contest } = await import(<place> + '/paired_times.js');
        const pairs = pairsOf({ name: 'a', cost: 1.25 }, { name: 'b', cost: 1 }, [1.25, 1]);
        const found = await contest(pairs, { margin: 1.01, grant: 1 }, [() => false, () => false]);
        console.log(JSON.stringify({ told, ...found }));
        """,
        place=place.parent.as_uri(),
        gap=gap,
    )


@pytest.mark.parametrize("gap", [1, 2, 3, 50])
def test_gaps_too_short_for_a_pair_still_decide(gap: int, tmp_path: Path) -> None:
    """A gap of one side has no room for a pair, and each pair has its two sides all the same."""
    found = contested(gap, tmp_path)
    assert found["verdict"] == "faster"
    assert found["ratio"] == pytest.approx(1.25, rel=0.01)
    assert found["lost"] <= 2 * found["pairs"] + 4


@pytest.mark.parametrize("gap", [2, 50])
def test_where_pairs_fit_both_sides_are_measured_anew(gap: int, tmp_path: Path) -> None:
    """A side of before a pause counts only where nothing else is to be had."""
    found = contested(gap, tmp_path)
    whole = [side for side in found["told"] if not side.endswith("!")]
    assert len(whole) >= 2 * found["pairs"]
    pairs = "".join(found["told"])
    assert pairs.count("ab") + pairs.count("ba") >= found["pairs"]


def test_gaps_too_short_for_a_side_end_soon(tmp_path: Path) -> None:
    found = contested(0, tmp_path)
    assert found["undecided"]
    assert (found["pairs"], len(found["told"])) == (0, 13)
