"""The lines with which a kernel's text requires features of the GPU
(targets/gpu/workgroup_limits.py).

Input: feature names that a schedule needs.  Output: the first lines of its text.
"""

from __future__ import annotations

from collections.abc import Collection

from tilewright.targets.gpu.workgroup_limits import (
    F16_FEATURE,
    MATRIX,
    PACKED,
    SIZES,
    SUBGROUPS,
    size_of,
)

#: The line for each feature; engines reject any other `enable` line.
LINES = {
    F16_FEATURE: "enable f16;\n",
    SUBGROUPS: "enable subgroups;\n",
    PACKED: "requires packed_4x8_integer_dot_product;\n",
    # A matrix may be loaded from an address with the subgroup's number: it is the same in all
    # threads.
    MATRIX: "enable chromium_experimental_subgroup_matrix;\n"
    "diagnostic(off, chromium.subgroup_matrix_uniformity);\n",
}


#: The line of a text that needs one subgroup size: engines then request it from adapters that have
#: several.
SIZED = {size_of(threads): f"// subgroups of {threads}\n" for threads in SIZES}


def head(needs: Collection[str]) -> str:
    """The first lines of a text that needs these features."""
    return "".join(line for name, line in (LINES | SIZED).items() if name in needs)
