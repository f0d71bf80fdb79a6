"""Models that are well-formed but wrong in what they say, the same for the same seed.

Input: a model and a random generator.  Output: the model with one to three changes that reach past
the reader: attributes, shapes, element types, operands, known values, names, the order of nodes,
opsets, functions, external data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from random import Random

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto, TensorProto, helper, numpy_helper

from helpers.mutations import FLOATS, NUMBERS, TEXTS

#: Extents of axes; the last ones are wrong or more than any machine has.
EXTENTS = (0, 1, 1, 2, 2, 3, 4, 5, 7, 8, 16, 1000, 2**31, 2**40, -1, -7)
KINDS = (
    TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL, TensorProto.UINT8,
    TensorProto.INT8, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.STRING,
    TensorProto.INT4, TensorProto.UINT64, TensorProto.COMPLEX64,
)  # fmt: skip
SMALL = (-5, -2, -1, 0, 0, 1, 1, 2, 3, 4, 5, 8)
PATHS = ("../outside.bin", "/etc/hostname", "", ".", "missing.bin", "a/../../b", "model.onnx")

Change = Callable[[onnx.ModelProto, Random], None]


def bent(model: onnx.ModelProto, rng: Random) -> onnx.ModelProto:
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if model.graph.node:
            rng.choice(CHANGES)(model, rng)
    return model


def _number(rng: Random) -> int:
    return rng.choice(SMALL) if rng.random() < 0.7 else rng.choice(NUMBERS)


def _node(model: onnx.ModelProto, rng: Random) -> NodeProto:
    nodes = [*model.graph.node, *(n for f in model.functions for n in f.node)]
    return rng.choice(nodes)


def _attribute_value(model: onnx.ModelProto, rng: Random) -> None:
    node = _node(model, rng)
    if not node.attribute:
        _attribute_more(model, rng)
        return
    at = rng.choice(node.attribute)
    match at.type:
        case AttributeProto.INT:
            at.i = _number(rng)
        case AttributeProto.FLOAT:
            at.f = rng.choice((*FLOATS, 0.5, 2.0))
        case AttributeProto.STRING:
            at.s = rng.choice(TEXTS).encode()
        case AttributeProto.INTS:
            at.ints[:] = _changed(list(at.ints), rng, _number)
        case AttributeProto.FLOATS:
            at.floats[:] = _changed(list(at.floats), rng, lambda r: r.choice(FLOATS))
        case AttributeProto.STRINGS:
            at.strings[:] = _changed(list(at.strings), rng, lambda r: r.choice(TEXTS).encode())
        case AttributeProto.TENSOR:
            at.t.CopyFrom(_tensor(at.t.name, rng))


def _changed(values: list, rng: Random, make: Callable) -> list:
    """A list with another element, one more, or one less."""
    action = rng.choice(("change", "change", "more", "less", "none"))
    if action == "none":
        return []
    if action == "more" or not values:
        return [*values, make(rng)]
    at = rng.randrange(len(values))
    return [*values[:at], *([make(rng)] if action == "change" else []), *values[at + 1 :]]


def _attribute_kind(model: onnx.ModelProto, rng: Random) -> None:
    """An attribute of another type, or a reference to one of a function."""
    node = _node(model, rng)
    if not node.attribute:
        _attribute_more(model, rng)
        return
    at = rng.choice(node.attribute)
    name, value = at.name, _any_value(rng)
    if rng.random() < 0.1:
        at.ref_attr_name = rng.choice(("alpha", "nothing"))
    else:
        at.CopyFrom(helper.make_attribute(name, value))


def _any_value(rng: Random) -> object:
    return rng.choice(
        (3, -1, 0.5, "text", [1, 2], [0.5, 1.5], ["a", "b"], _tensor("t", rng),
         helper.make_graph([], "empty", [], []))
    )  # fmt: skip


def _attribute_less(model: onnx.ModelProto, rng: Random) -> None:
    node = _node(model, rng)
    if node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]


def _attribute_more(model: onnx.ModelProto, rng: Random) -> None:
    """One that the schema has and the node leaves out, or one that nobody knows."""
    node = _node(model, rng)
    names = ["unknown"]
    if isinstance(node.op_type, str) and onnx.defs.has(node.op_type):
        names += onnx.defs.get_schema(node.op_type).attributes
    node.attribute.append(helper.make_attribute(rng.choice(names), _any_value(rng)))


def _shape(model: onnx.ModelProto, rng: Random) -> None:
    if not model.graph.input:
        return
    kind = rng.choice(model.graph.input).type.tensor_type
    if rng.random() < 0.1:
        kind.ClearField("shape")
        return
    sizes = _changed([d.dim_value for d in kind.shape.dim], rng, lambda r: r.choice(EXTENTS))
    kind.shape.ClearField("dim")
    for size in sizes:
        kind.shape.dim.add().dim_value = size


def _dtype(model: onnx.ModelProto, rng: Random) -> None:
    """Of one input, or of all."""
    kind = rng.choice(KINDS)
    inputs = model.graph.input
    for info in inputs if rng.random() < 0.5 or not inputs else [rng.choice(inputs)]:
        info.type.tensor_type.elem_type = kind


def _operands(model: onnx.ModelProto, rng: Random) -> None:
    """One left out, given twice, too many, or another tensor's name."""
    node = _node(model, rng)
    names = list(node.input)
    known = [i.name for i in model.graph.input] + [o for n in model.graph.node for o in n.output]
    action = rng.choice(("less", "leave", "more", "other", "swap"))
    if action == "more" or not names:
        names.append(rng.choice([*known, "nothing", ""]))
    elif action == "less":
        names.pop()
    elif action == "swap":
        rng.shuffle(names)
    else:
        names[rng.randrange(len(names))] = "" if action == "leave" else rng.choice(known)
    node.input[:] = names


