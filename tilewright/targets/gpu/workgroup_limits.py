"""Limits of workgroups, feature names, sizes of matrix units, and figures of GPU cores.

Input: none. Output: names as in WebGPU and WGSL, and numbers. Three names are our own; engines
derive them from the adapter (web/engine/gpu_device.js):

    subgroups-32                       subgroups have exactly 32 threads, or can be given that size
    subgroup-matrix-f16-f32-16x16x16   types of operands and result, M x N x K

The third, `shared-memory-N`, says that a workgroup may have N bytes of shared memory or more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

F16_FEATURE = "shader-f16"

SUBGROUPS_FEATURE = "subgroups"

PACKED_DOT_FEATURE = "packed_4x8_integer_dot_product"

MATRIX_FEATURE = "chromium-experimental-subgroup-matrix"

#: Bytes of shared memory that every device offers a group; larger sizes that kernels may request.
SHARED_EVERYWHERE, SHARED_SIZES = 16384, (32768, 49152)

SHARED_FEATURES = tuple(f"shared-memory-{size}" for size in SHARED_SIZES)

#: CUDA only: still larger sizes, and the feature of asynchronous copies to shared memory.
LARGER_SHARED_SIZES = (65536, 101376, 166912, 232448)

ASYNC_COPIES_FEATURE = "copies-ahead"

#: Subgroup sizes that kernels may require.
SUBGROUP_SIZES = (4, 8, 16, 32, 64, 128)


def shared_memory_feature(size: int) -> set[str]:
    """The feature that a group with this many shared bytes needs; none if every device has them."""
    enough = (n for n in (*SHARED_SIZES, *LARGER_SHARED_SIZES) if size <= n)
    return set() if size <= SHARED_EVERYWHERE else {f"shared-memory-{next(enough, size)}"}


def subgroup_feature(threads: int) -> str:
    """The name of the feature that subgroups have exactly this many threads."""
    return f"{SUBGROUPS_FEATURE}-{threads}"


#: Subgroup-matrix configurations that kernels may require, as adapters list them: types of operands
#: and result, and sizes.  Apple and Mesa's software driver have 8x8x8, Intel has 8x16x16, NVIDIA
#: has the others.
UNIT_FEATURES = tuple(
    f"subgroup-matrix-{types}-{size}"
    for types, sizes in {
        "f16-f16": ("8x8x8", "8x16x16", "16x16x16", "16x8x16", "16x8x8"),
        "f16-f32": ("8x8x8", "8x16x16", "16x16x16", "16x8x16", "16x8x8"),
        "f32-f32": ("8x8x8",),
        "i8-i32": ("8x8x8", "8x16x32", "16x16x16", "16x16x32", "16x8x32"),
        "u8-u32": ("8x8x8", "8x16x32", "16x16x16", "16x16x32", "16x8x32"),
    }.items()
    for size in sizes
)

FEATURES = frozenset(
    (
        F16_FEATURE,
        SUBGROUPS_FEATURE,
        PACKED_DOT_FEATURE,
        MATRIX_FEATURE,
        *SHARED_FEATURES,
        *map(subgroup_feature, SUBGROUP_SIZES),
        *UNIT_FEATURES,
    )
)

#: WebGPU's default limits of a group: its threads, and its bytes of shared memory.
MOST_THREADS = 256
MOST_SHARED = SHARED_EVERYWHERE


def limit_objection(threads: int, shared: int, most: int = MOST_SHARED) -> str:
    """A sentence about the limit that a group with these threads and bytes exceeds; "" if none."""
    if threads > MOST_THREADS:
        return f"a group has at most {MOST_THREADS} threads, not {threads}"
    if shared > most:
        return f"a group shares at most {most} bytes, not {shared}"
    return ""


def value_objection(name: str, value: int, allowed: Collection[int]) -> str:
    """A sentence that a field's value is not among the allowed ones; "" if it is."""
    return "" if value in allowed else f"{name} is one of {', '.join(map(str, allowed))}"


@dataclass(frozen=True)
class WorkgroupLimits:
    """Limits of a group of threads that every device of a class allows.

    threads: of one group;  shared: bytes of its shared memory
    """

    threads: int = MOST_THREADS
    shared: int = MOST_SHARED


#: Cores of a large GPU; the figure of an NVIDIA H200.
CORES = 132

#: Threads of a warp, NVIDIA's subgroup, and of a warp group.
WARP, WARPGROUP = 32, 128

#: The most sums that a thread may have; with more, NVIDIA's registers spill.
MOST_SUMS_PER_THREAD = 128

#: Matrix units that are tried, by types: (m, n, k, threads), of Mesa's software driver, Apple,
#: Intel and NVIDIA.
MATRIX_UNITS: Mapping[str, tuple[tuple[int, int, int, int], ...]] = {
    "i8-i32": ((8, 8, 8, 8), (8, 16, 32, 16), (16, 16, 32, 32), (16, 8, 32, 32)),
    "f16-f32": ((8, 8, 8, 8), (8, 8, 8, 32), (8, 16, 16, 16), (16, 16, 16, 32), (16, 8, 16, 32)),
}

#: Unused f16 elements between two lines of shared memory that matrix units read: the lines of a
#: matrix are then in different banks.
F16_LINE_GAP = 8

#: Common units: NVIDIA's and Intel's.  They get default schedules.  The third one is faster on
#: NVIDIA for weights of few bits where tiles have no slices.
COMMON_UNITS = frozenset({(16, 16, 32, 32), (16, 16, 16, 32), (8, 16, 32, 16), (8, 16, 16, 16)})
