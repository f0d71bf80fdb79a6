"""Which nodes of a model compute in f16, as its file says.

Input: a model, whose graph nodes are f32 whether the file has f32 or f16.  Output: names of nodes,
as in errors and plans.  Weights say themselves what products with them may be rounded to
(tensors.py); this is for nodes that read activations alone.
"""

from __future__ import annotations

from onnx import NodeProto, TensorProto

from tilewright.frontend.importer import describe
from tilewright.frontend.read import Model

#: The operand whose type the results have, where it is not the first; ConstantOfShape has none.
_TYPED_BY = {"Where": 1, "OneHot": 2, "DequantizeLinear": 1, "CastLike": 1, "ConstantOfShape": 1}
#: The attribute that has the results' type.
_TYPED_SO = ("to", "dtype")


def in_halves(model: Model) -> frozenset[str]:
    """Names of the nodes whose results are f16.

    What the bodies of control flow contain does not count, nor what control flow gives: it is f32
    then, which is never less exact.
    """
    halves = {i.name for i in model.inputs if i.widened_from == "f16"}
    halves |= {n for n, w in model.weights.items() if w.data_type == TensorProto.FLOAT16}
    found = set()
    for node in model.nodes:
        if _is_half(node, halves):
            halves.update(node.output)
            found.add(describe(node))
    return frozenset(found)


def _is_half(node: NodeProto, halves: set[str]) -> bool:
    for attribute in node.attribute:
        if attribute.name in _TYPED_SO:
            return bool(attribute.i == TensorProto.FLOAT16)
        if attribute.name == "value":  # of constants
            return bool(attribute.t.data_type == TensorProto.FLOAT16)
    at = _TYPED_BY.get(node.op_type, 0)
    return at < len(node.input) and node.input[at] in halves
