"""What an exported encoder-decoder model writes, beside onnxruntime on the same files.

Input: a folder with an encoder and a decoder; prompts.txt, 50 texts.  Output:
results/language.new_texts.json: how many of the likeliest texts are onnxruntime's, of Tilewright on
each host, and of onnxruntime itself without its optimisations.  Where integers are made while a
model runs, a last bit of an f32 sum can decide a rounding, and all later tokens follow from it: so
onnxruntime's own difference is the measure.

    python -m benchmarks language.new_texts t5-small --host wasmtime --host chromium
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnxruntime as ort
import typer

import tilewright as tw
from benchmarks.common import Run
from benchmarks.options import Hosts
from tilewright.api.language_bundles import open_source
from tilewright.base.errors import InvalidModel
from tilewright.base.numpy_scalars import Array
from tilewright.frontend.exports import encoder_decoder_files
from tilewright.language import Language

PROMPTS = Path(__file__).with_name("prompts.txt")
#: The logits after a prompt and the tokens so far.
Logits = Callable[[Sequence[int], Sequence[int]], Array]


@dataclass(frozen=True)
class Written:
    """One text: its tokens, and the logits of each."""

    ids: list[int]
    logits: list[Array]


def main(
    run: Run,
    model: Annotated[Path, typer.Argument(help="The model's folder.")],
    host: Hosts = None,
    most: Annotated[int, typer.Option(min=1, help="Tokens of a text.")] = 24,
) -> None:
    """Equal texts, beside onnxruntime."""
    files = encoder_decoder_files(model)
    if files is None:
        raise InvalidModel("the folder has no encoder and decoder", path=str(model))
    source = open_source(model)
    vocabulary = Language(source.text, source.model.words).vocabulary
    prompts = [vocabulary.encode(line) for line in PROMPTS.read_text().splitlines()]

    def texts(logits: Logits) -> list[Written]:
        return [_written(logits, prompt, most, vocabulary.ends) for prompt in prompts]

    optimised, plain = (
        texts(_onnxruntime(files, vocabulary.facts.starts, f"ORT_{level}_ALL"))
        for level in ("ENABLE", "DISABLE")
    )
    facts = {"model": model.resolve().name, "texts": len(prompts)}
    run.keep({**facts, "engine": "onnxruntime, plain", **_beside(plain, optimised)})
    for name in host or ("wasmtime",):
        with tw.language_model(model, host=name) as lm:
            ours = texts(lambda *so_far, of=lm.session: _known(of.after(*so_far)))
        run.keep({**facts, "engine": f"tilewright, {name}", **_beside(ours, optimised)})


def _written(logits: Logits, prompt: Sequence[int], most: int, ends: frozenset[int]) -> Written:
    made = Written([], [])
    while len(made.ids) < most and not (made.ids and made.ids[-1] in ends):
        made.logits.append(logits(prompt, made.ids))
        made.ids.append(int(made.logits[-1].argmax()))
    return made


def _beside(found: Sequence[Written], wanted: Sequence[Written]) -> dict[str, object]:
    """equal: texts;  first_equal: texts whose first logits are equal to 0.001
    gaps: of the others, where they first differ: how far the wanted logit is above the other one
    """
    gaps = []
    for one, other in zip(found, wanted, strict=True):
        pairs = enumerate(zip(one.ids, other.ids, strict=False))
        at = next((at for at, (a, b) in pairs if a != b), None)
        if at is not None:
            row = other.logits[at]
            gaps.append(round(float(row[other.ids[at]] - row[one.ids[at]]), 3))
    first = [
        np.abs(a.logits[0] - b.logits[0]).max() < 1e-3 for a, b in zip(found, wanted, strict=True)
    ]
    spread = float(np.mean([row.std() for text in wanted for row in text.logits]))
    return {
        "equal": len(wanted) - len(gaps), "first_equal": int(sum(first)), "gaps": sorted(gaps),
        "deviation": round(spread, 2),
    }  # fmt: skip


def _onnxruntime(files: Sequence[Path], starts: Sequence[int], level: str) -> Logits:
    """Its loop over the encoder and the decoder without caches."""
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    first, second = (
        ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        for file in files[:2]
    )
    held: dict[tuple[int, ...], dict[str, Any]] = {}

    def logits(prompt: Sequence[int], ids: Sequence[int]) -> Array:
        if (key := tuple(prompt)) not in held:
            held.clear()
            mask = np.ones((1, len(prompt)), np.int64)
            given = {"input_ids": np.array([prompt]), "attention_mask": mask}
            hidden = first.run(None, given)[0]
            held[key] = {"encoder_hidden_states": hidden, "encoder_attention_mask": mask}
        tokens = np.array([[*starts, *ids]])
        return np.asarray(second.run(None, {"input_ids": tokens, **held[key]})[0][0, -1])

    return logits


def _known(logits: Array | None) -> Array:
    assert logits is not None  # nobody stopped it
    return logits
