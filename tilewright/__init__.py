"""Tilewright: ONNX models compiled into kernels that get faster on the device that runs them."""

from importlib import import_module

__version__ = "0.1.0"

#: Name and version of this program, as manifests and messages state them.
TOOL = f"tilewright {__version__}"

#: The public names by the module that defines each.  A module is imported at the first use of its
#: names.  `__init__.pyi` has their types.
_API = {"language_model": "tilewright.api.language"}


def __getattr__(name: str) -> object:
    if name not in _API:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
    return getattr(import_module(_API[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_API})
