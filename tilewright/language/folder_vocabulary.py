"""The text of a model from a folder as Hugging Face's libraries write it.

Input: a `ModelFolder`, which needs no weights here.  Output: `TextAssets`: the folder's own
tokenizer.json, and what its other files say of templates and of tokens that begin and end texts.
It cuts no text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec
from tokenizers import Tokenizer

from tilewright.base.errors import InvalidModel, UnsupportedOp
from tilewright.frontend.folder import ModelFolder, optional_json
from tilewright.language.assets import TOKENIZER, LanguageFacts, TextAssets
from tilewright.language.gguf_vocabulary import ENDS
from tilewright.language.vocabulary import tokenizer_of

TEMPLATE, SETTINGS, GENERATION = (
    "chat_template.jinja", "tokenizer_config.json", "generation_config.json"
)  # fmt: skip
#: Tokens that templates name.
NAMED = ("bos_token", "eos_token", "unk_token")
#: Bytes of tokenizer.json, of which the largest ones have 40 MB, and of a template.
MOST_TOKENIZER, MOST_TEMPLATE = 1 << 28, 1 << 20

Json = Mapping[str, object]


class _TokenizerFile(msgspec.Struct):
    """Parts of tokenizer.json that say how tokens become text."""

    decoder: dict[str, object] | None = None
    added_tokens: list[dict[str, object]] = []


def folder_text(folder: ModelFolder, words: int) -> TextAssets:
    """The folder's vocabulary, template and name.  Raises InvalidModel, UnsupportedOp.

    words: how many tokens the model has logits for
    """
    path = folder.path
    data = _known_tokens(_tokenizer_file(path), words)
    tokenizer, parts = tokenizer_of(data), _parts(data)
    settings, generation = (optional_json(path / name) for name in (SETTINGS, GENERATION))
    texts = _named(folder, settings, tokenizer)
    ends = ids_of(generation.get("eos_token_id")) | ids_of(folder.config.values.get("eos_token_id"))
    special = {str(t.get("content")) for t in parts.added_tokens if t.get("special")}
    for text in (*(ENDS & special), texts.get("eos_token", "")):
        ends |= ids_of(tokenizer.token_to_id(text))
    facts = LanguageFacts(
        name=folder.name, template=_template(path, settings), texts=texts,
        ends=tuple(sorted(number for number in ends if number < words)),
        begin=_begin(tokenizer, settings, texts), pieces=_pieces(parts),
    )  # fmt: skip
    return TextAssets(data, facts)


def encoder_decoder_text(folder: ModelFolder, words: int) -> TextAssets:
    """The same of an encoder-decoder model: what its prompts end with, and its answers begin with,
    by config.json, else as T5 has it.  Raises InvalidModel, UnsupportedOp."""
    text = folder_text(folder, words)
    tokenizer = tokenizer_of(text.tokenizer)
    around: list[int] = tokenizer.encode("").ids
    closing = around[1:] if around[:1] == [text.facts.begin] else around
    values = {**folder.config.values, **optional_json(folder.path / GENERATION)}
    starts = [*ids_of(values.get("decoder_start_token_id", tokenizer.token_to_id("<pad>")))]
    if not starts:
        raise InvalidModel(
            "the folder does not say which token answers begin with",
            hint="Add its config.json, with decoder_start_token_id", path=str(folder.path),
        )  # fmt: skip
    facts = msgspec.structs.replace(
        text.facts, template=None, close=closing[-1] if closing else None,
        starts=(*starts, *ids_of(values.get("forced_bos_token_id"))),
    )  # fmt: skip
    return TextAssets(text.tokenizer, facts)


def _named(folder: ModelFolder, settings: Json, tokenizer: Tokenizer) -> dict[str, str]:
    """Texts of the tokens that templates name, by tokenizer_config.json or config.json."""
    found = {}
    for name in NAMED:
        number = folder.config.values.get(f"{name}_id")
        text = _text(settings.get(name))
        if not text and isinstance(number, int) and number >= 0:
            text = tokenizer.id_to_token(number) or ""
        if text:
            found[name] = text
    return found


def _tokenizer_file(path: Path) -> bytes:
    if not (path / TOKENIZER).is_file():
        raise InvalidModel(
            f"the folder has no {TOKENIZER}",
            hint="Load its tokenizer with AutoTokenizer of the package transformers, and call "
            "`tokenizer.save_pretrained(folder)`",
            path=str(path),
        )
    return _read(path / TOKENIZER, MOST_TOKENIZER)


def _read(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise InvalidModel(f"{path.name} has more than {most} bytes", path=str(path))
    return data


def _known_tokens(data: bytes, words: int) -> bytes:
    """tokenizer.json without added tokens that the model has no logits for, such as those of
    pictures in Gemma 3's text models."""
    try:
        whole = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        added = msgspec.json.decode(whole.get("added_tokens", b"[]"), type=list[dict[str, object]])
    except msgspec.MsgspecError as cause:
        raise _unreadable(cause) from cause
    kept = [t for t in added if not isinstance(t.get("id"), int) or t["id"] < words]  # type: ignore[operator]
    if len(kept) == len(added):
        return data
    return msgspec.json.encode({**whole, "added_tokens": msgspec.Raw(msgspec.json.encode(kept))})


def _parts(data: bytes) -> _TokenizerFile:
    try:
        return msgspec.json.decode(data, type=_TokenizerFile)
    except msgspec.MsgspecError as cause:
        raise _unreadable(cause) from cause


def _unreadable(cause: Exception) -> InvalidModel:
    return InvalidModel(
        f"{TOKENIZER} cannot be read: {cause}"[:200], hint="The file is damaged: get it again"
    )


def _pieces(parts: _TokenizerFile) -> Literal["bytes", "spaces"]:
    """How tokens become text, by the file's decoder."""
    decoder = parts.decoder or {}
    inner = decoder.get("decoders")
    steps = [decoder, *(inner if isinstance(inner, list) else [])]
    kinds = {step.get("type") for step in steps if isinstance(step, dict)}
    if "ByteLevel" in kinds:
        return "bytes"
    if kinds & {"ByteFallback", "Metaspace", "Replace"}:
        return "spaces"
    raise UnsupportedOp(
        f"tokens that become text by {decoder.get('type')} are not supported",
        hint="Supported are ByteLevel, and ByteFallback or Metaspace as of SentencePiece",
    )


def _begin(tokenizer: Tokenizer, settings: Json, texts: Mapping[str, str]) -> int | None:
    """The id that texts begin with, if they do."""
    told = settings.get("add_bos_token")
    first: list[int] = tokenizer.encode("").ids
    begin: int | None = tokenizer.token_to_id(texts.get("bos_token", ""))
    if told is None:
        return begin if first[:1] == [begin] else None
    return begin if told else None


def _template(path: Path, settings: Json) -> str | None:
    if (path / TEMPLATE).is_file():
        return _read(path / TEMPLATE, MOST_TEMPLATE).decode("utf-8", "replace")
    found = settings.get("chat_template")
    if isinstance(found, list):  # several of them by name
        named = {t.get("name"): t.get("template") for t in found if isinstance(t, dict)}
        found = named.get("default", next(iter(named.values()), None))
    return found if isinstance(found, str) else None


def _text(token: object) -> str:
    """Of a token: a text, or an object that has one."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else ""


def ids_of(found: object) -> set[int]:
    """Ids that a setting has: one, a list, or none."""
    many: Iterable[object] = found if isinstance(found, list) else [found]
    return {n for n in many if isinstance(n, int) and not isinstance(n, bool) and n >= 0}
