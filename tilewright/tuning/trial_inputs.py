"""Generates the inputs of a trial, and checks the results of a kernel.

Input: a kernel, the name of an input set.  Output: an array for each buffer that the kernel reads;
or a sentence that says what is wrong with a result.  The rules are the page's
(web/tune/trial/trial_inputs.js and specs.js):

    random    usual magnitudes; also used for timing
    edge      rows of zeros, both signs, tiny and large numbers, a few denormals; ends of ranges
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.base.numpy_scalars import Array as Array
from tilewright.kernel.layout import Blocks
from tilewright.kernel.serialise import kernel_to_data
from tilewright.kernel.spec import Buffer, Kernel

SETS = ("random", "edge")
RANGES = {
    "i8": (-128, 127), "u8": (0, 255), "i16": (-1000, 1000), "i32": (-1000, 1000),
    "i64": (-8, 8), "bool": (0, 1),
}  # fmt: skip
EDGES = (0.0, -0.0, 1.0, -1.0, 1000.0, -1000.0, 1e-6, -0.5)
#: Denormals, and how rare they are: arithmetic on them may be slow.
DENORMALS, RARE = (1e-42, -1e-40), 997
#: The probability that a float of the set "edge" is one of EDGES.
OFTEN = 0.4
#: The tolerance of floats, relative to the largest magnitude; `DOUBTS` times the change that
#: perturbed inputs cause is added, up to `MOST_DOUBT` times the tolerance.
ROUNDING, DOUBTS, MOST_DOUBT = 2e-5, 4, 500
#: A buffer that a kernel multiplies by at least this much is a mask: its values must be 0 or 1.
MASKING = {True: 1e30, False: 1e4}
#: Functions that change a number's magnitude little.
STRAIGHT = ("add", "sub", "neg", "cast")


def dense(buffer: Buffer) -> str:
    """How elements are packed in 32-bit words: "halves" by two, "bytes" by four, "" one per
    word."""
    if buffer.as_f16:
        return "halves"
    return "bytes" if isinstance(buffer.layout, Blocks) and buffer.dtype.size == 1 else ""


def inputs_of(kernel: Kernel, name: str, seed: int) -> list[Array]:
    """The contents of all buffers but the first, which is the output."""
    data = kernel_to_data(kernel)
    bounds = dict.fromkeys(masks(data), 2) | gathered(data)
    return [
        _filled(buffer, name, bounds.get(n, 0), np.random.default_rng((seed, n)))
        for n, buffer in enumerate(kernel.buffers)
        if n
    ]


def _filled(buffer: Buffer, name: str, bound: int, rng: np.random.Generator) -> Array:
    size, kind = buffer.size, np.dtype(buffer.dtype.numpy)
    if kind.kind == "f":
        if bound:
            return np.floor(bound * rng.random(size)).astype(kind)
        found = rng.uniform(-2, 2, size)
        if name == "edge":
            found = np.where(rng.random(size) < OFTEN, rng.choice(EDGES, size), found)
            found[: size >> 3] = 0
            found[int(rng.integers(RARE)) :: RARE] = rng.choice(DENORMALS)
        return found.astype(kind)
    least, most = RANGES[buffer.dtype.name]
    if buffer.limit and most > 1:
        least, most = max(least, -buffer.limit), min(most, buffer.limit)
    if bound:
        least, most = 0, bound - 1
    if name == "edge":
        return rng.choice((least, most), size).astype(kind)
    return rng.integers(least, most + 1, size).astype(kind)


def perturbed_inputs(inputs: list[Array], seed: int) -> list[Array]:
    """The inputs with the last bits of floats changed.  The change of a result then shows how exact
    it can be."""
    rng = np.random.default_rng(seed)

    def shake(data: Array) -> Array:
        if data.dtype != np.float32:
            return data
        bits = rng.integers(0, 4, data.size, np.uint32)
        return np.where(data == 0, data, (data.view(np.uint32) ^ bits).view(np.float32))

    return [shake(data) for data in inputs]


def allowed(wanted: Array, *, rounds: bool) -> float:
    """The largest difference between results of correct kernels.

    rounds: True if integers are rounded from floats, so that they may differ by one
    """
    if wanted.dtype.kind != "f":
        return float(rounds)
    finite = np.abs(wanted[np.isfinite(wanted)])
    return ROUNDING * float(finite.max(initial=0.0))


def largest_difference(found: Array, wanted: Array) -> float:
    """The largest finite difference."""
    with np.errstate(invalid="ignore"):
        apart = np.abs(found.astype(np.float64) - wanted)
    return float(apart[np.isfinite(apart)].max(initial=0.0))


def difference(found: Array, wanted: Array, most: float) -> str:
    """A sentence about the first element that differs by more, or "".  NaN and infinities must
    match."""
    with np.errstate(invalid="ignore"):
        near = np.abs(found.astype(np.float64) - wanted.astype(np.float64)) <= most
    same = near | (found == wanted) | ((found != found) & (wanted != wanted))
    if same.all():
        return ""
    at = int(np.argmin(same.reshape(-1)))
    return f"element {at} is {found.reshape(-1)[at]} instead of {wanted.reshape(-1)[at]}"


def computes_with_floats(kernel: Kernel) -> bool:
    """True if the kernel computes with floats, which integers may be rounded from."""
    return any(np.dtype(b.dtype.numpy).kind == "f" for b in kernel.buffers)


def gathered(data: object, bound: int = 0) -> dict[int, int]:
    """For each index buffer, by number, the extent of the smallest table that it indexes.

    Terms of an index are [coefficient, "gather", value, extent]; loads ["load", dtype, buffer, …].
    """
    found: dict[int, int] = {}
    parts = data.values() if isinstance(data, Mapping) else data if isinstance(data, list) else ()
    if isinstance(data, list) and len(data) > 3 and data[1] == "gather":
        return gathered(data[2], data[3])
    if isinstance(data, list) and bound and len(data) > 2 and data[0] == "load":
        found[data[2]] = bound
    for part in parts:
        for number, extent in gathered(part, bound).items():
            found[number] = min(extent, found.get(number, extent))
    return found


def masks(data: object, factor: float = 1.0) -> set[int]:
    """Numbers of the buffers that a kernel multiplies by a very large constant."""
    found: set[int] = set()
    parts = data.values() if isinstance(data, Mapping) else data if isinstance(data, list) else ()
    if isinstance(data, list) and len(data) > 2:
        if data[0] == "load" and factor >= MASKING[data[1] in ("f32", "f64")]:
            found.add(data[2])
        if data[0] == "call" and data[2] == "mul" and data[1] in ("f32", "f64"):
            constants = (abs(float(part[2])) for part in data[3] if part[0] == "const")
            return masks(data[3], factor * max(constants, default=1.0))
        if data[0] == "call" and data[2] not in STRAIGHT:
            factor = 1.0
    for part in parts:
        found |= masks(part, factor)
    return found
