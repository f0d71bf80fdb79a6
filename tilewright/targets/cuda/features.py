"""GPU features by compute capability.

Input: feature names of targets/gpu/workgroup_limits.py.  Output: the least capability that has a
feature, and the features of a given capability.  For older GPUs a plan also has a kernel without
the feature (target.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilewright.targets.gpu.workgroup_limits import (
    ASYNC_COPIES_FEATURE,
    F16_FEATURE,
    LARGER_SHARED_SIZES,
    MATRIX_FEATURE,
    PACKED_DOT_FEATURE,
    SHARED_EVERYWHERE,
    SHARED_FEATURES,
    SHARED_SIZES,
    SUBGROUPS_FEATURE,
    WARP,
    WARPGROUP,
    subgroup_feature,
)

#: Matrix shapes that mma.py has text for, by the types of operands and results.
MMA_SIZES = {
    "f16-f32": ("16x16x16", "16x8x16"),
    "i8-i32": ("16x16x32", "16x8x32"),
    "u8-i32": ("16x16x32", "16x8x32"),
    "tf32-f32": ("16x16x8", "16x8x8"),
}

#: Matrix shapes of a warp group.  Only capability 9.0 has instructions for it.
WGMMA_SIZES = ("64x64x16", "64x128x16", "64x256x16")
HOPPER_ONLY = frozenset(
    (subgroup_feature(WARPGROUP), *(f"subgroup-matrix-f16-f32-{size}" for size in WGMMA_SIZES))
)
HOPPER = (9, 0)

Capability = tuple[int, int]

#: Features that every supported GPU has.
BASE_FEATURES = frozenset(
    (SUBGROUPS_FEATURE, subgroup_feature(WARP), PACKED_DOT_FEATURE, *SHARED_FEATURES)
)
#: The lowest capability with each feature.
FIRST_CAPABILITY: Mapping[str, Capability] = {
    **dict.fromkeys(BASE_FEATURES, (7, 0)),
    **dict.fromkeys((MATRIX_FEATURE, F16_FEATURE), (7, 5)),
    ASYNC_COPIES_FEATURE: (8, 0),
    **dict.fromkeys(HOPPER_ONLY, HOPPER),
    **{
        f"subgroup-matrix-{types}-{size}": (7, 5) if types in ("f16-f32", "i8-i32") else (8, 0)
        for types, sizes in MMA_SIZES.items()
        for size in sizes
    },
}
#: The most shared memory of a block in bytes, by capability (CUDA C++ Programming Guide, table of
#: technical specifications).  A capability that is not listed has the value of the next lower one
#: of its generation.
SHARED_BYTES_BY_CAPABILITY: Mapping[Capability, int] = {
    (7, 0): 98304, (7, 5): 65536, (8, 0): 166912, (8, 6): 101376, (8, 7): 166912, (8, 9): 101376,
    (9, 0): 232448, (10, 0): 232448, (12, 0): 101376,
}  # fmt: skip

#: All features that a kernel may require.
FEATURES = frozenset(FIRST_CAPABILITY) | {f"shared-memory-{size}" for size in LARGER_SHARED_SIZES}


def least_capability(needs: Iterable[str]) -> Capability:
    """The lowest capability with all these features; it ignores shared memory sizes."""
    return max((FIRST_CAPABILITY.get(name, (7, 0)) for name in needs), default=(7, 0))


def most_shared_bytes(capability: Capability) -> int:
    """The most shared memory of a block, in bytes."""
    return SHARED_BYTES_BY_CAPABILITY[max(c for c in SHARED_BYTES_BY_CAPABILITY if c <= capability)]


def features_of(capability: Capability) -> frozenset[str]:
    """The features of a GPU of this capability."""
    most = most_shared_bytes(capability)
    sizes = (s for s in (*SHARED_SIZES, *LARGER_SHARED_SIZES) if SHARED_EVERYWHERE < s <= most)
    found = {name for name, first in FIRST_CAPABILITY.items() if first <= capability}
    found -= HOPPER_ONLY if capability != HOPPER else set()
    return frozenset(found | {f"shared-memory-{size}" for size in sizes})
