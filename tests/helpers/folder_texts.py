"""The text files of tiny folders as Hugging Face's libraries write them.

Input: a vocabulary of vocabularies.py.  Output: tokenizer.json and the files beside it, written by
the package tokenizers in the form that published models have.
"""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from helpers.vocabularies import SPACE, TEMPLATE, Merges, Pieces


def tokenizer_of(vocabulary: Merges | Pieces) -> Tokenizer:
    """Bytes as of GPT-2, or pieces as of Llama 2, whose texts begin with `<s>`."""
    vocab = {text: n for n, text in enumerate(vocabulary.texts)}
    if isinstance(vocabulary, Merges):
        made = Tokenizer(models.BPE(vocab=vocab, merges=list(vocabulary.merges)))
        made.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(r"\p{N}"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ])  # fmt: skip
        made.decoder = decoders.ByteLevel()
        made.add_special_tokens([AddedToken(text) for text in vocabulary.special])
        return made
    made = Tokenizer(models.BPE(
        vocab=vocab, merges=merges_of(vocabulary), unk_token="<unk>", fuse_unk=True,
        byte_fallback=True,
    ))  # fmt: skip
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
    )
    made.decoder = decoders.Sequence([
        decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ])  # fmt: skip
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    made.add_special_tokens([AddedToken(text) for text in ("<unk>", "<s>", "</s>")])
    return made


def merges_of(vocabulary: Pieces) -> list[tuple[str, str]]:
    """Every pair that makes a token, the one of the best score first."""
    texts = [t for t in vocabulary.texts[259:] if t]
    known = set(texts)
    pairs = [(t[:n], t[n:]) for t in texts for n, _ in combinations(range(1, len(t) + 1), 2)]
    pairs = [p for p in dict.fromkeys(pairs) if set(p) <= known]
    scores = dict(zip(vocabulary.texts, vocabulary.scores, strict=True))
    return sorted(pairs, key=lambda p: -scores[p[0] + p[1]])


def write_text(path: Path, vocabulary: Merges | Pieces, **settings: Any) -> None:
    """tokenizer.json and tokenizer_config.json."""
    tokenizer_of(vocabulary).save(str(path / "tokenizer.json"))
    usual: dict[str, Any] = {"chat_template": TEMPLATE, "eos_token": "<|im_end|>"}
    if isinstance(vocabulary, Pieces):
        usual = {"bos_token": {"content": "<s>", "lstrip": False}, "eos_token": "</s>"}
    (path / "tokenizer_config.json").write_text(json.dumps(usual | settings))
