"""The bundle: the compiler's output, which hosts run.  docs/bundle.md documents the format.

Input: a manifest and bytes (`Contents`, `write`).  Output: a folder, and from a folder a verified
`Bundle` (`open_bundle`).  It knows nothing of models, kernels or browsers.
"""

from tilewright.bundle.format import (
    FORMAT,
    POINTER,
    Asset,
    BuildEntry,
    CheckEntry,
    FileRef,
    GrowthEntry,
    Manifest,
    PlanEntry,
    Pointer,
    SectionEntry,
    StateEntry,
    StepEntry,
    TensorEntry,
    TensorInfo,
    Weights,
)
from tilewright.bundle.reader import Bundle, is_bundle, open_bundle
from tilewright.bundle.writer import SHARD_BYTES, Contents, add, write

__all__ = [
    "FORMAT",
    "POINTER",
    "SHARD_BYTES",
    "Asset",
    "BuildEntry",
    "Bundle",
    "CheckEntry",
    "Contents",
    "FileRef",
    "GrowthEntry",
    "Manifest",
    "PlanEntry",
    "Pointer",
    "SectionEntry",
    "StateEntry",
    "StepEntry",
    "TensorEntry",
    "TensorInfo",
    "Weights",
    "add",
    "is_bundle",
    "open_bundle",
    "write",
]
