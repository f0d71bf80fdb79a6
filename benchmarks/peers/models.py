"""The whole models of the comparison on GPUs, at their published sizes, with random weights.

Input: a name of `MODELS`, whether small.  Output: an `onnx.ModelProto` as PyTorch's exporters write
it once all sizes are fixed: batch 1, layer norms as one node, GELU and attention written out, batch
norms folded.  Nothing is trained: speed and agreement do not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx
from onnx import TensorProto

from benchmarks.models.nets import Net, unet

LOW = float(np.finfo(np.float32).min)
#: Relative positions of T5: buckets, and the distance from which on they are one.
BUCKETS, FAR = 32, 128


@dataclass(frozen=True)
class Text:
    """Sizes of a transformer; `layers` of the encoder, as many of a decoder."""

    length: int = 384
    layers: int = 12
    width: int = 768
    heads: int = 12
    hidden: int = 3072
    words: int = 50265

    @property
    def head(self) -> int:
        return self.width // self.heads

    def small(self) -> Text:
        """For a look whether all works: two layers, little width."""
        return Text(32, 2, 64, 2, 128, 20_000)


class Transformer(Net):
    """Layers on [1, length, width]."""

    def __init__(self, sizes: Text, bias: bool = True) -> None:
        super().__init__()
        self.s, self.bias = sizes, bias

    def project(self, x: str, inside: int, outside: int) -> str:
        scale = inside**-0.5
        if self.bias:
            return self.linear(x, inside, outside, scale)
        return self.op("MatMul", x, self.weight(inside, outside, scale=scale))

    def norm(self, x: str) -> str:
        shift = self.weight(self.s.width)
        return self.op("LayerNormalization", x, self.ones(self.s.width), shift, epsilon=1e-5)

    def rms_norm(self, x: str) -> str:
        mean = self.op("ReduceMean", self.op("Pow", x, self.number(2.0)), axes=[-1], keepdims=1)
        root = self.op("Sqrt", self.op("Add", mean, self.number(1e-6)))
        made = self.op("Mul", x, self.op("Div", self.number(1.0), root))
        return self.op("Mul", self.ones(self.s.width), made)

    def words(self, ids: str) -> str:
        return self.op("Gather", self.weight(self.s.words, self.s.width), ids)

    def placed(self, x: str) -> str:
        """With an embedding of each position."""
        return self.op("Add", x, self.weight(1, self.s.length, self.s.width))

    def heads(self, x: str, perm: tuple[int, ...]) -> str:
        split = self.ints(1, self.s.length, self.s.heads, self.s.head)
        return self.op("Transpose", self.op("Reshape", x, split), perm=perm)

    def mix(self, q: str, k: str, v: str, mask: str = "", scaled: bool = True) -> str:
        """Attention of projected rows; `mask` is added to the scores."""
        rows, columns = (0, 2, 1, 3), (0, 2, 3, 1)
        scores = self.op("MatMul", self.heads(q, rows), self.heads(k, columns))
        if scaled:
            scores = self.op("Div", scores, self.number(math.sqrt(self.s.head)))
        if mask:
            scores = self.op("Add", scores, mask)
        mixed = self.op("MatMul", self.op("Softmax", scores, axis=-1), self.heads(v, rows))
        joined = self.ints(1, self.s.length, self.s.width)
        return self.op("Reshape", self.op("Transpose", mixed, perm=rows), joined)

    def attention(self, x: str, seen: str, mask: str = "", scaled: bool = True) -> str:
        width = self.s.width
        q, k, v = (self.project(part, width, width) for part in (x, seen, seen))
        return self.project(self.mix(q, k, v, mask, scaled), width, width)

    def feed_forward(self, x: str, activation: Callable[[str], str]) -> str:
        inner = activation(self.project(x, self.s.width, self.s.hidden))
        return self.project(inner, self.s.hidden, self.s.width)

    def gelu(self, x: str) -> str:
        erf = self.op("Erf", self.op("Div", x, self.number(math.sqrt(2))))
        both = self.op("Mul", x, self.op("Add", erf, self.number(1.0)))
        return self.op("Mul", both, self.number(0.5))

    def gelu_by_tanh(self, x: str) -> str:
        cube = self.op("Mul", self.op("Pow", x, self.number(3.0)), self.number(0.044715))
        inner = self.op("Mul", self.op("Add", x, cube), self.number(math.sqrt(2 / math.pi)))
        outer = self.op("Add", self.op("Tanh", inner), self.number(1.0))
        return self.op("Mul", self.op("Mul", x, self.number(0.5)), outer)

    def relu(self, x: str) -> str:
        return self.op("Relu", x)

    def post_norm(self, x: str, made: str) -> str:
        return self.norm(self.op("Add", made, x))

    def added(self, x: str, made: str) -> str:
        return self.op("Add", x, made)

    def causal(self) -> str:
        n = self.s.length
        return self.store(np.triu(np.full((1, 1, n, n), LOW, np.float32), 1))

    def padding(self, mask: str) -> str:
        """What is added to scores where a mask of ones and zeros has zeros."""
        shape = self.ints(1, 1, 1, self.s.length)
        given = self.op("Reshape", self.op("Cast", mask, to=TensorProto.FLOAT), shape)
        return self.op("Mul", self.op("Sub", self.number(1.0), given), self.number(LOW))

    def done(self, name: str, y: str, *inputs: str) -> onnx.ModelProto:
        shape = (1, self.s.length)
        made = {y: (*shape, self.s.width)}
        return self.model(dict.fromkeys(inputs, shape), made, name, TensorProto.INT32)


def roberta(s: Text) -> onnx.ModelProto:
    """RoBERTa-base: the encoder, with a mask of what is padding."""
    b = Transformer(s)
    x, mask = b.norm(b.placed(b.words("input_ids"))), b.padding("attention_mask")
    for _ in range(s.layers):
        x = b.post_norm(x, b.attention(x, x, mask))
        x = b.post_norm(x, b.feed_forward(x, b.gelu))
    return b.done("roberta", x, "input_ids", "attention_mask")


def bart(s: Text) -> onnx.ModelProto:
    """BART-base: encoder and decoder over a whole text each."""
    b = Transformer(s)
    memory = b.norm(b.placed(b.words("input_ids")))
    for _ in range(s.layers):
        memory = b.post_norm(memory, b.attention(memory, memory))
        memory = b.post_norm(memory, b.feed_forward(memory, b.gelu))
    x, causal = b.norm(b.placed(b.words("decoder_input_ids"))), b.causal()
    for _ in range(s.layers):
        x = b.post_norm(x, b.attention(x, x, causal))
        x = b.post_norm(x, b.attention(x, memory))
        x = b.post_norm(x, b.feed_forward(x, b.gelu))
    return b.done("bart", x, "input_ids", "decoder_input_ids")


def gpt2(s: Text) -> onnx.ModelProto:
    """GPT-2, no cache, hidden states of all positions; one product makes q, k and v."""
    b = Transformer(s)
    x, causal = b.placed(b.words("input_ids")), b.causal()
    for _ in range(s.layers):
        q, k, v = b.split(b.project(b.norm(x), s.width, 3 * s.width), [s.width] * 3, 2)
        x = b.added(x, b.project(b.mix(q, k, v, causal), s.width, s.width))
        x = b.added(x, b.feed_forward(b.norm(x), b.gelu_by_tanh))
    return b.done("gpt2", b.norm(x), "input_ids")


def t5(s: Text) -> onnx.ModelProto:
    """T5-small: no biases, root-mean-square norms, scores that know the distance."""
    b = Transformer(s, bias=False)
    bias = b.store(distances(s, both=True))
    memory = b.words("input_ids")
    for _ in range(s.layers):
        normed = b.rms_norm(memory)
        memory = b.added(memory, b.attention(normed, normed, bias, scaled=False))
        memory = b.added(memory, b.feed_forward(b.rms_norm(memory), b.relu))
    memory = b.rms_norm(memory)
    x, bias = b.words("decoder_input_ids"), b.store(distances(s, both=False))
    for _ in range(s.layers):
        normed = b.rms_norm(x)
        x = b.added(x, b.attention(normed, normed, bias, scaled=False))
        x = b.added(x, b.attention(b.rms_norm(x), memory, scaled=False))
        x = b.added(x, b.feed_forward(b.rms_norm(x), b.relu))
    return b.done("t5", b.rms_norm(x), "input_ids", "decoder_input_ids")


def distances(s: Text, both: bool) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """[1, heads, length, length]: a number for each head and bucket of distances.

    both: keys after a row have buckets of their own; else they are not seen
    """
    n = np.arange(s.length)
    ahead = n[None, :] - n[:, None]
    buckets = BUCKETS // 2 if both else BUCKETS
    exact = buckets // 2
    far = np.abs(ahead) if both else np.maximum(-ahead, 0)
    steps = np.log(np.maximum(far, 1) / exact) / math.log(FAR / exact) * (buckets - exact)
    bucket = np.where(far < exact, far, np.minimum(exact + steps.astype(int), buckets - 1))
    bucket = bucket + np.where(both & (ahead > 0), buckets, 0)
    table = np.random.default_rng(3).standard_normal((s.heads, BUCKETS), np.float32)
    found = table[None, :, bucket]
    return found if both else np.where(ahead > 0, np.float32(LOW), found)


class Vision(Net):
    """Convolutions with folded batch norms on [1, channels, size, size]."""

    def classify(self, x: str, inside: int, classes: int = 1000) -> str:
        line = self.op("Flatten", self.op("GlobalAveragePool", x), axis=1)
        weights = self.weight(inside, classes, scale=inside**-0.5)
        return self.op("Gemm", line, weights, self.weight(classes))

    def done(self, name: str, y: str, size: int) -> onnx.ModelProto:
        return self.model({"x": (1, 3, size, size)}, {y: (1, 1000)}, name)


def resnet50(small: bool) -> onnx.ModelProto:
    b, size = Vision(), 32 if small else 224
    x = b.op("Relu", b.conv("x", 3, 64, 7, 2))
    x = b.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    inside = 64
    for number, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(1 if small else blocks):
            stride = 2 if number and not block else 1
            y = b.op("Relu", b.conv(x, inside, width, 1))
            y = b.op("Relu", b.conv(y, width, width, 3, stride))
            y = b.conv(y, width, 4 * width, 1)
            short = x if block else b.conv(x, inside, 4 * width, 1, stride)
            x, inside = b.op("Relu", b.op("Add", y, short)), 4 * width
    return b.done("resnet50", b.classify(x, inside), size)


#: Of MobileNetV2's blocks: expansion, channels, how many, the first one's stride.
BLOCKS = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
    (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


def mobilenet_v2(small: bool) -> onnx.ModelProto:
    b, size = Vision(), 32 if small else 224
    low, high = b.number(0.0), b.number(6.0)

    def clipped(made: str) -> str:
        return b.op("Clip", made, low, high)

    x, inside = clipped(b.conv("x", 3, 32, 3, 2)), 32
    for expansion, channels, count, first in BLOCKS:
        for block in range(1 if small else count):
            wide = inside * expansion
            y = clipped(b.conv(x, inside, wide, 1)) if expansion > 1 else x
            y = clipped(b.conv(y, wide, wide, 3, 1 if block else first, wide))
            y = b.conv(y, wide, channels, 1)
            x, inside = (b.op("Add", x, y) if block else y), channels
    return b.done("mobilenet_v2", b.classify(clipped(b.conv(x, inside, 1280, 1)), 1280), size)


#: Of Llama 2 7B, and of the small form.
WIDTH, HIDDEN, SMALL_WIDTH, SMALL_HIDDEN = 4096, 11008, 64, 96


def quantised(rows: int, layers: int, small: bool) -> onnx.ModelProto:
    """Llama 2 7B's wide products in 4 bits, up and down again: `layers` of each, one by one."""
    b, x = Net(), "x"
    width, hidden = (SMALL_WIDTH, SMALL_HIDDEN) if small else (WIDTH, HIDDEN)
    for _ in range(layers):
        x = b.blocks(b.blocks(x, width, hidden), hidden, width)
    return b.model({"x": (rows, width)}, {x: (rows, width)}, "quantised")


