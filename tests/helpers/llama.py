"""Language models of Llama's architecture with random weights, as onnxruntime-genai exports them.

Input: sizes.  Output: an ONNX model: ids and the index of the last valid key in, the logits of the
last valid row or one token out, and for each layer a cache of keys and of values.  The same for
tests (tiny) and benchmarks (7 billion weights); nothing is trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MICROSOFT = "com.microsoft"
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Sizes:
    """The defaults are Llama 2 7B's.

    room:  rows of the caches
    bits:  of weights: 4 or 8 by MatMulNBits; 32 by MatMul
    level: accuracy_level of MatMulNBits
    token: "" for logits; "greedy" or "top-k" for one token id
    plain: norms, rotary embeddings and attention in operators of ONNX alone, as PyTorch's exporters
           write them, with the same weights
    floats: bits of all floats outside MatMulNBits' weights: 32 or 16
    """

    layers: int = 32
    width: int = 4096
    heads: int = 32
    kv_heads: int = 32
    hidden: int = 11008
    words: int = 32000
    room: int = 1024
    bits: int = 4
    block: int = 32
    level: int = 0
    token: str = ""
    top: int = 40
    plain: bool = False
    floats: int = 32

    @property
    def kind(self) -> int:
        """The floats' type in ONNX."""
        return TensorProto.FLOAT if self.floats == 32 else TensorProto.FLOAT16

    @property
    def head(self) -> int:
        return self.width // self.heads

    @property
    def states(self) -> dict[str, str]:
        """Caches by the name of their input."""
        return {
            f"past_key_values.{n}.{x}": f"present.{n}.{x}"
            for n in range(self.layers)
            for x in ("key", "value")
        }


TINY = Sizes(2, 64, 4, 2, 96, 50, 64, block=16)


#: Bytes of a weight that goes to the file of large ones, where there is one.
LARGE = 1 << 16


