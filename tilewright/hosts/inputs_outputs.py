"""The work of every Python host around a run: check inputs, pick the bucket, pad, crop.

Input: a manifest and named arrays.  Output: arrays of exactly the plan's shape, and back.  The
browser engine follows the same rules (docs/bundle.md).  Also the error of a run that met an index
out of range, in the engine's words (`outOfRange` in web/engine/errors.js).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeVar

import ml_dtypes  # noqa: F401  NumPy learns the name bfloat16
import numpy as np
import numpy.typing as npt

from tilewright.base.abi import CHECK_BIT
from tilewright.base.dtypes import DECLARED, in_memory
from tilewright.base.errors import InputError, KernelTrap
from tilewright.base.numpy_scalars import Array as Array
from tilewright.bundle import Manifest, PlanEntry, StateEntry, StepEntry, TensorInfo

Entry = TypeVar("Entry", TensorInfo, StateEntry)
#: Element types, by NumPy's names, that an input or state accepts besides its own: types all of
#: whose numbers it can represent.  16-bit float types also accept f32, which is rounded, and their
#: own bits.  The engine accepts the same (web/engine/tensors.js).
ALSO = {
    "float16": ("float32", "uint16"),
    "bfloat16": ("float32", "uint16"),
    "float32": ("float16",),
    "float64": ("float32", "float16"),
    "int64": ("int32", "uint32"),
}


@dataclass(frozen=True)
class Inference:
    """The result of one inference: outputs by name, and the buckets that were used."""

    outputs: dict[str, Array]
    bucket: dict[str, int]


def pick_plan(manifest: Manifest, inputs: Mapping[str, object]) -> int:
    """The number of the smallest plan whose buckets hold the inputs (plans are sorted).

    Raises InputError.
    """
    sizes = named_sizes(manifest, inputs)
    for number, plan in enumerate(manifest.plans):
        if all(plan.dims[name] >= size for name, size in sizes.items()):
            return number
    raise InputError(
        "the input is larger than the largest bucket",
        hint="Shorten the input or build with a larger bucket (--buckets)",
        sizes=sizes,
        buckets={name: list(b) for name, b in manifest.dims.items()},
    )


def largest_extents(manifest: Manifest) -> list[int]:
    """The run-time extents, by number, at their largest."""
    return [manifest.dims[name][-1] for name in manifest.extents]


def extents_of(manifest: Manifest, inputs: Mapping[str, object]) -> list[int]:
    """The run-time extents, by number: those of the inputs; extents that no input has are at their
    largest."""
    sizes = named_sizes(manifest, inputs)
    longest = zip(manifest.extents, largest_extents(manifest), strict=True)
    return [sizes.get(name, most) for name, most in longest]


def named_sizes(manifest: Manifest, inputs: Mapping[str, object]) -> dict[str, int]:
    """The size of each named dimension in the given inputs.  It is 0 only if the bundle has a
    bucket of 0: other plans would count their padding.

    Raises InputError for a wrong name, rank or size.
    """
    for name in inputs:
        entry_of(manifest.inputs, name, "input")
    sizes: dict[str, int] = {}
    for info in manifest.inputs:
        if info.name not in inputs:
            raise InputError(
                f"input {info.name!r} is missing",
                hint="Give every input of the model",
                dtype=info.dtype,
                shape=list(info.shape),
            )
        _check_shape(info, np.asarray(inputs[info.name]).shape, sizes)
    for name, size in sizes.items():
        if size == 0 and manifest.dims[name][0] > 0:
            raise InputError(
                f"an input is empty in dimension {name}",
                hint="Give one element at least", dimension=name, sizes=sizes,
            )  # fmt: skip
    return sizes


def _check_shape(info: TensorInfo, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
    wrong = len(shape) != len(info.shape)
    for want, got in zip(info.shape, shape, strict=False):
        wrong |= sizes.setdefault(want, got) != got if isinstance(want, str) else want != got
    if wrong:
        raise InputError(
            f"input {info.name!r} has the wrong shape",
            hint="Give the expected shape; axes with a name may be shorter than their bucket",
            expected=list(info.shape),
            shape=list(shape),
            sizes=sizes or None,
        )


def entry_of(entries: Sequence[Entry], name: str, kind: str) -> Entry:
    """The input or state with this name.  Raises InputError if there is none."""
    for entry in entries:
        if entry.name == name:
            return entry
    known = [entry.name for entry in entries]
    hint = f"Its {kind}s are {', '.join(known) or 'none'}"
    if kind == "input":
        hint += "; what the model file has a value for is a weight, which runs cannot change"
    raise InputError(
        f"The model has no {kind} {name!r}",
        hint=hint,
        known=known,
        **{kind: name},
    )


def widened(entry: TensorInfo | StateEntry, value: object, kind: str = "input") -> Array:
    """The array as it is stored in memory, with each number rounded to the declared type.

    kind: what errors call the entry, as in the engine

    Raises InputError for an element type that is not accepted.
    """
    given, own = np.asarray(value), DECLARED[entry.dtype].numpy
    takes = (own, *ALSO.get(own, ()))
    if given.dtype.name not in takes:
        raise InputError(
            f"{kind.capitalize()} {entry.name!r} has the wrong type: "
            f"expected {own}, found {given.dtype.name}",
            hint=f"Give {' or '.join(takes)}, as of array.astype('{own}')",
            expected=own,
            found=given.dtype.name,
            **{kind: entry.name},
        )
    if given.dtype.name == "uint16":
        given = given.astype("<u2", copy=False).view(own)
    with np.errstate(over="ignore"):
        return given.astype(own, copy=False).astype(in_memory(entry.dtype).numpy, copy=False)


def as_declared(entry: TensorInfo | StateEntry, data: Array) -> Array:
    """A copy of data in memory, in the declared type."""
    return data.astype(DECLARED[entry.dtype].numpy)


def fit(manifest: Manifest, plan: PlanEntry, inputs: Mapping[str, object]) -> Iterator[Array]:
    """Each input as a contiguous array of the plan's shape, padded with zeros at the end."""
    for info, shape in zip(manifest.inputs, plan.inputs, strict=True):
        given = widened(info, inputs[info.name])
        whole = np.zeros(shape, given.dtype)
        whole[tuple(slice(n) for n in given.shape)] = given
        yield whole


