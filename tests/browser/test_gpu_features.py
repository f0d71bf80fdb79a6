"""Features of the GPU in the engine: used where the adapter has them, absent without harm.

Input: quantised products for WebGPU with all sorts of schedules.  Output: the exact sums, on Dawn;
what `info` says of features.  A test whose feature the adapter lacks is skipped and says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from helpers.attention import decoding, masked
from helpers.damaged_bundles import Whole
from helpers.graphs import results
from onnx import TensorProto, helper, numpy_helper

from lab.subjects import compile_graph
from tilewright.base.dtypes import F32
from tilewright.bundle import open_bundle, write
from tilewright.compiler import Options, compile_model
from tilewright.graph.node import Graph, contract, elementwise, graph_input, reduce
from tilewright.hosts.browser import BrowserHost
from tilewright.hosts.browser_dawn import Dawn
from tilewright.kernel.spec import Kernel
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.gpu.attention.schedule import (
    AttentionManyRowsSchedule,
    AttentionOneRowSchedule,
)
from tilewright.targets.gpu.attention.strategies import ATTENTION_MANY_ROWS
from tilewright.targets.gpu.product.schedule import SubgroupGemmSchedule
from tilewright.targets.gpu.product.strategies import INTEGER_GEMM
from tilewright.targets.gpu.workgroup_limits import (
    PACKED_DOT_FEATURE,
    SHARED_SIZES,
    SUBGROUP_SIZES,
    SUBGROUPS_FEATURE,
    subgroup_feature,
)
from tilewright.targets.scalar_lowering import Plain
from tilewright.targets.schedule import Schedule
from tilewright.tuning.candidates import space_of
from tilewright.tuning.catalogue import kernels_of
from tilewright.tuning.relink import relink

pytestmark = pytest.mark.browser

ROWS, DEPTH, COLUMNS = 37, 130, 52
ZERO = 7
OPTIONS = Options(targets=("wgsl",))
#: Words for Dawn, without which no adapter lists subgroup matrices.
UNSAFE = "enable-dawn-features=allow_unsafe_apis"
#: Of the manifest, the file with the texts of kernels.
CODE = ("targets", "wgsl", "builds", 0, "code")


@pytest.fixture(scope="module")
def host(dawn: Dawn) -> Iterator[BrowserHost]:
    with BrowserHost(replace(dawn, options=(*dawn.options, UNSAFE))) as host:
        yield host


def weights() -> Any:
    return np.random.default_rng(0).integers(-128, 128, (DEPTH, COLUMNS)).astype("i1")


def rows() -> Any:
    return np.random.default_rng(1).integers(0, 256, (ROWS, DEPTH)).astype("u1")


def sums() -> Any:
    return (rows().astype("i4") - ZERO) @ weights().astype("i4")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bytes")
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w", "z"], ["y"])],
        "bytes",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, (ROWS, DEPTH))],
        [helper.make_tensor_value_info("y", TensorProto.INT32, (ROWS, COLUMNS))],
        [
            numpy_helper.from_array(weights(), "w"),
            numpy_helper.from_array(np.asarray(ZERO, "u1"), "z"),
        ],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / "m.onnx")
    write(compile_model(folder / "m.onnx", OPTIONS).contents, folder / "made")
    return folder / "made"


@pytest.fixture(scope="module")
def reduction(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sums of squares of long rows."""
    folder = tmp_path_factory.mktemp("reduction")
    x = graph_input("x", (37, 1000), F32)
    y = reduce("sum", elementwise("mul", x, x), [1])
    write(compile_graph(Graph("rows", (("x", x),), (("y", y),)), OPTIONS).contents, folder)
    return folder


def features(host: BrowserHost, bundle: Path) -> list[str]:
    """Of the adapter, as engines find them."""
    found: list[str] = host.load(bundle).info["adapter"]["features"]
    return found


def test_a_bundle_uses_what_the_adapter_has(host: BrowserHost, bundle: Path) -> None:
    model = host.load(bundle)
    able = PACKED_DOT_FEATURE in model.info["adapter"]["features"]
    assert model.info["variant"]["features"] == ([PACKED_DOT_FEATURE] if able else [])
    np.testing.assert_array_equal(model.run({"x": rows()}).outputs["y"], sums())


