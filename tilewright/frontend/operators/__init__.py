"""The ONNX operators, by kind: importing this package fills the operator table."""

from tilewright.frontend.operators import (  # noqa: F401
    activation,
    elementwise,
    fused,
    indexing,
    matmul,
    movement,
    normalization,
    quantization,
    recurrent,
    reduction,
    resize,
    scatter,
    shape,
    transformer,
    windows,
)