def square(rows: int, layers: int, small: bool) -> onnx.ModelProto:
    """Its square products, as of queries, in 4 bits: as many as no cache holds, one by one."""
    b, x = Net(), "x"
    width = SMALL_WIDTH if small else WIDTH
    for _ in range(layers):
        x = b.blocks(x, width, width)
    return b.model({"x": (rows, width)}, {x: (rows, width)}, "square")


def small_or_usual_unet(small: bool) -> onnx.ModelProto:
    return unet(32, (16, 32)) if small else unet()


def text(make: Callable[[Text], onnx.ModelProto], sizes: Text, small: bool) -> onnx.ModelProto:
    return make(sizes.small() if small else sizes)


#: By name: the model, or a small one of the same layers.
MODELS: Mapping[str, Callable[[bool], onnx.ModelProto]] = {
    "roberta_base": partial(text, roberta, Text()),
    "bart_base": partial(text, bart, Text(layers=6)),
    "gpt2": partial(text, gpt2, Text(words=50257)),
    "t5_small": partial(text, t5, Text(384, 6, 512, 8, 2048, 32128)),
    "resnet50": resnet50,
    "mobilenet_v2": mobilenet_v2,
    "unet": small_or_usual_unet,
    "bits4_1": partial(quantised, 1, 4),
    "bits4_128": partial(quantised, 128, 1),
    "bits4_512": partial(quantised, 512, 1),
    "bits4_square_1": partial(square, 1, 8),
    "bits4_square_512": partial(square, 512, 1),
}
