"""What a GPU may have beyond the core of its interface, by the names that schedules have for it.

Input: nothing.  Output: names, those of WebGPU and WGSL.  Three are ours, which engines derive
(web/engine/gpu_device.js):

    subgroups-32                       subgroups have exactly 32 threads, or can have
    subgroup-matrix-f16-f32-16x16x16   types of operands and result, M x N x K

and one is a limit: groups share so many bytes, or more.
"""

from __future__ import annotations

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
