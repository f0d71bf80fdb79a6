"""Convolutions of ResNet-50, MobileNetV2, SqueezeNet, AlexNet and others, as ONNX.

Input: a layer.  Output: a small model with bias and ReLU.  The ReLU in front of the convolution
gives its input the layout that a previous layer would leave.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.compiler import Compiled


@dataclass(frozen=True)
class Layer:
    """A square image of `side`, square windows of `size`, padded so that stride 1 keeps it."""

    model: str
    channels: int
    out: int
    side: int
    size: int
    stride: int = 1
    group: int = 1
    dilation: int = 1

    @property
    def name(self) -> str:
        kind = "dw" if self.group == self.channels > 1 else f"g{self.group}" * (self.group > 1)
        tail = f" s{self.stride}" * (self.stride > 1) + f" d{self.dilation}" * (self.dilation > 1)
        shape = f"{self.channels}>{self.out}@{self.side}"
        return f"{self.size}x{self.size}{kind and ' ' + kind} {shape}{tail}"

    def onnx(self) -> onnx.ModelProto:
        """relu, convolution, bias, relu."""
        rng = np.random.default_rng(0)
        w = rng.standard_normal((self.out, self.channels // self.group, self.size, self.size))
        bias = rng.standard_normal(self.out)
        edge = self.dilation * (self.size - 1) // 2
        nodes = [
            helper.make_node("Relu", ["x"], ["a"]),
            helper.make_node(
                "Conv", ["a", "w", "b"], ["c"], group=self.group, pads=[edge] * 4,
                strides=[self.stride] * 2, dilations=[self.dilation] * 2,
            ),
            helper.make_node("Relu", ["c"], ["y"]),
        ]  # fmt: skip
        shape = (1, self.channels, self.side, self.side)
        graph = helper.make_graph(
            nodes,
            "layer",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
            [numpy_helper.from_array(v.astype(np.float32), n) for n, v in (("w", w), ("b", bias))],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


LAYERS = (
    Layer("ResNet-50", 3, 64, 224, 7, 2),
    Layer("ResNet-50", 64, 64, 56, 3),
    Layer("ResNet-50", 64, 256, 56, 1),
    Layer("ResNet-50", 256, 512, 56, 1, 2),
    Layer("ResNet-50", 128, 128, 28, 3),
    Layer("ResNet-50", 256, 256, 14, 3),
    Layer("ResNet-50", 1024, 256, 14, 1),
    Layer("ResNet-50", 512, 512, 7, 3),
    Layer("ResNet-50", 512, 2048, 7, 1),
    Layer("MobileNetV2", 3, 32, 224, 3, 2),
    Layer("MobileNetV2", 32, 32, 112, 3, group=32),
    Layer("MobileNetV2", 16, 96, 112, 1),
    Layer("MobileNetV2", 96, 96, 112, 3, 2, group=96),
    Layer("MobileNetV2", 144, 24, 56, 1),
    Layer("MobileNetV2", 144, 144, 56, 3, group=144),
    Layer("MobileNetV2", 384, 64, 14, 1),
    Layer("MobileNetV2", 576, 576, 14, 3, group=576),
    Layer("MobileNetV2", 960, 960, 7, 3, group=960),
    Layer("MobileNetV2", 320, 1280, 7, 1),
    Layer("SqueezeNet", 16, 64, 55, 3),
    Layer("SqueezeNet", 128, 16, 55, 1),
    Layer("SqueezeNet", 64, 256, 13, 3),
    Layer("SqueezeNet", 512, 1000, 13, 1),
    Layer("AlexNet", 3, 64, 224, 11, 4),
    Layer("AlexNet", 64, 192, 27, 5),
    Layer("AlexNet", 192, 384, 13, 3),
    Layer("AlexNet in groups", 96, 256, 27, 5, group=2),
    Layer("ResNeXt", 128, 128, 56, 3, group=32),
    Layer("EfficientNet", 240, 240, 14, 5, group=240),
    Layer("DeepLab", 256, 256, 28, 3, dilation=2),
)


def step_of(compiled: Compiled) -> int:
    """The number of the convolution among the plan's steps: the one with the most arithmetic."""
    steps = compiled.manifest.plans[0].steps
    return max(range(len(steps)), key=lambda i: steps[i].flops)
