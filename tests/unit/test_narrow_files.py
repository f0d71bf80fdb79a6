"""8-bit weights beside f32 activations: bytes in files, exactly the model's numbers on hosts.

Input: layers whose weight a DequantizeLinear makes, and the same with a weight of f32.  Output: the
tensors that hosts read, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from frontend_factory import Array, model
from onnx import TensorProto
from onnx.helper import make_node

from tilewright.bundle import Bundle, open_bundle, write
from tilewright.bundle.weight_decoding import memory_of, tensors_of
from tilewright.compiler import Options, compile_model
from tilewright.frontend import load

RNG = np.random.default_rng(0)


@dataclass
class Layer:
    """One layer of weight `q`; `zero`: no zero points, or of how many a scale has.

    axis: that of scales and zero points; None: one of each
    """

    shape: tuple[int, ...]
    kind: str = "int8"
    axis: int | None = 0
    zero: bool = False
    op: str = "Conv"
    attributes: Mapping[str, Any] = field(default_factory=dict)
    channels: int = 0
    scale: float = 0.01

    def weights(self) -> dict[str, Array]:
        info = np.iinfo(self.kind)
        one = () if self.axis is None else (self.shape[self.axis],)
        drawn = {"q": RNG.integers(info.min, info.max + 1, self.shape).astype(self.kind)}
        drawn["s"] = (self.scale * (1 + RNG.random(one))).astype(np.float32)
        if self.zero:
            drawn["z"] = RNG.integers(info.min, info.max + 1, one).astype(self.kind)
        return drawn

    def models(self) -> tuple[Any, Any]:
        """With integers, and with their f32 values."""
        given, axis = self.weights(), self.axis or 0
        spread = [-1 if i == axis else 1 for i in range(len(self.shape))]
        scale, zero = (
            p.reshape(spread) if p.ndim else p for p in (given["s"], given.get("z", np.array(0)))
        )
        w = (given["q"].astype(np.float32) - zero.astype(np.float32)) * scale
        made = make_node("DequantizeLinear", list(given), ["w"], axis=axis)
        return self._model([made], given), self._model([], {"w": w})

    def _model(self, nodes: Sequence[Any], weights: Mapping[str, Array]) -> Any:
        if self.op == "Gather":
            nodes = [*nodes, make_node("Cast", ["x"], ["ids"], to=TensorProto.INT64)]
            used, given = ["w", "ids"], [3]
        else:
            used, given = ["x", "w"], [1, self.channels or self.shape[1], 9, 9]
        layer = make_node(self.op, used, ["y"], **self.attributes)
        return model([*nodes, layer], {"x": given}, ["y"], weights, opset=21)


LAYERS = {
    "a scale per channel": Layer((32, 24, 3, 3)),
    "bytes without a sign": Layer((32, 24, 3, 3), "uint8", zero=True),
    "zero points": Layer((32, 24, 3, 3), zero=True),
    "one scale": Layer((32, 24, 3, 3), axis=None),
    "one zero point": Layer((32, 24, 3, 3), "uint8", axis=None, zero=True),
    "columns that fill no panels": Layer((37, 24, 3, 3), zero=True),
    "and one zero point": Layer((37, 24, 3, 3), axis=None, zero=True),
    "a scale per summed channel": Layer((32, 24, 3, 3), axis=1, zero=True),
    "depthwise": Layer((512, 1, 3, 3), zero=True, attributes={"group": 512}, channels=512),
    "groups": Layer((64, 16, 3, 3), zero=True, attributes={"group": 4}, channels=64),
    "transposed": Layer((24, 32, 3, 3), op="ConvTranspose", axis=1, zero=True, channels=24),
    "a table of rows": Layer((300, 40), op="Gather", zero=True),
    "a table of columns": Layer((300, 40), op="Gather", axis=1),
}


def built(proto: Any, folder: Path) -> Bundle:
    write(compile_model(load(proto), Options(variants=("x86",))).contents, folder)
    return open_bundle(folder)


@pytest.mark.parametrize("name", LAYERS)
def test_hosts_read_the_numbers_of_the_model(name: str, tmp_path: Path) -> None:
    narrow, wide = (
        built(proto, tmp_path / kind)
        for proto, kind in zip(LAYERS[name].models(), ("narrow", "wide"), strict=True)
    )
    assert {"int8": "i8", "uint8": "u8"}[LAYERS[name].kind] in {t.stored for t in narrow.tensors()}
    found, wanted = ([t.tobytes() for t in tensors_of(b)] for b in (narrow, wide))
    largest = max(wanted, key=len)
    assert largest in found
    elements = len(largest) // 4
    assert narrow.manifest.weights.bytes < elements + len(wanted[0]) // 4 + 4096
    assert sum(map(len, memory_of(narrow))) == narrow.manifest.weights.memory
    assert narrow.manifest.weights.memory >= 4 * elements


@pytest.mark.parametrize(
    "layer",
    [
        Layer((2, 1, 3, 3), zero=True),
        Layer((32, 24, 3, 3), scale=-0.01),
        Layer((4200, 1), op="Gather"),
    ],
    ids=["small ones", "negative scales", "one scale for each"],
)
def test_others_are_f32_in_files(layer: Layer, tmp_path: Path) -> None:
    bundle = built(layer.models()[0], tmp_path)
    assert {t.stored for t in bundle.tensors()} == {""}