def test_and_does_without(host: BrowserHost, bundle: Path) -> None:
    model = host.load(bundle, features=[])
    assert model.info["adapter"]["features"] == []
    assert model.info["variant"]["features"] == []
    assert any("they need " in text and PACKED_DOT_FEATURE in text for text in model.info["lost"])
    np.testing.assert_array_equal(model.run({"x": rows()}).outputs["y"], sums())


def test_a_kernel_that_makes_no_pipeline_gives_way(
    host: BrowserHost, bundle: Path, tmp_path: Path
) -> None:
    """Drivers differ in more than they list; the step's other kernel runs, and `lost` says why."""
    if PACKED_DOT_FEATURE not in features(host, bundle):
        pytest.skip(f"the adapter lacks {PACKED_DOT_FEATURE}")

    def spoil(texts: list[str]) -> None:
        (number,) = (
            n for n, text in enumerate(texts) if text.startswith(f"requires {PACKED_DOT_FEATURE};")
        )
        texts[number] = texts[number].replace("@compute", "nonsense")

    made = Whole.of(compile_model(bundle.parent / "m.onnx", OPTIONS).contents)
    for path, data in made.edited(CODE, spoil).files.items():
        place = tmp_path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    model = host.load(tmp_path)
    assert model.info["variant"]["features"] == []
    assert PACKED_DOT_FEATURE not in model.info["adapter"]["features"]
    assert any("cannot become a pipeline" in text for text in model.info["lost"])
    np.testing.assert_array_equal(model.run({"x": rows()}).outputs["y"], sums())


@pytest.mark.parametrize("over_subgroups", [False, True])
def test_other_threads_give_the_same_sums(
    host: BrowserHost, reduction: Path, over_subgroups: bool, tmp_path: Path
) -> None:
    opened = open_bundle(reduction)
    (kernel,) = kernels_of(opened)
    rows = [s for s in space_of(kernel, CLASSES["webgpu"]).schedules if s.tag == "rows"]
    has = set(features(host, reduction))
    able = [s for s in rows if s.features <= has and bool(s.features) == over_subgroups]
    if not able:
        pytest.skip("the adapter lacks subgroups of one size")
    given = np.random.default_rng(0).integers(-9, 10, (37, 1000)).astype("f4")
    for at, schedule in enumerate(able):
        write(relink(opened, CLASSES["webgpu"], {0: schedule}), tmp_path / str(at))
        model = host.load(tmp_path / str(at))
        assert model.info["variant"]["features"] == sorted(schedule.features)
        found = model.run({"x": given}).outputs["y"]
        np.testing.assert_array_equal(found.ravel(), (given * given).sum(1))
        model.dispose()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("tag", ["dot", "matrix"])
def test_candidates_give_the_exact_sums(
    host: BrowserHost, bundle: Path, tag: str, number: int, tmp_path: Path
) -> None:
    opened = open_bundle(bundle)
    (at, kernel), *_ = ((n, k) for n, k in enumerate(kernels_of(opened)) if INTEGER_GEMM.suits(k))
    schedules = space_of(kernel, CLASSES["webgpu"]).schedules
    has = set(features(host, bundle))
    able = [s for s in schedules if s.tag == tag and s.features <= has]
    if not able:
        lacks = min((s.features - has for s in schedules if s.tag == tag), key=len)
        pytest.skip(f"the adapter lacks {', '.join(sorted(lacks))}")
    schedule = able[number * (len(able) - 1) // 3]
    write(relink(opened, CLASSES["webgpu"], {at: schedule}), tmp_path)
    model = host.load(tmp_path)
    assert model.info["variant"]["features"] == sorted(schedule.features)
    np.testing.assert_array_equal(model.run({"x": rows()}).outputs["y"], sums())


def test_attention_by_matrices(host: BrowserHost, bundle: Path, tmp_path: Path) -> None:
    """Small matrices, which software adapters have; rows and keys end within a block."""
    schedule = AttentionManyRowsSchedule(8, 8, 8, 8, 1, 2, 1, 16, SHARED_SIZES[0])
    if lacks := schedule.features - set(features(host, bundle)):
        pytest.skip(f"the adapter lacks {', '.join(sorted(lacks))}")
    graph = masked(19, 37, 16, 16, "mask")
    chosen = {True: schedule, False: Plain()}
    options = replace(
        OPTIONS, halves=True, schedule=lambda k, _: chosen[ATTENTION_MANY_ROWS.suits(k)]
    )
    write(compile_graph(graph, options).contents, tmp_path)
    rng = np.random.default_rng(0)
    values = {name: rng.standard_normal(n.shape).astype("f4") for name, n in graph.inputs}
    model = host.load(tmp_path)
    assert model.info["variant"]["features"] == sorted(schedule.features)
    got, (want,) = model.run(values).outputs["y"], results(graph, values)
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-3 * np.abs(want).max())


