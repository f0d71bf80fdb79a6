"""A relinked bundle in memory: its own files here, weights and the rest in the folder as built.

Input: the bundle before, the new manifest and the files that are new.  Output: a `Bundle`, and the
bytes of its own files by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.bundle import POINTER, Bundle, FileRef, Manifest, Pointer
from tilewright.bundle.format import digest, encode


@dataclass(frozen=True)
class Relinked(Bundle):
    """`own`: bytes by path below the folder, pointer and manifest among them."""

    own: Mapping[str, bytes]

    @classmethod
    def of(cls, base: Bundle, manifest: Manifest, blobs: Mapping[str, bytes]) -> Relinked:
        data = encode(manifest)
        name = f"blobs/{digest(data)}.json"
        ref = FileRef(file=name, digest=digest(data), bytes=len(data))
        pointer = Pointer(format=manifest.format, tool=manifest.tool, manifest=ref)
        own = {**blobs, name: data, POINTER: encode(pointer) + b"\n"}
        return cls(base.folder, pointer, manifest, own)

    @property
    def weight(self) -> int:
        """Bytes in memory."""
        return sum(map(len, self.own.values()))

    def read(self, ref: FileRef) -> bytes:
        own = self.own.get(ref.file)
        return super().read(ref) if own is None else own
