"""Names that every object inherits (`constructor`, `__proto__`), as names of inputs, outputs,
states, dimensions and nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.inherited import BUCKETS, NAMES, STATE, Roles, model, roles

from tilewright.bundle import write
from tilewright.compiler import Options, compile_model
from tilewright.frontend import load as load_onnx

from .conftest import Load, Visit
from .serving import serving

pytestmark = [pytest.mark.by_turns, pytest.mark.one_in(4, but=["2"])]

SIZE = 3
ROTATIONS = [pytest.param(n, id=str(n)) for n in range(len(NAMES))]


def built(folder: Path, names: Roles) -> Path:
    options = Options(
        buckets={names.size: BUCKETS},
        states={names.state: names.after},
        targets=("wasm", "wgsl"),
    )
    write(compile_model(load_onnx(model(names)), options).contents, folder)
    return folder


def judge(found: dict[str, Any], names: Roles) -> None:
    outputs = [[names.total, [1.0] * SIZE], [names.product, [0.0] * SIZE]]
    assert sorted(found["outputs"]) == sorted(found["again"]) == sorted(outputs)
    assert found["mine"] == dict(found["again"])[outputs[0][0]]
    assert found["inherits"]
    assert found["bucket"] == found["timed"] == [[names.size, BUCKETS[0]]]
    assert found["profiled"] > 0
    assert (found["states"], found["before"]) == ([names.state], [[0.0] * STATE])
    assert found["missed"]["code"] == "input"
    assert f"'{names.left}' is missing" in found["missed"]["message"]
    assert "no input 'isPrototypeOf'" in found["unknown"]["message"] or (
        "isPrototypeOf" in names.inputs
    )


def in_a_page(
    visit: Visit, folder: Path, names: Roles, *, device: str = "wasm", isolation: bool = True
) -> None:
    with serving({"names": built(folder / "b", names)}, isolation=isolation) as site:
        asked = {"url": site.bundle("names"), "names": names.inputs, "size": SIZE}
        judge(visit(site.blank).do("names", device=device, **asked), names)


@pytest.mark.parametrize("rotation", ROTATIONS)
def test_names_in_pages(visit: Visit, tmp_path: Path, rotation: int) -> None:
    in_a_page(visit, tmp_path, roles(rotation))


@pytest.mark.parametrize("isolation", [False])
def test_names_in_messages(visit: Visit, tmp_path: Path, isolation: bool) -> None:
    """Without shared memory inputs and outputs are parts of messages."""
    in_a_page(visit, tmp_path, roles(2), isolation=isolation)


@pytest.mark.browser
@pytest.mark.parametrize("rotation", ROTATIONS)
def test_names_on_webgpu(gpu_visit: Visit, tmp_path: Path, rotation: int) -> None:
    in_a_page(gpu_visit, tmp_path, roles(rotation), device="webgpu")


@pytest.mark.parametrize("rotation", ROTATIONS)
def test_names_from_python(load: Load, tmp_path: Path, rotation: int) -> None:
    names = roles(rotation)
    host = load(built(tmp_path / "b", names))
    given = {names.left: np.full(SIZE, 2, np.float32), names.right: np.full(SIZE, 5, np.float32)}
    result = host.run(given)
    np.testing.assert_array_equal(result.outputs[names.total], np.full(SIZE, 7))
    np.testing.assert_array_equal(result.outputs[names.product], np.full(SIZE, 10))
    assert result.bucket == {names.size: BUCKETS[0]}
    np.testing.assert_array_equal(host.state(names.state), np.ones(STATE))
    host.set_state(names.state, np.full(STATE, 4, np.float32))
    host.run(given)
    np.testing.assert_array_equal(host.state(names.state), np.full(STATE, 5))
    assert host.time(1, 0, bucket={names.size: BUCKETS[1]}).bucket == {names.size: BUCKETS[1]}
