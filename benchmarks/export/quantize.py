"""A static int8 version of an image classifier: QDQ, weights per channel, by onnxruntime.

Input: an ONNX file of one image input.  Output: the quantised ONNX file; scales come from seeded
random images.  Weights have 7 bits, as onnxruntime recommends for x86 without VNNI: sums of two
products then fit 16 bits.  Needs onnxruntime and its quantisation tools (see README.md).

    python quantize.py mobilenet_v2.onnx mobilenet_v2_int8.onnx
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process
from target import add_force, free

IMAGES = 8


class Noise(CalibrationDataReader):  # type: ignore[misc]
    """A few normally distributed images."""

    def __init__(self, model: Path) -> None:
        given = onnx.load(model, load_external_data=False).graph.input[0]
        shape = [d.dim_value for d in given.type.tensor_type.shape.dim]
        source = np.random.default_rng(3)
        self._images: Iterator[dict[str, Any]] = iter(
            {given.name: source.standard_normal(shape).astype(np.float32)} for _ in range(IMAGES)
        )

    def get_next(self) -> dict[str, Any] | None:
        return next(self._images, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--full-range", action="store_true", help="weights of 8 bits, not 7")
    add_force(parser)
    args = parser.parse_args()
    free(args.target, args.force)
    with tempfile.TemporaryDirectory() as folder:
        prepared = Path(folder) / "prepared.onnx"
        quant_pre_process(args.source, prepared)
        quantize_static(
            prepared,
            args.target,
            Noise(prepared),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            reduce_range=not args.full_range,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
    print(f"{args.target.name}: {args.target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
