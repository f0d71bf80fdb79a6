"""Which nodes of a model compute in f16, as its file says.

Input: a model, whose graph nodes are f32 whether the file has f32 or f16.  Output: names of nodes,
as in errors and plans.  Weights say themselves what products with them may be rounded to
(tensors.py); this is for nodes that read activations alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onnx import AttributeProto, NodeProto, TensorProto

from tilewright.frontend.bounds import subgraphs
from tilewright.frontend.importer import describe
from tilewright.frontend.read import Model
from tilewright.frontend.subgraphs import CONTROL

#: The operand whose type the results have, where it is not the first; ConstantOfShape has none.
_TYPED_BY = {
    "Where": 1, "OneHot": 2, "DequantizeLinear": 1, "CastLike": 1, "ConstantOfShape": 1,
    "RMSNormalization": 1, "SimplifiedLayerNormalization": 1, "MatMulIntegerToFloat": 2,
}  # fmt: skip
#: Attributes with the results' type; 0 says nothing.
_TYPED_SO = ("to", "dtype", "output_dtype")


def nodes_in_f16(model: Model) -> frozenset[str]:
    """Names of the nodes whose results are f16.

    What control flow contains or gives does not count: it is taken for f32, which is never less
    exact.  A name that another node has, too, does not count either.
    """
    halves = {i.name for i in model.inputs if i.widened_from == "f16"}
    halves |= {n for n, w in model.weights.items() if w.data_type == TensorProto.FLOAT16}
    found, others = set(), {describe(node) for node in _inside(model.nodes)}
    for node in model.nodes:
        if _is_half(node, halves):
            halves.update(node.output)
            found.add(describe(node))
        else:
            others.add(describe(node))
    return frozenset(found - others)


def _is_half(node: NodeProto, halves: set[str]) -> bool:
    if node.op_type in CONTROL:
        return False
    for attribute in node.attribute:
        if attribute.name in _TYPED_SO and attribute.i:
            return bool(attribute.i == TensorProto.FLOAT16)
        if attribute.name == "value" and attribute.type == AttributeProto.TENSOR:  # of constants
            return bool(attribute.t.data_type == TensorProto.FLOAT16)
    at = _TYPED_BY.get(node.op_type, 0)
    return at < len(node.input) and node.input[at] in halves


def _inside(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """The nodes of all bodies."""
    for node in nodes:
        for graph in subgraphs(node):
            yield from graph.node
            yield from _inside(graph.node)
