"""Passes: each takes a graph and gives an equal one that is cheaper.  `optimise` has their order.

Here belong rewrites of tensor ops, one file each.  They choose no tile, store nothing and know of
a target only how it wants weights to lie (`Packing`).
"""

from tilewright.graph.node import Graph
from tilewright.graph.passes.algebra import simplify
from tilewright.graph.passes.attention import attention
from tilewright.graph.passes.pack import pack
from tilewright.graph.passes.scales import fold_scales
from tilewright.kernel.layout import Packing


def optimise(graph: Graph, packing: Packing) -> Graph:
    """All passes, in order; the result goes to `fusion/`."""
    return pack(attention(fold_scales(simplify(graph))), packing)
