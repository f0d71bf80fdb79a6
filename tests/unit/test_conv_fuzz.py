"""Random convolutional networks, compiled to Wasm, give onnxruntime's results.

Input: seeds.  Small images, often smaller than the kernel; every attribute of Conv and of pooling,
chains whose padding and concatenation share memory, default and random schedules,
each variant of the code in turn.
Tolerance: 2e-6 of the norm, as for whole models.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import onnx
import pytest
from frontend_factory import Array, distance, model, reference
from helpers.schedules import random_schedule
from helpers.seeds import seeds
from onnx import helper

from tilewright.bundle import write
from tilewright.compiler import Options, compile_model
from tilewright.hosts.wasmtime import FEATURES, WasmtimeHost
from tilewright.targets import wasm

#: Code that wasmtime can run here, of other processors too.
VARIANTS = [t.name for t in wasm.VARIANTS.values() if t.features <= FEATURES]
SIDES = (1, 2, 3, 5, 7, 8, 13)


class Net:
    """A network under construction: nodes, weights, and the shape that the last value has."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.values = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, Array] = {}
        batch, channels = self.rng.choice((1, 1, 2)), self.rng.choice((1, 3, 4, 8, 11))
        self.shape = (batch, channels, self.rng.choice(SIDES), self.rng.choice(SIDES))
        self.input = list(self.shape)
        self.last = "x"

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = self.values.standard_normal(shape).astype(np.float32)
        return name

    def window(self, largest: int) -> dict[str, object] | None:
        """Kernel, strides and pads that leave at least one window; None if there is no such."""
        rng, sides = self.rng, self.shape[2:]
        kernel = [rng.choice((1, 2, 3, 3, 5)) for _ in sides]
        kernel = [min(k, largest) for k in kernel]
        dilations = [rng.choice((1, 1, 1, 2)) for _ in sides]
        strides = [rng.choice((1, 1, 2, 3)) for _ in sides]
        pads = [rng.randint(0, k // 2) for k in kernel + kernel]
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        made: dict[str, object] = {
            "kernel_shape": kernel, "dilations": dilations, "strides": strides
        }  # fmt: skip
        if rng.random() < 0.25:
            made["auto_pad"] = rng.choice(("SAME_UPPER", "SAME_LOWER"))
            made["dilations"] = [1, 1]
            counts = [-(-n // s) for n, s in zip(sides, strides, strict=True)]
        else:
            made["pads"] = pads
            room = [n + pads[i] + pads[i + 2] - reach[i] for i, n in enumerate(sides)]
            if min(room) < 0:
                return None
            counts = [r // s + 1 for r, s in zip(room, strides, strict=True)]
        self.counts = tuple(counts)
        return made

    def conv(self) -> None:
        window = self.window(5)
        if window is None:
            return
        batch, channels = self.shape[:2]
        group = self.rng.choice([g for g in (1, 1, 2, channels, channels) if channels % g == 0])
        out = group * self.rng.choice((1, 1, 2, 5, 9) if group > 1 else (1, 4, 8, 19))
        w = self.weight(out, channels // group, *window["kernel_shape"])  # type: ignore[misc]
        inputs = [self.last, w, *([self.weight(out)] if self.rng.random() < 0.5 else [])]
        self.last = self.add("Conv", *inputs, group=group, **window)
        self.shape = (batch, out, *self.counts)

    def pool(self) -> None:
        window = self.window(3)
        if window is None:
            return
        sizes = list(zip(window["kernel_shape"], window["strides"], strict=True))  # type: ignore[call-overload]
        if "auto_pad" in window and any(stride > kernel for kernel, stride in sizes):
            return  # it may ask for less than no padding, which onnxruntime refuses for pools
        if self.rng.random() < 0.5:
            self.last = self.add("MaxPool", self.last, **window)
        else:
            del window["dilations"]
            if "auto_pad" not in window:
                sides, pads = self.shape[2:], window["pads"]
                self.counts = tuple(
                    (n + pads[i] + pads[i + 2] - k) // s + 1  # type: ignore[index]
                    for i, (n, (k, s)) in enumerate(zip(sides, sizes, strict=True))
                )
            include = self.rng.choice((0, 1))
            self.last = self.add("AveragePool", self.last, count_include_pad=include, **window)
        self.shape = (*self.shape[:2], *self.counts)

    def pointwise(self) -> None:
        kind = self.rng.choice(("Relu", "Clip", "HardSwish", "norm", "join", "residual"))
        channels = self.shape[1]
        if kind == "norm":
            names = [self.weight(channels) for _ in range(4)]
            self.weights[names[3]] = np.abs(self.weights[names[3]]) + 0.5
            self.last = self.add("BatchNormalization", self.last, *names)
        elif kind in ("join", "residual"):
            branches = []
            for kernel in (1, 3):
                w = self.weight(channels, channels, kernel, kernel)
                made = self.add("Conv", self.last, w, pads=[kernel // 2] * 4)
                branches.append(self.add("Relu", made))
            if kind == "join":
                self.last = self.add("Concat", *branches, axis=1)
                self.shape = (self.shape[0], 2 * channels, *self.shape[2:])
            else:
                self.last = self.add("Add", self.add("Add", *branches), self.last)
        elif kind == "Clip":
            self.weights |= {"low": np.float32(0).reshape(()), "high": np.float32(6).reshape(())}
            self.last = self.add("Clip", self.last, "low", "high")
        else:
            self.last = self.add(kind, self.last)

    def finish(self) -> onnx.ModelProto:
        if self.rng.random() < 0.3:
            self.last = self.add("GlobalAveragePool", self.last)
        nodes = self.nodes or [helper.make_node("Relu", ["x"], ["v0"])]
        return model(nodes, {"x": self.input}, [nodes[-1].output[0]], self.weights)


def network(seed: int) -> onnx.ModelProto:
    net = Net(seed)
    for _ in range(net.rng.randint(1, 4)):
        net.rng.choice((net.conv, net.conv, net.pool, net.pointwise))()
    return net.finish()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", seeds(60, nightly=240))
def test_a_random_network_agrees_with_onnxruntime(seed: int, tmp_path: Path) -> None:
    proto = network(seed)
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    rng = Random(seed)
    pick = None if seed % 2 else lambda kernel, variant: random_schedule(rng, kernel)
    variant = VARIANTS[seed // 2 % len(VARIANTS)]
    options = Options(schedule=pick, variants=(variant,))
    write(compile_model(path, options).contents, tmp_path / "bundle")
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    inputs = {"x": np.random.default_rng(seed).standard_normal(shape).astype(np.float32)}
    host = WasmtimeHost(tmp_path / "bundle", variant=variant)
    (want,) = reference(path, inputs)
    for _ in range(2):  # what a run leaves behind must not reach the next
        (got,) = host.run(inputs).outputs.values()
        assert got.shape == want.shape
        assert distance(got, want) < 2e-6
