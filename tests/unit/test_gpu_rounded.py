"""Products whose rows are rounded to bytes (few_rows_int8.py): any schedule, every kind of
weight, as exact as bytes allow.

The judge rounds as the decision says, in NumPy, and multiplies in float64.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import numpy as np
import onnx
import pytest
from helpers.gpu import by_groups, random_few_rows
from helpers.graphs import steps_of
from helpers.llama import TINY, Sizes, llama
from helpers.seeds import seeds

from tilewright.base.dtypes import BY_NUMPY, F32, I16
from tilewright.compiler import Options, compile_model
from tilewright.frontend import load
from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    Node,
    broadcast,
    cast,
    constant,
    contract,
    elementwise,
    graph_input,
    node,
    reshape,
    slice_,
)
from tilewright.graph.passes import optimise
from tilewright.kernel.serialise import kernel_from_data, kernel_to_data
from tilewright.kernel.spec import Kernel
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.gpu.product.schedule import FewRowsInt8Schedule, may_round_to_int8
from tilewright.targets.gpu.product.strategies import (
    FEW_ROWS,
    FEW_ROWS_INT8,
    FEW_ROWS_INT8_CANDIDATES,
)
from tilewright.targets.gpu.workgroup_limits import PACKED_DOT_FEATURE
from tilewright.targets.protocol import PACKING
from tilewright.targets.schedule import Schedule
from tilewright.targets.wgsl.target import Wgsl
from tilewright.tuning.candidates import space_of

WGSL = Wgsl()


@dataclass(frozen=True)
class Case:
    """rows x depth times depth x columns; zeros: "" for none, "one" for all, "own" of each block,
    "half" for one that is no integer"""

    rows: int
    depth: int
    columns: int
    block: int
    zeros: str = "one"
    loose: str = "i8"


CASES = {
    "one row": Case(1, 512, 24, 32),
    "no zeros": Case(1, 512, 24, 32, "none"),
    "zeros of blocks": Case(1, 512, 24, 32, "own"),
    "a broken zero": Case(1, 512, 24, 32, "half"),
    "blocks of 16": Case(2, 528, 19, 16, "own"),
    "blocks of 64": Case(3, 320, 20, 64, "own"),
    "blocks of 128": Case(1, 640, 40, 128),
    "a padded block": Case(2, 600, 22, 32),
}


def weight(name: str, value: np.ndarray, loose: str = "") -> Node:
    kind = BY_NUMPY[value.dtype.name]
    return node(ops.Weight(name, value.shape, kind, lambda: value, "", loose))


def made(case: Case) -> tuple[Graph, np.ndarray, np.ndarray]:
    """The product, its input, its weights [k, n]."""
    rng = np.random.default_rng(case.depth)
    n, blocks, size = case.columns, -(-case.depth // case.block), case.block
    whole = rng.integers(0, 16, (n, blocks, size)).astype("u1")
    scale = (rng.random((n, blocks, 1)) + 0.5).astype("f4")
    centred, zero = cast(weight("q", whole), F32), np.zeros(())
    if case.zeros == "own":
        zero = rng.integers(0, 16, (n, blocks, 1)).astype("u1")
        wide = elementwise("sub", cast(weight("q", whole), I16), cast(weight("z", zero), I16))
        centred = cast(wide, F32)
    elif case.zeros != "none":
        zero = np.array(8.0 if case.zeros == "one" else 7.5)
        centred = elementwise("sub", centred, constant(float(zero), F32))
    product = elementwise(
        "mul", centred, broadcast(weight("s", scale, case.loose), (n, blocks, size))
    )
    values = ((whole.astype("f8") - zero) * scale).reshape(n, -1)[:, : case.depth].T
    flat = slice_(reshape(product, (n, blocks * size)), (0, 0), (n, case.depth))
    x = graph_input("x", (case.rows, case.depth), F32)
    y = contract("mk,nk->mn", x, flat)
    given = rng.standard_normal((case.rows, case.depth)).astype("f4")
    return Graph("product", (("x", x),), (("y", elementwise("neg", y)),)), given, values


def in_bytes(x: np.ndarray, unit: int) -> np.ndarray:
    """Each `unit` steps of a row as 127 parts of their largest."""
    units = np.pad(x, ((0, 0), (0, -x.shape[1] % unit))).reshape(len(x), -1, unit).astype("f8")
    size = np.maximum(np.abs(units).max(-1, keepdims=True), 2.0**-100) / 127
    return (np.rint(units / size) * size).reshape(len(x), -1)[:, : x.shape[1]]


def random_rounded(rng: Random) -> FewRowsInt8Schedule:
    r1, unit = rng.choice([0, 0, 64, 96, 256]), rng.choice([8, 16])
    return FewRowsInt8Schedule(
        **vars(random_few_rows(rng)), r1=r1, unit=unit, ahead=rng.random() < 0.5
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", seeds(3, nightly=20))
def test_any_schedule(name: str, seed: int) -> None:
    graph, x, values = made(CASES[name])
    rng = Random(f"rounded {name} {seed}")
    schedule = random_rounded(rng)
    got = by_groups(FEW_ROWS_INT8, graph, {"x": x}, lambda _: schedule)
    want = -(in_bytes(x, schedule.unit) @ values)
    size = np.abs(x.astype("f8")) @ np.abs(values)
    # a number in the middle between two bytes may become either
    assert (np.abs(got - want) <= 2.0**-12 * size + 1e-6).all()
    exact = -(x.astype("f8") @ values)
    assert np.linalg.norm(got - exact) < 0.01 * np.linalg.norm(exact)


def kernel_of(case: Case) -> Kernel:
    (step,) = steps_of(optimise(made(case)[0], PACKING))
    return step.kernel


@pytest.mark.parametrize("number", [0.0, float("inf"), float("nan"), 1e-38])
def test_numbers_that_have_no_bytes(number: float) -> None:
    """Zeros stay zeros, and what is not finite is not lost."""
    case = CASES["one row"]
    graph, x, values = made(case)
    x[0, :16] = number
    got = by_groups(FEW_ROWS_INT8, graph, {"x": x}, FEW_ROWS_INT8.default)
    if np.isfinite(number):
        want = -(in_bytes(x, FEW_ROWS_INT8.default(kernel_of(case)).unit) @ values)
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3 * np.abs(want).max())
    else:
        assert not np.isfinite(got).any()


@pytest.mark.parametrize("loose", ["", "f16"])
def test_nobody_rounds_unasked(loose: str) -> None:
    kernel = kernel_of(replace(CASES["one row"], loose=loose))
    assert "may not be rounded" in FewRowsInt8Schedule().objection(kernel)
    assert not FEW_ROWS_INT8.defaults_with_features(kernel)
    space = space_of(kernel, CLASSES["webgpu"])
    assert not any(isinstance(s, FewRowsInt8Schedule) for s in space.schedules)


def test_candidates_need_packed_dots() -> None:
    kernel = kernel_of(CASES["one row"])
    assert kernel_from_data(kernel_to_data(kernel)) == kernel
    space = space_of(kernel, CLASSES["webgpu"])
    found = [s for s in space.schedules if isinstance(s, FewRowsInt8Schedule)]
    assert 5 < len(found) <= FEW_ROWS_INT8_CANDIDATES
    for schedule in found:
        assert schedule.features == {PACKED_DOT_FEATURE}
        assert not WGSL.objection(kernel, schedule)
        assert WGSL.schedule(schedule.to_json()) == schedule
    text = WGSL.code(kernel, found[0]).body
    assert text.startswith("requires packed_4x8_integer_dot_product;")
    assert "dot4I8Packed" in text


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (FewRowsInt8Schedule(r1=24), "multiple of 16"),
        (FewRowsInt8Schedule(slices=3), "power of two"),
        (FewRowsInt8Schedule(y1=64, slices=128), "at most 256 threads"),
    ],
)
def test_what_is_no_schedule(schedule: Schedule, said: str) -> None:
    assert said in schedule.objection(kernel_of(CASES["one row"]))


def test_long_rows_lie_in_shared_memory_by_parts() -> None:
    kernel = kernel_of(Case(3, 8192, 16, 32))
    schedule = FEW_ROWS_INT8.default(kernel)
    assert schedule.r1
    assert not schedule.objection(kernel)


def forms(model: onnx.ModelProto, sizes: Sizes, **options: bool) -> list[bool]:
    """Of each product of few rows in a model: whether its rows may be rounded."""
    built = Options(targets=("wgsl",), buckets={"n": (1,)}, states=sizes.states, **options)
    kernels = compile_model(load(model), built).program.kernels
    return [may_round_to_int8(k) for k in kernels if FEW_ROWS.suits(k)]


def test_the_model_or_the_user_says_so() -> None:
    sizes = replace(TINY, layers=1, width=256, hidden=320, block=32)
    plain = llama(sizes)
    found = forms(plain, sizes)
    assert found
    assert not any(found)
    assert all(forms(plain, sizes, bytes=True))
    assert all(forms(llama(replace(sizes, level=4)), sizes))


def test_a_step_has_the_rounded_kernel_first() -> None:
    """A device without packed dot products takes the next one, which rounds nothing."""
    kernel = kernel_of(CASES["one row"])
    ways = WGSL.usable_codes(
        WGSL.code(kernel, WGSL.default(kernel, "")), lambda _: True, frozenset()
    )
    assert [c.schedule.tag for c in ways] == ["rounded", "thin"]
