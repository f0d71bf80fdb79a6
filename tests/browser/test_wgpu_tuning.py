"""`tune --host wgpu` on the adapter that is there, without any browser: a session from candidates
to a relinked bundle, and kernels that use features."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.subjects import matmul, product
from tilewright.base.errors import HostError
from tilewright.bundle import open_bundle, write
from tilewright.cli.tune import tune
from tilewright.compiler import Options
from tilewright.hosts.reference import ReferenceHost
from tilewright.hosts.wgpu import WgpuHost, adapter
from tilewright.targets import target
from tilewright.targets.device_classes import find
from tilewright.tuning.relink import relink

WGSL = Options(targets=("wgsl",))


@pytest.fixture(autouse=True)
def _there() -> None:
    try:
        adapter()
    except HostError as error:
        pytest.skip(str(error))


def test_a_session(tmp_path: Path) -> None:
    """Whatever wins, every candidate was right, and the relinked bundle computes the same."""
    bundle, saved, report = tmp_path / "bundle", tmp_path / "winners.json", tmp_path / "report.json"
    write(matmul(16, 32, 32, WGSL).contents, bundle)
    found: Any = tune(
        bundle, "wgpu", 8, store=str(tmp_path / "votes.db"), save=saved, report=report
    ).data
    assert (found["host"], found["class"].split("-")[0], found["threads"]) == ("wgpu", "webgpu", 1)
    (kernel,) = found["kernels"]
    assert kernel["tried"] == found["rounds"] >= 1
    told = json.loads(report.read_text())
    trials = [event for event in told["events"] if event["type"] == "trial"]
    assert {event["verdict"] for event in trials} <= {"faster", "same", "slower"}
    kinds = [message["type"] for message in told["sent"]]
    assert kinds[0] == "hello"
    # and a report, unless it is asked a question that it had no time for
    assert {"result", "bye"} <= set(kinds)
    winners = json.loads(saved.read_text())
    schedules = {int(spec): of for spec, of in winners["schedules"].items()}
    device = find(winners["class"])
    made = {n: target(device.target).schedule(of) for n, of in schedules.items()}
    write(relink(open_bundle(bundle), device, made), tmp_path / "again")
    inputs = {"x": np.random.default_rng(0).standard_normal((16, 32)).astype(np.float32)}
    wanted = ReferenceHost(bundle).run(inputs).outputs["y"]
    assert np.allclose(WgpuHost(tmp_path / "again").run(inputs).outputs["y"], wanted, atol=1e-4)


def test_the_best_kernel_that_the_device_can_run(tmp_path: Path) -> None:
    """Of a row with weights of 4 bits: by packed dot products, which round the row to bytes."""
    subject = product(
        "mk,kn->mn", (1, 256), (256, 64), weight=True, bits=4, loose="i8", options=WGSL
    )
    write(subject.contents, tmp_path / "q")
    host = WgpuHost(tmp_path / "q")
    packed = "packed_4x8_integer_dot_product" in host.adapter["features"]
    ((call,),) = host.calls
    assert ("requires packed" in host.text(call.slot)) == packed
    assert any("they need " in text for text in host.lost) == (not packed)
    inputs = {"a": np.random.default_rng(0).standard_normal((1, 256)).astype(np.float32)}
    wanted = ReferenceHost(tmp_path / "q").run(inputs).outputs["y0"]
    assert np.allclose(host.run(inputs).outputs["y0"], wanted, atol=0.02 * np.abs(wanted).max())
