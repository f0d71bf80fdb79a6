"""The ONNX operators, by kind: importing this package fills the operator table."""

from tilewright.frontend.operators import (
    activation,
    convolution,
    elementwise,
    indexing,
    matmul,
    movement,
    nibbles,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduction,
    resize,
    selection,
    shape,
    transformer,
)

__all__ = [
    "activation",
    "convolution",
    "elementwise",
    "indexing",
    "matmul",
    "movement",
    "nibbles",
    "normalization",
    "pooling",
    "quantization",
    "recurrent",
    "reduction",
    "resize",
    "selection",
    "shape",
    "transformer",
]