def _known(model: onnx.ModelProto, rng: Random) -> None:
    """An input becomes a weight, or a weight another one."""
    graph = model.graph
    if graph.initializer and (rng.random() < 0.5 or not graph.input):
        held = rng.choice(graph.initializer)
        held.CopyFrom(_like(list(held.dims), held.data_type, held.name, rng))
    elif graph.input:
        at = rng.randrange(len(graph.input))
        info = graph.input[at]
        kind = info.type.tensor_type
        dims = [d.dim_value if 0 < d.dim_value < 64 else 1 for d in kind.shape.dim]
        graph.initializer.append(_like(dims, kind.elem_type, info.name, rng))
        if rng.random() < 0.8:
            del graph.input[at]


def _like(dims: Sequence[int], kind: int, name: str, rng: Random) -> TensorProto:
    """Small or extreme numbers of this shape, mostly."""
    if (
        rng.random() < 0.15
        or kind in (0, TensorProto.STRING)
        or len(dims) > 8
        or not 0 <= prod(dims) <= 4096
    ):
        return _tensor(name, rng)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    count = prod(dims)
    picked = rng.choice(("small", "extreme", "ones"))
    values = [
        1 if picked == "ones" else rng.choice(SMALL if picked == "small" else NUMBERS)
        for _ in range(count)
    ]
    with np.errstate(all="ignore"):
        if np.dtype(dtype).kind in "iub":
            made = np.array(values, np.int64).astype(dtype)
        else:
            made = np.array(values, np.float32).astype(dtype)
    return numpy_helper.from_array(made.reshape(dims), name)


def _tensor(name: str, rng: Random) -> TensorProto:
    shape = [rng.choice((0, 1, 1, 2, 3)) for _ in range(rng.choice((0, 1, 1, 2, 4)))]
    kind = rng.choice((TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL))
    made = np.array([rng.choice(SMALL) for _ in range(prod(shape))], np.float32)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    return numpy_helper.from_array(made.reshape(shape).astype(dtype), name)


def _names(model: onnx.ModelProto, rng: Random) -> None:
    """Results with other names: given twice, read before they exist, in a cycle, or not at all."""
    node = _node(model, rng)
    if not node.output:
        return
    names = [n for other in model.graph.node for n in (*other.input, *other.output)]
    node.output[rng.randrange(len(node.output))] = rng.choice([*names, "fresh", ""])


def _order(model: onnx.ModelProto, rng: Random) -> None:
    nodes = [NodeProto.FromString(n.SerializeToString()) for n in model.graph.node]
    rng.shuffle(nodes)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _opset(model: onnx.ModelProto, rng: Random) -> None:
    rng.choice(model.opset_import).version = rng.randrange(1, 30)


def _operator(model: onnx.ModelProto, rng: Random) -> None:
    _node(model, rng).op_type = rng.choice(onnx.defs.get_all_schemas()).name


def _function(model: onnx.ModelProto, rng: Random) -> None:
    """A node moves into a function, whose attributes it then gets by reference or by default."""
    at = rng.randrange(len(model.graph.node))
    node = NodeProto.FromString(model.graph.node[at].SerializeToString())
    inputs = [n for n in dict.fromkeys(node.input) if n]
    outputs = [n for n in dict.fromkeys(node.output) if n]
    kept = [AttributeProto.FromString(a.SerializeToString()) for a in node.attribute]
    for attribute in node.attribute:
        attribute.ref_attr_name = attribute.name
    body = helper.make_function(
        "own", "F", inputs, outputs, [node], model.opset_import, [a.name for a in kept[:1]],
        kept[1:],
    )  # fmt: skip
    if rng.random() < 0.2:
        body.node.append(helper.make_node("F", inputs, ["again"], domain="own"))
    call = helper.make_node("F", inputs, outputs, domain="own")
    call.attribute.extend(kept[: rng.choice((0, 1, 1, 1, 5))])
    model.graph.node[at].CopyFrom(call)
    model.functions.append(body)
    model.opset_import.append(helper.make_opsetid("own", 1))


def _external(model: onnx.ModelProto, rng: Random) -> None:
    """A weight whose bytes would be in another file."""
    if not model.graph.initializer:
        return
    held = rng.choice(model.graph.initializer)
    held.ClearField("raw_data")
    held.data_location = TensorProto.EXTERNAL
    places = {"location": rng.choice(PATHS), "offset": _number(rng), "length": _number(rng)}
    for key, value in places.items():
        if rng.random() < 0.7:
            held.external_data.add(key=key, value=str(value))


def _outputs(model: onnx.ModelProto, rng: Random) -> None:
    rng.choice(model.graph.output).name = rng.choice(("nothing", "", *(
        n for node in model.graph.node for n in (*node.input, *node.output)
    )))  # fmt: skip


CHANGES: tuple[Change, ...] = (
    _attribute_value, _attribute_value, _attribute_value, _attribute_kind, _attribute_less,
    _attribute_more, _shape, _shape, _shape, _dtype, _operands, _operands, _known, _known, _known,
    _names, _order, _opset, _operator, _function, _external, _outputs,
)  # fmt: skip
