"""The text assets of a tiny language model: tokenizer.json and language.json.

Input: a GGUF model.  Output: the files' contents by name.
"""

from __future__ import annotations

import json

from tilewright.frontend.gguf import GgufModel
from tilewright.language import Language
from tilewright.language.tokenizer import UNKNOWN


def text_files(model: GgufModel) -> dict[str, bytes]:
    """As docs/language-models.md has them."""
    file, language = model.file, Language(model)
    texts = language.vocabulary.texts
    named = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown"}
    keys = {name: f"tokenizer.ggml.{key}_token_id" for name, key in named.items()}
    ids = {name: file.whole(key, 1 << 40) for name, key in keys.items()}
    facts = {
        "name": language.name,
        "template": file.text("tokenizer.chat_template", "") or None,
        "texts": {name: texts[n] for name, n in ids.items() if n < len(texts)},
        "ends": sorted(language.vocabulary.ends),
        "begin": language.vocabulary.begin,
        "pieces": "bytes" if file.text("tokenizer.ggml.model") == "gpt2" else "spaces",
    }
    tokenizer = json.loads(language.vocabulary._tokenizer.to_str())
    tokenizer["added_tokens"] += [
        {
            "id": n, "content": texts[n], "special": True, "single_word": False,
            "lstrip": False, "rstrip": False, "normalized": False,
        }
        for n, kind in enumerate(file.numbers("tokenizer.ggml.token_type"))
        if kind == UNKNOWN
    ]  # fmt: skip
    return {
        "tokenizer.json": json.dumps(tokenizer).encode(),
        "language.json": json.dumps(facts).encode(),
    }
