"""Tiny language models in the forms in which exporters write them to ONNX, with random weights.

Input: `Export`.  Output: an ONNX model with open caches, and onnxruntime's greedy tokens by a loop
that feeds the caches back, as they grow.  Nothing is trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

MICROSOFT = "com.microsoft"
Array = np.ndarray[Any, Any]
#: How far logits of about 5 may be apart if values round to 8 bits while the model runs: one that
#: lies at the edge of a step falls to either side.  Of these models onnxruntime's own logits with
#: and without its graph optimisations are 0.03 apart after one prompt in ten, else 2e-6.
ROUNDED = 0.1


@dataclass(frozen=True)
class Export:
    """form:  "genai": GroupQueryAttention;  "optimum": operators of ONNX alone
    weights: f32, f16, q4 (MatMulNBits) or int8 (quantised while it runs);  half: all else is f16
    turned: rotary embeddings inside of GroupQueryAttention
    positions: whether `position_ids` is an input
    mask:    of "optimum": "compare" (positions with positions), "triangle" (past columns are joined
             to a triangle), "table" (rows of a table that is sliced)
    merged:  one graph with and without caches, by `use_cache_branch`
    window:  keys that a row sees; 0: all
    named:   the width of heads is a name in the file
    placed:  an embedding for each position, as GPT-2 has it
    """

    form: str = "genai"
    weights: str = "f32"
    half: bool = False
    turned: bool = True
    packed: bool = False
    positions: bool = True
    mask: str = "compare"
    merged: bool = False
    window: int = 0
    named: bool = False
    placed: bool = False
    layers: int = 2
    width: int = 32
    heads: int = 4
    kv_heads: int = 2
    head: int = 16
    hidden: int = 64
    words: int = 60
    most: int = 64

    @property
    def caches(self) -> list[str]:
        return [f"{n}.{part}" for n in range(self.layers) for part in ("key", "value")]


class Maker:
    """Nodes and weights of one model."""

    def __init__(self, e: Export, seed: int) -> None:
        self.e, self.rng = e, np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}
        self.count = 0
        self.number_type = np.float16 if e.half else np.float32

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        self.count += 1
        names = [f"{kind}_{self.count}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, names[0], **attributes))
        return names[0] if outputs == 1 else names

    def ints(self, *values: int) -> str:
        return self.kept(np.array(values, np.int64))

    def kept(self, value: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = numpy_helper.from_array(np.asarray(value), name)
        return name

    def number(self, value: float) -> str:
        return self.kept(np.array(value, self.number_type))

    def matrix(self, rows: int, columns: int) -> Array:
        made = self.rng.standard_normal((rows, columns)) * rows**-0.5
        return made.astype(self.number_type)

    @contextmanager
    def branch(self, into: list[onnx.NodeProto]) -> Iterator[None]:
        """Nodes made inside go to another list; weights stay with the model."""
        before, self.nodes = self.nodes, into
        yield
        self.nodes = before

    # ---- parts -----------------------------------------------------------------------------------

    def product(self, x: str, weight: Array) -> str:
        if self.e.weights == "q4":
            return str(self.quantised(x, weight))
        if self.e.weights != "int8":
            return str(self.op("MatMul", x, self.kept(weight)))
        # 63, not 127: onnxruntime, the judge, adds pairs of products in 16 bits on processors
        # without VNNI, and those sums would saturate (see helpers/quantised.py).
        scale = np.float32(np.abs(weight).max() / 63)
        whole = self.kept(np.round(weight / scale).astype(np.int8))
        x8, x_scale, zero = self.op("DynamicQuantizeLinear", x, outputs=3)
        made = self.op("MatMulInteger", x8, whole, zero, self.kept(np.array(0, np.int8)))
        both = self.op("Mul", x_scale, self.kept(scale))
        return str(self.op("Mul", self.op("Cast", made, to=TensorProto.FLOAT), both))

    def quantised(self, x: str, weight: Array) -> str:
        rows, columns = weight.shape
        blocks = weight.T.reshape(columns, rows // 16, 16).astype(np.float32)
        scale = np.abs(blocks).max(2) / 7
        whole = np.clip(np.round(blocks / scale[..., None]) + 8, 0, 15).astype(np.uint8)
        packed = whole[..., ::2] | whole[..., 1::2] << 4
        return str(self.op(
            "MatMulNBits", x, self.kept(packed),
            self.kept(scale.reshape(-1).astype(self.number_type)),
            domain=MICROSOFT, K=rows, N=columns, bits=4, block_size=16,
        ))  # fmt: skip

    def norm(self, x: str, weight: Array) -> str:
        if self.e.form == "genai":
            return str(self.op("SimplifiedLayerNormalization", x, self.kept(weight), epsilon=1e-5))
        x32 = self.op("Cast", x, to=TensorProto.FLOAT)
        square = self.op("Pow", x32, self.kept(np.float32(2)))
        mean = self.op("ReduceMean", square, self.ints(-1))
        root = self.op("Sqrt", self.op("Add", mean, self.kept(np.float32(1e-5))))
        back = self.op("Mul", x32, self.op("Reciprocal", root))
        return str(self.op("Mul", self.kept(weight), self.cast(back)))

    def cast(self, x: str) -> str:
        return str(
            self.op("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(self.number_type)))
        )

    def size(self, x: str, axis: int) -> str:
        """One extent of a tensor, as a vector."""
        return str(self.op("Gather", self.op("Shape", x), self.ints(axis)))

    def scalar(self, x: str) -> str:
        return str(self.op("Squeeze", x, self.ints(0)))


@dataclass(frozen=True)
class _Layer:
    """Weights, the same in both branches of a merged model."""

    norms: tuple[Array, Array]
    q: Array
    k: Array
    v: Array
    o: Array
    gate: Array
    up: Array
    down: Array


def exported(e: Export, seed: int = 0) -> onnx.ModelProto:
    """The model."""
    m = Maker(e, seed)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(m.number_type))
    inputs = [
        _info("input_ids", TensorProto.INT64, "batch_size", "sequence_length"),
        _info("attention_mask", TensorProto.INT64, "batch_size", "total_sequence_length"),
    ]
    if e.positions:
        inputs.append(_info("position_ids", TensorProto.INT64, "batch_size", "sequence_length"))
    width = "kv_cache_dim" if e.named else e.head
    past, total = (
        ("batch_size", e.kv_heads, f"{rows}_sequence_length", width) for rows in ("past", "total")
    )
    inputs += [_info(f"past_key_values.{c}", kind, *past) for c in e.caches]
    outputs = [_info("logits", TensorProto.FLOAT, "batch_size", "sequence_length", e.words)]
    outputs += [_info(f"present.{c}", kind, *total) for c in e.caches]
    wide, own = e.heads * e.head, e.kv_heads * e.head

    def ones() -> Array:
        return (1 + 0.1 * m.rng.standard_normal(e.width)).astype(m.number_type)

    layers = [
        _Layer((ones(), ones()), m.matrix(e.width, wide), m.matrix(e.width, own),
               m.matrix(e.width, own), m.matrix(wide, e.width), m.matrix(e.width, e.hidden),
               m.matrix(e.width, e.hidden), m.matrix(e.hidden, e.width))
        for _ in range(e.layers)
    ]  # fmt: skip
    table = m.rng.standard_normal((e.words, e.width)).astype(m.number_type)
    head, last = m.matrix(e.width, e.words) * m.number_type(3), ones()

    def decoder(past: bool) -> list[str]:
        x = m.op("Gather", m.kept(table), "input_ids")
        if e.placed:
            x = m.op("Add", x, m.op("Gather", m.kept(m.matrix(e.most, e.width)), "position_ids"))
        parts = _Genai(m, past) if e.form == "genai" else _Optimum(m, past)
        caches: list[str] = []
        for number, layer in enumerate(layers):
            mixed, *own_caches = parts.attention(number, layer, m.norm(x, layer.norms[0]))
            caches += own_caches
            x = m.op("Add", x, m.product(mixed, layer.o))
            y = m.norm(x, layer.norms[1])
            gate = m.product(y, layer.gate)
            gated = m.op("Mul", m.op("Mul", gate, m.op("Sigmoid", gate)), m.product(y, layer.up))
            x = m.op("Add", x, m.product(gated, layer.down))
        logits = m.product(m.norm(x, last), head)
        return [m.op("Cast", logits, to=TensorProto.FLOAT), *caches]

    names = [o.name for o in outputs]
    if e.merged:
        inputs.append(_info("use_cache_branch", TensorProto.BOOL, 1))
        bodies = []
        for past in (True, False):
            nodes: list[onnx.NodeProto] = []
            with m.branch(nodes):
                found = decoder(past)
            results = [helper.make_empty_tensor_value_info(name) for name in found]
            bodies.append(helper.make_graph(nodes, f"past_{past}", [], results))
        m.nodes.append(helper.make_node(
            "If", ["use_cache_branch"], names, "merged",
            then_branch=bodies[0], else_branch=bodies[1],
        ))  # fmt: skip
    else:
        for made, name in zip(decoder(True), names, strict=True):
            m.nodes.append(helper.make_node("Identity", [made], [name], f"out_{name}"))
    graph = helper.make_graph(m.nodes, "main_graph", inputs, outputs, [*m.weights.values()])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _info(name: str, kind: int, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


class _Genai:
    """Attention as onnxruntime-genai's model builder writes it."""

    def __init__(self, m: Maker, past: bool) -> None:
        assert past
        self.m, e = m, m.e
        ones = m.ints(1)
        total = m.op("ReduceSum", "attention_mask", ones, keepdims=1)
        self.last = m.op("Cast", m.op("Sub", total, ones), to=TensorProto.INT32)
        whole = m.op("Gather", m.op("Shape", "attention_mask"), m.kept(np.int64(1)), axis=0)
        self.total = m.op("Cast", whole, to=TensorProto.INT32)
        angles = np.outer(np.arange(e.most), 100.0 ** -np.linspace(0, 1, e.head // 2))
        self.tables = [m.kept(f(angles).astype(m.number_type)) for f in (np.cos, np.sin)]

    def attention(self, number: int, layer: _Layer, x: str) -> list[str]:
        m, e = self.m, self.m.e
        caches = [f"past_key_values.{number}.{part}" for part in ("key", "value")]
        if e.packed:
            whole = np.concatenate([layer.q, layer.k, layer.v], 1)
            parts = [m.product(x, whole), "", ""]
        else:
            parts = [m.product(x, weight) for weight in (layer.q, layer.k, layer.v)]
        tables = self.tables if e.turned else []
        if not e.turned:
            parts[:2] = [
                m.op("RotaryEmbedding", part, "position_ids", *self.tables, domain=MICROSOFT)
                for part in parts[:2]
            ]
        made: list[str] = m.op(
            "GroupQueryAttention", *parts, *caches, self.last, self.total, *tables,
            outputs=3, domain=MICROSOFT, num_heads=e.heads, kv_num_heads=e.kv_heads,
            scale=e.head**-0.5, do_rotary=int(e.turned), local_window_size=e.window or -1,
        )  # fmt: skip
        return made


class _Optimum:
    """Attention in ONNX's operators, as PyTorch's exporter writes the model's Python code."""

    def __init__(self, m: Maker, past: bool) -> None:
        self.m, self.past, e = m, past, m.e
        self.rows = m.size("input_ids", 1)
        self.batch = m.size("input_ids", 0)
        if past:
            self.before = m.size("past_key_values.0.key", 2)
            self.total = m.op("Add", self.before, self.rows)
        else:
            self.before, self.total = m.ints(0), self.rows
        places = "position_ids" if e.positions else self._counted()
        self.mask = self._mask()
        wave = (100.0 ** -np.linspace(0, 1, e.head // 2)).astype(np.float32)[None, :, None]
        shape = m.op("Concat", self.batch, m.ints(-1), m.ints(1), axis=0)
        spread = m.op(
            "Expand",
            m.kept(wave),
            m.op(
                "Where",
                m.op("Equal", shape, m.ints(-1)),
                m.op(
                    "ConstantOfShape",
                    m.ints(3),
                    value=helper.make_tensor("v", TensorProto.INT64, [1], [1]),
                ),
                shape,
            ),
        )
        line = m.op("Cast", m.op("Unsqueeze", places, m.ints(1)), to=TensorProto.FLOAT)
        half = m.op("Transpose", m.op("MatMul", spread, line), perm=[0, 2, 1])
        whole = m.op("Concat", half, half, axis=-1)
        self.turns = [m.op("Unsqueeze", m.cast(m.op(f, whole)), m.ints(1)) for f in ("Cos", "Sin")]

    def _counted(self) -> str:
        """Positions from the mask, of the new rows."""
        m = self.m
        count = m.op("Sub", m.op("CumSum", "attention_mask", m.kept(np.int64(1))), m.ints(1))
        hidden = m.op("Equal", "attention_mask", m.ints(0))
        count = m.op("Where", hidden, m.ints(1), count)
        return str(m.op("Slice", count, m.op("Neg", self.rows), m.ints(2**62), m.ints(1)))

    def _mask(self) -> str:
        """[batch, 1, new, all]: added to scores."""
        m, low = self.m, float(np.finfo(self.m.number_type).min)
        square = m.op("Concat", self.rows, self.total, axis=0)
        whole = m.op("Expand", m.number(low), square)
        ends = [m.scalar(x) for x in (self.before, self.total)]
        zero, one = m.kept(np.int64(0)), m.kept(np.int64(1))
        place = m.op("Unsqueeze", m.op("Range", *ends, one), m.ints(1))
        keys = m.op("Range", zero, ends[1], one)
        if m.e.mask == "compare":
            whole = m.op("Trilu", whole, one, upper=1) if not m.e.window else whole
            later = m.op("Greater", keys, place)
            if m.e.window:
                early = m.op("LessOrEqual", keys, m.op("Sub", place, m.ints(m.e.window)))
                later = m.op("Or", later, early)
            causal = m.op("Mul", whole, m.cast(later))
        elif m.e.mask == "triangle":
            side = m.op("Concat", self.rows, self.rows, axis=0)
            new = m.op("Trilu", m.op("Expand", m.number(low), side), one, upper=1)
            shape = m.op("Concat", self.rows, self.before, axis=0)
            seen = m.op("Expand", m.number(0), shape)
            causal = m.op("Concat", seen, new, axis=-1) if self.past else new
        else:
            table = np.tril(np.ones((m.e.most, m.e.most), bool))[None, None]
            part = m.op("Slice", m.kept(table), self.before, self.total, m.ints(2))
            part = m.op("Slice", part, m.ints(0), self.total, m.ints(3))
            causal = m.op("Where", part, m.number(0), m.number(low))
        if m.e.mask != "table":
            causal = m.op("Unsqueeze", causal, m.ints(0, 1))
        shape = m.op("Concat", self.batch, m.ints(1), self.rows, self.total, axis=0)
        causal = m.op("Expand", causal, shape)
        given = m.op("Unsqueeze", "attention_mask", m.ints(1, 2))
        given = m.op("Slice", given, m.ints(0), self.total, m.ints(3))
        hidden = m.op("Equal", given, m.ints(0))
        return str(m.op("Where", hidden, m.number(low), causal))

    def _turned(self, x: str) -> str:
        m, half = self.m, self.m.e.head // 2
        left = m.op("Slice", x, m.ints(0), m.ints(half), m.ints(3))
        right = m.op("Slice", x, m.ints(half), m.ints(2**62), m.ints(3))
        other = m.op("Concat", m.op("Neg", right), left, axis=-1)
        return str(m.op("Add", m.op("Mul", x, self.turns[0]), m.op("Mul", other, self.turns[1])))

    def _heads(self, x: str, heads: int) -> str:
        m = self.m
        shape = m.op("Concat", self.batch, self.rows, m.ints(heads), m.ints(m.e.head), axis=0)
        return str(m.op("Transpose", m.op("Reshape", x, shape), perm=[0, 2, 1, 3]))

    def _repeated(self, x: str) -> str:
        """Keys or values, once for each head of queries."""
        m, e = self.m, self.m.e
        ends = (m.size(x, 2), m.ints(e.head))
        wide = m.op(
            "Concat", self.batch, m.ints(e.kv_heads), m.ints(e.heads // e.kv_heads), *ends, axis=0
        )
        flat = m.op("Concat", self.batch, m.ints(e.heads), *ends, axis=0)
        return str(m.op("Reshape", m.op("Expand", m.op("Unsqueeze", x, m.ints(2)), wide), flat))

    def attention(self, number: int, layer: _Layer, x: str) -> list[str]:
        m, e = self.m, self.m.e
        q = self._turned(self._heads(m.product(x, layer.q), e.heads))
        k = self._turned(self._heads(m.product(x, layer.k), e.kv_heads))
        v = self._heads(m.product(x, layer.v), e.kv_heads)
        if self.past:
            k, v = (m.op("Concat", f"past_key_values.{number}.{part}", new, axis=2)
                    for part, new in (("key", k), ("value", v)))  # fmt: skip
        keys = m.op("Transpose", self._repeated(k), perm=[0, 1, 3, 2])
        scores = m.op("Div", m.op("MatMul", q, keys), m.number(e.head**0.5))
        weights = m.op("Softmax", m.op("Add", scores, self.mask), axis=-1)
        mixed = m.op("MatMul", weights, self._repeated(v))
        mixed = m.op("Transpose", mixed, perm=[0, 2, 1, 3])
        shape = m.op("Concat", self.batch, self.rows, m.ints(e.heads * e.head), axis=0)
        return [m.op("Reshape", mixed, shape), k, v]


# ---- onnxruntime's answer ------------------------------------------------------------------------


def greedy(
    model: Path | bytes, prompt: Sequence[int], count: int, width: int = 16
) -> tuple[list[int], list[Array]]:
    """The likeliest tokens one after the other, and the logits of each.

    width: of heads, if the model does not declare it
    """
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    infos = {info.name: info for info in session.get_inputs()}
    outputs = [o.name for o in session.get_outputs()]
    caches = {n: n.replace("past_key_values", "present") for n in infos if n.startswith("past")}
    kinds = {"tensor(float16)": np.float16, "tensor(float)": np.float32}
    state = {
        n: np.zeros((1, shape[1], 0, width if isinstance(shape[3], str) else shape[3]), kinds[kind])
        for n in caches for shape, kind in [(infos[n].shape, infos[n].type)]
    }  # fmt: skip
    ids, past, made, seen = list(prompt), 0, [], []
    while len(made) < count:
        total = past + len(ids)
        given: dict[str, Array] = {
            "input_ids": np.array([ids], np.int64),
            "attention_mask": np.ones((1, total), np.int64),
            "position_ids": np.arange(past, total)[None],
            "use_cache_branch": np.array([past > 0]),
        }
        given = {name: value for name, value in given.items() if name in infos}
        found = dict(zip(outputs, session.run(None, {**given, **state}), strict=True))
        state = {n: found[o] for n, o in caches.items()}
        logits = found["logits"][0, -1]
        past, ids = total, [int(logits.argmax())]
        made += ids
        seen.append(logits)
    return made, seen
