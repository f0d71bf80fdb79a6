"""Damaged bundles end as typed errors, or run after all; nothing aborts and nothing runs for ever.

Input: a seed.  A small bundle, one of whose files is damaged (helpers/damaged_bundles.py).  Output:
hosts raise nothing but typed errors.  The browser's engine: test_fuzz_js.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pytest
from frontend_factory import model
from helpers.damaged_bundles import Whole
from helpers.mutations import damaged_json
from helpers.seeds import seeds
from helpers.waiting import PATIENCE
from onnx import helper

from tilewright.base.errors import BundleCorrupt, CompilerBug, TilewrightError
from tilewright.bundle import open_bundle
from tilewright.compiler import Options, compile_model
from tilewright.hosts.reference import ReferenceHost
from tilewright.hosts.wasmtime import WasmtimeHost
from tilewright.targets.device_classes import find
from tilewright.tuning.candidates import space_of
from tilewright.tuning.catalogue import opened
from tilewright.tuning.relink import relink

#: One test has as many cases, so that their number costs little.
BATCH = 25

#: Seconds after which the host ends code of a damaged bundle.
CODE = 1.0


@cache
def whole(target: str = "wasm", variant: str = "x86-simd") -> Whole:
    """A small bundle with weights, a dimension that ends at run time, and several kernels."""
    weight = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Softmax", ["a"], ["b"], axis=-1),
        helper.make_node("Concat", ["b", "x"], ["c"], axis=1),
        helper.make_node("ReduceSum", ["c"], ["y"], keepdims=1),
    ]
    proto = model(nodes, {"x": ["n", 8]}, ["y"], {"w": weight})
    options = Options(extents={"n": 8}, targets=(target,), variants=(variant,))
    return Whole.of(compile_model(proto, options).contents)


def case(number: int, folder: Path) -> Path:
    """A folder with the damaged bundle."""
    put(whole().damaged(Random(number)).files, folder / "bundle")
    return folder / "bundle"


def put(files: Mapping[str, bytes], folder: Path) -> None:
    """Instead of what is there."""
    shutil.rmtree(folder, ignore_errors=True)
    for path, data in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


def attempt(number: int, path: Path) -> None:
    """Opens, verifies and runs it on two hosts.  Raises what is not typed."""
    x = {"x": np.ones((5, 8), np.float32)}
    for use in (
        lambda: open_bundle(path).verify(),
        lambda: ReferenceHost(path).run(x),
        lambda: WasmtimeHost(path, seconds=CODE).run(x),
    ):
        try:
            use()
        except CompilerBug:
            raise
        except TilewrightError:
            pass


def test_the_bundle_runs_as_it_is(tmp_path: Path) -> None:
    for name, data in whole().files.items():
        place = tmp_path / name
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(data)
    x = {"x": np.ones((5, 8), np.float32)}
    wanted = ReferenceHost(tmp_path).run(x).outputs["y"]
    found = WasmtimeHost(tmp_path, seconds=PATIENCE).run(x).outputs["y"]
    assert np.allclose(found, wanted, rtol=1e-5)  # sums of 16 numbers in another order


@pytest.mark.one_in(3)
@pytest.mark.parametrize("batch", seeds(500 // BATCH, nightly=9500 // BATCH))
def test_damaged_bundles_raise_typed_errors(batch: int, tmp_path: Path) -> None:
    for number in range(batch * BATCH, (batch + 1) * BATCH):
        path = case(number, tmp_path)
        try:
            attempt(number, path)
        except BaseException as error:
            error.add_note(f"case {number}")
            raise


@pytest.mark.parametrize("batch", seeds(3, nightly=57))
def test_damaged_lists_of_kernels_are_a_corrupt_bundle(batch: int, tmp_path: Path) -> None:
    """Where spaces are listed, bundles are tuned, and winners are linked."""
    device = find("wasm-x86-simd")
    lists = [["kernels"], ["targets", "wasm", "kernels"]]
    for number in range(batch * BATCH, (batch + 1) * BATCH):
        rng = Random(number)
        where = rng.choice(lists)

        def edit(data: list[object], rng: Random = rng) -> None:
            damaged = damaged_json(data, rng)
            data[:] = damaged if isinstance(damaged, list) else [damaged]

        put(whole().edited(where, edit).files, tmp_path / "bundle")
        opened_bundle = open_bundle(tmp_path / "bundle")
        for use in (
            lambda: [space_of(k, device) for k in opened(opened_bundle).kernels],  # noqa: B023
            lambda: relink(opened_bundle, device, {}),  # noqa: B023
        ):
            try:
                use()
            except BundleCorrupt:
                pass
            except BaseException as error:
                error.add_note(f"case {number}")
                raise
