"""What the inputs and outputs of an exported language model mean, by their names.

Input: a model.  Output: `Signature`, or an error that names what is missing and which export has
it.  The names are data: exporters agree on few of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.base.errors import UnsupportedOp
from tilewright.frontend.importer import step
from tilewright.frontend.language.decoder import IDS, LOGITS
from tilewright.frontend.read import Model, TensorDecl
from tilewright.frontend.subgraphs import Visible
from tilewright.graph.node import graph_input

#: Inputs with one value in each run of one sequence, by name, and that value; flags are such.
CONSTANTS: Mapping[str, int] = {
    "use_cache_branch": 1,  # the branch with caches, of a merged decoder
    "num_logits_to_keep": 0,  # 0: those of all tokens
    "logits_to_keep": 0,
}
MASK, POSITIONS = "attention_mask", "position_ids"

#: Names of caches and of the outputs that continue them, {} being a layer and its part.
CACHES: tuple[tuple[str, str], ...] = (
    ("past_key_values.{}", "present.{}"),  # onnxruntime-genai, Optimum, transformers.js
    ("past_key_values.{}", "present_key_values.{}"),
    ("past_{}", "present_{}"),
)

EXPORTS = (
    "Export a decoder with caches: onnxruntime-genai's model builder, "
    "or Optimum's task text-generation-with-past"
)


@dataclass(frozen=True)
class GrowingCache:
    """An input [batch, heads, past, width], the output that continues it, and fixed sizes."""

    input: str
    output: str
    heads: int
    width: int
    widened_from: str


@dataclass(frozen=True)
class Signature:
    """mask, positions: whether the model has these inputs;  constants: values of others"""

    caches: tuple[GrowingCache, ...]
    mask: bool
    positions: bool
    constants: Mapping[str, int]


def is_export(model: Model) -> bool:
    """Whether the caches of a model grow: it has some, and their length is open."""
    caches = _caches(model)
    return bool(caches) and not any(d.dims and isinstance(d.dims[2], int) for d, _ in caches)


def signature_of(model: Model) -> Signature:
    """Raises UnsupportedOp for a model that is not a decoder with growing caches."""
    inputs = {decl.name: decl for decl in model.inputs}
    _need(IDS in inputs, f"the model has no input {IDS!r}", inputs=list(inputs))
    _need(LOGITS in model.outputs, f"the model has no output {LOGITS!r}", outputs=model.outputs)
    found = _caches(model)
    _need(bool(found), "the model has no caches of keys and values", inputs=list(inputs))
    is_open = any(not isinstance((decl.dims or (None,))[-1], int) for decl, _ in found)
    width = _width(model) if is_open else None
    caches = tuple(_cache(decl, output, width) for decl, output in found)
    known = {IDS, MASK, POSITIONS, *CONSTANTS, *(c.input for c in caches)}
    others = [name for name in inputs if name not in known]
    _need(not others, f"the input {(others or [''])[0]!r} is not known", inputs=list(inputs))
    constants = {name: value for name, value in CONSTANTS.items() if name in inputs}
    return Signature(caches, MASK in inputs, POSITIONS in inputs, constants)


def _caches(model: Model) -> list[tuple[TensorDecl, str]]:
    """Inputs of four axes with the outputs that continue them."""
    outputs = {*model.outputs}
    found = []
    for decl in model.inputs:
        for old, new in CACHES:
            match = re.fullmatch(re.escape(old).replace(r"\{\}", "(.+)"), decl.name)
            output = new.format(match[1]) if match else ""
            if output in outputs and decl.dims is not None and len(decl.dims) == 4:
                found.append((decl, output))
                break
    return found


def _cache(decl: TensorDecl, output: str, width: int | None) -> GrowingCache:
    return GrowingCache(decl.name, output, *fixed_sizes(decl, width), decl.widened_from or "")


def fixed_sizes(decl: TensorDecl, width: int | None = None) -> tuple[int, int]:
    """Heads of a cache, and how wide they are.  Raises UnsupportedOp.

    width: of heads, if the model does not declare it
    """
    dims = decl.dims or ()
    heads, declared = (dims[1], dims[3]) if len(dims) == 4 else (None, None)
    wide = declared if isinstance(declared, int) else width
    if not isinstance(heads, int) or wide is None:
        raise UnsupportedOp(
            f"the cache {decl.name!r} does not say how many heads it has, or how wide they are",
            hint=f"{EXPORTS}; its shape is [batch, heads, past, width] with fixed heads and width",
            input=decl.name, shape=list(dims),
        )  # fmt: skip
    return heads, wide


def _width(model: Model) -> int | None:
    """How wide the keys are that the first GroupQueryAttention adds to its cache."""
    decls = {decl.name: decl for decl in model.inputs}
    values: Visible = {
        name: graph_input(name, (1, 1), decls[name].dtype)
        for name in (IDS, MASK, POSITIONS) if name in decls
    }  # fmt: skip
    values |= {name: model.constant(tensor) for name, tensor in model.weights.items()}
    for each in model.nodes:
        if each.op_type == "GroupQueryAttention":
            heads = {a.name: int(a.i) for a in each.attribute}
            own = heads["kv_num_heads"]
            key, packed = each.input[1], heads["num_heads"] + 2 * own
            columns = values[key or each.input[0]].shape[2]
            return columns // (own if key else packed)
        if not all(name in values for name in each.input if name):
            return None
        step(model, each, values)
    return None


def _need(holds: bool, message: str, **facts: object) -> None:
    if not holds:
        raise UnsupportedOp(message, hint=EXPORTS, **facts)
