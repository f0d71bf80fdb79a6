"""Tilewright: ONNX models compiled into kernels that get faster on the device that runs them."""

from importlib import import_module

__version__ = "0.1.0"

#: What made a file or an answer, as manifests and messages name it.
TOOL = f"tilewright {__version__}"

#: What programs use, by the module that has it; imported at first use.  `__init__.pyi` has types.
_API = {"language_model": "tilewright.api.language"}


def __getattr__(name: str) -> object:
    if name not in _API:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
    return getattr(import_module(_API[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_API})
