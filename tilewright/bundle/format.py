"""The records of a bundle, field for field as in docs/bundle.md, and their JSON.

Input: records or JSON bytes.  Output: canonical JSON bytes or checked records.  The order of the
fields here is the order in the file, so equal records give equal bytes.  No file is touched here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any, Literal, TypeVar

import msgspec

from tilewright.base.errors import BundleCorrupt, BundleVersion

FORMAT = 2
POINTER = "bundle.json"
BLOBS = "blobs"

_BLOB = re.compile(rf"{BLOBS}/([0-9a-f]{{64}})\.[A-Za-z0-9]+")

DTypeName = Literal["f32", "f64", "i8", "u8", "i32", "i64", "bool"]


class FileRef(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the bundle: path below the folder, SHA-256 of its content, size in bytes."""

    file: str
    digest: str
    bytes: int


class Code(FileRef, frozen=True, kw_only=True):
    """A variant: a kernel module, the image of each plan, and what a host is asked to choose it.

    features: Wasm features that the host must have
    registers: vector registers that the schedules fill; more than the host's would spill
    """

    variant: str
    features: tuple[str, ...] = ()
    registers: int
    images: tuple[FileRef, ...]


class Asset(FileRef, frozen=True, kw_only=True):
    """A file for the page, such as a tokenizer; `type` is its MIME type."""

    name: str
    type: str


class TensorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An input or output of the model; a shape entry is a number or a named dimension."""

    name: str
    dtype: DTypeName
    shape: tuple[int | str, ...]


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """An input or output of one plan: numbers only, with its place in memory."""

    name: str
    dtype: DTypeName
    shape: tuple[int, ...]
    address: int
    bytes: int


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Total size of the linear memory and the address of each region."""

    bytes: int
    control: int
    weights: int
    arena: int
    arena_bytes: int
    scratch: int
    scratch_bytes: int


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """The weight shards, which follow each other in memory.  The writer fills in `shards`."""

    bytes: int
    shards: tuple[FileRef, ...] = ()


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a plan, for people and profilers."""

    slot: int
    spec: int
    kernel: str
    node: str
    flops: int
    bytes: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The steps for one combination of buckets.  The image of each variant goes to `address`."""

    dims: dict[str, int]
    address: int
    inputs: tuple[Placed, ...]
    outputs: tuple[Placed, ...]
    arena_bytes: int
    steps: tuple[Step, ...]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """All that a host has to know of a bundle."""

    format: int = FORMAT
    tool: str
    name: str
    dims: dict[str, tuple[int, ...]]
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    memory: Memory
    weights: Weights
    driver: FileRef
    code: tuple[Code, ...]
    slots: int
    kernels: FileRef
    plans: tuple[Plan, ...]
    assets: tuple[Asset, ...] = ()

    def files(self) -> Iterator[FileRef]:
        """Every file that the manifest names, each content once."""
        named: tuple[FileRef, ...] = (
            self.driver,
            *self.code,
            self.kernels,
            *(image for code in self.code for image in code.images),
            *self.assets,
            *self.weights.shards,
        )
        yield from {ref.file: ref for ref in named}.values()


class Pointer(msgspec.Struct, frozen=True, kw_only=True):
    """The content of bundle.json."""

    format: int
    tool: str
    manifest: FileRef


Record = TypeVar("Record", Manifest, Pointer)


def is_blob_name(file: str, ref_digest: str | None = None) -> bool:
    """Whether `file` is `blobs/<digest>.<extension>`, of this digest if one is given."""
    found = _BLOB.fullmatch(file)
    return found is not None and ref_digest in (None, found[1])


def named_digest(name: str) -> str | None:
    """What the bytes of a blob must be, in whatever folder it lies; None for any other file."""
    found = _BLOB.fullmatch("/".join(name.split("/")[-2:]))
    return found[1] if found else None


def digest(data: bytes | bytearray | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def encode(value: object) -> bytes:
    """Canonical JSON: record fields in declared order, mappings as inserted, no white space."""
    return msgspec.json.encode(value)


def decode(data: bytes, kind: type[Record], place: str) -> Record:
    """JSON bytes as a record; the format version is looked at before anything else."""
    _check_version(data, place)
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise BundleCorrupt(
            f"{place} does not follow the bundle format: {error}", hint=REBUILD, path=place
        ) from error


REBUILD = "Build the bundle again"


def _check_version(data: bytes, place: str) -> None:
    try:
        found: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BundleCorrupt(f"{place} is no JSON: {error}", hint=REBUILD, path=place) from error
    version = found.get("format") if isinstance(found, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise BundleCorrupt(f"{place} has no format version", hint=REBUILD, path=place)
    if version == FORMAT:
        return
    older = version < FORMAT
    raise BundleVersion(
        f"The bundle is {'older' if older else 'newer'} than this program: it has format "
        f"{version}, the program reads {FORMAT}",
        hint=f"{REBUILD} with this version" if older else "Update Tilewright",
        path=place,
        found=version,
        expected=FORMAT,
        tool=found.get("tool"),
    )
