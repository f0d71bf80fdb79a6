"""Tilewright: ONNX models compiled into kernels that get faster on the device that runs them."""

__version__ = "0.1.0"
