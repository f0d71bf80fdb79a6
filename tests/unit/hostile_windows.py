"""Sizes that an operator's attributes claim: resized, padded, pooled, recurrent.

Input: nothing.  Output: entries of `HOSTILE` (hostile_models.py).
"""

from __future__ import annotations

from hostile_parts import FLOAT, hostile, info, ints, node, number, whole
from onnx import ModelProto, TensorProto, helper


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
