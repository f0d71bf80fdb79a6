"""Passes: each takes a graph and gives an equal one that is cheaper.  `optimise` has their order.

The package has rewrites of tensor ops, one file each.  They choose no tile and store nothing.  Of a
target they know only the layouts that it wants for weights (`Packing`).
"""

from tilewright.graph.node import Graph
from tilewright.graph.passes import algebra, pack_weights
from tilewright.graph.passes.find_attention import attention
from tilewright.graph.passes.fold_scales import fold_scales
from tilewright.graph.passes.gather_packed import gathered_from_packed
from tilewright.graph.rewrite import Rewriter
from tilewright.kernel.layout import Packing


class Passes:
    """All passes, in order; the result goes to `fusion/`.

    One object serves all graphs of an `Importer`: nodes that several graphs share are rewritten and
    packed once.
    """

    def __init__(self, packing: Packing) -> None:
        self._simplify = Rewriter((*algebra.RULES, algebra.end_views))
        self._pack = Rewriter(pack_weights.rules(packing))

    def run(self, graph: Graph) -> Graph:
        packed = self._pack.graph(attention(fold_scales(self._simplify.graph(graph))))
        return gathered_from_packed(packed)


def optimise(graph: Graph, packing: Packing) -> Graph:
    """All passes over one graph."""
    return Passes(packing).run(graph)
