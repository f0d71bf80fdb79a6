"""Models that look at pictures, so small that what they see can be told from the picture.

Output: bundles with camera.json for both devices, and PNG files.  `areas` marks what is bright, at
half the size of the input; `labels` names the colour that there is most of.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright.bundle import write
from tilewright.compiler import Options, compile_model

from .bundles import BOTH, Array

HEIGHT, WIDTH = 48, 64
#: The mean of red, green and blue above which a place is marked.
BRIGHT = 0.5
COLOURS = ("red", "green", "blue")
AREAS: dict[str, Any] = {"result": {"kind": "areas", "label": "light"}}
LABELS: dict[str, Any] = {
    "fit": "stretch",
    "result": {"kind": "labels", "labels": COLOURS, "softmax": True},
}


def areas() -> onnx.ModelProto:
    nodes = [
        helper.make_node("AveragePool", ["x"], ["small"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["small", "mean", "low"], ["grey"]),
        helper.make_node("Sigmoid", ["grey"], ["map"]),
    ]
    mean = np.full((1, 3, 1, 1), 40 / 3, np.float32)
    low = np.full(1, -40 * BRIGHT, np.float32)
    return _model(nodes, (1, 1, HEIGHT // 2, WIDTH // 2), "map", mean=mean, low=low)


def labels() -> onnx.ModelProto:
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["means"]),
        helper.make_node("Flatten", ["means"], ["row"]),
        helper.make_node("MatMul", ["row", "sharp"], ["y"]),
    ]
    return _model(nodes, (1, 3), "y", sharp=20 * np.eye(3, dtype=np.float32))


def _model(nodes: list[Any], shape: tuple[int, ...], output: str, **weights: Array) -> Any:
    graph = helper.make_graph(
        nodes,
        "pictures",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, HEIGHT, WIDTH))],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


MODELS: dict[str, tuple[Callable[[], onnx.ModelProto], dict[str, Any]]] = {
    "areas": (areas, AREAS),
    "labels": (labels, LABELS),
}


def bundle(name: str, to: Path, camera: dict[str, Any] | None = None) -> Path:
    """A bundle of one of the models; `camera`: another camera.json."""
    make, usual = MODELS[name]
    to.mkdir(parents=True)
    (to / "camera.json").write_text(json.dumps(usual if camera is None else camera))
    onnx.save(make(), to / f"{name}.onnx")
    options = Options(targets=BOTH, assets={"camera.json": (to / "camera.json").read_bytes()})
    write(compile_model(to / f"{name}.onnx", options).contents, to / "bundle")
    return to / "bundle"


def png(pixels: Array) -> bytes:
    """A PNG of [height, width, 3] bytes."""
    height, width, _ = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, data) for kind, data in parts)


def dark(height: int, width: int, *lights: tuple[int, int, int, int]) -> bytes:
    """A PNG that is black but for white rectangles: left, top, width, height."""
    pixels = np.zeros((height, width, 3), np.uint8)
    for left, top, wide, high in lights:
        pixels[top : top + high, left : left + wide] = 255
    return png(pixels)


def plain(*colour: int) -> bytes:
    return png(np.full((40, 60, 3), colour, np.uint8))
