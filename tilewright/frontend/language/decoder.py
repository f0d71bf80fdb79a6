"""The graph of a language model, for any number of new tokens.

Input: `DecoderSource`, and how many tokens the caches hold.  Output: graphs as
docs/decoders.md describes them: `input_ids` and `seqlens_k` in, the last token's `logits`
out, and for each layer a cache of keys and one of values.  Its parts are functions of the importer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tilewright.base.dtypes import F32, I32, I64, DType
from tilewright.base.errors import InvalidModel, UsageError
from tilewright.frontend import arithmetic as al
from tilewright.frontend.language.hyperparameters import Hyperparameters
from tilewright.frontend.language.rotation import Rotation
from tilewright.frontend.language.weights import ModelTensor, WeightTable
from tilewright.frontend.operators.activation import gelu, swish
from tilewright.frontend.operators.normalization import rms_norm
from tilewright.frontend.operators.transformer import group_query_attention
from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    ModelNode,
    Node,
    cast,
    gather,
    graph_input,
    node,
    reshape,
    slice_,
    with_pick_source,
    with_source,
)

IDS, LAST, LOGITS = "input_ids", "seqlens_k", "logits"
#: The name of the dimension of new tokens.
ROWS = "n"
#: The name of the dimension of new tokens that get logits, in a bundle whose runs check tokens.
CHECKED = "k"
#: How names of an encoder-decoder model's states begin: keys and values of what the encoder read,
#: and of past tokens.
ENCODER_CACHES, DECODER_CACHES = "past_encoder.", "past_decoder."
EMBEDDING = "token_embd.weight"


@dataclass(frozen=True)
class DecoderSource:
    """A model as a reader of files found it.

    name:    the model's name
    rotation, local: the rotations of layers that see all keys, and of local layers
    tensors: the tensors by role; a role has GGUF's name for the tensor, such as
             "blk.0.attn_q.weight"
    called:  gives the file's own name of a role, for messages
    """

    name: str
    sizes: Hyperparameters
    rotation: Rotation
    local: Rotation
    tensors: Mapping[str, ModelTensor]
    called: Callable[[str], str] = str


def rows_asked(
    dims: Mapping[str, int] | None, shapes: Mapping[str, object] | None, *others: str
) -> int:
    """The number of new tokens of a graph.  Raises UsageError for any other size.

    others: further dimensions that the model has
    """
    if shapes or set(dims or {}) - {ROWS, *others}:
        raise UsageError(
            f"a language model has one open dimension, {ROWS}",
            hint=f"Choose its sizes with --buckets {ROWS}=1,64",
        )
    return (dims or {}).get(ROWS, 1)


class SharedInputs:
    """Inputs of a model's graphs: all graphs get the same node, so that they share the nodes
    computed from it."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, ops.Shape], Node] = {}

    def __call__(self, name: str, shape: ops.Shape, dtype: DType, stored: str = "") -> Node:
        if (name, shape) not in self._made:
            self._made[name, shape] = graph_input(name, shape, dtype, stored)
        return self._made[name, shape]


