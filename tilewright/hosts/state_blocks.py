"""States that grow by blocks of rows: how many blocks a run needs, and where their rows lie.

Input: a manifest, the inputs of a run, contents of states.  Output: numbers of blocks, arrays by
block.  Hosts reserve the memory themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.bundle import Manifest, PlanEntry
from tilewright.hosts.inputs_outputs import Array


def needed_blocks(manifest: Manifest, plan: PlanEntry, inputs: Mapping[str, object]) -> int:
    """The blocks that a run with these inputs reads and writes; 0 if the states have a fixed
    size."""
    growth = manifest.grown
    if growth is None:
        return 0
    last = int(np.asarray(inputs[growth.input]).reshape(-1)[0])
    rows = max(last + 1, plan.dims[growth.dim])
    return min(-(-rows // growth.rows), manifest.blocks)


def used_blocks(data: Array, rows: int) -> int:
    """The blocks up to the last row that is not zero."""
    used = np.flatnonzero(data.any(axis=(*range(data.ndim - 2), data.ndim - 1)))
    return int(used[-1]) // rows + 1 if used.size else 0


def into_blocks(data: Array, rows: int, count: int) -> list[Array]:
    """The contents of the first `count` blocks of a state."""
    matrices = data.reshape(-1, *data.shape[-2:])
    whole = np.pad(matrices, ((0, 0), (0, -data.shape[-2] % rows), (0, 0)))
    return [whole[:, at * rows : (at + 1) * rows].reshape(-1) for at in range(count)]


def from_blocks(blocks: Sequence[Array], shape: Sequence[int], rows: int) -> Array:
    """A state of this shape from the contents of its first blocks; further rows are zero."""
    *_, room, columns = shape
    parts = [block.reshape(-1, rows, columns) for block in blocks]
    whole = np.concatenate(parts, axis=1)[:, :room]
    return np.pad(whole, ((0, 0), (0, room - whole.shape[1]), (0, 0))).reshape(shape)