class _Maker:
    def __init__(self, sizes: Sizes, seed: int, file: BinaryIO | None) -> None:
        self.file = file
        self.s, self.rng = sizes, np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.count = 0

    def node(self, op: str, *inputs: str, domain: str = "", outputs: int = 1, **attrs: Any) -> Any:
        self.count += 1
        names = [f"{op}_{self.count}" + (f"_{i}" if i else "") for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, names[0], domain=domain, **attrs))
        return names[0] if outputs == 1 else names

    def named(self, name: str, op: str, *inputs: str) -> None:
        self.nodes.append(helper.make_node(op, inputs, [name], name))

    def weight(self, value: Array) -> str:
        self.count += 1
        name = f"w{self.count}"
        if value.dtype == np.float32 and self.s.floats == 16:
            value = value.astype("f2")
        if self.file is None or value.nbytes < LARGE:
            self.weights.append(numpy_helper.from_array(value, name))
            return name
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        tensor = onnx.TensorProto(name=name, data_type=kind, dims=value.shape)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        place = {"location": Path(self.file.name).name, "offset": self.file.tell()}
        for key, number in (place | {"length": value.nbytes}).items():
            tensor.external_data.add(key=key, value=str(number))
        self.file.write(np.ascontiguousarray(value).data)
        self.weights.append(tensor)
        return name

    def product(self, x: str, depth: int, columns: int) -> str:
        s, rng = self.s, self.rng
        if s.bits == 32:
            w = rng.standard_normal((depth, columns), "f4") * np.float32(depth**-0.5)
            return str(self.node("MatMul", x, self.weight(w)))
        blocks = -(-depth // s.block)
        data = rng.integers(0, 256, (columns, blocks, s.block * s.bits // 8), "u1")
        spread = np.float32(0.3 * depth**-0.5 * 2 ** (4 - s.bits))
        scale = (0.5 + rng.random((columns, blocks), "f4")) * spread
        made = self.node(
            "MatMulNBits", x, self.weight(data), self.weight(scale), domain=MICROSOFT,
            K=depth, N=columns, bits=s.bits, block_size=s.block, accuracy_level=s.level,
        )  # fmt: skip
        return str(made)

    def norm(self, x: str) -> str:
        scale = self.weight(1 + 0.1 * self.rng.standard_normal(self.s.width, "f4"))
        if self.s.plain:
            square = self.node("Pow", x, self.number(2.0))
            axis = self.weight(np.array([-1], "i8"))
            mean = self.node("Add", self.node("ReduceMean", square, axis), self.number(1e-5))
            normal = self.node("Mul", x, self.node("Reciprocal", self.node("Sqrt", mean)))
            return str(self.node("Mul", scale, normal))
        return str(self.node("SimplifiedLayerNormalization", x, scale, axis=-1, epsilon=1e-5))

    def layer(self, n: int, x: str, total: str, tables: tuple[str, str]) -> str:
        s = self.s
        columns = (s.heads + 2 * s.kv_heads) * s.head
        qkv = self.product(self.norm(x), s.width, columns)
        past = [f"past_key_values.{n}.{c}" for c in ("key", "value")]
        mixed, present = f"attention_{n}", [f"present.{n}.{c}" for c in ("key", "value")]
        if s.plain:
            mixed = self.attention(qkv, past, present, tables)
        else:
            self.nodes.append(
                helper.make_node(
                    "GroupQueryAttention", [qkv, "", "", *past, "seqlens_k", total, *tables],
                    [mixed, *present], mixed, domain=MICROSOFT, num_heads=s.heads,
                    kv_num_heads=s.kv_heads, do_rotary=1,
                )
            )  # fmt: skip
        x = self.node("Add", x, self.product(mixed, s.width, s.width))
        normal = self.norm(x)
        gate, up = (self.product(normal, s.width, s.hidden) for _ in range(2))
        active = self.node("Mul", gate, self.node("Sigmoid", gate))
        down = self.product(self.node("Mul", active, up), s.hidden, s.width)
        return str(self.node("Add", x, down))

    def number(self, value: float) -> str:
        return self.weight(np.array(value, "f4"))

    def ints(self, *values: int) -> str:
        return self.weight(np.array(values, "i8"))

    def attention(
        self, qkv: str, past: list[str], present: list[str], tables: tuple[str, str]
    ) -> str:
        """Heads of keys repeated for their queries, a mask by comparing positions."""
        s, own = self.s, self.s.kv_heads
        sizes = self.ints(s.heads * s.head, own * s.head, own * s.head)
        parts = self.node("Split", qkv, sizes, outputs=3, axis=2)
        q, k, v = (
            self.node("Transpose", self.node("Reshape", x, self.ints(1, -1, n, s.head)),
                      perm=[0, 2, 1, 3])
            for x, n in zip(parts, (s.heads, own, own), strict=True)
        )  # fmt: skip
        first, rows = self.places()
        turns = [
            self.node("Concat", *[self.node("Gather", t, rows, axis=0)] * 2, axis=1) for t in tables
        ]
        q, k = (self.turned(x, *turns) for x in (q, k))
        for cache, new, name in ((past[0], k, present[0]), (past[1], v, present[1])):
            self.nodes.append(
                helper.make_node("TensorScatter", [cache, new, first], [name], axis=2)
            )
        k, v = (self.repeated(x) for x in present)
        scores = self.node("MatMul", q, self.node("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.node("Mul", scores, self.number(s.head**-0.5))
        seen = self.node(
            "LessOrEqual",
            self.weight(np.arange(s.room)),
            self.node("Unsqueeze", rows, self.ints(1)),
        )
        hidden = self.node("Where", seen, scores, self.number(float("-inf")))
        mixed = self.node("MatMul", self.node("Softmax", hidden, axis=-1), v)
        mixed = self.node("Transpose", mixed, perm=[0, 2, 1, 3])
        return str(self.node("Reshape", mixed, self.ints(1, -1, s.width)))

    def places(self) -> tuple[str, str]:
        """The position of the first new row [1], and of all [n]."""
        count = self.node("Shape", "input_ids", start=1, end=2)
        past = self.node("Sub", self.node("Cast", "seqlens_k", to=TensorProto.INT64), count)
        past = self.node("Max", self.node("Add", past, self.ints(1)), self.ints(0))
        scalar = self.node("Squeeze", count)
        steps = [self.weight(np.array(n, "i8")) for n in (0, 1)]
        return past, str(self.node("Add", past, self.node("Range", steps[0], scalar, steps[1])))

    def turned(self, x: str, cos: str, sin: str) -> str:
        """x · cos + (-second half, first half) · sin"""
        half, end = self.s.head // 2, self.s.head
        parts = [
            self.node("Slice", x, self.ints(a), self.ints(b), self.ints(3))
            for a, b in ((half, end), (0, half))
        ]
        other = self.node("Concat", self.node("Neg", parts[0]), parts[1], axis=3)
        return str(self.node("Add", self.node("Mul", x, cos), self.node("Mul", other, sin)))

    def repeated(self, x: str) -> str:
        s, times = self.s, self.s.heads // self.s.kv_heads
        wide = self.node("Unsqueeze", x, self.ints(2))
        wide = self.node("Expand", wide, self.ints(1, s.kv_heads, times, s.room, s.head))
        return str(self.node("Reshape", wide, self.ints(1, s.heads, s.room, s.head)))

    def tables(self) -> tuple[str, str]:
        s = self.s
        rates = 10000.0 ** (-np.arange(0, s.head, 2) / s.head)
        angles = np.arange(s.room)[:, None] * rates
        cos, sin = (self.weight(f(angles).astype("f4")) for f in (np.cos, np.sin))
        return cos, sin

    def last(self, x: str) -> str:
        """The row of the last token: of padded prompts not the last one."""
        shape = self.node("Shape", "input_ids", start=1, end=2)
        most = self.node("Sub", shape, self.weight(np.array([1], "i8")))
        last = self.node("Cast", "seqlens_k", to=TensorProto.INT64)
        return str(self.node("Gather", x, self.node("Min", last, most), axis=1))

    def choice(self, logits: str) -> None:
        s = self.s
        if not s.token:
            self.named("logits", "Identity", logits)
            return
        flat = self.node("Reshape", logits, self.weight(np.array([1, s.words], "i8")))
        if s.token == "greedy":
            found = self.node("ArgMax", flat, axis=1, keepdims=0)
        else:
            found = self.sampled(flat)
        self.named("token", "Identity", found)

    def sampled(self, logits: str) -> str:
        """One of the likeliest tokens: the first one at which the chances, added up, exceed a given
        number from 0 to 1."""
        best, ids = self.node("TopK", logits, self.weight(np.array([self.s.top], "i8")), outputs=2)
        chances = self.node("Softmax", self.node("Div", best, "temperature"), axis=1)
        sums = self.node("CumSum", chances, self.weight(np.array(1, "i8")))
        over = self.node("Cast", self.node("Less", "chance", sums), to=TensorProto.INT32)
        place = self.node("ArgMax", over, axis=1, keepdims=1)
        found = self.node("GatherElements", ids, place, axis=1)
        return str(self.node("Reshape", found, self.weight(np.array([1], "i8"))))


def llama(sizes: Sizes = TINY, seed: int = 0, file: BinaryIO | None = None) -> onnx.ModelProto:
    """The model.  Inputs input_ids i64 [1, n], seqlens_k i32 [1] and the caches.

    file: beside the model's, takes its large weights: a model of ONNX has less than 2 GiB
    """
    m = _Maker(sizes, seed, file)
    s = sizes
    table = m.weight(m.rng.standard_normal((s.words, s.width), "f4"))
    x = m.node("Gather", table, "input_ids", axis=0)
    one = m.weight(np.array(1, "i4"))
    total = m.node("ReduceMax", m.node("Add", "seqlens_k", one), keepdims=0)
    tables = m.tables()
    for n in range(s.layers):
        x = m.layer(n, x, total, tables)
    m.choice(m.product(m.norm(m.last(x)), s.width, s.words))
    cache = (1, s.kv_heads, s.room, s.head)
    info = helper.make_tensor_value_info
    inputs = [
        info("input_ids", TensorProto.INT64, (1, "n")),
        info("seqlens_k", TensorProto.INT32, (1,)),
    ]
    if s.token == "top-k":
        inputs += [info(name, s.kind, (1,)) for name in ("temperature", "chance")]
    inputs += [info(name, s.kind, cache) for name in s.states]
    shape = (1, 1, s.words) if not s.token else (1,)
    kind = TensorProto.INT64 if s.token else s.kind
    outputs = [info("token" if s.token else "logits", kind, shape)]
    outputs += [info(name, s.kind, cache) for name in s.states.values()]
    graph = helper.make_graph(m.nodes, "llama", inputs, outputs, m.weights)
    domains = [helper.make_opsetid("", 24 if s.plain else 18), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=10)
