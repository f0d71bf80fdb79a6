"""The records of a bundle, field for field as in docs/bundle.md, and their JSON.

Input: records or JSON bytes.  Output: canonical JSON bytes or checked records.  The order of fields
here is that in the file, so equal records give equal bytes.  It reads and writes no files.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import msgspec

from tilewright.base.errors import BundleCorrupt, BundleVersion, CompilerBug, MemoryLimit

FORMAT = 4
POINTER = "bundle.json"
BLOBS = "blobs"

_BLOB = re.compile(rf"{BLOBS}/([0-9a-f]{{64}})\.[A-Za-z0-9]+")

DTypeName = Literal["f32", "f64", "i8", "u8", "i16", "i32", "i64", "bool"]
DeclaredName = Literal["f32", "f64", "i8", "u8", "i16", "i32", "i64", "bool", "f16", "bf16"]
StoredName = Literal["", "f16", "bf16", "i8", "u8"]


class FileRef(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the bundle: path below the folder, SHA-256 of its content, size in bytes."""

    file: str
    digest: str
    bytes: int


class BuildEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A variant of a target: linked code, each plan as its hosts read it, and what it requires of a
    host.

    features: what the host must have
    facts:    other properties by which a host chooses between variants (docs/bundle.md)
    """

    variant: str
    features: tuple[str, ...] = ()
    code: FileRef
    plans: tuple[FileRef, ...]
    facts: dict[str, Any] = {}


class SectionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One target's part of the bundle.  A host reads the section of its own target alone.

    builds:   variants, best first
    slots:    number of different kernels in the code
    memory:   total bytes that a host with one worker needs
    programs: files that all variants share, by name
    plans:    per plan, facts for hosts
    kernels:  slots, and per variant the schedules of the code; engines do not need it
    facts:    the target's own; docs/bundle.md says what they mean
    """

    builds: tuple[BuildEntry, ...]
    slots: int
    memory: int
    programs: dict[str, FileRef]
    plans: tuple[dict[str, Any], ...]
    kernels: FileRef
    facts: dict[str, Any]

    def files(self) -> Iterator[FileRef]:
        yield from self.programs.values()
        yield self.kernels
        for build in self.builds:
            yield build.code
            yield from build.plans

    def build(self, variant: str) -> BuildEntry | None:
        return next((b for b in self.builds if b.variant == variant), None)


class Asset(FileRef, frozen=True, kw_only=True):
    """A file for the page, such as a tokenizer; `type` is its MIME type."""

    name: str
    type: str


class TensorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An input or output of the model; a shape entry is a number or a named dimension.

    dtype: as the model declares it; in memory f16 and bf16 lie as f32
    """

    name: str
    dtype: DeclaredName
    shape: tuple[int | str, ...]


class TensorEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A stored constant; the index in the table is its id.

    dtype:  as kernels read it
    stored: the narrower element type of its bytes in the shards; "" if that is `dtype`
    scale, zero: if integers are stored: ids of earlier tensors with the scales and zero points that
                 make them f32.  Their shapes broadcast to this tensor's shape; without `zero` the
                 zero point is 0
    layout: the order of its elements in memory (docs/bundle.md)
    shard:  number of the shard in which it begins; it may continue in the next ones
    offset: position of its first byte in the concatenated shards; may exceed 32 bits
    digest: SHA-256 of its bytes
    compact: True if it is f16 in a linear memory, too, as in the shards
    """

    dtype: DTypeName
    shape: tuple[int, ...]
    stored: StoredName = ""
    compact: bool | msgspec.UnsetType = msgspec.UNSET
    scale: int | None = None
    zero: int | None = None
    layout: tuple[str | int, ...] = ("rows",)
    shard: int = 0
    offset: int
    bytes: int
    digest: str = ""


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """The stored constants: bytes of all shards, which follow each other, and the table of tensors
    (a file with a list of `Tensor`).  The writer fills in both.

    memory: bytes of all tensors after widening; 0 if hosts widen none
    """

    bytes: int
    memory: int = 0
    shards: tuple[FileRef, ...] = ()
    tensors: FileRef | None = None


class StateEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A value that keeps its contents from run to run; zeros at first, and after a reset.

    dtype: as of `TensorInfo`
    """

    name: str
    dtype: DeclaredName
    shape: tuple[int, ...]


class GrowthEntry(msgspec.Struct, frozen=True, kw_only=True):
    """How all states grow, by blocks of `rows` rows of the axis before the last one.

    A run with `last` in the input `input`, in a plan for `n` new rows (the dimension `dim`), needs
    max(last + 1, n) rows.
    """

    input: str
    dim: str
    rows: int


class CheckEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An index that a kernel checks at run time, for its error message: the node, the operator and
    the axis that it belongs to.

    least: the smallest index that the operator allows; negative indices count from the end
    """

    node: str
    op: str
    axis: int
    length: int
    least: int = 0


class StepEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a plan, for people and profilers.

    spec:   the number of its kernel in the list of kernels
    checks: the indices that its kernel checks, by the number of the check
    """

    spec: int
    kernel: str
    node: str
    flops: int
    bytes: int
    checks: tuple[CheckEntry, ...] = ()


class PlanEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The steps for one combination of buckets.

    inputs, outputs: shapes as numbers, in the model's order
    file: the neutral plan with values and dependencies, from which encoded plans are made
    """

    dims: dict[str, int]
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    steps: tuple[StepEntry, ...]
    file: FileRef


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest: everything that a host must know of a bundle."""

    format: int = FORMAT
    tool: str
    name: str
    dims: dict[str, tuple[int, ...]]
    extents: tuple[str, ...] = ()
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    states: tuple[StateEntry, ...] = ()
    growth: GrowthEntry | msgspec.UnsetType = msgspec.UNSET
    weights: Weights
    kernels: FileRef
    plans: tuple[PlanEntry, ...]
    targets: dict[str, SectionEntry]
    assets: tuple[Asset, ...] = ()

    @property
    def grown(self) -> GrowthEntry | None:
        """How the states grow; None if they have a fixed size."""
        return None if self.growth is msgspec.UNSET else self.growth

    @property
    def blocks(self) -> int:
        """The blocks that hold all rows of the states; 0 if they have a fixed size."""
        growth = self.grown
        return -(-self.states[0].shape[-2] // growth.rows) if growth else 0

    def files(self) -> Iterator[FileRef]:
        """Every file that the manifest names, each content once."""
        tensors = self.weights.tensors
        named: tuple[FileRef, ...] = (
            *(ref for section in self.targets.values() for ref in section.files()),
            self.kernels,
            *(plan.file for plan in self.plans),
            *self.assets,
            *self.weights.shards,
            *(() if tensors is None else (tensors,)),
        )
        yield from {ref.file: ref for ref in named}.values()

    def section(self, target: str) -> SectionEntry:
        """The part of a target; `BundleCorrupt` if the bundle was not built for it."""
        if target not in self.targets:
            raise BundleCorrupt(
                f"The bundle has no code for the target {target}",
                hint=f"Build it with --target {target}",
                target=target,
                known=list(self.targets),
            )
        return self.targets[target]


class Pointer(msgspec.Struct, frozen=True, kw_only=True):
    """The content of bundle.json.

    name, serial, signature: set if a site signs its bundles (signing.py): the bundle's name, a
                             number that rises from build to build, and the signature of both and of
                             the manifest's digest
    """

    format: int
    tool: str
    manifest: FileRef
    name: str | msgspec.UnsetType = msgspec.UNSET
    serial: int | msgspec.UnsetType = msgspec.UNSET
    signature: str | msgspec.UnsetType = msgspec.UNSET


Record = TypeVar("Record", Manifest, Pointer)
T = TypeVar("T")


def is_blob_name(file: str, ref_digest: str | None = None) -> bool:
    """Whether `file` is `blobs/<digest>.<extension>`, of this digest if one is given."""
    found = _BLOB.fullmatch(file)
    return found is not None and ref_digest in (None, found[1])


def named_digest(name: str) -> str | None:
    """The digest in a blob's path, below any folder; None for any other file."""
    found = _BLOB.fullmatch("/".join(name.split("/")[-2:]))
    return found[1] if found else None


def digest(data: bytes | bytearray | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def encode(value: object) -> bytes:
    """Canonical JSON: record fields in declared order, mappings as inserted, no white space."""
    return msgspec.json.encode(value)


def decode(data: bytes, kind: type[Record], place: str) -> Record:
    """JSON bytes as a record.  place: path for messages

    Raises BundleVersion, checked first, or BundleCorrupt.
    """
    _check_version(data, place)
    made: Record = parse(data, kind, place)
    return made


def parse(data: bytes, kind: type[T], place: str) -> T:
    """JSON bytes as data of a type.  place: path for messages.  Raises BundleCorrupt."""
    with reading(place):
        return msgspec.json.decode(data, type=kind)


REBUILD = "Build the bundle again"

#: The exceptions that Python raises while it reads data of a wrong form.
MALFORMED = (
    msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError,
    RecursionError,
)  # fmt: skip


@contextmanager
def reading(place: str) -> Iterator[None]:
    """A context for code that reads parts of a bundle: errors about malformed data become
    BundleCorrupt.

    place: path or name of the part, for messages.  Raises MemoryLimit if memory runs out.
    """
    try:
        yield
    except MemoryError as error:
        raise MemoryLimit(f"{place} needs more memory than there is", path=place) from error
    except MALFORMED as error:
        raise BundleCorrupt(
            f"{place} does not follow the bundle format: {error}"[:LONGEST],
            hint=REBUILD,
            path=place,
        ) from error


@contextmanager
def checking() -> Iterator[None]:
    """A context for code that checks a bundle's data by the compiler's own invariants.  A broken
    invariant is then the bundle's fault: CompilerBug becomes BundleCorrupt."""
    try:
        yield
    except CompilerBug as error:
        raise BundleCorrupt(error.message, hint=REBUILD, **error.facts) from error


#: The most characters of a message that quotes a file.
LONGEST = 400


def _check_version(data: bytes, place: str) -> None:
    try:
        found: object = msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BundleCorrupt(f"{place} is not JSON: {error}", hint=REBUILD, path=place) from error
    fields = found if isinstance(found, dict) else {}
    version = fields.get("format")
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
        tool=fields.get("tool"),
    )