def collect(
    manifest: Manifest,
    plan: PlanEntry,
    inputs: Mapping[str, object],
    read: Callable[[int, int], bytes],
) -> Inference:
    """Outputs cropped to the given sizes of the named dimensions.

    read: number of an output, its size in bytes → its bytes
    """
    sizes = named_sizes(manifest, inputs)
    outputs = {}
    for number, (info, shape) in enumerate(zip(manifest.outputs, plan.outputs, strict=True)):
        dtype = in_memory(info.dtype)
        raw = np.frombuffer(read(number, prod(shape) * dtype.size), dtype.numpy)
        crop = tuple(slice(sizes.get(n) if isinstance(n, str) else None) for n in info.shape)
        outputs[info.name] = as_declared(info, raw.reshape(shape)[crop])
    return Inference(outputs, dict(plan.dims))


def state_number(manifest: Manifest, name: str) -> int:
    """The number of the state with this name.  Raises InputError if there is none."""
    return manifest.states.index(entry_of(manifest.states, name, "state"))


def rounded(data: Array) -> Array:
    """f16 numbers, the nearest and at most the largest one: what a compact state holds."""
    most = np.finfo(np.float16).max
    return np.clip(data, -most, most).astype(np.float16)


def state_array(state: StateEntry, value: object) -> Array:
    """New contents of a state as a contiguous array.  Raises InputError for another shape, or an
    element type that is not accepted."""
    given = widened(state, value, "state")
    if given.shape != state.shape:
        raise InputError(
            f"State {state.name!r} has the wrong shape",
            hint=f"Give an array of shape {list(state.shape)}",
            state=state.name,
            expected=list(state.shape),
            shape=list(given.shape),
        )
    return np.ascontiguousarray(given)


def in_words(data: Array, kind: npt.DTypeLike) -> Array:
    """Numbers of a narrow type packed into 32-bit words, the first in the low bits."""
    narrow = data.astype(kind)
    return np.pad(narrow, (0, -data.size % (4 // narrow.itemsize))).view(np.int32)


HINT = "Check token ids and other indices"


def out_of_range(steps: Sequence[StepEntry], step: int, check: int, index: int) -> KernelTrap:
    """The error.  check: the number of the kernel's check;  index: as the kernel counts it"""
    at = steps[step]
    facts = {"kernel": at.kernel, "step": step}
    if check not in range(len(at.checks)):  # a bundle of an older build
        return KernelTrap("an index is out of range", hint=HINT, node=at.node, index=index, **facts)
    known = at.checks[check]
    if index < 0:
        index += known.least  # as the model gave it; the kernel counts from 0
    return KernelTrap(
        f"index {index} of {known.op or 'node'} {known.node} is out of range: "
        f"axis {known.axis} has {known.length} elements",
        hint=HINT, node=known.node, op=known.op or None, axis=known.axis, length=known.length,
        index=index, **facts,
    )  # fmt: skip


def of_word(steps: Sequence[StepEntry], word: int, index: int) -> KernelTrap:
    """The error for the word that GPU kernels write (base/abi.py).  The word of an older build only
    says that an index is out of range."""
    step, check = (word & ((1 << CHECK_BIT) - 1)) - 1, word >> CHECK_BIT
    if step in range(len(steps)) and check in range(len(steps[step].checks)):
        return out_of_range(steps, step, check, index)
    return KernelTrap(
        "an index is out of range", hint=f"{HINT}. A new build of the bundle says which one"
    )
