"""Model files that promise more than they hold, or ask for more than anyone should give.

Output: by name, a function that writes such a file into a folder and returns its path.  Every one
of them is small; each must end as a typed error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Make = Callable[[Path], Path]
HOSTILE: dict[str, Make] = {}


def hostile(make: Callable[[], ModelProto | bytes]) -> Callable[[], ModelProto | bytes]:
    """Registers a model that needs no other file."""

    def write(folder: Path) -> Path:
        made, path = make(), folder / "model.onnx"
        path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
        return path

    HOSTILE[make.__name__] = write
    return make


def info(name: str, dims: Sequence[int | str | None] | None = (2,), kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, dims)


def ints(name: str, *values: int) -> TensorProto:
    return helper.make_tensor(name, INT64, [len(values)], values)


def number(name: str, value: int) -> TensorProto:
    return helper.make_tensor(name, INT64, [], [value])


def whole(
    nodes: Iterable[NodeProto],
    weights: Sequence[TensorProto] = (),
    inputs: Sequence[Any] | None = None,
    outputs: Sequence[str] = ("y",),
    opset: int = 17,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[str] = (),
) -> ModelProto:
    given = [info("x")] if inputs is None else inputs
    results = [info(o, None) for o in outputs]
    graph = helper.make_graph(list(nodes), "hostile", given, results, list(weights))
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=list(functions))


def node(op: str, inputs: str, outputs: str = "y", **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def body(nodes: Sequence[NodeProto], inputs: Sequence[Any], outputs: Sequence[Any]) -> GraphProto:
    return helper.make_graph(list(nodes), "body", list(inputs), list(outputs))


# Growth: each node doubles what it reads.


@hostile
def doubled_concat() -> ModelProto:
    chain = [node("Concat", f"v{i} v{i}", f"v{i + 1}", axis=0) for i in range(200)]
    return whole([node("Identity", "x", "v0"), *chain], outputs=["v200"])


@hostile
def doubled_constant() -> ModelProto:
    chain = [node("Concat", f"v{i} v{i}", f"v{i + 1}", axis=0) for i in range(33)]
    return whole(
        [
            *chain,
            node("Add", "x total"),
        ],
        [ints("v0", 1, 2)],
        outputs=["v33"],
    )


@hostile
def doubled_shape() -> ModelProto:
    chain = [node("Concat", f"v{i} v{i}", f"v{i + 1}", axis=0) for i in range(40)]
    return whole([*chain, node("Reshape", "x v40")], [ints("v0", 1, 1)])


@hostile
def doubled_rank() -> ModelProto:
    chain = [node("Concat", f"v{i} v{i}", f"v{i + 1}", axis=0) for i in range(10)]
    return whole([*chain, node("Expand", "x v10")], [ints("v0", 1, 2)])


@hostile
def squared_number() -> ModelProto:
    chain = [node("Mul", f"v{i} v{i}", f"v{i + 1}") for i in range(64)]
    return whole([*chain, node("ConstantOfShape", "v64")], [ints("v0", 1000)])


@hostile
def big_outer_products() -> ModelProto:
    """Each one reduces a large product of constants to a number."""
    nodes = [node("Expand", "one wide", "a"), node("Expand", "one tall", "b")]
    nodes += [node("MatMul", "a b", "c"), node("ReduceSum", "c", "d", keepdims=0)]
    nodes += [node("Cast", "d", "e", to=INT64), node("Unsqueeze", "e zero", "f")]
    one = helper.make_tensor("one", FLOAT, [1, 1], [1.0])
    weights = [one, ints("wide", 20000, 20000), ints("tall", 20000, 20000), ints("zero", 0)]
    return whole([*nodes, node("ConstantOfShape", "f")], weights)


def function(name: str, nodes: Sequence[NodeProto]) -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["a"], ["b"], list(nodes), opsets)


def call(name: str, given: str, made: str) -> NodeProto:
    return helper.make_node(name, [given], [made], domain="own")


@hostile
def functions_doubled() -> ModelProto:
    made = [function("f0", [node("Relu", "a", "b")])]
    for i in range(40):
        made.append(function(f"f{i + 1}", [call(f"f{i}", "a", "t"), call(f"f{i}", "t", "b")]))
    return whole([call("f40", "x", "y")], functions=made, domains=["own"])


@hostile
def function_of_itself() -> ModelProto:
    made = [function("f", [call("f", "a", "b")])]
    return whole([call("f", "x", "y")], functions=made, domains=["own"])


@hostile
def functions_of_each_other() -> ModelProto:
    made = [function("f", [call("g", "a", "b")]), function("g", [call("f", "a", "b")])]
    return whole([call("f", "x", "y")], functions=made, domains=["own"])


@hostile
def function_of_itself_in_a_branch() -> ModelProto:
    inside = body([call("f", "a", "q")], [], [info("q")])
    made = [
        function(
            "f",
            [
                node("ReduceMax", "a", "m", keepdims=0),
                node("Cast", "m", "c", to=TensorProto.BOOL),
                node("If", "c", "b", then_branch=inside, else_branch=inside),
            ],
        )
    ]
    return whole([call("f", "x", "y")], functions=made, domains=["own"])


@hostile
def functions_deep() -> ModelProto:
    made = [function("f0", [node("Relu", "a", "b")])]
    made += [function(f"f{i + 1}", [call(f"f{i}", "a", "b")]) for i in range(20000)]
    return whole([call("f20000", "x", "y")], functions=made, domains=["own"])


@hostile
def function_of_wrong_outputs() -> ModelProto:
    made = [function("f", [node("Relu", "a", "c")])]
    return whole([call("f", "x", "y")], functions=made, domains=["own"])


@hostile
def function_with_more_operands() -> ModelProto:
    made = [function("f", [node("Relu", "a", "b")])]
    more = helper.make_node("f", ["x", "x", "x"], ["y", "z"], domain="own")
    return whole([more], functions=made, domains=["own"])


# Counts that a file only claims.


def _of_size(op: str, size: int, **more: Any) -> ModelProto:
    return whole([node(op, "size", **more)], [ints("size", size)])


@hostile
def filled_1e10() -> ModelProto:
    return _of_size("ConstantOfShape", 10**10)


@hostile
def filled_1e9() -> ModelProto:
    return _of_size("ConstantOfShape", 10**9)


@hostile
def filled_3e8() -> ModelProto:
    return _of_size("ConstantOfShape", 3 * 10**8)


@hostile
def filled_negative() -> ModelProto:
    return _of_size("ConstantOfShape", -5)


@hostile
def filled_int64() -> ModelProto:
    return whole([node("ConstantOfShape", "size")], [ints("size", *[2**62] * 8)])


@hostile
def filled_and_added() -> ModelProto:
    return whole(
        [node("ConstantOfShape", "size", "c"), node("Add", "c x")], [ints("size", 10**9, 2)]
    )


@hostile
def filled_and_summed() -> ModelProto:
    nodes = [
        node("ConstantOfShape", "size", "c"),
        node("CumSum", "c zero", "d"),
        node("ReduceMax", "d", "e", keepdims=0),
    ]
    return whole([*nodes, node("Add", "x e")], [ints("size", 10**9), number("zero", 0)])


@hostile
def filled_and_sorted() -> ModelProto:
    nodes = [node("ConstantOfShape", "size", "c"), node("TopK", "c k", "d i")]
    return whole([*nodes, node("Add", "x d")], [ints("size", 10**9), ints("k", 2)])


@hostile
def shape_of_filled() -> ModelProto:
    nodes = [node("ConstantOfShape", "size", "c"), node("Cast", "c", "d", to=INT64)]
    return whole([*nodes, node("Expand", "x d")], [ints("size", 10**9)])


@hostile
def nonzero_of_filled() -> ModelProto:
    nodes = [node("ConstantOfShape", "size", "c"), node("NonZero", "c", "y")]
    return whole(nodes, [ints("size", 10**9)])


@hostile
def range_1e12() -> ModelProto:
    return whole([node("Range", "a b c")], [number("a", 0), number("b", 10**12), number("c", 1)])


@hostile
def range_1e9() -> ModelProto:
    return whole([node("Range", "a b c")], [number("a", 0), number("b", 10**9), number("c", 1)])


@hostile
def range_as_shape() -> ModelProto:
    nodes = [node("Range", "a b c", "r"), node("Expand", "x r")]
    return whole(nodes, [number("a", 0), number("b", 10**9), number("c", 1)])


@hostile
def range_of_infinity() -> ModelProto:
    weights = [
        helper.make_tensor(n, FLOAT, [], [v])
        for n, v in (("a", 0.0), ("b", float("inf")), ("c", 1.0))
    ]
    return whole([node("Range", "a b c")], weights)


@hostile
def range_of_nan() -> ModelProto:
    weights = [
        helper.make_tensor(n, FLOAT, [], [v])
        for n, v in (("a", float("nan")), ("b", 3.0), ("c", 1.0))
    ]
    return whole([node("Range", "a b c")], weights)


@hostile
def range_of_tiny_steps() -> ModelProto:
    weights = [
        helper.make_tensor(n, FLOAT, [], [v]) for n, v in (("a", 0.0), ("b", 1e30), ("c", 1e-30))
    ]
    return whole([node("Range", "a b c")], weights)


@hostile
def tile_1e10() -> ModelProto:
    return whole([node("Tile", "x times")], [ints("times", 10**10)])


@hostile
def tile_1e9_constant() -> ModelProto:
    return whole(
        [node("Tile", "c times", "t"), node("ReduceSum", "t", "s", keepdims=0), node("Add", "x s")],
        [ints("c", 1, 2), ints("times", 10**9)],
    )


@hostile
def expand_1e12() -> ModelProto:
    return whole([node("Expand", "x size")], [ints("size", 10**12, 2)])


@hostile
def one_hot_1e10() -> ModelProto:
    weights = [number("depth", 10**10), helper.make_tensor("v", FLOAT, [2], [0, 1])]
    return whole([node("OneHot", "i depth v")], weights, [info("i", [4], INT64)])


@hostile
def eye_like_1e10() -> ModelProto:
    return whole(
        [node("ConstantOfShape", "size", "c"), node("EyeLike", "c")], [ints("size", 10**5, 10**5)]
    )


@hostile
def resize_1e9() -> ModelProto:
    scales = helper.make_tensor("s", FLOAT, [4], [1, 1, 1e9, 1e9])
    return whole(
        [helper.make_node("Resize", ["x", "", "s"], ["y"])], [scales], [info("x", [1, 1, 4, 4])]
    )


@hostile
def resize_linear_1e8() -> ModelProto:
    scales = helper.make_tensor("s", FLOAT, [4], [1, 1, 1e8, 1])
    return whole(
        [helper.make_node("Resize", ["x", "", "s"], ["y"], mode="cubic")],
        [scales],
        [info("x", [1, 1, 4, 4])],
    )


@hostile
def resize_nan() -> ModelProto:
    scales = helper.make_tensor("s", FLOAT, [4], [1, 1, float("nan"), float("inf")])
    return whole(
        [helper.make_node("Resize", ["x", "", "s"], ["y"])], [scales], [info("x", [1, 1, 4, 4])]
    )


@hostile
def resize_sizes_1e9() -> ModelProto:
    return whole(
        [helper.make_node("Resize", ["x", "", "", "s"], ["y"], mode="linear")],
        [ints("s", 1, 1, 10**9, 4)],
        [info("x", [1, 1, 4, 4])],
    )


@hostile
def pad_1e12() -> ModelProto:
    return whole([node("Pad", "x pads")], [ints("pads", 10**12, 10**12)])


@hostile
def pad_reflect_1e9() -> ModelProto:
    return whole([node("Pad", "x pads", mode="reflect")], [ints("pads", 10**9, 10**9)])


@hostile
def pad_edge_1e9_old() -> ModelProto:
    return whole([node("Pad", "x", mode="edge", pads=[10**9, 10**9])], opset=9)


@hostile
def split_1e8() -> ModelProto:
    return whole([node("Split", "x", "y", num_outputs=10**8)], opset=18)


@hostile
def depth_to_space_1e9() -> ModelProto:
    return whole([node("DepthToSpace", "x", blocksize=10**9)], inputs=[info("x", [1, 4, 2, 2])])


@hostile
def depth_to_space_0() -> ModelProto:
    return whole([node("SpaceToDepth", "x", blocksize=0)], inputs=[info("x", [1, 4, 2, 2])])


@hostile
def window_1e9() -> ModelProto:
    return whole(
        [node("AveragePool", "x", kernel_shape=[3, 3], pads=[10**9] * 4)],
        inputs=[info("x", [1, 1, 9, 9])],
    )


@hostile
def max_pool_of_1e6() -> ModelProto:
    return whole(
        [node("MaxPool", "x", kernel_shape=[10**6], pads=[10**6 - 1] * 2)],
        inputs=[info("x", [1, 1, 9])],
    )


@hostile
def strides_0() -> ModelProto:
    return whole(
        [node("MaxPool", "x", kernel_shape=[2], strides=[0])], inputs=[info("x", [1, 1, 9])]
    )


@hostile
def conv_groups_1e9() -> ModelProto:
    return whole(
        [node("Conv", "x w", group=10**9)], inputs=[info("x", [1, 4, 9]), info("w", [4, 4, 3])]
    )


@hostile
def conv_dilation_1e18() -> ModelProto:
    return whole(
        [node("Conv", "x w", dilations=[2**62], pads=[2**62, 2**62])],
        inputs=[info("x", [1, 4, 9]), info("w", [4, 4, 3])],
    )


@hostile
def lstm_of_1e9_steps() -> ModelProto:
    inputs = [info("x", [10**9, 1, 4]), info("w", [1, 16, 4]), info("r", [1, 16, 4])]
    return whole([node("LSTM", "x w r", hidden_size=4)], inputs=inputs)


@hostile
def lstm_of_1e6_steps() -> ModelProto:
    inputs = [info("x", [10**6, 1, 4]), info("w", [1, 16, 4]), info("r", [1, 16, 4])]
    return whole([node("LSTM", "x w r", hidden_size=4)], inputs=inputs)


@hostile
def cumsum_1e9() -> ModelProto:
    return whole([node("CumSum", "x zero")], [number("zero", 0)], [info("x", [10**9])])


@hostile
def matmul_huge() -> ModelProto:
    return whole(
        [node("MatMul", "a b")], inputs=[info("a", [10**9, 10**9]), info("b", [10**9, 10**9])]
    )


@hostile
def quantised_of_nothing() -> ModelProto:
    nodes = [node("DequantizeLinear", "q s", block_size=0)]
    weights = [
        helper.make_tensor("q", TensorProto.INT8, [4], [1, 2, 3, 4]),
        helper.make_tensor("s", FLOAT, [4], [float("nan")] * 4),
    ]
    return whole(nodes, weights, opset=21)


# Loops and other subgraphs.


def loop(trips: int, inner: Sequence[NodeProto] | None = None) -> ModelProto:
    nodes = [node("Identity", "c", "d"), *(inner or [node("Add", "s s", "t")])]
    part = body(
        nodes,
        [info("i", [], INT64), info("c", [], TensorProto.BOOL), info("s")],
        [info("d", [], TensorProto.BOOL), info("t")],
    )
    true = helper.make_tensor("true", TensorProto.BOOL, [], [True])
    return whole([node("Loop", "trips true x", "y", body=part)], [number("trips", trips), true])


@hostile
def loop_1e8() -> ModelProto:
    return loop(10**8)


@hostile
def loop_int64() -> ModelProto:
    return loop(2**63 - 1)


@hostile
def loop_1e6() -> ModelProto:
    return loop(10**6)


@hostile
def loop_constant_1e8() -> ModelProto:
    """A loop over constants folds while it is imported."""
    made = loop(10**8)
    made.graph.node[0].input[2] = "k"
    made.graph.initializer.append(helper.make_tensor("k", FLOAT, [2], [1, 2]))
    return made


@hostile
def loop_constant_5e4() -> ModelProto:
    made = loop(
        60000,
        [
            node("Add", "s s", "t0"),
            *(node("Sin", f"t{i}", f"t{i + 1}") for i in range(60)),
            node("Identity", "t60", "t"),
        ],
    )
    made.graph.node[0].input[2] = "k"
    made.graph.initializer.append(helper.make_tensor("k", FLOAT, [2], [1, 2]))
    return made


def nested(depth: int, trips: int) -> ModelProto:
    inner = [node("Add", "s s", "t")]
    for i in range(depth):
        part = body(
            [node("Identity", f"c{i}", f"d{i}"), *inner],
            [info(f"i{i}", [], INT64), info(f"c{i}", [], TensorProto.BOOL), info("s")],
            [info(f"d{i}", [], TensorProto.BOOL), info("t")],
        )
        inner = [node("Loop", "trips true s", "t", body=part)]
    inner[0].input[2], inner[0].output[0] = "x", "y"
    true = helper.make_tensor("true", TensorProto.BOOL, [], [True])
    return whole(inner, [number("trips", trips), true])


@hostile
def loops_nested() -> ModelProto:
    return nested(5, 1000)


@hostile
def loops_nested_30() -> ModelProto:
    return nested(30, 2)


@hostile
def ifs_nested_30() -> ModelProto:
    inner = [node("Relu", "x", "t")]
    for _ in range(30):
        part = body(inner, [], [info("t")])
        inner = (
            [node("If", "true", "t", then_branch=part, else_branch=part)]
            if _ < 12
            else [node("If", "true", "t", then_branch=part, else_branch=body([], [], [info("x")]))]
        )
    inner[0].output[0] = "y"
    return whole(inner, [helper.make_tensor("true", TensorProto.BOOL, [], [True])])


@hostile
def ifs_without_graphs() -> ModelProto:
    return whole(
        [node("If", "true", then_branch=1, else_branch="no")],
        [helper.make_tensor("true", TensorProto.BOOL, [], [True])],
    )


@hostile
def scan_1e9() -> ModelProto:
    part = body([node("Add", "a e", "b")], [info("a", []), info("e", [])], [info("b", [])])
    return whole(
        [node("Scan", "s x", "y", body=part, num_scan_inputs=1)],
        inputs=[info("s", []), info("x", [10**9])],
    )


@hostile
def scan_axes_wrong() -> ModelProto:
    part = body([node("Add", "a e", "b")], [info("a", []), info("e", [])], [info("b", [])])
    return whole(
        [node("Scan", "s x", "y", body=part, num_scan_inputs=-7, scan_input_axes=[9, 9, 9])],
        inputs=[info("s", []), info("x", [3])],
    )


@hostile
def scan_attributes_wrong() -> ModelProto:
    part = body([node("Add", "a e", "b")], [info("a", []), info("e", [])], [info("b", [])])
    return whole(
        [node("Scan", "s x", "y", body=part, num_scan_inputs="no", scan_input_axes="many")],
        inputs=[info("s", []), info("x", [3])],
    )


@hostile
def body_without_inputs() -> ModelProto:
    made = loop(3)
    del made.graph.node[0].attribute[0].g.input[:]
    return made


@hostile
def sequences_of_1e9() -> ModelProto:
    nodes = [node("SplitToSequence", "x one", "s", axis=0), node("ConcatFromSequence", "s", axis=0)]
    return whole(nodes, [number("one", 1)], [info("x", [10**9])])


@hostile
def sequence_map() -> ModelProto:
    part = body([node("Relu", "e", "r")], [info("e")], [info("r")])
    nodes = [
        node("SequenceConstruct", " ".join(["x"] * 1000), "s"),
        node("SequenceMap", "s", "m", body=part),
        node("ConcatFromSequence", "m", axis=0),
    ]
    return whole(nodes)


@hostile
def sequence_input() -> ModelProto:
    kind = helper.make_tensor_sequence_value_info("q", FLOAT, [1])
    return whole([node("ConcatFromSequence", "q", axis=0)], inputs=[kind])


# Declarations.


@hostile
def input_rank_1000() -> ModelProto:
    return whole([node("Relu", "x")], inputs=[info("x", [2] * 1000)])


@hostile
def input_rank_40() -> ModelProto:
    return whole([node("Softmax", "x")], inputs=[info("x", [1] * 40)])


@hostile
def input_of_2_62() -> ModelProto:
    return whole([node("Relu", "x")], inputs=[info("x", [2**62, 2**62])])


@hostile
def input_of_1e10() -> ModelProto:
    return whole([node("Relu", "x")], inputs=[info("x", [10**10])])


@hostile
def input_negative() -> ModelProto:
    return whole([node("Relu", "x")], inputs=[info("x", [-3, -4])])


@hostile
def input_of_no_type() -> ModelProto:
    made = whole([node("Relu", "x")])
    made.graph.input[0].ClearField("type")
    return made


@hostile
def input_of_type_99() -> ModelProto:
    made = whole([node("Relu", "x")])
    made.graph.input[0].type.tensor_type.elem_type = 99
    return made


@hostile
def inputs_of_one_name() -> ModelProto:
    return whole([node("Add", "x x")], inputs=[info("x"), info("x", [3])])


@hostile
def input_without_name() -> ModelProto:
    return whole([node("Relu", "x")], inputs=[info(""), info("x")])


@hostile
def output_unknown() -> ModelProto:
    return whole([node("Relu", "x")], outputs=["nothing"])


@hostile
def output_twice() -> ModelProto:
    return whole([node("Relu", "x"), node("Neg", "x")], outputs=["y", "y"])


@hostile
def cycle() -> ModelProto:
    return whole([node("Relu", "y", "z"), node("Relu", "z", "y")])


@hostile
def without_nodes() -> ModelProto:
    return whole([], outputs=["x"])


@hostile
def without_outputs() -> ModelProto:
    return whole([node("Relu", "x")], outputs=[])


@hostile
def without_graph() -> bytes:
    return ModelProto(ir_version=9).SerializeToString()


@hostile
def empty_file() -> bytes:
    return b""


@hostile
def half_a_file() -> bytes:
    made = whole([node("Relu", "x")]).SerializeToString()
    return made[: len(made) // 2]


@hostile
def deep_protobuf() -> bytes:
    """A million nested graphs, each of a few bytes."""
    data = b""
    for _ in range(20000):
        size = len(data)
        if size > 60000:
            break
        data = b"\x32" + _varint(size) + data  # AttributeProto.g
        data = b"\x2a" + _varint(len(data)) + data  # NodeProto.attribute
        data = b"\x0a" + _varint(len(data)) + data  # GraphProto.node
    return b"\x08\x09\x3a" + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


@hostile
def opset_0() -> ModelProto:
    return whole([node("Relu", "x")], opset=0)


@hostile
def opset_1e9() -> ModelProto:
    return whole([node("Relu", "x")], opset=10**9)


@hostile
def opset_negative() -> ModelProto:
    return whole([node("Relu", "x")], opset=-(2**63))


@hostile
def names_not_utf8() -> bytes:
    return (
        whole([node("Relu", "xyzzyx")], inputs=[info("xyzzyx")])
        .SerializeToString()
        .replace(b"xyzzyx", b"\xff\xfe\xfd\xfc\xfb\xfa")
    )


@hostile
def op_not_utf8() -> bytes:
    return whole([node("Relu", "x")]).SerializeToString().replace(b"Relu", b"\xff\xfe\xfd\xfc")


@hostile
def attribute_name_not_utf8() -> bytes:
    return (
        whole([node("Softmax", "x", axis=0)])
        .SerializeToString()
        .replace(b"axis", b"\xff\xfe\xfd\xfc")
    )


@hostile
def dim_name_not_utf8() -> bytes:
    return (
        whole([node("Relu", "x")], inputs=[info("x", ["nnnn"])])
        .SerializeToString()
        .replace(b"nnnn", b"\xff\xfe\xfd\xfc")
    )


@hostile
def nul_in_names() -> ModelProto:
    return whole([node("Relu", "x\0")], inputs=[info("x")])


@hostile
def attribute_of_wrong_type() -> ModelProto:
    return whole([node("Softmax", "x", axis="first")])


@hostile
def attribute_of_no_type() -> ModelProto:
    made = whole([node("Softmax", "x", axis=0)])
    made.graph.node[0].attribute[0].ClearField("type")
    return made


@hostile
def attribute_of_type_99() -> bytes:
    made = whole([node("Softmax", "x", axis=0)])
    made.graph.node[0].attribute[0].type = AttributeProto.TYPE_PROTO
    return made.SerializeToString()


@hostile
def constant_of_wrong_type() -> ModelProto:
    return whole([node("Constant", "", "y", value=3)])


@hostile
def constant_text() -> ModelProto:
    return whole([node("Constant", "", "y", value_string="text")])


@hostile
def cast_to_99() -> ModelProto:
    return whole([node("Cast", "x", to=99)])


@hostile
def cast_to_2_62() -> ModelProto:
    return whole([node("Cast", "x", to=2**62)])


@hostile
def old_cast_to_text() -> ModelProto:
    return whole([node("Cast", "x", to=TensorProto.STRING)], opset=8)


@hostile
def einsum_letters() -> ModelProto:
    return whole([node("Einsum", "x x", equation="i" * 100000 + ",i->")])


@hostile
def einsum_nothing() -> ModelProto:
    return whole([node("Einsum", "x x", equation="......->,,,->")])


@hostile
def transpose_many() -> ModelProto:
    return whole([node("Transpose", "x", perm=list(range(100000)))])


@hostile
def gather_beyond() -> ModelProto:
    return whole([node("Gather", "x i")], [number("i", 2**62)])


@hostile
def slice_beyond() -> ModelProto:
    return whole(
        [node("Slice", "x a b c d")],
        [ints("a", -(2**63)), ints("b", 2**63 - 1), ints("c", 0), ints("d", -(2**63))],
    )


@hostile
def slice_of_step_0() -> ModelProto:
    return whole(
        [node("Slice", "x a b c d")], [ints("a", 0), ints("b", 1), ints("c", 0), ints("d", 0)]
    )


@hostile
def topk_1e18() -> ModelProto:
    return whole([node("TopK", "x k", "y i")], [ints("k", 10**18)])


@hostile
def trilu_2_63() -> ModelProto:
    return whole([node("Trilu", "x k")], [number("k", -(2**63))], [info("x", [3, 3])])


@hostile
def operands_of_100000() -> ModelProto:
    return whole([node("Relu", " ".join(["x"] * 100000))])


@hostile
def outputs_of_20000() -> ModelProto:
    return whole([node("Split", "x", " ".join(f"y{i}" for i in range(100000)))], outputs=["y0"])


@hostile
def unsqueeze_many() -> ModelProto:
    return whole([node("Unsqueeze", "x axes")], [ints("axes", *range(60000))])


@hostile
def unsqueeze_repeated() -> ModelProto:
    chain = [node("Unsqueeze", f"v{i} zero", f"v{i + 1}") for i in range(3000)]
    return whole([node("Identity", "x", "v0"), *chain], [ints("zero", 0)], outputs=["v3000"])


# Tensors and external data.


@hostile
def raw_too_short() -> ModelProto:
    return whole(
        [node("Add", "x w")],
        [TensorProto(name="w", dims=[1000], data_type=FLOAT, raw_data=b"1234")],
    )


@hostile
def raw_promised() -> ModelProto:
    return whole(
        [node("Add", "x w")], [TensorProto(name="w", dims=[10**12], data_type=FLOAT, raw_data=b"")]
    )


@hostile
def weight_of_zero_and_2_62() -> ModelProto:
    return whole(
        [node("Add", "x w")],
        [TensorProto(name="w", dims=[0, 2**62, 2**62], data_type=FLOAT, raw_data=b"")],
    )


@hostile
def weight_of_rank_1000() -> ModelProto:
    return whole(
        [node("Add", "x w")],
        [TensorProto(name="w", dims=[1] * 1000, data_type=FLOAT, raw_data=b"1234")],
    )


@hostile
def weight_of_rank_5000_digits() -> ModelProto:
    return whole(
        [node("Add", "x w")],
        [TensorProto(name="w", dims=[2**62] * 2000, data_type=FLOAT, raw_data=b"1234")],
    )


@hostile
def weight_unread_of_type_99() -> ModelProto:
    return whole(
        [node("Add", "x w")], [TensorProto(name="w", dims=[1], data_type=99, raw_data=b"1234")]
    )


@hostile
def weight_text() -> ModelProto:
    return whole(
        [node("Add", "x w")],
        [TensorProto(name="w", dims=[1], data_type=TensorProto.STRING, string_data=[b"t"])],
    )


@hostile
def weight_negative() -> ModelProto:
    return whole(
        [node("Add", "x w")],
        [TensorProto(name="w", dims=[-1, -1], data_type=FLOAT, raw_data=b"1234")],
    )


@hostile
def weights_of_one_name() -> ModelProto:
    return whole(
        [node("Add", "x w")],
        [
            helper.make_tensor("w", FLOAT, [2], [1, 2]),
            helper.make_tensor("w", FLOAT, [3], [1, 2, 3]),
        ],
    )


@hostile
def attribute_tensor_promised() -> ModelProto:
    value = TensorProto(name="v", dims=[10**12], data_type=FLOAT)
    return whole([node("Constant", "", "y", value=value)])


@hostile
def lists_of_wrong_kind() -> ModelProto:
    return whole(
        [node("Add", "x w")], [TensorProto(name="w", dims=[2], data_type=FLOAT, int64_data=[1, 2])]
    )


@hostile
def halves_beyond() -> ModelProto:
    return whole(
        [node("Add", "x w")],
        [
            TensorProto(
                name="w", dims=[2], data_type=TensorProto.FLOAT16, int32_data=[-1, 2**31 - 1]
            )
        ],
    )


@hostile
def sparse() -> ModelProto:
    made = whole([node("Add", "x w")])
    made.graph.sparse_initializer.add()
    return made


def _external(name: str, **facts: str) -> None:
    def write(folder: Path) -> Path:
        (folder / "data").write_bytes(bytes(8))
        tensor = TensorProto(
            name="w", dims=[2], data_type=FLOAT, data_location=TensorProto.EXTERNAL
        )
        for key, value in ({"location": "data"} | facts).items():
            tensor.external_data.add(key=key, value=value)
        path = folder / "model.onnx"
        path.write_bytes(whole([node("Add", "x w")], [tensor]).SerializeToString())
        return path

    HOSTILE[f"external_{name}"] = write


_external("nul", location="da\0ta")
_external("above", location="../../etc/passwd")
_external("absolute", location="/dev/zero")
_external("folder", location=".")
_external("nothing", location="")
_external("long", location="a" * 100000)
_external("parts", location="a/" * 20000 + "b")
_external("offset_beyond", offset="1000000")
_external("offset_negative", offset="-4")
_external("offset_5000_digits", offset="9" * 5000)
_external("length_5000_digits", length="9" * 5000)
_external("length_superscript", length="²")
_external("length_short", length="4")
