"""The numbers in a kernel case, the same for every engine and every format.

Input: a kernel's work.  Output: its inputs and constants.  Needs NumPy only, so that exporters can
read it in environments of their own.
"""

from __future__ import annotations

import numpy as np

from benchmarks.peers.cases import Attention, Conv, Kernel, Matmul
from tilewright.base.numpy_scalars import Array as Array

Arrays = dict[str, Array]


def operands(work: Kernel) -> tuple[Arrays, Arrays]:
    """Inputs and constants of a kernel: seeded, normally distributed, small sums."""
    source = np.random.default_rng(5)

    def normal(shape: tuple[int, ...], scale: float = 1.0) -> Array:
        return source.standard_normal(shape, np.float32) * np.float32(scale)

    x, w = normal(work.x), normal(work.w)
    if isinstance(work, Attention):
        made = {"q": x, "k": w, "v": normal(work.w)}
        return {n: a.astype(np.float16) if work.halves else a for n, a in made.items()}, {}
    if isinstance(work, Matmul) and work.halves:
        x, w = x.astype(np.float16), w.astype(np.float16)
    if isinstance(work, Conv):
        return {"x": x}, {"w": w * np.float32(0.1), "b": normal((work.filters,))}
    if isinstance(work, Matmul) and not work.batch:
        return {"x": x}, {"w": w}
    return {"x": x, "w": w}, {}
