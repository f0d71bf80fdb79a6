"""Kernels of benchmarks/peers as TFLite files, for LiteRT.js.

Input: `--out DIR`, names to choose some.  Output: DIR/<case>.tflite with the same weights as the
ONNX file of the case, channels-last as the format wants it.  Needs TensorFlow (see README.md).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import tensorflow as tf
from target import add_force, free

from benchmarks.peers.cases import CASES, Conv, Matmul
from benchmarks.peers.operands import Arrays, operands

Function = Callable[..., Any]


def matmul(work: Matmul, constants: Arrays) -> tuple[Function, list[tuple[int, ...]]]:
    """A fully connected layer, or a batched matmul of two inputs."""
    if work.batch:
        return (lambda x, w: tf.linalg.matmul(x, w)), [work.x, work.w]
    w = tf.constant(constants["w"])
    return (lambda x: tf.linalg.matmul(x, w)), [work.x]


def conv(work: Conv, constants: Arrays) -> tuple[Function, list[tuple[int, ...]]]:
    """Convolution and bias; padding that is not TensorFlow's SAME is a step of its own."""
    bias = tf.constant(constants["b"])
    depthwise = work.groups > 1
    # OIHW to HWIO; a depthwise filter to HWC1
    filters = constants["w"].transpose((2, 3, 0, 1) if depthwise else (2, 3, 1, 0))
    w = tf.constant(np.ascontiguousarray(filters))
    same = work.stride == 1 and 2 * work.pad == work.kernel - 1
    padding = "SAME" if same else "VALID"
    margin = [[0, 0], [work.pad] * 2, [work.pad] * 2, [0, 0]]

    def layer(x: Any) -> Any:
        if work.pad and not same:
            x = tf.pad(x, margin)
        apply = tf.nn.depthwise_conv2d if depthwise else tf.nn.conv2d
        strides = [1, work.stride, work.stride, 1]
        return tf.nn.bias_add(apply(x, w, strides=strides, padding=padding), bias)

    return layer, [(1, work.size, work.size, work.channels)]


def flatbuffer(layer: Function, shapes: Sequence[tuple[int, ...]]) -> bytes:
    """The layer through TensorFlow's converter."""
    specs = [tf.TensorSpec(s, tf.float32, name=n) for s, n in zip(shapes, "xw", strict=False)]
    module = tf.Module()
    concrete = tf.function(layer).get_concrete_function(*specs)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], module)
    return bytes(converter.convert())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the folder for the files")
    parser.add_argument("names", nargs="*", help="only cases whose name begins so")
    add_force(parser)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        if options.names and not case.name.startswith(tuple(options.names)):
            continue
        if isinstance(case.work, Matmul):
            made = matmul(case.work, operands(case.work)[1])
        elif isinstance(case.work, Conv):
            made = conv(case.work, operands(case.work)[1])
        else:
            continue
        path = free(options.out / f"{case.name}.tflite", options.force)
        path.write_bytes(flatbuffer(*made))
        print(f"{path.name}: {path.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
