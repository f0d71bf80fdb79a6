"""GPU features by compute capability.

Input: feature names of targets/gpu/workgroup_limits.py.  Output: the least capability that has a
feature, and the features of a given capability.  For older GPUs a plan also has a kernel without
the feature (api.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilewright.targets.gpu.workgroup_limits import (
    COPIES,
    EVERYWHERE,
    F16_FEATURE,
    LARGER_SIZES,
    MATRIX,
    MORE_SHARED,
    PACKED,
    SHARED_SIZES,
    SUBGROUPS,
    size_of,
)

WARP = 32
#: Matrix shapes that units.py has text for, by the types of operands and results.
CONFIGURATIONS = {
    "f16-f32": ("16x16x16", "16x8x16"),
    "i8-i32": ("16x16x32", "16x8x32"),
    "u8-i32": ("16x16x32", "16x8x32"),
    "tf32-f32": ("16x16x8", "16x8x8"),
}

#: Threads of a warp group.  Only capability 9.0 has matrix instructions for it.
WARPGROUP = 128
OF_GROUPS = ("64x64x16", "64x128x16", "64x256x16")
ONLY = frozenset((size_of(WARPGROUP), *(f"subgroup-matrix-f16-f32-{size}" for size in OF_GROUPS)))
HOPPER = (9, 0)

Capability = tuple[int, int]

#: Features that every supported GPU has.
EVERY = frozenset((SUBGROUPS, size_of(WARP), PACKED, *MORE_SHARED))
#: The lowest capability with each feature.
FIRST: Mapping[str, Capability] = {
    **dict.fromkeys(EVERY, (7, 0)),
    **dict.fromkeys((MATRIX, F16_FEATURE), (7, 5)),
    COPIES: (8, 0),
    **dict.fromkeys(ONLY, HOPPER),
    **{
        f"subgroup-matrix-{types}-{size}": (7, 5) if types in ("f16-f32", "i8-i32") else (8, 0)
        for types, sizes in CONFIGURATIONS.items()
        for size in sizes
    },
}
#: The most shared memory of a block in bytes, by capability (CUDA C++ Programming Guide, table of
#: technical specifications).  A capability that is not listed has the value of the next lower one
#: of its generation.
SHARED: Mapping[Capability, int] = {
    (7, 0): 98304, (7, 5): 65536, (8, 0): 166912, (8, 6): 101376, (8, 7): 166912, (8, 9): 101376,
    (9, 0): 232448, (10, 0): 232448, (12, 0): 101376,
}  # fmt: skip

#: All features that a kernel may require.
FEATURES = frozenset(FIRST) | {f"shared-memory-{size}" for size in LARGER_SIZES}


def least(needs: Iterable[str]) -> Capability:
    """The lowest capability with all these features; it ignores shared memory sizes."""
    return max((FIRST.get(name, (7, 0)) for name in needs), default=(7, 0))


def shared_of(capability: Capability) -> int:
    """The most shared memory of a block, in bytes."""
    return SHARED[max(c for c in SHARED if c <= capability)]


def features_of(capability: Capability) -> frozenset[str]:
    """The features of a GPU of this capability."""
    most = shared_of(capability)
    sizes = (s for s in (*SHARED_SIZES, *LARGER_SIZES) if EVERYWHERE < s <= most)
    found = {name for name, first in FIRST.items() if first <= capability}
    found -= ONLY if capability != HOPPER else set()
    return frozenset(found | {f"shared-memory-{size}" for size in sizes})
