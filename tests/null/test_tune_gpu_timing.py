"""Times of trials on WebGPU (web/tune/trial/gpu_timing.js) on a made-up device."""

from __future__ import annotations

import shutil
from pathlib import Path

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
