"""The graph of an encoder-decoder model that was exported to ONNX as two files.

Input: an encoder, and a decoder without caches.  Output: graphs with four inputs: the prompt
(`encoder_ids`), its last position, the decoder's tokens so far (`input_ids`) and their last
position (`seqlens_k`).  Tensors of the decoder that follow from the prompt alone, the keys and
values of cross-attention, are states: a run with a prompt computes them, and runs with an empty
prompt read them.  The decoder computes all its tokens in each run, as the file does: in files with
integers, scales depend on all tokens together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from tilewright.base.dtypes import F32, I32, I64, DType
from tilewright.base.errors import UnsupportedOp, UsageError
from tilewright.frontend import arithmetic as al
from tilewright.frontend.exports.exported_model import of_last
from tilewright.frontend.exports.model_files import INNER
from tilewright.frontend.exports.padded_rows import (
    PaddedRows,
    import_padded,
    open_axes,
    padded_operands,
)
from tilewright.frontend.importer import value_of
from tilewright.frontend.language.decoder import IDS, LAST, LOGITS, ROWS, SharedInputs
from tilewright.frontend.read import Model, TensorDecl, load
from tilewright.frontend.subgraphs import Visible
from tilewright.graph.node import Graph, Node, cast, graph_input, iota, pad, reshape
from tilewright.graph.rounding import with_rounded_outputs

#: Our inputs for the prompt and the position of its last token, and the dimension of its tokens.
PROMPT, PROMPT_LAST, PROMPT_ROWS = "encoder_ids", "encoder_last", "m"
#: Names in the files.
MASK, HIDDEN, HIDDEN_MASK = "attention_mask", "encoder_hidden_states", "encoder_attention_mask"
#: Operators that read no number of their operand.
SHAPES = frozenset({"Shape", "Size"})
#: Numbers of tokens of prompt and answer for which open axes are found.
TRIALS = ((5, 3), (7, 4))

#: Names of the two files as exporters write them, beside each other or in a folder `onnx`.
FILES = ("encoder_model.onnx", "decoder_model.onnx"), ("encoder.onnx", "decoder.onnx")

EXPORTS = (
    "Export the model as an encoder (input_ids, attention_mask) and a decoder without caches "
    f"(input_ids, {HIDDEN}, {HIDDEN_MASK}), as Optimum's task text2text-generation does"
)


@dataclass(frozen=True)
class CrossState:
    """A tensor that follows from the prompt alone.  axis: of its tokens, None if it has none"""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    axis: int | None


class EncoderDecoderExport:
    """Two files as a source of graphs.

    prompt: tokens that a prompt may have;  room: tokens that an answer may have
    first:  tokens of the decoder in runs with a prompt, padding included
    """

    def __init__(
        self, encoder: str | Path | Model, decoder: str | Path | Model, prompt: int, room: int,
        first: int = 8, name: str = "",
    ) -> None:  # fmt: skip
        """Raises InvalidModel, UnsupportedOp, UnsupportedDType, UsageError."""
        if prompt < 1 or room < 1:
            raise UsageError("prompt and answer need one token or more", prompt=prompt, room=room)
        self.encoder, self.decoder = load(encoder), load(decoder)
        self.prompt, self.room, self.first = prompt, room, min(first, room)
        self.name = name or self.decoder.name
        self._hidden = _hidden_of(self.encoder, self.decoder)
        self._input = SharedInputs()
        self._padded: dict[str, Mapping[str, tuple[tuple[int, int], ...]]] = {}
        trials = [self._trial(*sizes) for sizes in TRIALS]
        for number, part in enumerate(("encoder", "decoder")):
            pair = trials[0][number], trials[1][number]
            model = self.encoder if part == "encoder" else self.decoder
            self._padded[part] = padded_operands(model.nodes, *pair, TRIALS)
        self._cross = [self._state(name, *(t[1] for t in trials)) for name in self._crossing()]
        self.words = value_of(trials[0][1], LOGITS).shape[-1]
        self.states: Mapping[str, str] = {
            f"past_encoder.{n}": f"present_encoder.{n}" for n in range(len(self._cross))
        }
        self.inputs = (PROMPT, PROMPT_LAST, IDS, LAST, *self.states)

    def rounded(self, **how: bool) -> EncoderDecoderExport:
        """The same, whose weights and products may be rounded, as `Model` says."""
        one, two = (
            replace(m, **how, _constants={})  # type: ignore[arg-type]
            for m in (self.encoder, self.decoder)
        )
        return EncoderDecoderExport(one, two, self.prompt, self.room, self.first, self.name)

    def combinations(self, dims: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
        """Sizes of plans: the decoder alone, and each size of prompts with the decoder's first."""
        prompts, rows = (sorted({*dims.get(name, ())}) for name in (PROMPT_ROWS, ROWS))
        if not rows or rows[0] != self.first or prompts[:1] != [0] or not prompts[1:]:
            raise UsageError(
                "an encoder-decoder model needs sizes of prompts and answers",
                hint=f"For example --buckets {PROMPT_ROWS}=0,64 --buckets {ROWS}={self.first},32",
                given={name: list(sizes) for name, sizes in dims.items()},
            )
        alone = [{PROMPT_ROWS: 0, ROWS: n} for n in rows]
        return alone + [{PROMPT_ROWS: m, ROWS: rows[0]} for m in prompts if m]

    def graph(
        self, dims: Mapping[str, int] | None = None, shapes: Mapping[str, object] | None = None
    ) -> Graph:
        """The model for a prompt of `dims[PROMPT_ROWS]` tokens, which may be none, and `dims[ROWS]`
        tokens of the decoder."""
        m, n = ((dims or {}).get(name, 0) for name in (PROMPT_ROWS, ROWS))
        if shapes or not 0 < n <= self.room or m > self.prompt or (m and n != self.first):
            raise UsageError(
                f"{m} tokens of a prompt and {n} of an answer do not fit a plan of {self.prompt} "
                f"and {self.room}",
                hint=f"Choose sizes with --buckets {PROMPT_ROWS}= and --buckets {ROWS}=",
            )
        prompt = PaddedRows(self._input(PROMPT_LAST, (1,), I32), m)
        answer = PaddedRows(self._input(LAST, (1,), I32), n)
        ids = self._input(IDS, (1, n), I64)
        asked = self._input(PROMPT, (1, m), I64)
        past = {
            name: self._input(name, state.shape, state.dtype)
            for name, state in zip(self.states, self._cross, strict=True)
        }
        kept = dict(zip((s.name for s in self._cross), past.values(), strict=True))
        declared: dict[Node, str] = {}
        if m:
            made = self._encode(asked, prompt)
            declared |= _declared(self.encoder, made)
            made = self._decode(ids, value_of(made, self._hidden), prompt, answer, {})
            kept = {s.name: _widened(value_of(made, s.name), s.shape) for s in self._cross}
            declared |= _declared(self.decoder, made)
        whole = PaddedRows(prompt.last, self.prompt)
        made = self._decode(ids, self._unread(self.prompt), whole, answer, kept)
        logits = cast(of_last(value_of(made, LOGITS), answer.last, n), F32)
        inputs = ((PROMPT, asked), (PROMPT_LAST, prompt.last), (IDS, ids), (LAST, answer.last))
        present = zip(self.states.values(), kept.values(), strict=True)
        graph = Graph(self.name, (*inputs, *past.items()), ((LOGITS, logits), *present))
        return with_rounded_outputs(graph, {}, declared | _declared(self.decoder, made))

    # ---- the two files ---------------------------------------------------------------------------

    def _encode(self, ids: Node, prompt: PaddedRows) -> Visible:
        decls = {decl.name: decl for decl in self.encoder.inputs}
        values: Visible = {IDS: cast(ids, decls[IDS].dtype), MASK: _mask(prompt, decls[MASK])}
        return import_padded(self.encoder, values, self._padded.get("encoder", {}), (prompt,))

    def _decode(
        self,
        ids: Node,
        hidden: Node,
        prompt: PaddedRows,
        answer: PaddedRows,
        kept: Mapping[str, Node],
    ) -> Visible:
        """kept: results that are known already, by name"""
        decls = {decl.name: decl for decl in self.decoder.inputs}
        values: Visible = {
            IDS: cast(ids, decls[IDS].dtype), HIDDEN: hidden,
            HIDDEN_MASK: _mask(prompt, decls[HIDDEN_MASK]),
        }  # fmt: skip
        if MASK in decls:
            values[MASK] = _mask(answer, decls[MASK])
        rows = (prompt, answer)
        return import_padded(self.decoder, values, self._padded.get("decoder", {}), rows, kept)

    def _unread(self, rows: int) -> Node:
        """In place of the encoder's result, where all that follows from it is known."""
        width = self._width
        return self._input(HIDDEN, (1, rows, width), F32)

    def _trial(self, m: int, n: int) -> tuple[Visible, Visible]:
        prompt = PaddedRows(graph_input(PROMPT_LAST, (1,), I32), m)
        answer = PaddedRows(graph_input(LAST, (1,), I32), n)
        encoded = self._encode(graph_input(PROMPT, (1, m), I64), prompt)
        hidden = value_of(encoded, self._hidden)
        self._width = hidden.shape[-1]
        ids = graph_input(IDS, (1, n), I64)
        return encoded, self._decode(ids, hidden, prompt, answer, {})

    def _crossing(self) -> list[str]:
        """Tensors that follow from the prompt alone, and that others of the decoder read."""
        late, early, found = {IDS}, {HIDDEN}, dict[str, None]()
        for each in self.decoder.nodes:
            reads = {*each.input}
            if each.op_type in SHAPES:
                continue
            if reads & late:
                late |= {*each.output}
                found |= dict.fromkeys(name for name in each.input if name in early)
            elif reads & early:
                early |= {*each.output}
        return list(found)

    def _state(self, name: str, first: Visible, second: Visible) -> CrossState:
        small, large = value_of(first, name), value_of(second, name)
        axes = open_axes(small, large, TRIALS)
        if small.rank != large.rank or len(axes) > 1 or any(part for _, part in axes):
            raise UnsupportedOp(
                f"the decoder's tensor {name!r} follows from the prompt in a way that is not "
                "supported",
                hint=EXPORTS, tensor=name, shape=[small.shape, large.shape],
            )  # fmt: skip
        axis = axes[0][0] if axes else None
        shape = tuple(self.prompt if i == axis else e for i, e in enumerate(small.shape))
        return CrossState(name, shape, small.dtype, axis)


