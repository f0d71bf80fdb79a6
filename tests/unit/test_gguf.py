"""GGUF models as graphs: every architecture and every type of weights against a NumPy forward pass
over weights that the gguf package dequantises."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFEndian, GGUFWriter
from gguf.quants import dequantize
from helpers.gguf_files import MODELS, TYPES, Forward, Tiny, write_tiny
from helpers.prompts import AFTER, CLOSE, PROMPT, logits

from tilewright.base.errors import (
    CompilerBug,
    InvalidModel,
    TilewrightError,
    UnsupportedDType,
    UnsupportedOp,
    UsageError,
)
from tilewright.frontend.gguf import GgufModel, read_gguf
from tilewright.frontend.gguf.tensor_types import TENSOR_TYPES


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
    tiny = Tiny(
        type=kind, layers=1, width=256, heads=2, kv_heads=1, head=128, hidden=256, tied=True
    )
    check(write_tiny(tmp_path / "tiny.gguf", tiny))


@pytest.mark.parametrize("number", TENSOR_TYPES)
def test_weights_are_exactly_those_of_the_gguf_package(number: int) -> None:
    """Of any bytes, bit by bit: repacking has no error."""
    block = TENSOR_TYPES[number]
    rows = np.random.default_rng(number).integers(0, 256, (4, 3 * block.bytes), np.uint8)
    with np.errstate(all="ignore"):
        want, found = dequantize(rows, GGMLQuantizationType(number)), block.values(rows)
    assert np.array_equal(want, found, equal_nan=True)


# ---- files that lie ------------------------------------------------------------------------------

SMALL = Tiny(layers=1, width=32, heads=2, kv_heads=1, hidden=32, words=8)


def refused(path: Path, **changed: Any) -> tuple[type[Exception], str]:
    """The error that a model with other metadata ends with."""
    write_tiny(path, replace(SMALL, **changed))
    with pytest.raises((InvalidModel, UnsupportedDType, UnsupportedOp)) as caught:
        GgufModel(path).graph()
    assert caught.value.hint or caught.value.facts
    return type(caught.value), caught.value.message


def test_unknown_architecture(tmp_path: Path) -> None:
    kind, message = refused(tmp_path / "a.gguf", name="mamba")
    assert kind is UnsupportedOp
    assert "'mamba'" in message


def test_mixture_of_experts(tmp_path: Path) -> None:
    kind, message = refused(tmp_path / "a.gguf", keys={"expert_count": 8})
    assert kind is UnsupportedOp
    assert "experts" in message


def test_unknown_scaling_of_the_rotation(tmp_path: Path) -> None:
    kind, message = refused(tmp_path / "a.gguf", keys={"rope.scaling.type": "spiral"})
    assert kind is UnsupportedOp
    assert "'spiral'" in message


def test_tensor_that_has_no_place(tmp_path: Path) -> None:
    kind, message = refused(tmp_path / "a.gguf", vectors={"blk.0.surprise.weight": np.ones(4)})
    assert kind is UnsupportedOp
    assert "blk.0.surprise.weight" in message


def test_tensors_of_another_shape(tmp_path: Path) -> None:
    """A head of 16 numbers where the metadata say 8."""
    path = write_tiny(tmp_path / "a.gguf", SMALL)
    data = bytearray(path.read_bytes())
    for key in (b"llama.attention.key_length", b"llama.attention.value_length"):
        at = data.index(key) + len(key) + 4
        data[at : at + 4] = (8).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(InvalidModel, match=r"attn_q\.weight.*wrong shape"):
        GgufModel(path).graph()


def test_missing_tensor(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "a.gguf", SMALL)
    path.write_bytes(path.read_bytes().replace(b"blk.0.ffn_down.weight", b"blk.0.ffn_dawn.weight"))
    with pytest.raises(InvalidModel, match=r"blk\.0\.ffn_down\.weight' is missing"):
        GgufModel(path).graph()


def test_type_without_a_row(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_tensor("x", np.zeros((2, 66), "u1"), raw_dtype=GGMLQuantizationType.IQ2_XXS)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedDType, match="IQ2_XXS"):
        read_gguf(path)


def test_context_beyond_the_training(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "a.gguf", SMALL)
    with pytest.raises(UsageError, match="trained for 32 tokens"):
        GgufModel(path, 33)


def test_counts_are_compared_with_the_file_before_they_are_used(tmp_path: Path) -> None:
    """Of 2^60 entries, texts or numbers nothing is read: each answer comes at once."""
    path = tmp_path / "a.gguf"
    huge, one = (1 << 60).to_bytes(8, "little"), (1).to_bytes(8, "little")
    head = b"GGUF" + (3).to_bytes(4, "little")
    key = one + b"k"
    for body in (
        huge + one,
        bytes(8) + huge,
        bytes(8) + one + huge,
        bytes(8) + one + key + (8).to_bytes(4, "little") + huge,
        bytes(8) + one + key + (9).to_bytes(4, "little") + (4).to_bytes(4, "little") + huge,
        bytes(8) + one + key + (9).to_bytes(4, "little") + (8).to_bytes(4, "little") + huge,
        bytes(8) + one + key + (9).to_bytes(4, "little") + (9).to_bytes(4, "little") + huge,
        one + bytes(8) + key + (4).to_bytes(4, "little") + huge * 4 + bytes(12),
    ):
        path.write_bytes(head + body + bytes(64))
        with pytest.raises(InvalidModel):
            read_gguf(path)


@pytest.mark.parametrize("length", [0, 3, 20, 200, 2000, -1])
def test_truncated(tmp_path: Path, length: int) -> None:
    path = write_tiny(tmp_path / "a.gguf", SMALL)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(InvalidModel):
        GgufModel(path).graph()


def test_big_endian(tmp_path: Path) -> None:
    path = tmp_path / "big.gguf"
    writer = GGUFWriter(path, "llama", endianess=GGUFEndian.BIG)
    writer.write_header_to_file()
    writer.close()
    with pytest.raises(InvalidModel, match="big-endian machines") as caught:
        read_gguf(path)
    assert caught.value.facts == {"version": 3}


def test_unknown_version(tmp_path: Path) -> None:
    path = tmp_path / "old.gguf"
    path.write_bytes(b"GGUF" + (1).to_bytes(4, "little"))
    with pytest.raises(InvalidModel, match="GGUF of version 1 is not supported"):
        read_gguf(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match="cannot read the model file"):
        read_gguf(tmp_path / "none.gguf")


def test_three_hundred_damaged_files(tmp_path: Path) -> None:
    """Bytes of the header are changed at random: a graph or a typed error, nothing else."""
    path = write_tiny(tmp_path / "a.gguf", SMALL)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    header = whole.index(b"blk.0.ffn_down.weight") + 60
    damaged, kinds = tmp_path / "b.gguf", set()
    for _ in range(300):
        data = bytearray(whole)
        for at in rng.integers(0, header, rng.integers(1, 4)):
            data[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.integers(256)])
        damaged.write_bytes(data)
        try:
            GgufModel(damaged).graph()
        except TilewrightError as error:
            kinds.add(type(error))
    assert {InvalidModel, UnsupportedOp, UnsupportedDType} <= kinds
    assert CompilerBug not in kinds
