"""How the text of a kernel asks for features of the GPU (targets/gpu/workgroup_limits.py).

Input: names that a schedule needs.  Output: the first lines of its text.
"""

from __future__ import annotations

from collections.abc import Collection

from tilewright.targets.gpu.workgroup_limits import F16, MATRIX, PACKED, SIZES, SUBGROUPS, size_of

#: The lines of a text that ask for a feature; engines let no others through.
LINES = {
    F16: "enable f16;\n",
    SUBGROUPS: "enable subgroups;\n",
    PACKED: "requires packed_4x8_integer_dot_product;\n",
    # a matrix may be loaded from where the subgroup's number says: that is the same for all of it
    MATRIX: "enable chromium_experimental_subgroup_matrix;\n"
    "diagnostic(off, chromium.subgroup_matrix_uniformity);\n",
}


#: The line of a text whose subgroups must have one size: engines ask for it where adapters have
#: several.
SIZED = {size_of(threads): f"// subgroups of {threads}\n" for threads in SIZES}


def head(needs: Collection[str]) -> str:
    """The first lines of a text that needs these."""
    return "".join(line for name, line in (LINES | SIZED).items() if name in needs)