def encoder_decoder_files(folder: Path) -> tuple[Path, Path] | None:
    """The encoder and the decoder in a folder, if they are there."""
    for place, names in product((folder, folder / INNER), FILES):
        encoder, decoder = (place / name for name in names)
        if encoder.is_file() and decoder.is_file():
            return encoder, decoder
    return None


def _hidden_of(encoder: Model, decoder: Model) -> str:
    """The encoder's result.  Raises UnsupportedOp if the files have other inputs or outputs."""
    given = {IDS, HIDDEN, HIDDEN_MASK}
    wanted = (
        (encoder, "encoder", {IDS, MASK}, {IDS, MASK}),
        (decoder, "decoder", given, given | {MASK}),
    )
    for model, part, needed, known in wanted:
        names = {decl.name for decl in model.inputs}
        for name in sorted(needed - names):
            raise UnsupportedOp(f"the {part} has no input {name!r}", hint=EXPORTS, inputs=names)
        for name in sorted(names - known):
            raise UnsupportedOp(
                f"the {part}'s input {name!r} is not known", hint=EXPORTS, inputs=sorted(names)
            )
    if LOGITS not in decoder.outputs or not encoder.outputs:
        raise UnsupportedOp(
            f"the decoder has no output {LOGITS!r}", hint=EXPORTS, outputs=decoder.outputs
        )
    return encoder.outputs[0]


def _mask(rows: PaddedRows, decl: TensorDecl) -> Node:
    """1 for tokens, 0 for padding."""
    keys = al.apply("le", cast(iota((1, rows.count), 1), I32), reshape(rows.last, (1, 1)))
    return cast(keys, decl.dtype)


def _widened(n: Node, shape: tuple[int, ...]) -> Node:
    """The tensor at the beginning of a larger one of zeros."""
    more = [a - b for a, b in zip(shape, n.shape, strict=True)]
    return pad(n, [0] * n.rank, more) if any(more) else n


def _declared(model: Model, values: Visible) -> dict[Node, str]:
    """Types of the values that the file has as f16 or bf16."""
    return {values[name]: kind for name, kind in model.types.items() if name in values}
