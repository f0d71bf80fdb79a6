"""Tilewright: ONNX models compiled into kernels that get faster on the device that runs them."""

__version__ = "0.1.0"

#: What made a file or an answer, as manifests and messages name it.
TOOL = f"tilewright {__version__}"
