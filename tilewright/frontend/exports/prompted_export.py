"""What exported encoder-decoder models share: the encoder, sizes of plans, inputs at run time.

Input: an encoder, and what a class for a kind of decoders makes of its result.  Output: graphs with
four inputs: the prompt (`encoder_ids`), its last position, the decoder's tokens (`input_ids`) and
their last position (`seqlens_k`).  Tensors that follow from the prompt alone are states: a run with
a prompt computes them, and runs with an empty prompt read them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.base.dtypes import F32, I32, I64, DType
from tilewright.base.errors import UnsupportedOp, UsageError
from tilewright.frontend import arithmetic as al
from tilewright.frontend.exports.exported_model import of_last
from tilewright.frontend.exports.padded_rows import (
    Axes,
    PaddedRows,
    import_padded,
    padded_operands,
)
from tilewright.frontend.importer import value_of
from tilewright.frontend.language.decoder import IDS, LAST, LOGITS, ROWS, SharedInputs
from tilewright.frontend.read import Model, TensorDecl
from tilewright.frontend.subgraphs import Visible
from tilewright.graph.node import Graph, Node, cast, graph_input, iota, pad, reshape
from tilewright.graph.rounding import with_rounded_outputs

#: Our inputs for the prompt and the position of its last token, and the dimension of its tokens.
PROMPT, PROMPT_LAST, PROMPT_ROWS = "encoder_ids", "encoder_last", "m"
#: Names in the files.
MASK, HIDDEN, HIDDEN_MASK = "attention_mask", "encoder_hidden_states", "encoder_attention_mask"
#: Numbers of tokens of prompt and answer for which open axes are found.
TRIALS = ((5, 3), (7, 4))

EXPORTS = (
    "Export the model as an encoder (input_ids, attention_mask) and a decoder "
    f"(input_ids, {HIDDEN}, {HIDDEN_MASK}), as Optimum's task text2text-generation does"
)


@dataclass(frozen=True)
class StateInfo:
    """A state.  stored: the file's type if it is f16 or bf16"""

    shape: tuple[int, ...]
    dtype: DType = F32
    stored: str = ""


@dataclass(frozen=True)
class TextRows:
    """What a run is given: rows of the prompt and of the decoder, and the decoder's ids."""

    prompt: PaddedRows
    answer: PaddedRows
    ids: Node


@dataclass(frozen=True)
class Decoded:
    """logits: of all rows or the last one;  states: their new contents, by the state's name
    declared: the type of each value that the files have as f16 or bf16
    """

    logits: Node
    states: Mapping[str, Node]
    declared: Mapping[Node, str] = field(default_factory=dict)


