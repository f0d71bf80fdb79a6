"""Whole models of ablation.py: an encoder in f32 and in halves, a token and a prompt of Llama.

Input: whether they are to be small.  Output: names, what compiles them, inputs.  Llama has the
sizes of Llama 2 7B's layers, but only two of them, and few words: a feature's share of a layer is
the same with 32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx

from benchmarks.gpu.dawn import WGSL
from benchmarks.gpu.js_time import SMALL
from benchmarks.peers.models import Text, roberta
from tests.helpers.llama import Sizes, llama
from tilewright.base.numpy_scalars import Array
from tilewright.compiler import Compiled, compile_model

#: Two layers of 32; what chooses the token counts little.
LLAMA = Sizes(layers=2, words=4096, token="greedy")
SMALL_LLAMA = Sizes(1, 256, 4, 4, 512, 64, 64, token="greedy")
#: Keys that a token sees, itself included, and tokens of a prompt.
PROMPT, SMALL_PROMPT = 512, 16


@dataclass(frozen=True)
class Whole:
    """make: compiles it; the folder is for its weights.  inputs: zeros where it names none"""

    name: str
    make: Callable[[Path], Compiled]
    inputs: Mapping[str, Array] = field(default_factory=dict)


def wholes(small: bool) -> Iterator[Whole]:
    text = SMALL if small else Text()
    yield Whole("RoBERTa-base", lambda _: compile_model(roberta(text), WGSL))
    halves = replace(WGSL, halves=True)
    yield Whole("RoBERTa-base, halves", lambda _: compile_model(roberta(text), halves))
    sizes = SMALL_LLAMA if small else LLAMA
    prompt = SMALL_PROMPT if small else PROMPT
    about = "Llama 2 7B, 2 layers, 4 bits, halves and bytes"
    for name, rows in (("a token", 1), (f"a prompt of {prompt}", prompt)):
        yield Whole(f"{about}, {name}", language_model(sizes, rows), inputs_of(rows, prompt))


def language_model(sizes: Sizes, rows: int) -> Callable[[Path], Compiled]:
    """Built for runs of so many tokens alone, so that what it uses is what these use."""

    def make(folder: Path) -> Compiled:
        path = folder / "llama.onnx"
        with (folder / "weights.bin").open("wb") as file:
            onnx.save(llama(sizes, file=file), path)
        buckets = {"n": (rows,)}
        options = replace(WGSL, buckets=buckets, states=sizes.states, halves=True, bytes=True)
        return compile_model(path, options)

    return make


def inputs_of(rows: int, keys: int) -> dict[str, Array]:
    """The last of these tokens sees so many keys."""
    return {
        "input_ids": np.ones((1, rows), np.int64),
        "seqlens_k": np.array([keys - 1], np.int32),
    }
