"""Fast divisions of rounded products (fast_division.py): which there are, what they give
at the ends of f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from helpers.gpu import by_groups
from helpers.graphs import steps_of

from tilewright.base.dtypes import F32
from tilewright.frontend import arithmetic as al
from tilewright.graph import ops
from tilewright.graph.node import Graph, Node, contract, elementwise, graph_input, node
from tilewright.graph.passes import optimise
from tilewright.kernel.expr import Acc, Reciprocal, Reg
from tilewright.kernel.spec import Kernel
from tilewright.kernel.thread_interpreter import ThreadInterpreter, convert
from tilewright.kernel.tree import rewrite, walk
from tilewright.targets.gpu.matrix.schedule import MatrixGemmSchedule
from tilewright.targets.gpu.product.fast_division import LARGEST, fast_division
from tilewright.targets.gpu.product.schedule import F16GemmSchedule
from tilewright.targets.gpu.product.strategies import F16_GEMM
from tilewright.targets.protocol import PACKING
from tilewright.targets.schedule import Schedule
from tilewright.targets.wgsl.target import Wgsl

WGSL = Wgsl()
STEPS, COLUMNS = 16, 16

#: What becomes of a sum.
Epilogue = Callable[[Node], Node]


def silu(x: Node) -> Node:
    return al.apply("div", x, al.add(elementwise("exp", elementwise("neg", x)), 1.0))


def logistic(x: Node) -> Node:
    power = elementwise("exp", x)
    return al.apply("div", power, al.add(power, 1.0))


def product_of(epilogue: Epilogue, rows: int) -> Graph:
    """A product of halves whose sums are the rows' own."""
    ones = np.ones((STEPS, COLUMNS), np.float32)
    x = graph_input("x", (rows, STEPS), F32)
    weight = node(ops.Weight("w", ones.shape, F32, lambda: ones, "f16", "f16"))
    y = epilogue(contract("mk,kn->mn", x, weight))
    return Graph("product", (("x", x),), (("y", y),))


def kernel_of(epilogue: Epilogue, rows: int = 16) -> Kernel:
    (step,) = steps_of(optimise(product_of(epilogue, rows), PACKING))
    return step.kernel


def stored(kernel: Kernel, total: float) -> float:
    """What the interpreter stores of a sum."""
    value = rewrite(kernel.value, lambda e: Reg("x", F32) if isinstance(e, Acc) else e)
    thread = ThreadInterpreter([], {})
    thread.regs["x"] = [convert(total, F32)]
    (found,) = thread.value(value)
    return float(found)


def near(got: float, want: float) -> bool:
    if not math.isfinite(want):
        return got == want or (math.isnan(got) and math.isnan(want))
    return abs(got - want) <= 2e-6 * abs(want) + 1e-36


ENDS = (-100.0, 100.0, math.inf, math.nan, -math.inf, 0.0, -3e38, 3e38, 88.0, -88.0, 87.5, -87.5)


@pytest.mark.parametrize("epilogue", [silu, logistic])
@pytest.mark.parametrize("total", ENDS)
def test_as_an_exact_division_gives(epilogue: Epilogue, total: float) -> None:
    kernel = kernel_of(epilogue)
    made = fast_division(kernel)
    assert any(isinstance(e, Reciprocal) for e in walk(made.value))
    assert near(stored(made, total), stored(kernel, total))


def test_the_divisor_of_a_reciprocal_is_one_that_devices_divide_by() -> None:
    """From 2^-126 to 2^126, of all that is not infinite."""
    (found,) = (e for e in walk(fast_division(kernel_of(silu)).value) if isinstance(e, Reciprocal))
    values = rewrite(found.value, lambda e: Reg("x", F32) if isinstance(e, Acc) else e)
    for total in (-88.7, -80.0, 0.0, 500.0):
        thread = ThreadInterpreter([], {})
        thread.regs["x"] = [convert(total, F32)]
        assert 2.0**-126 <= thread.value(values)[0] <= 2.0**126
    assert convert(LARGEST, F32) == LARGEST


@pytest.mark.parametrize(
    "epilogue",
    [
        lambda x: al.apply("div", x, elementwise("exp", x)),
        lambda x: al.apply("div", x, al.add(x, 1.0)),
        lambda x: al.apply("div", x, al.add(elementwise("exp", x), -1.0)),
    ],
    ids=["may be 0", "any sign", "a difference"],
)
def test_what_may_be_0_is_divided_exactly(epilogue: Epilogue) -> None:
    kernel = kernel_of(epilogue)
    assert fast_division(kernel).value == kernel.value


@pytest.mark.parametrize(
    "schedule",
    [MatrixGemmSchedule("f16-f32", 16, 16, 16, 32, 1, 1, 1, 1), F16GemmSchedule(4, 4, 1, 8, 8, 4)],
    ids=lambda s: s.tag,
)
def test_texts_of_rounded_products_have_no_exact_division(schedule: Schedule) -> None:
    kernel = kernel_of(silu)
    text = str(WGSL.code(kernel, schedule).body)
    assert "f32_div(" not in text
    assert "f32_div(" in str(WGSL.code(kernel, WGSL.default(kernel, "core")).body)


def test_a_product_of_halves() -> None:
    totals = np.float32([-100, 100, np.inf, np.nan, -np.inf, 0, 1, -1])
    x = np.repeat(totals[:, None] / STEPS, STEPS, axis=1)
    schedule = F16GemmSchedule(4, 4, 1, 8, 8, 4)
    got = by_groups(F16_GEMM, product_of(silu, 8), {"x": x}, lambda _: schedule)
    kernel = kernel_of(silu)
    for row, total in zip(got, totals, strict=True):
        want = stored(kernel, float(total))
        np.testing.assert_allclose(row, np.float32(want), rtol=1e-3, atol=1e-6)
