"""The memory that WGSL declares as vectors, as the interpreter of loops takes it.

Input: the loops of a kernel.  Output: by buffer, the elements of a vector.
"""

from __future__ import annotations

from tilewright.base.abi import WORD_BYTES
from tilewright.base.dtypes import I8, U8
from tilewright.kernel.loops import TileFn
from tilewright.targets.gpu.vector_buffers import (
    needs_whole_vectors,
    packs_bytes,
    stored_singly,
    vectors,
)
from tilewright.targets.vectors import LANES


def wholes(fn: TileFn) -> dict[int, int]:
    """The vector length, in elements, with which WGSL declares a buffer or shared area.

    In WGSL a write to one element of a vector may touch the whole vector.  So memory is declared as
    vectors only where all writes are vectors.
    """
    found = vectors(fn.body)
    memory = range(len(fn.buffers)) if needs_whole_vectors(fn) and not stored_singly(fn) else ()
    shared = {n: lanes for n, lanes in found.items() if n >= len(fn.buffers)}
    if packs_bytes(fn):
        bytes_ = (n for n, s in enumerate(fn.scratch, len(fn.buffers)) if s.dtype in (I8, U8))
        shared |= {n: max(WORD_BYTES, found.get(n, 1)) for n in bytes_}
    return dict.fromkeys(memory, LANES) | shared
