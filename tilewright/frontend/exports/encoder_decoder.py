"""The graph of an encoder-decoder model that was exported to ONNX without caches.

Input: an encoder and a decoder.  Output: graphs as of `PromptedExport`.  Tensors of the decoder
that follow from the prompt alone, the keys and values of cross-attention, are states.  The decoder
computes all its tokens in each run, as the file does: in files with integers, scales depend on all
tokens together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tilewright.base.dtypes import F32
from tilewright.base.errors import UnsupportedOp
from tilewright.frontend.exports.padded_rows import (
    Axes,
    import_padded,
    open_axes,
    padded_operands,
)
from tilewright.frontend.exports.prompted_export import (
    EXPORTS,
    HIDDEN,
    HIDDEN_MASK,
    MASK,
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
from tilewright.frontend.importer import value_of
from tilewright.frontend.language.decoder import ENCODER_CACHES, IDS, LOGITS
from tilewright.frontend.read import Model, load
from tilewright.frontend.subgraphs import Visible
from tilewright.graph.node import Node, cast

#: Operators that read no number of their operand.
SHAPES = frozenset({"Shape", "Size"})


class EncoderDecoderExport(PromptedExport):
    """Two files as a source of graphs."""

    def __init__(
        self, encoder: str | Path | Model, decoder: str | Path | Model, prompt: int, room: int,
        first: int = 8, name: str = "",
    ) -> None:  # fmt: skip
        """Raises InvalidModel, UnsupportedOp, UnsupportedDType, UsageError."""
        self.decoder = load(decoder)
        given = {IDS, HIDDEN, HIDDEN_MASK}
        super().__init__(load(encoder), prompt, room, first, name or self.decoder.name)
        check_inputs("decoder", self.decoder, given, given | {MASK})
        check_logits(self.decoder)
        self._ranges: Mapping[str, Axes] = {}
        small, large = (self._run(rows, hidden, {}) for rows, hidden in self._trials)
        self._ranges = padded_operands(self.decoder.nodes, small, large, TRIALS)
        self._crossing = _crossing(self.decoder)
        self._infos = {
            f"{ENCODER_CACHES}{number}": self._info(name, small, large)
            for number, name in enumerate(self._crossing)
        }
        self.words = value_of(small, LOGITS).shape[-1]

    @property
    def infos(self) -> Mapping[str, StateInfo]:
        return self._infos

    def rounded(self, **how: bool) -> EncoderDecoderExport:
        one, two = (
            replace(m, **how, _constants={})  # type: ignore[arg-type]
            for m in (self.encoder, self.decoder)
        )
        return EncoderDecoderExport(one, two, self.prompt, self.room, self.first, self.name)

    def _decoded(self, rows: TextRows, hidden: Node | None, past: Mapping[str, Node]) -> Decoded:
        kept = dict(zip(self._crossing, past.values(), strict=True))
        declared: dict[Node, str] = {}
        if hidden is not None:
            made = self._run(rows, hidden, {})
            shapes = (info.shape for info in self.infos.values())
            kept = {
                name: widened(value_of(made, name), shape)
                for name, shape in zip(self._crossing, shapes, strict=True)
            }
            declared |= declared_of(self.decoder, made)
        # in place of the encoder's result, where all that follows from it is known
        unread = self._input(HIDDEN, (1, self.prompt, self.width), F32)
        whole = replace(rows, prompt=replace(rows.prompt, count=self.prompt))
        made = self._run(whole, unread, kept)
        declared |= declared_of(self.decoder, made)
        states = dict(zip(past, kept.values(), strict=True))
        return Decoded(value_of(made, LOGITS), states, declared)

    def _run(self, rows: TextRows, hidden: Node, kept: Mapping[str, Node]) -> Visible:
        """kept: results that are known already, by name"""
        decls = {decl.name: decl for decl in self.decoder.inputs}
        values: Visible = {
            IDS: cast(rows.ids, decls[IDS].dtype), HIDDEN: hidden,
            HIDDEN_MASK: mask_of(rows.prompt, decls[HIDDEN_MASK]),
        }  # fmt: skip
        if MASK in decls:
            values[MASK] = mask_of(rows.answer, decls[MASK])
        kinds = (rows.prompt, rows.answer)
        return import_padded(self.decoder, values, self._ranges, kinds, kept)

    def _info(self, name: str, first: Visible, second: Visible) -> StateInfo:
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
        return StateInfo(shape, small.dtype)


def _crossing(decoder: Model) -> Sequence[str]:
    """Tensors that follow from the prompt alone, and that others of the decoder read."""
    late, early, found = {IDS}, {HIDDEN}, dict[str, None]()
    for each in decoder.nodes:
        reads = {*each.input}
        if each.op_type in SHAPES:
            continue
        if reads & late:
            late |= {*each.output}
            found |= dict.fromkeys(name for name in each.input if name in early)
        elif reads & early:
            early |= {*each.output}
    return list(found)
