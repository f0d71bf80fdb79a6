"""A sentence model for the demo page: the mean of word vectors, scaled to length 1.

Input: nothing.  Output: an ONNX file and a tokenizer as the page expects them, and `vector`, the
same model in NumPy.  Sentences that share words are similar; all other words are one unknown word.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = (
    "a", "and", "bread", "bright", "butter", "cheese", "cloud", "cold", "cup", "dark", "dog",
    "dough", "evening", "fire", "fish", "flour", "forest", "garden", "green", "hot", "ice", "in",
    "is", "lamp", "leaf", "light", "milk", "moon", "mountain", "night", "of", "oven", "plant",
    "rain", "river", "road", "salt", "sea", "snow", "soup", "star", "steam", "storm", "sugar",
    "sun", "tea", "the", "tree", "train", "warm", "water", "wind", "yeast",
)  # fmt: skip
WIDTH = 32
LENGTHS = (8, 16)


def table() -> np.ndarray[Any, np.dtype[np.float32]]:
    """Word vectors.  Those of the special tokens are short: words shall decide."""
    rows = np.random.default_rng(5).standard_normal((len(SPECIAL) + len(WORDS), WIDTH), np.float32)
    rows[: len(SPECIAL)] *= np.float32(0.05)
    return rows


def vector(*words: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """What the model says of a sentence."""
    vocabulary = _vocabulary()
    ids = [vocabulary.get(w, vocabulary["[UNK]"]) for w in ("[CLS]", *words, "[SEP]")]
    total: np.ndarray[Any, np.dtype[np.float32]] = table()[ids].sum(axis=0)
    return total / np.float32(np.linalg.norm(total))


def write_model(path: Path) -> Path:
    axis = {"last": [2], "length": [1]}
    weights = {"table": table()} | {k: np.array(v, np.int64) for k, v in axis.items()}
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["words"], name="words"),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["column"]),
        helper.make_node("Mul", ["words", "column"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "length"], ["sum"], keepdims=0),
        helper.make_node("Mul", ["sum", "sum"], ["square"]),
        helper.make_node("ReduceSum", ["square", "length"], ["total"], keepdims=1),
        helper.make_node("Sqrt", ["total"], ["norm"]),
        helper.make_node("Div", ["sum", "norm"], ["sentence_embedding"]),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, [1, "n"])
        for name in ("input_ids", "attention_mask")
    ]
    output = helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, [1, WIDTH])
    graph = helper.make_graph(
        nodes, "search", inputs, [output],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )  # fmt: skip
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    return path


def write_tokenizer(path: Path) -> Path:
    """WordPiece in the format of Hugging Face's tokenizers."""
    vocabulary = _vocabulary()
    marks = [{"SpecialToken": {"id": t, "type_id": 0}} for t in ("[CLS]", "[SEP]")]
    text = {"Sequence": {"id": "A", "type_id": 0}}
    ids = {t: {"id": t, "ids": [vocabulary[t]], "tokens": [t]} for t in ("[CLS]", "[SEP]")}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": vocabulary[t], "content": t, "special": True, **flags} for t in SPECIAL
        ],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [marks[0], text, marks[1]],
            "pair": [marks[0], text, marks[1], text, marks[1]],
            "special_tokens": ids,
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocabulary,
        },
    }
    path.write_text(json.dumps(tokenizer))
    return path


def _vocabulary() -> dict[str, int]:
    return {token: number for number, token in enumerate((*SPECIAL, *WORDS))}
