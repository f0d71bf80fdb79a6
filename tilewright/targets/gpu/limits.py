"""Limits of a workgroup: names of features, sizes, figures of cores and matrix units.

Input: nothing. Output: names as in WebGPU and WGSL, and numbers. Three names are our own; engines
derive them from the adapter (web/engine/gpu_device.js):

    subgroups-32                       subgroups have exactly 32 threads, or can have
    subgroup-matrix-f16-f32-16x16x16   types of operands and result, M x N x K

The third, `shared-memory-N`, says that a workgroup may have N bytes of shared memory or more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

F16 = "shader-f16"

SUBGROUPS = "subgroups"

PACKED = "packed_4x8_integer_dot_product"

MATRIX = "chromium-experimental-subgroup-matrix"

#: Bytes that groups share on every device, and of kernels that ask for more.
EVERYWHERE, SHARED_SIZES = 16384, (32768, 49152)

MORE_SHARED = tuple(f"shared-memory-{size}" for size in SHARED_SIZES)

#: Beyond WebGPU: more of them, and copies to shared memory while a thread goes on.
LARGER_SIZES = (65536, 101376, 166912, 232448)

COPIES = "copies-ahead"

#: Threads of a subgroup that kernels may ask for.
SIZES = (4, 8, 16, 32, 64, 128)


def shared_of(size: int) -> set[str]:
    """The feature by which groups share so many bytes; none where every device has them."""
    enough = (n for n in (*SHARED_SIZES, *LARGER_SIZES) if size <= n)
    return set() if size <= EVERYWHERE else {f"shared-memory-{next(enough, size)}"}


def size_of(threads: int) -> str:
    """The name of the feature that subgroups have exactly so many threads."""
    return f"{SUBGROUPS}-{threads}"


#: Configurations of subgroup matrices that kernels may ask for: types of operands and result, and
#: their sizes, as adapters list them: Apple and Mesa's software driver 8x8x8, Intel 8x16x16, the
#: others NVIDIA.
CONFIGURATIONS = tuple(
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
    (F16, SUBGROUPS, PACKED, MATRIX, *MORE_SHARED, *map(size_of, SIZES), *CONFIGURATIONS)
)

WORD = 4

#: WebGPU's default limits: threads of a group, and bytes that they share.
MOST_THREADS = 256
MOST_SHARED = EVERYWHERE


def beyond(threads: int, shared: int, most: int = MOST_SHARED) -> str:
    """Which limit a group of so many threads and shared bytes exceeds; "" if none."""
    if threads > MOST_THREADS:
        return f"a group has at most {MOST_THREADS} threads, not {threads}"
    if shared > most:
        return f"a group shares at most {most} bytes, not {shared}"
    return ""


def none_of(name: str, value: int, allowed: Collection[int]) -> str:
    """That a field's value is not among these; "" if it is."""
    return "" if value in allowed else f"{name} is one of {', '.join(map(str, allowed))}"


@dataclass(frozen=True)
class Group:
    """What a group of threads may have on every device of a class.

    threads: in one group;  shared: bytes of their shared memory
    """

    threads: int = MOST_THREADS
    shared: int = MOST_SHARED


#: Cores of a large GPU, and threads of a warp: figures of one NVIDIA H200.
CORES, WARP = 132, 32

#: Sums of a thread beyond which NVIDIA's registers do not last.
MOST_SUMS = 128

#: Units that are tried, by types: sizes and threads, of Mesa's software driver, Apple, Intel,
#: NVIDIA.
UNITS: Mapping[str, tuple[tuple[int, int, int, int], ...]] = {
    "i8-i32": ((8, 8, 8, 8), (8, 16, 32, 16), (16, 16, 32, 32), (16, 8, 32, 32)),
    "f16-f32": ((8, 8, 8, 8), (8, 8, 8, 32), (8, 16, 16, 16), (16, 16, 16, 32), (16, 8, 16, 32)),
}

#: Units of GPUs that many have, for products that fill one: NVIDIA's and Intel's; and the one that
#: is faster on NVIDIA's with weights of few bits where tiles have no slices.
USUAL = frozenset({(16, 16, 32, 32), (16, 16, 16, 32), (8, 16, 32, 16), (8, 16, 16, 16)})
