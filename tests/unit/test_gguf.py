"""GGUF models as graphs: every architecture and every type of weights against a NumPy forward pass
over weights that the gguf package dequantises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import dequantize
from helpers.gguf_files import MODELS, TYPES, Forward, Tiny, write_tiny

from tilewright.base.errors import InvalidModel, UnsupportedDType, UnsupportedOp, UsageError
from tilewright.frontend.gguf import LOGITS, GgufModel
from tilewright.frontend.gguf.blocks import BLOCKS
from tilewright.graph.node import evaluate

#: What sums in f32 may differ from those in f64, of logits around 1.
CLOSE = 2e-5
#: Tokens of a prompt, in a bucket of eight, and those that follow.
PROMPT, AFTER = (3, 1, 4, 1, 5, 9), (2, 6, 5)


def logits(model: GgufModel, ids: Sequence[int], after: Sequence[int]) -> list[np.ndarray[Any, Any]]:
    """By the graphs' own meaning: a padded prompt, then one token after the other."""
    caches = {name: np.zeros(n.shape, "f4") for name, n in model.graph().inputs[2:]}
    found, past = [], 0
    for part, rows in ((ids, 8), *(([token], 1) for token in after)):
        past += len(part)
        graph = model.graph({"n": rows})
        padded = np.zeros((1, rows), "i8")
        padded[0, : len(part)] = part
        given = {"input_ids": padded, "seqlens_k": np.array([past - 1], "i4"), **caches}
        made = evaluate([n for _, n in graph.outputs], given)
        results = dict(zip((name for name, _ in graph.outputs), made, strict=True))
        found.append(results[LOGITS].ravel())
        caches = {name: results[new] for name, new in model.states.items()}
    return found


def check(path: Path, tolerance: float = CLOSE) -> None:
    want = Forward(path)
    found = logits(GgufModel(path), PROMPT, AFTER)
    for count, row in enumerate(found):
        expected = want([*PROMPT, *AFTER[:count]])
        assert np.abs(row - expected).max() <= tolerance * max(1, np.abs(expected).max())


@pytest.mark.parametrize("name", MODELS)
def test_architecture(tmp_path: Path, name: str) -> None:
    check(write_tiny(tmp_path / "tiny.gguf", MODELS[name]))


@pytest.mark.parametrize("kind", TYPES)
def test_type(tmp_path: Path, kind: str) -> None:
    tiny = Tiny(type=kind, layers=1, width=256, heads=2, kv_heads=1, head=128, hidden=256, tied=True)
    check(write_tiny(tmp_path / "tiny.gguf", tiny))


@pytest.mark.parametrize("number", BLOCKS)
def test_weights_are_exactly_those_of_the_gguf_package(number: int) -> None:
    """Of any bytes, bit by bit: repacking has no error."""
    block = BLOCKS[number]
    rows = np.random.default_rng(number).integers(0, 256, (4, 3 * block.bytes), np.uint8)
    with np.errstate(all="ignore"):
        want, found = dequantize(rows, GGMLQuantizationType(number)), block.values(rows)
    assert np.array_equal(want, found, equal_nan=True)