class Decoder:
    """A model as a source of graphs; weights are made once for all of them.

    room:  tokens that the caches hold; by default the number that it was trained for, at most
           `most`
    loose: the type to which products may round their other operand
    most_rows: the largest number of new tokens of a graph
    """

    def __init__(
        self, source: DecoderSource, room: int = 0, loose: str = "", most: int = 0
    ) -> None:
        """Raises InvalidModel, UsageError."""
        self.source, self.sizes, self.name = source, source.sizes, source.name
        self.room = room or min(self.sizes.trained, most or self.sizes.trained)
        if not 0 < self.room <= self.sizes.trained:
            raise UsageError(
                f"the model was trained for {self.sizes.trained} tokens, not for {room}",
                hint="Ask for a smaller context", trained=self.sizes.trained, context=room,
            )  # fmt: skip
        self.weights = WeightTable(source.tensors, source.called, loose)
        self._input = SharedInputs()
        self._tables: dict[bool, tuple[Node, Node]] = {}
        embedding = source.tensors.get(EMBEDDING)
        if embedding is None or len(embedding.shape) != 2:
            raise InvalidModel("the model has no embeddings", tensor=source.called(EMBEDDING))
        self.words = embedding.shape[0]
        self.inputs = (IDS, LAST, *self.states)
        self.most_rows = self.room

    @property
    def states(self) -> Mapping[str, str]:
        """Caches: by the name of the input that of the output."""
        return {
            f"past_key_values.{layer}.{part}": f"present.{layer}.{part}"
            for layer in range(self.sizes.layers)
            for part in ("key", "value")
        }

    def combinations(self, dims: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
        """Sizes of plans.  A number of tokens that is one of `dims[CHECKED]`, too, has logits for
        all of them; the others have logits for the last one."""
        rows, checked = (sorted({*dims.get(name, ())}) for name in (ROWS, CHECKED))
        if not checked:
            return [{ROWS: n} for n in rows] or [{}]
        if checked[0] != 1 or set(checked) - set(rows):
            raise UsageError(
                "logits of several tokens need a plan of one token, and plans of these numbers",
                hint=f"Choose sizes such as --buckets {ROWS}=1,4,64 --buckets {CHECKED}=1,4",
                given={name: list(sizes) for name, sizes in dims.items()},
            )
        return [{ROWS: n, CHECKED: n if n in checked else 1} for n in rows]

    def graph(
        self, dims: Mapping[str, int] | None = None, shapes: Mapping[str, object] | None = None
    ) -> Graph:
        """The model for `dims[ROWS]` new tokens, with logits for `dims[CHECKED]` of them; by
        default for the last one."""
        rows, checked = rows_asked(dims, shapes, CHECKED), (dims or {}).get(CHECKED, 1)
        if not 0 < rows <= self.most_rows:
            raise UsageError(f"{rows} new tokens do not fit the context of {self.room}")
        s = self.sizes
        shape = (1, s.kv_heads, self.room, s.head)
        ids, places = self._input(IDS, (1, rows), I64), self._input(LAST, (checked,), I32)
        last = places if checked == 1 else slice_(places, (0,), (1,))
        caches = {name: self._input(name, shape, F32) for name in self.states}
        results: dict[str, Node] = {}
        with with_source(ModelNode("token_embd", "Gather")):
            x = self.weights.matrix(EMBEDDING, (self.words, s.width)).rows(reshape(ids, (rows,)))
            x = al.mul(x, s.width**0.5) if s.kind.embedding else x
        for layer in range(s.layers):
            named = f"past_key_values.{layer}"
            made = self._layer(layer, x, last, caches[f"{named}.key"], caches[f"{named}.value"])
            x, *present = made
            results |= zip((f"present.{layer}.key", f"present.{layer}.value"), present, strict=True)
        with with_source(ModelNode("output", "MatMul")):
            logits = self._logits(x, places, last)
        self.weights.check_all_used(self.sizes.name)
        inputs = ((IDS, ids), (LAST, places), *caches.items())
        return Graph(self.name, inputs, ((LOGITS, logits), *results.items()))

    # ---- parts -----------------------------------------------------------------------------------

    def _layer(
        self, layer: int, x: Node, last: Node, key: Node, value: Node
    ) -> tuple[Node, Node, Node]:
        """Attention and the gated part, each with its norm before and the sum with x behind."""
        at = f"blk.{layer}"
        with with_source(ModelNode(f"{at}.attn", "GroupQueryAttention")):
            mixed, *present = self._attention(
                layer, self._norm(x, f"{at}.attn_norm"), last, key, value
            )
            if self.sizes.kind.posts:
                mixed = self._norm(mixed, f"{at}.post_attention_norm")
            x = al.add(x, mixed)
        with with_source(ModelNode(f"{at}.ffn", "MatMul")):
            gated = self._gated(at, self._norm(x, f"{at}.ffn_norm"))
            if self.sizes.kind.posts:
                gated = self._norm(gated, f"{at}.post_ffw_norm")
            return al.add(x, gated), present[0], present[1]

    def _attention(
        self, layer: int, x: Node, last: Node, key: Node, value: Node
    ) -> tuple[Node, Node, Node]:
        s, at, rows = self.sizes, f"blk.{layer}", x.shape[0]
        wide, own = s.heads * s.head, s.kv_heads * s.head
        if f"{at}.attn_qkv.weight" in self.weights:
            whole = self.weights.product(x, f"{at}.attn_qkv", wide + 2 * own)
            parts = (0, wide), (wide, own), (wide + own, own)
            q, k, v = (al.take(whole, 1, start, count) for start, count in parts)
        else:
            q, k, v = (
                self.weights.product(x, f"{at}.attn_{part}", count)
                for part, count in (("q", wide), ("k", own), ("v", own))
            )
        q, k = (
            self._head_norm(part, f"{at}.attn_{name}_norm") for part, name in ((q, "q"), (k, "k"))
        )
        q, k, v = (reshape(part, (1, rows, part.shape[1])) for part in (q, k, v))
        local = s.local[layer]
        cos, sin = self._rotation(local)
        mixed, *present = group_query_attention(
            q, k, v, key, value, last, None, cos, sin,
            num_heads=s.heads, kv_num_heads=s.kv_heads, scale=s.scale,
            do_rotary=int(s.turned[layer]), rotary_interleaved=int(s.pairs),
            softcap=s.caps[0], local_window_size=s.window if local else -1,
        )  # fmt: skip
        made = self.weights.product(reshape(mixed, (rows, wide)), f"{at}.attn_output", s.width)
        return made, present[0], present[1]

    def _gated(self, at: str, x: Node) -> Node:
        name = f"{at}.ffn_up.weight"
        count = self.source.tensors[name].shape[0] if name in self.weights else 0
        if f"{at}.ffn_gate.weight" in self.weights:
            gate, up = (
                self.weights.product(x, f"{at}.ffn_{part}", count) for part in ("gate", "up")
            )
        else:
            both = self.weights.product(x, f"{at}.ffn_up", count)
            gate, up = (al.take(both, 1, start, count // 2) for start in (0, count // 2))
        gate = gelu(gate, approximate="tanh") if self.sizes.kind.gate == "gelu" else swish(gate)
        return self.weights.product(al.mul(gate, up), f"{at}.ffn_down", self.sizes.width)

    def _logits(self, x: Node, places: Node, last: Node) -> Node:
        """The logits of the tokens at some places of the text; `last`, the first of them, is the
        last token, which in a padded prompt is not in the last row."""
        rows, s, checks = x.shape[0], self.sizes, places is not last
        if rows > 1:
            row = al.apply("min", cast(last, I64), rows - 1)
            if checks:
                behind = al.sub(cast(places, I64), cast(last, I64))
                row = al.apply("max", al.add(row, behind), 0)
            # with the norm of all rows first, logits are to the bit those of single tokens
            x = self._norm(x, "output_norm") if checks else x
            x = gather(x, row, 0, with_pick_source(0))
        tied = "output.weight" not in self.weights
        table = self.weights.matrix(EMBEDDING if tied else "output.weight", (self.words, s.width))
        logits = table.times(x if checks else self._norm(x, "output_norm"))
        if s.caps[1]:
            logits = al.mul(al.apply("tanh", al.div(logits, s.caps[1])), s.caps[1])
        return reshape(logits, (1, places.shape[0], self.words))

    def _norm(self, x: Node, name: str) -> Node:
        weight = self.weights.numbers(f"{name}.weight", (x.shape[-1],))
        return rms_norm(x, weight, epsilon=self.sizes.epsilon)

    def _head_norm(self, x: Node, name: str) -> Node:
        """A norm of each head, if the model has one."""
        if f"{name}.weight" not in self.weights:
            return x
        heads = reshape(x, (x.shape[0], -1, self.sizes.head))
        return reshape(self._norm(heads, name), x.shape)

    def _rotation(self, local: bool) -> tuple[Node, Node]:
        """Tables of cosines and sines, the same node for all layers."""
        if local not in self._tables:
            rotation = self.source.local if local else self.source.rotation
            made = rotation.tables(self.room)
            self._tables[local] = tuple(
                node(ops.Weight(f"rope.{what}", table.shape, F32, partial(_given, table)))
                for what, table in zip(("cos", "sin"), made, strict=True)
            )  # type: ignore[assignment]
        return self._tables[local]


def _given(value: ops.Array) -> ops.Array:
    return value