class PromptedExport(ABC):
    """Files as a source of graphs.

    prompt: tokens that a prompt may have;  room: tokens that an answer may have
    first:  tokens of the decoder in runs with a prompt, padding included
    words:  how many tokens the model has logits for
    """

    words: int

    def __init__(
        self, encoder: Model, prompt: int, room: int, first: int, name: str
    ) -> None:  # fmt: skip
        """Raises InvalidModel, UnsupportedOp, UnsupportedDType, UsageError."""
        if prompt < 1 or room < 1:
            raise UsageError("prompt and answer need one token or more", prompt=prompt, room=room)
        self.encoder, self.prompt, self.room = encoder, prompt, room
        self.first, self.name = min(first, room), name
        check_inputs("encoder", encoder, {IDS, MASK}, {IDS, MASK})
        if not encoder.outputs:
            raise UnsupportedOp("the encoder has no output", hint=EXPORTS)
        self._input = SharedInputs()
        self._padded: Mapping[str, Axes] = {}
        trials = [self._trial_rows(*sizes) for sizes in TRIALS]
        small, large = (self._encoded(_asked(rows), rows.prompt) for rows in trials)
        self._padded = padded_operands(encoder.nodes, small, large, TRIALS)
        #: Rows and the encoder's result at two sizes.
        self._trials = [
            (rows, value_of(made, encoder.outputs[0]))
            for rows, made in zip(trials, (small, large), strict=True)
        ]
        self.width = self._trials[0][1].shape[-1]

    @property
    @abstractmethod
    def infos(self) -> Mapping[str, StateInfo]:
        """The states by name."""

    @abstractmethod
    def rounded(self, **how: bool) -> PromptedExport:
        """The same, whose weights and products may be rounded, as `Model` says."""

    @abstractmethod
    def _decoded(self, rows: TextRows, hidden: Node | None, past: Mapping[str, Node]) -> Decoded:
        """hidden: the encoder's result, None in runs without a prompt;  past: the states"""

    @property
    def states(self) -> Mapping[str, str]:
        """By the name of the input that of the output."""
        return {name: name.replace("past_", "present_", 1) for name in self.infos}

    @property
    def inputs(self) -> tuple[str, ...]:
        return (PROMPT, PROMPT_LAST, IDS, LAST, *self.states)

    @property
    def narrow(self) -> Mapping[str, str]:
        """The type of each state, and of its output, that is f16 or bf16."""
        stored = {name: info.stored for name, info in self.infos.items() if info.stored}
        return {each: kind for name, kind in stored.items() for each in (name, self.states[name])}

    def combinations(self, dims: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
        """Sizes of plans: the decoder alone, and each size of prompts with the decoder's first."""
        prompts, rows = (sorted({*dims.get(name, ())}) for name in (PROMPT_ROWS, ROWS))
        if not rows or rows[0] != self.first or prompts[:1] != [0] or not prompts[1:]:
            raise UsageError(
                "an encoder-decoder model needs sizes of prompts and answers",
                hint=f"For example --buckets {PROMPT_ROWS}=0,64 --buckets {ROWS}={self.first}",
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
        if shapes or not self._takes(n) or m > self.prompt or (m and n != self.first):
            raise UsageError(
                f"{m} tokens of a prompt and {n} of an answer do not fit a plan of {self.prompt} "
                f"and {self.room}",
                hint=f"Choose sizes with --buckets {PROMPT_ROWS}= and --buckets {ROWS}=",
            )
        rows = TextRows(
            PaddedRows(self._input(PROMPT_LAST, (1,), I32), m),
            PaddedRows(self._input(LAST, (1,), I32), n), self._input(IDS, (1, n), I64),
        )  # fmt: skip
        asked = self._input(PROMPT, (1, m), I64)
        past = {
            name: self._input(name, info.shape, info.dtype, info.stored)
            for name, info in self.infos.items()
        }
        hidden, declared = None, dict[Node, str]()
        if m:
            made = self._encoded(asked, rows.prompt)
            hidden, declared = (
                value_of(made, self.encoder.outputs[0]),
                declared_of(self.encoder, made),
            )
        decoded = self._decoded(rows, hidden, past)
        logits = cast(of_last(decoded.logits, rows.answer.last, n), F32)
        inputs = ((PROMPT, asked), (PROMPT_LAST, rows.prompt.last), (IDS, rows.ids),
                  (LAST, rows.answer.last))  # fmt: skip
        present = ((self.states[name], decoded.states[name]) for name in past)
        graph = Graph(self.name, (*inputs, *past.items()), ((LOGITS, logits), *present))
        kinds = {name: kind for name, kind in self.narrow.items() if name in self.states.values()}
        return with_rounded_outputs(graph, kinds, {**declared, **decoded.declared})

    def _takes(self, rows: int) -> bool:
        """Whether there is a plan for so many tokens of the decoder."""
        return 0 < rows <= self.room

    def _encoded(self, asked: Node, prompt: PaddedRows) -> Visible:
        decls = {decl.name: decl for decl in self.encoder.inputs}
        values: Visible = {IDS: cast(asked, decls[IDS].dtype), MASK: mask_of(prompt, decls[MASK])}
        return import_padded(self.encoder, values, self._padded, (prompt,))

    def _trial_rows(self, m: int, n: int) -> TextRows:
        prompt, answer = (graph_input(name, (1,), I32) for name in (PROMPT_LAST, LAST))
        return TextRows(PaddedRows(prompt, m), PaddedRows(answer, n), graph_input(IDS, (1, n), I64))


def _asked(rows: TextRows) -> Node:
    return graph_input(PROMPT, (1, rows.prompt.count), I64)


def check_inputs(part: str, model: Model, needed: set[str], known: set[str]) -> None:
    """Raises UnsupportedOp if a file has other inputs."""
    names = {decl.name for decl in model.inputs}
    for name in sorted(needed - names):
        raise UnsupportedOp(f"the {part} has no input {name!r}", hint=EXPORTS, inputs=names)
    for name in sorted(names - known):
        raise UnsupportedOp(
            f"the {part}'s input {name!r} is not known", hint=EXPORTS, inputs=sorted(names)
        )


def check_logits(model: Model) -> None:
    """Raises UnsupportedOp if a decoder has none."""
    if LOGITS not in model.outputs:
        raise UnsupportedOp(
            f"the decoder has no output {LOGITS!r}", hint=EXPORTS, outputs=model.outputs
        )


def mask_of(rows: PaddedRows, decl: TensorDecl) -> Node:
    """1 for tokens, 0 for padding."""
    keys = al.apply("le", cast(iota((1, rows.count), 1), I32), reshape(rows.last, (1, 1)))
    return cast(keys, decl.dtype)


def widened(n: Node, shape: tuple[int, ...]) -> Node:
    """The tensor at the beginning of a larger one of zeros."""
    more = [a - b for a, b in zip(shape, n.shape, strict=True)]
    return pad(n, [0] * n.rank, more) if any(more) else n


def declared_of(model: Model, values: Visible) -> dict[Node, str]:
    """Types of the values that the file has as f16 or bf16."""
    return {values[name]: kind for name, kind in model.types.items() if name in values}
