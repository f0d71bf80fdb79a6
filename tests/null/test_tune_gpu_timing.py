"""Times of trials on WebGPU (web/tune/trial/gpu_timing.js) on a made-up device."""

from __future__ import annotations

import shutil
from pathlib import Path

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
    place = web / "tune" / "trial" / "gpu_memory.js"
    place.write_text(DEVICE)
    found = run(
        """
        globalThis.self = { postMessage() {} };
        const { glance } = await import(<place> + '/gpu_timing.js');
        console.log(JSON.stringify(await glance({ cost: 2, compilation: 3000 })));
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
    place = web / "tune" / "trial" / "gpu_memory.js"
    place.write_text(ROUNDED)
    found = run(
        """
        globalThis.self = { postMessage() {} };
        const { pairsOf, quick, readClock, warm } = await import(<place> + '/gpu_timing.js');
        readClock();
        const [one, other] = [{ cost: <cost> }, { cost: 1.1 * <cost> }];
        const times = [await warm(one, NaN), await warm(other, NaN)];
        const pair = await pairsOf(one, other, times).measure(0, 0);
        console.log(JSON.stringify({ quick: await quick(one), times, pair }));
        """,
        place=place.parent.as_uri(),
        cost=cost,
    )
    assert found["quick"] == pytest.approx(cost, rel=0.07)
    assert found["times"] == pytest.approx([cost, 1.1 * cost], rel=0.07)
    assert found["pair"]["second"] / found["pair"]["first"] == pytest.approx(1.1, rel=0.07)
