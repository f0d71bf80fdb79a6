"""Convolutions of ResNet-50, MobileNetV2, SqueezeNet, AlexNet against the peak, per browser.

Input: browsers.  Output: results/conv.json.  Each layer is one step of a small model (bias and
ReLU included) and only that step is timed: the others give its input the layout that a previous
layer would leave.  Alternating with the register-only multiply-add peak, warm, one thread.

    uv run python benchmarks/conv.py [--host chromium --host firefox] [--rounds 20] [--only dw]
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
import numpy as np
import onnx
from onnx import helper, numpy_helper

from lab.subjects import Subject, peak
from tilewright.bundle import write
from tilewright.compiler import Compiled, compile_model
from tilewright.hosts.browser import BrowserHost, BrowserModel

WARM_MS = 600.0
RUNS = 5


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


def measure(
    host: BrowserHost, layer: Layer, limit: Subject, rounds: int, folder: Path
) -> dict[str, Any]:
    compiled = compile_model(layer.onnx())
    number = step_of(compiled)
    work = compiled.manifest.plans[0].steps[number].flops
    bundle = Path(tempfile.mkdtemp(dir=folder))
    write(compiled.contents, bundle)
    model, reference = (host.load(p, threads=1) for p in (bundle, folder / "peak"))
    times: list[float] = []
    peaks: list[float] = []
    for each in (model, reference):
        common.warm_up(each, WARM_MS)
    for _ in range(rounds):
        times += [_profiled(model, number) for _ in range(RUNS)]
        peaks += reference.time(RUNS, 0).milliseconds
    model.dispose()
    reference.dispose()
    gflops, top = work / min(times) / 1e6, limit.flops / min(peaks) / 1e6
    return {
        "model": layer.model,
        "layer": layer.name,
        "host": host.browser.name,
        "mflop": round(work / 1e6, 2),
        "fastest_ms": round(min(times), 4),
        "gflops": round(gflops, 2),
        "peak_gflops": round(top, 2),
        "share_of_peak": round(gflops / top, 3),
        "n": len(times),
    }


def _profiled(model: BrowserModel, number: int) -> float:
    """Milliseconds of one step, at least a tick of the clock."""
    return max(float(model.profile(1)[number]["milliseconds"]), 0.005)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", action="append")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", default="", help="layers whose name or model contains this")
    args = parser.parse_args()
    chosen = [x for x in LAYERS if args.only in f"{x.model} {x.name}"]
    rows = []
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as name:
        folder, limit = Path(name), peak()
        write(limit.contents, folder / "peak")
        for browser in args.host or ["chromium", "firefox"]:
            with BrowserHost(browser) as host:
                for layer in chosen:
                    rows.append(measure(host, layer, limit, args.rounds, folder))
                    print(rows[-1], flush=True)
    if len(chosen) == len(LAYERS):
        print(common.save("conv", rows))


if __name__ == "__main__":
    main()
