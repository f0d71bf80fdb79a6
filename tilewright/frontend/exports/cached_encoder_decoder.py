"""The graph of an encoder-decoder model that was exported to ONNX with caches.

Input: an encoder, and a decoder of two parts: one that makes the keys and values of cross-attention
from the encoder's result, one that takes a token and the past ones.  A merged decoder has both.
Output: graphs as of `PromptedExport`, for one token of the decoder.  Keys and values of
cross-attention are states that a run with a prompt makes; those of past tokens have a fixed room.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.base.dtypes import F32, I64
from tilewright.base.errors import UnsupportedOp, UsageError
from tilewright.frontend import arithmetic as al
from tilewright.frontend.exports.exported_model import SPARE
from tilewright.frontend.exports.key_masks import NewRows, with_compared_keys
from tilewright.frontend.exports.merged_branches import branch_of, only_for
from tilewright.frontend.exports.padded_rows import Axes, import_padded, padded_operands
from tilewright.frontend.exports.past_rows import PastImport, Size
from tilewright.frontend.exports.prompted_export import (
    EXPORTS,
    HIDDEN,
    HIDDEN_MASK,
    TRIALS,
    Decoded,
    PromptedExport,
    StateInfo,
    TextRows,
    check_inputs,
    check_logits,
    declared_of,
    mask_of,
    widened,
)
from tilewright.frontend.exports.signature import CACHES, fixed_sizes
from tilewright.frontend.importer import value_of
from tilewright.frontend.language.decoder import DECODER_CACHES, ENCODER_CACHES, IDS, LOGITS
from tilewright.frontend.read import Model, TensorDecl, load
from tilewright.frontend.subgraphs import Visible
from tilewright.graph.node import Graph, Node, cast, reshape, slice_

#: What names of cross-attention's keys and values have, and those of past tokens.
ENCODER, DECODER = "encoder.", "decoder."


@dataclass(frozen=True)
class DecoderCache:
    """An input of the decoder's second part.

    output: the tensor that has its contents: of the second part, or of the first one for
            cross-attention
    """

    input: str
    output: str
    heads: int
    width: int
    stored: str

    def info(self, rows: int) -> StateInfo:
        return StateInfo((1, self.heads, rows, self.width), F32, self.stored)


class CachedEncoderDecoder(PromptedExport):
    """Two or three files as a source of graphs."""

    def __init__(
        self, encoder: str | Path | Model, first: str | Path | Model,
        second: str | Path | Model | None, prompt: int, room: int, name: str = "",
    ) -> None:  # fmt: skip
        """first, second: the decoder without and with past tokens; second is None if it is merged

        Raises InvalidModel, UnsupportedOp, UnsupportedDType, UsageError.
        """
        whole = load(first)
        self._first, self._second = (
            (branch_of(whole, False), branch_of(whole, True))
            if second is None
            else (whole, load(second))
        )
        if room <= SPARE:
            raise UsageError(f"an answer needs room for more than {SPARE} tokens", room=room)
        super().__init__(load(encoder), prompt, room, 1, name or whole.name)
        check_logits(self._second)
        self._caches = _caches(self._second)
        known = {IDS, HIDDEN, HIDDEN_MASK, *(c.input for c in self._caches.values())}
        check_inputs("decoder", self._second, {IDS, HIDDEN_MASK}, known)
        crossing = [c.output for s, c in self._caches.items() if s.startswith(ENCODER_CACHES)]
        self._check_crossing(crossing)
        self._first = only_for(self._first, crossing)
        self._ranges: Mapping[str, Axes] = {}
        small, large = (self._crossed(rows, hidden) for rows, hidden in self._trials)
        self._ranges = padded_operands(self._first.nodes, small, large, TRIALS)
        self.words = dict(self.graph({"m": 0, "n": 1}).outputs)[LOGITS].shape[-1]

    @property
    def infos(self) -> Mapping[str, StateInfo]:
        return {
            name: cache.info(self.prompt if name.startswith(ENCODER_CACHES) else self.room)
            for name, cache in self._caches.items()
        }

    def rounded(self, **how: bool) -> CachedEncoderDecoder:
        one, two, three = (
            replace(m, **how, _constants={})  # type: ignore[arg-type]
            for m in (self.encoder, self._first, self._second)
        )
        return CachedEncoderDecoder(one, two, three, self.prompt, self.room, self.name)

    def _takes(self, rows: int) -> bool:
        return rows == 1

    def _check_crossing(self, crossing: list[str]) -> None:
        check_inputs("decoder", self._first, {IDS, HIDDEN, HIDDEN_MASK}, {
            *(d.name for d in self._first.inputs)
        })  # fmt: skip
        missing = [name for name in crossing if name not in self._first.outputs]
        if missing or not crossing:
            raise UnsupportedOp(
                f"the decoder without past tokens has no output {(missing or [''])[0]!r}",
                hint="Export the model with Optimum's task text2text-generation-with-past",
                outputs=self._first.outputs,
            )

    # ---- the decoder's parts ---------------------------------------------------------------------

    def _decoded(self, rows: TextRows, hidden: Node | None, past: Mapping[str, Node]) -> Decoded:
        cross = {name: node for name, node in past.items() if name.startswith(ENCODER_CACHES)}
        declared: dict[Node, str] = {}
        if hidden is not None:
            made = self._crossed(rows, hidden)
            cross = {
                name: widened(value_of(made, self._caches[name].output), past[name].shape)
                for name in cross
            }
            declared |= declared_of(self._first, made)
        known = self._rows(rows)
        found = self._stepped(rows, known, {**past, **cross})
        values = found.values
        written = {name: c.output for name, c in self._caches.items() if name not in cross}
        results = [(LOGITS, value_of(values, LOGITS))]
        results += [(name, value_of(values, output)) for name, output in written.items()]
        graph = with_compared_keys(Graph(self.name, (), tuple(results)), known, found.scored)
        outputs = dict(graph.outputs)
        declared |= declared_of(self._second, values)
        return Decoded(outputs.pop(LOGITS), {**cross, **outputs}, declared)

    def _crossed(self, rows: TextRows, hidden: Node) -> Visible:
        """Keys and values of cross-attention."""
        decls = {decl.name: decl for decl in self._first.inputs}
        values: Visible = {
            IDS: cast(rows.ids, decls[IDS].dtype), HIDDEN: hidden,
            HIDDEN_MASK: mask_of(rows.prompt, decls[HIDDEN_MASK]),
        }  # fmt: skip
        return import_padded(self._first, values, self._ranges, (rows.prompt, rows.answer))

    def _rows(self, rows: TextRows) -> NewRows:
        last = rows.answer.last
        return NewRows(last, al.apply("max", reshape(last, ()), 0), 1, self.room)

    def _stepped(self, rows: TextRows, known: NewRows, states: Mapping[str, Node]) -> PastImport:
        """One token of the decoder, after the past ones."""
        full = self.room - known.rows
        model = self._second
        decls = {decl.name: decl for decl in model.inputs}
        whole = replace(rows.prompt, count=self.prompt)
        shared: Visible = {name: model.constant(t) for name, t in model.weights.items()}
        shared |= {
            IDS: cast(rows.ids, decls[IDS].dtype),
            HIDDEN_MASK: mask_of(whole, decls[HIDDEN_MASK]),
        }
        if HIDDEN in decls:  # nothing reads it
            shared[HIDDEN] = self._input(HIDDEN, (1, self.prompt, self.width), F32)
        growing: dict[str, DecoderCache] = {}
        for name, cache in self._caches.items():
            if name.startswith(DECODER_CACHES):
                growing[name] = cache
            else:
                shared[cache.input] = states[name]

        def at(past: int) -> Visible:
            return {
                c.input: self._input(c.input, (1, c.heads, past, c.width), F32, c.stored)
                for c in growing.values()
            }

        sizes = [Size(past, shared | at(past)) for past in (full, full - 1, 1)]
        cut = {
            c.input: slice_(states[name], (0,) * 4, (1, c.heads, full, c.width))
            for name, c in growing.items()
        }
        caches = {c.input: states[name] for name, c in growing.items()}
        past = cast(known.past, I64)
        found = PastImport(model, past, caches, sizes[0], (sizes[1], sizes[2]), shared | cut)
        found.run(model.nodes)
        return found


def _caches(model: Model) -> dict[str, DecoderCache]:
    """By the name of the state.  Raises UnsupportedOp."""
    found: dict[str, DecoderCache] = {}
    for decl in model.inputs:
        for old, new in CACHES:
            match = re.fullmatch(re.escape(old).replace(r"\{\}", "(.+)"), decl.name)
            if match is None:
                continue
            name = _state_name(match[1])
            if name is not None:
                found[name] = _cache(decl, new.format(match[1]))
            break
    written = {c.output for name, c in found.items() if name.startswith(DECODER_CACHES)}
    if not written or written - {*model.outputs}:
        raise UnsupportedOp(
            "the decoder has no caches of past tokens", hint=EXPORTS,
            inputs=[decl.name for decl in model.inputs], outputs=model.outputs,
        )  # fmt: skip
    return found


def _state_name(part: str) -> str | None:
    """For example of `0.decoder.key`."""
    for word, start in ((DECODER, DECODER_CACHES), (ENCODER, ENCODER_CACHES)):
        if word in part:
            return start + part.replace(word, "", 1)
    return None


def _cache(decl: TensorDecl, output: str) -> DecoderCache:
    heads, width = fixed_sizes(decl)
    return DecoderCache(decl.name, output, heads, width, decl.widened_from or "")