@pytest.mark.parametrize("past", [-1, 0, 70, 199])
@pytest.mark.parametrize("sizes", [(2, 1, 200, 64), (3, 3, 200, 40)])
def test_one_row_by_subgroups(
    host: BrowserHost, bundle: Path, sizes: tuple[int, int, int, int], past: int, tmp_path: Path
) -> None:
    """Of the size that the adapter has."""
    has = set(features(host, bundle))
    width = next(
        (size for size in SUBGROUP_SIZES if {SUBGROUPS_FEATURE, subgroup_feature(size)} <= has), 0
    )
    if not width:
        pytest.skip("the adapter lacks subgroups of one size")
    schedule, graph = AttentionOneRowSchedule(64, width, 2, 4, 2), decoding(*sizes)

    def choose(kernel: Kernel, variant: object) -> Schedule:
        assert not schedule.objection(kernel)
        return schedule

    compiled = compile_graph(graph, Options(targets=("wgsl",), schedule=choose))
    write(compiled.contents, tmp_path)
    rng = np.random.default_rng(0)
    given = {n: rng.standard_normal(x.shape, np.float32) for n, x in graph.inputs}
    given["past"][:] = past
    model = host.load(tmp_path)
    assert model.info["variant"]["features"] == sorted(schedule.features)
    (want,) = results(graph, given)
    np.testing.assert_allclose(model.run(given).outputs["y"], want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("unrolled", [False, True])
@pytest.mark.parametrize(
    ("equation", "a", "b"),
    [("mk,kn->mn", (37, 130), (130, 52)), ("bmk,bnk->bmn", (2, 19, 36), (2, 45, 36))],
)
def test_products_by_subgroups(
    host: BrowserHost,
    bundle: Path,
    equation: str,
    a: tuple[int, ...],
    b: tuple[int, ...],
    unrolled: bool,
    tmp_path: Path,
) -> None:
    """Of the size that the adapter has, two above each other and two side by side; rows, columns
    and steps end within them.  Whole numbers, so that sums are exact."""
    has = set(features(host, bundle))
    width = next(
        (size for size in SUBGROUP_SIZES if {SUBGROUPS_FEATURE, subgroup_feature(size)} <= has), 0
    )
    if not width:
        pytest.skip("the adapter lacks subgroups of one size")
    schedule = SubgroupGemmSchedule(width, 4, 4, 4, 8, 8 * width, 1, unrolled)

    def choose(kernel: Kernel, variant: object) -> Schedule:
        assert not schedule.objection(kernel)
        return schedule

    x, y = graph_input("a", a, F32), graph_input("b", b, F32)
    product = contract(equation, x, y)
    graph = Graph("product", (("a", x), ("b", y)), (("y", elementwise("neg", product)),))
    options = Options(targets=("wgsl",), schedule=choose)
    write(compile_graph(graph, options).contents, tmp_path)
    rng = np.random.default_rng(0)
    given = {n: rng.integers(-9, 10, x.shape).astype("f4") for n, x in graph.inputs}
    model = host.load(tmp_path)
    assert model.info["variant"]["features"] == sorted(schedule.features)
    (want,) = results(graph, given)
    np.testing.assert_array_equal(model.run(given).outputs["y"], want)
    without = host.load(tmp_path, features=[])
    assert without.info["variant"]["features"] == []
    np.testing.assert_array_equal(without.run(given).outputs["y"], want)
