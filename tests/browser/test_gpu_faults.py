"""GPU devices that find something wrong, or are lost, where nobody waits for it: in Chromium with
its software adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .bundles import Library
from .conftest import Visit
from .patient import with_gpu_worker
from .serving import serving
from .test_auto import INPUTS, same

pytestmark = pytest.mark.browser

#: A device that finds a second run's work wrong, as one does without room for it.
WRONG = """
let submitted = 0;
const { submit } = GPUQueue.prototype;
const { requestDevice } = GPUAdapter.prototype;
GPUAdapter.prototype.requestDevice = async function (...given) {
  const device = await requestDevice.apply(this, given);
  device.queue.submit = (...work) => {
    if (++submitted === 2) device.createBuffer({ size: 2 ** 40, usage: GPUBufferUsage.STORAGE });
    submit.apply(device.queue, work);
  };
  return device;
};
"""


def ran(visit: Visit, library: Library, web: Path, times: int) -> Any:
    with serving({"both": library.path("difference on both")}, web=web) as site:
        return visit(site.blank).do("gpuRuns", url=site.bundle("both"), inputs=INPUTS, times=times)


def test_what_is_wrong_beside_the_call(gpu_visit: Visit, library: Library, tmp_path: Path) -> None:
    """A run whose device found its work wrong rejects; those before and after it do not."""
    found = ran(gpu_visit, library, with_gpu_worker(tmp_path, WRONG), 4)
    (wrong,) = (one["error"] for one in found if "error" in one)
    assert wrong["code"] == "host"
    assert "GPU refused a part of the work: " in wrong["message"]
    assert same(found[0]["outputs"])
    assert same(found[-1]["outputs"])


#: A device that refuses all of a second run's work, whose results come back once a third run has
#: begun, or has come to nothing; the page is told when they are there.
LATE = """
let submitted = 0;
{
  let begun;
  const third = new Promise((resolve) => (begun = resolve));
  const channel = new BroadcastChannel('overlapping');
  channel.onmessage = begun;
  const { mapAsync } = GPUBuffer.prototype;
  const { requestDevice } = GPUAdapter.prototype;
  GPUBuffer.prototype.mapAsync = async function (...given) {
    await mapAsync.apply(this, given);
    if (submitted < 2) return;
    channel.postMessage(null);
    await third;
  };
  GPUAdapter.prototype.requestDevice = async function (...given) {
    const device = await requestDevice.apply(this, given);
    const { submit } = device.queue;
    device.queue.submit = (...work) => {
      if (++submitted === 3) begun();
      if (submitted !== 2) return submit.apply(device.queue, work);
      device.createBuffer({ size: 2 ** 40, usage: GPUBufferUsage.STORAGE });
    };
    return device;
  };
}
"""


@pytest.mark.parametrize("told", [False, True])
def test_overlapping_runs(gpu_visit: Visit, library: Library, tmp_path: Path, told: bool) -> None:
    """The run whose work was refused rejects, whether or not another began before the device said
    so; that one rejects, too, since nobody can tell whose error it is."""
    web = with_gpu_worker(tmp_path, LATE)
    with serving({"both": library.path("difference on both")}, web=web) as site:
        before, first, second, after = gpu_visit(site.blank).do(
            "gpuOverlapping", url=site.bundle("both"), inputs=INPUTS, told=told
        )
    assert same(before["outputs"])
    for wrong in (first, second):
        assert "GPU refused a part of the work: " in wrong["error"]["message"]
    assert same(after["outputs"])
