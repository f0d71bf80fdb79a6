"""The graph of a Whisper model: from samples to the logits of the next token of what was said.

Input: `WhisperSource`.  Output: two graphs.  One takes the samples of a window (30 seconds) and a
token: it computes features, encoder, and keys and values of cross-attention, which are states.
The other one takes a token and reads these states.  Both write the decoder's own keys and values
into caches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.base.dtypes import F32, I32, I64
from tilewright.base.errors import InvalidModel, UnsupportedOp, UsageError
from tilewright.frontend import arithmetic as al
from tilewright.frontend.language.decoder import (
    DECODER_CACHES,
    IDS,
    LAST,
    LOGITS,
    ROWS,
    SharedInputs,
)
from tilewright.frontend.language.weights import ModelTensor, WeightTable
from tilewright.frontend.operators.activation import gelu, softmax
from tilewright.frontend.operators.normalization import layer_norm
from tilewright.frontend.operators.transformer import group_query_attention
from tilewright.frontend.operators.windows import conv
from tilewright.frontend.speech.log_mel import HOP, log_mel
from tilewright.graph.node import (
    Graph,
    ModelNode,
    Node,
    contract,
    gather,
    reshape,
    transpose,
    with_pick_source,
    with_source,
)

#: Inputs: the samples of a window, and how many of them were recorded.
SAMPLES, COUNT = "samples", "sample_count"
#: The stride of the encoder's second convolution.
STRIDE = 2
EMBEDDING = "decoder.embed_tokens.weight"
#: The end of the roles of both tables of positions.
POSITIONS = ".embed_positions.weight"


@dataclass(frozen=True)
class WhisperSizes:
    """bands: of mel features;  positions: of the encoder, for a whole window
    room:   tokens that the decoder was trained for;  words: tokens that there are
    layers, heads: of the encoder and of the decoder
    """

    width: int
    bands: int
    positions: int
    room: int
    words: int
    layers: tuple[int, int]
    heads: tuple[int, int]

    def __post_init__(self) -> None:
        """Raises InvalidModel."""
        for heads in self.heads:
            if heads < 1 or self.width < heads or self.width % heads:
                raise InvalidModel(
                    f"{heads} heads cannot share a width of {self.width}",
                    hint="The model's settings are damaged", width=self.width, heads=heads,
                )  # fmt: skip

    @property
    def window(self) -> int:
        """Samples that the encoder sees at once."""
        return self.positions * STRIDE * HOP


@dataclass(frozen=True)
class WhisperSource:
    """A model as a reader of files found it.

    tensors: by role: the name that Hugging Face's files have, without `model.`
    called:  gives the file's own name of a role, for messages
    """

    name: str
    sizes: WhisperSizes
    tensors: Mapping[str, ModelTensor]
    called: Callable[[str], str] = str


def unsupported_setting(key: str, value: object) -> UnsupportedOp:
    """The error for a setting that the graph does not have."""
    return UnsupportedOp(
        f"Whisper models with {key} = {str(value)[:40]} are not supported",
        hint="The model is of another kind than OpenAI's", key=key,
    )  # fmt: skip


class Whisper:
    """A model as a source of graphs; weights are made once for both of them.

    loose: the type to which products may round their other operand
    """

    def __init__(self, source: WhisperSource, loose: str = "") -> None:
        self.source, self.sizes, self.name = source, source.sizes, source.name
        self.weights = WeightTable(source.tensors, source.called, loose)
        self.words, self.room, self.window = self.sizes.words, self.sizes.room, self.sizes.window
        self._input = SharedInputs()
        self.inputs = (SAMPLES, COUNT, IDS, LAST, *self.states)

    @property
    def states(self) -> Mapping[str, str]:
        """By the name of the input that of the output."""
        return {
            f"past_{part}.{layer}.{what}": f"present_{part}.{layer}.{what}"
            for layer in range(self.sizes.layers[1])
            for part in ("encoder", "decoder")
            for what in ("key", "value")
        }

    def combinations(self, dims: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
        """Sizes of plans: a token alone, and a token with a window.  Raises UsageError."""
        wanted = {SAMPLES: [0, self.window], ROWS: [1]}
        if {name: sorted(sizes) for name, sizes in dims.items()} != wanted:
            raise UsageError(
                "a speech model has plans of its own",
                hint="Leave --buckets out", given={n: list(s) for n, s in dims.items()},
            )  # fmt: skip
        return [{SAMPLES: 0, ROWS: 1}, {SAMPLES: self.window, ROWS: 1}]

    def graph(
        self, dims: Mapping[str, int] | None = None, shapes: Mapping[str, object] | None = None
    ) -> Graph:
        """The model for one token, and a window if `dims[SAMPLES]` is not 0."""
        count, rows = ((dims or {}).get(name, 0) for name in (SAMPLES, ROWS))
        if shapes or rows != 1 or count not in (0, self.window):
            raise UsageError(f"a speech model has no plan of {count} samples and {rows} tokens")
        s = self.sizes
        head = s.width // s.heads[1]
        samples = self._input(SAMPLES, (1, count), F32)
        recorded = self._input(COUNT, (1,), I32)
        ids, last = self._input(IDS, (1, 1), I64), self._input(LAST, (1,), I32)
        rooms = {"encoder": s.positions, "decoder": s.room}
        past = {
            name: self._input(name, (1, s.heads[1], rooms[_part_of(name)], head), F32)
            for name in self.states
        }
        known = dict(past)
        if count:
            known |= self._crossing(self._encoded(reshape(samples, (count,)), recorded))
        logits, written = self._decoded(ids, last, known)
        if count:
            self.weights.check_all_used("whisper")
        inputs = ((SAMPLES, samples), (COUNT, recorded), (IDS, ids), (LAST, last))
        present = ((self.states[name], n) for name, n in {**known, **written}.items())
        return Graph(self.name, (*inputs, *past.items()), ((LOGITS, logits), *present))

    # ---- encoder ---------------------------------------------------------------------------------

    def _encoded(self, samples: Node, recorded: Node) -> Node:
        """[positions, width]"""
        s = self.sizes
        with with_source(ModelNode("features", "STFT")):
            x = log_mel(samples, recorded, s.bands)
        x = transpose(reshape(x, (1, *x.shape)), (0, 2, 1))
        for name, stride in (("encoder.conv1", 1), ("encoder.conv2", STRIDE)):
            with with_source(ModelNode(name, "Conv")):
                weight = self.weights.numbers(f"{name}.weight", (s.width, x.shape[1], 3))
                bias = self.weights.numbers(f"{name}.bias", (s.width,))
                x = gelu(conv(x, weight, bias, pads=(1, 1), strides=(stride,)))
        x = reshape(transpose(x, (0, 2, 1)), (s.positions, s.width))
        table = self.weights.numbers(f"encoder{POSITIONS}", (s.positions, s.width))
        x = al.add(x, table)
        for layer in range(s.layers[0]):
            at = f"encoder.layers.{layer}"
            with with_source(ModelNode(f"{at}.self_attn", "Attention")):
                normal = self._norm(x, f"{at}.self_attn_layer_norm")
                q, k, v = (
                    self._heads(self._product(normal, f"{at}.self_attn.{part}_proj"), s.heads[0])
                    for part in "qkv"
                )
                x = al.add(x, self._product(_attended(q, k, v), f"{at}.self_attn.out_proj"))
            x = self._fed(x, at)
        with with_source(ModelNode("encoder.layer_norm", "LayerNormalization")):
            return self._norm(x, "encoder.layer_norm")

    def _crossing(self, encoded: Node) -> dict[str, Node]:
        """Keys and values of cross-attention, by the name of the state."""
        made: dict[str, Node] = {}
        for layer in range(self.sizes.layers[1]):
            at = f"decoder.layers.{layer}.encoder_attn"
            with with_source(ModelNode(at, "MatMul")):
                for what, part in (("key", "k_proj"), ("value", "v_proj")):
                    whole = self._heads(self._product(encoded, f"{at}.{part}"), self.sizes.heads[1])
                    made[f"past_encoder.{layer}.{what}"] = reshape(whole, (1, *whole.shape))
        return made

    # ---- decoder ---------------------------------------------------------------------------------

    def _decoded(
        self, ids: Node, last: Node, known: Mapping[str, Node]
    ) -> tuple[Node, dict[str, Node]]:
        """The logits, and the caches of the decoder by the name of the state."""
        s, written = self.sizes, dict[str, Node]()
        with with_source(ModelNode("decoder.embed_tokens", "Gather")):
            x = self.weights.matrix(EMBEDDING, (s.words, s.width)).rows(reshape(ids, (1,)))
            table = self.weights.numbers(f"decoder{POSITIONS}", (s.room, s.width))
            x = al.add(x, gather(table, last, 0, with_pick_source(0)))
        for layer in range(s.layers[1]):
            at = f"decoder.layers.{layer}"
            names = tuple(f"{DECODER_CACHES}{layer}.{what}" for what in ("key", "value"))
            mixed, *caches = self._with_itself(x, at, last, *(known[name] for name in names))
            written |= zip(names, caches, strict=True)
            x = al.add(x, mixed)
            names = tuple(f"past_encoder.{layer}.{what}" for what in ("key", "value"))
            x = al.add(x, self._with_encoded(x, at, *(known[name] for name in names)))
            x = self._fed(x, at)
        with with_source(ModelNode("logits", "MatMul")):
            embeddings = self.weights.matrix(EMBEDDING, (s.words, s.width))
            logits = embeddings.times(self._norm(x, "decoder.layer_norm"))
        return reshape(logits, (1, 1, s.words)), written

    def _with_itself(
        self, x: Node, at: str, last: Node, key: Node, value: Node
    ) -> tuple[Node, Node, Node]:
        """Self-attention of the decoder, and its caches with the new token."""
        heads = self.sizes.heads[1]
        with with_source(ModelNode(f"{at}.self_attn", "GroupQueryAttention")):
            normal = self._norm(x, f"{at}.self_attn_layer_norm")
            q, k, v = (
                reshape(self._product(normal, f"{at}.self_attn.{part}_proj"), (1, 1, -1))
                for part in "qkv"
            )
            mixed, *caches = group_query_attention(
                q, k, v, key, value, last, num_heads=heads, kv_num_heads=heads
            )
            made = self._product(reshape(mixed, x.shape), f"{at}.self_attn.out_proj")
            return made, caches[0], caches[1]

    def _with_encoded(self, x: Node, at: str, key: Node, value: Node) -> Node:
        """Cross-attention."""
        with with_source(ModelNode(f"{at}.encoder_attn", "Attention")):
            normal = self._norm(x, f"{at}.encoder_attn_layer_norm")
            q = self._heads(self._product(normal, f"{at}.encoder_attn.q_proj"), self.sizes.heads[1])
            k, v = (reshape(cache, cache.shape[1:]) for cache in (key, value))
            return self._product(_attended(q, k, v), f"{at}.encoder_attn.out_proj")

    # ---- parts -----------------------------------------------------------------------------------

    def _fed(self, x: Node, at: str) -> Node:
        """The part behind attention, with the norm before and the sum with x behind."""
        with with_source(ModelNode(f"{at}.fc1", "MatMul")):
            normal = self._norm(x, f"{at}.final_layer_norm")
            wide = self.weights.product(normal, f"{at}.fc1", self._hidden(at))
            return al.add(x, self._product(gelu(wide), f"{at}.fc2"))

    def _product(self, x: Node, name: str) -> Node:
        return self.weights.product(x, name, self.sizes.width)

    def _hidden(self, at: str) -> int:
        """How wide the part behind attention is, as its tensor has it."""
        tensor = self.source.tensors.get(f"{at}.fc1.weight")
        return tensor.shape[0] if tensor and tensor.shape else 0

    def _heads(self, x: Node, heads: int) -> Node:
        """[rows, width] as [heads, rows, width of a head]"""
        return transpose(reshape(x, (x.shape[0], heads, -1)), (1, 0, 2))

    def _norm(self, x: Node, name: str) -> Node:
        width = self.sizes.width
        scale, bias = (
            self.weights.numbers(f"{name}.{end}", (width,)) for end in ("weight", "bias")
        )
        return layer_norm(x, scale, bias)[0]


def _part_of(state: str) -> str:
    return state.split(".")[0].removeprefix("past_")


def _attended(q: Node, k: Node, v: Node) -> Node:
    """Attention without a mask: [heads, rows, head] and [heads, keys, head] -> [rows, width]"""
    scores = al.mul(contract("hmd,hnd->hmn", q, k), q.shape[2] ** -0.5)
    made = contract("hmn,hnd->mhd", softmax(scores), v)
    return reshape(made, (made.shape[0], -1))
