"""Resize against onnxruntime, and where that lacks a type against ONNX's evaluator.

The graph interpreter computes; tests/conformance/test_resized.py compares the hosts.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from frontend_factory import reference, run_model
from helpers.resized import resize_model
from onnx.reference import ReferenceEvaluator

COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric", "align_corners",
    "tf_crop_and_resize",
)  # fmt: skip
REGION = [0, 0, 0.1, -0.1, 1, 1, 0.8, 1.2]


def picture(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray[Any, Any]:
    source = np.random.default_rng(seed)
    if dtype.startswith("float"):
        return source.standard_normal(shape).astype(dtype)
    low = 0 if dtype.startswith("u") else -100
    return source.integers(low, 100, shape).astype(dtype)


def ours(model: onnx.ModelProto, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return run_model(model, {"x": x})[0]


def agree_but_for_rounding(made: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> None:
    """Of sums that are whole numbers but for rounding onnxruntime may lose one."""
    assert np.abs(made.astype(int) - want).max() <= 1
    assert (made == want).mean() > 0.9


@pytest.mark.parametrize(
    ("mode", "place"), list(product(("nearest", "linear", "cubic"), COORDINATES))
)
@pytest.mark.parametrize("size", [(10, 14), (15, 9), (3, 2), (4, 21), (1, 1)], ids=str)
def test_every_coordinate_mode(mode: str, place: str, size: tuple[int, int]) -> None:
    x = picture(2, 3, 5, 7)
    roi = REGION if place.startswith("tf") else ()
    model = resize_model(
        x, sizes=(2, 3, *size), roi=roi, mode=mode, coordinate_transformation_mode=place,
        extrapolation_value=9.0,
    )  # fmt: skip
    (want,) = reference(model.SerializeToString(), {"x": x})
    # both sum up to 16 products in f32, in another order
    np.testing.assert_allclose(ours(model, x), want, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "more",
    [
        {"antialias": 1, "mode": "linear"},
        {"antialias": 1, "mode": "cubic"},
        {"antialias": 1, "mode": "cubic", "exclude_outside": 1},
        {"mode": "cubic", "exclude_outside": 1},
        {"mode": "cubic", "cubic_coeff_a": -0.5},
        {"mode": "linear", "keep_aspect_ratio_policy": "not_larger"},
        {"mode": "linear", "keep_aspect_ratio_policy": "not_smaller"},
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [(4, 5), (30, 9), (2, 40)], ids=str)
def test_every_attribute(more: dict[str, Any], size: tuple[int, int]) -> None:
    x = picture(1, 2, 20, 23)
    policy = "keep_aspect_ratio_policy" in more
    sizes = size if policy else (1, 2, *size)
    model = resize_model(x, sizes=sizes, **({"axes": [2, 3]} if policy else {}), **more)
    (want,) = reference(model.SerializeToString(), {"x": x})
    np.testing.assert_allclose(ours(model, x), want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("scales", [(2, 3), (1.5, 0.5), (4, 1)], ids=str)
@pytest.mark.parametrize(("op", "opset"), [("Upsample", 9), ("Resize", 10), ("Resize", 11)])
@pytest.mark.parametrize("dtype", ["float32", "uint8", "int8", "int32"])
def test_old_opsets(scales: tuple[float, float], op: str, opset: int, dtype: str) -> None:
    if op == "Upsample" and min(scales) < 1:
        scales = (scales[0], 1)
    x = picture(1, 2, 6, 8, dtype=dtype)
    model = resize_model(x, scales=(1, 1, *scales), op=op, opset=opset, mode="linear")
    (want,) = reference(model.SerializeToString(), {"x": x})
    made = ours(model, x)
    assert made.dtype == want.dtype
    if dtype == "float32":
        np.testing.assert_allclose(made, want, rtol=0, atol=1e-5)
    else:
        agree_but_for_rounding(made, want)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
@pytest.mark.parametrize("place", COORDINATES[:-1])
def test_linear_integers_lose_their_fraction(dtype: str, place: str) -> None:
    x = picture(1, 2, 5, 7, dtype=dtype)
    model = resize_model(
        x, sizes=(1, 2, 10, 14), mode="linear", coordinate_transformation_mode=place
    )
    (want,) = reference(model.SerializeToString(), {"x": x})
    made = ours(model, x)
    assert made.dtype == x.dtype
    agree_but_for_rounding(made, want)


@pytest.mark.parametrize(
    ("mode", "dtype"),
    [("linear", "int64"), *(("cubic", t) for t in ("int64", "uint8", "int8", "int32"))],
)
def test_what_onnxruntime_lacks_is_rounded_to_even(mode: str, dtype: str) -> None:
    x = picture(1, 1, 4, 6, dtype=dtype)
    model = resize_model(x, sizes=(1, 1, 8, 12), mode=mode)
    (want,) = ReferenceEvaluator(model).run(None, {"x": x})
    made = ours(model, x)
    assert made.dtype == x.dtype
    np.testing.assert_array_equal(made, want)


@pytest.mark.parametrize("dtype", ["uint8", "int32"])
def test_antialias_rounds_integers(dtype: str) -> None:
    x = np.abs(picture(1, 2, 16, 20, dtype=dtype))
    model = resize_model(x, sizes=(1, 2, 8, 5), mode="linear", antialias=1)
    (want,) = reference(model.SerializeToString(), {"x": x})
    np.testing.assert_array_equal(ours(model, x), want)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
@pytest.mark.parametrize("scale", [3, 1.7, 7])
def test_one_colour_stays(dtype: str, scale: float) -> None:
    """Weights of thirds add up to a little less than one."""
    x = np.full((1, 1, 9, 9), 50, dtype)
    made = ours(resize_model(x, scales=(1, 1, scale, scale), mode="linear"), x)
    assert (made == 50).all()


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize(("mode", "reach"), [("linear", 1), ("cubic", 2)])
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("scale", [2, 1.5])
def test_what_is_not_finite_stays_near(
    bad: float, mode: str, reach: int, axes: int, scale: float
) -> None:
    x = picture(1, 1, *[6] * axes)
    at = (0, 0, *[3] * axes)
    x[at] = bad
    model = resize_model(x, scales=(1, 1, *[scale] * axes), mode=mode)
    made = ours(model, x)
    far = np.zeros(made.shape, bool)
    for axis in range(2, x.ndim):
        where = (np.arange(made.shape[axis]) + 0.5) / scale - 0.5
        shape = [-1 if i == axis else 1 for i in range(x.ndim)]
        far |= (np.abs(where - 3) > reach).reshape(shape)
    assert np.isfinite(made[far]).all()
    assert not np.isfinite(made[~far]).all()


def test_an_infinity_at_the_end_is_repeated() -> None:
    x = np.array([[[[1, 2, 3, -np.inf]]]], np.float32)
    made = ours(resize_model(x, sizes=(1, 1, 1, 8), mode="linear"), x)
    want = [1, 1.25, 1.75, 2.25, 2.75, -np.inf, -np.inf, -np.inf]
    np.testing.assert_array_equal(made.ravel(), np.array(want, np.float32))
