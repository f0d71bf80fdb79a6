"""The vocabulary of a GGUF file as the assets of a bundle.

Input: a file's metadata.  Output: `TextAssets`.  The file's own merges (BPE), or those that follow
from its scores (SentencePiece), become a tokenizer of the package tokenizers.
"""

from __future__ import annotations

from collections.abc import Sequence

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from tilewright.base.errors import InvalidModel, UnsupportedOp
from tilewright.frontend.gguf import GgufFile
from tilewright.language.assets import LanguageFacts, TextAssets
from tilewright.language.vocabulary import SPACE, byte_of

#: Types of tokens in a file.
UNKNOWN, CONTROL, USER, BYTE = 2, 3, 4, 6
#: Characters of a SentencePiece token: each place to cut it is tried.
MOST_PIECE = 1 << 10
#: A number that no token has.
NONE = 1 << 40

_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_ANY_CASE = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA_3 = (_ANY_CASE + r"\p{N}{1,3}" + _REST,)
_DIGITS = (r"\p{N}", _WORDS)

#: Expressions that cut a text before it is merged, one after the other, by the file's name for it.
PATTERNS: dict[str, Sequence[str]] = {
    "gpt-2": (_WORDS,),
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "llama-bpe": _LLAMA_3,
    "llama3": _LLAMA_3,
    "llama-v3": _LLAMA_3,
    "smaug-bpe": _LLAMA_3,
    "dbrx": _LLAMA_3,
    "falcon3": _LLAMA_3,
    "qwen2": (_ANY_CASE + r"\p{N}" + _REST,),
    "tekken": (_TEKKEN,),
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _WORDS, r"\p{N}+", "[0-9][0-9][0-9]"),
}
#: Tokenizers in which a word that is a token is not merged from parts, and texts begin with a token
#: of their own.
WHOLE_WORDS = frozenset({"llama-bpe", "llama3", "llama-v3", "falcon3", "tekken"})

#: Tokens that end an answer, even if the file does not name them.
ENDS = frozenset({
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>",
    "<|end_of_text|>", "</s>",
})  # fmt: skip
#: Tokens that templates name: by the name there, the name in the file.
NAMED = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown"}


def gguf_text(file: GgufFile, words: int) -> TextAssets:
    """The file's vocabulary, template and name.  Raises InvalidModel, UnsupportedOp.

    words: how many tokens the model has logits for
    """
    texts = file.texts("tokenizer.ggml.tokens")
    if not texts or len(texts) > words:
        raise InvalidModel(
            f"the vocabulary has {len(texts)} tokens, the model {words}",
            hint="The file has no vocabulary of its own: get another one of the model",
            tokens=len(texts), words=words,
        )  # fmt: skip
    kinds = _array(file, "tokenizer.ggml.token_type", len(texts))
    kind = file.text("tokenizer.ggml.model")
    if kind not in KINDS:
        raise UnsupportedOp(f"vocabularies of the kind {kind!r} are not supported", kind=kind)
    tokenizer = KINDS[kind](file, texts, kinds)
    tokenizer.add_tokens([
        AddedToken(text, special=bool(k != USER), normalized=False)
        for text, k in zip(texts, kinds, strict=True)
        if k in (CONTROL, UNKNOWN) or (k == USER and SPACE not in text)
    ])  # fmt: skip
    numbers = {name: file.whole(f"tokenizer.ggml.{key}_token_id", NONE)
               for name, key in NAMED.items()}  # fmt: skip
    facts = LanguageFacts(
        name=file.text("general.name", file.path.stem),
        template=file.text("tokenizer.chat_template", "") or None,
        texts={name: texts[number] for name, number in numbers.items() if number < len(texts)},
        ends=_ends(file, texts, kinds),
        begin=_begin(file, kind, len(texts)),
        pieces="spaces" if kind == "llama" else "bytes",
    )
    return TextAssets(tokenizer.to_str().encode(), facts)


def _array(file: GgufFile, key: str, count: int) -> Sequence[int]:
    """A number for each token; ones if there are none."""
    found = file.numbers(key)
    if found is None:
        return [1] * count
    if len(found) != count:
        raise InvalidModel(f"{key!r} has {len(found)} numbers for {count} tokens", key=key)
    numbers: list[int] = found.tolist()
    return numbers


def _begin(file: GgufFile, kind: str, count: int) -> int | None:
    usual = kind == "llama" or file.text("tokenizer.ggml.pre", "") in WHOLE_WORDS
    if not file.flag("tokenizer.ggml.add_bos_token", usual):
        return None
    found = file.whole("tokenizer.ggml.bos_token_id", 1)
    if found >= count:
        raise InvalidModel(f"the token that begins texts cannot be {found} of {count}")
    return found


def _ends(file: GgufFile, texts: Sequence[str], kinds: Sequence[int]) -> tuple[int, ...]:
    named = ("eos", "eot", "eom")
    keys = [key for key in (f"tokenizer.ggml.{n}_token_id" for n in named) if key in file.values]
    found = {file.whole(key) for key in keys}
    found |= {i for i, (text, k) in enumerate(zip(texts, kinds, strict=True))
              if k == CONTROL and text in ENDS}  # fmt: skip
    return tuple(sorted(found))


# ---- the two kinds -------------------------------------------------------------------------------


def _bpe(file: GgufFile, texts: Sequence[str], _kinds: Sequence[int]) -> Tokenizer:
    """Merges of bytes, each written as a character."""
    name = file.text("tokenizer.ggml.pre", "default")
    if name not in PATTERNS:
        raise UnsupportedOp(
            f"text that is cut as {name!r} is not supported",
            hint=f"Supported are {', '.join(PATTERNS)}", pre=name,
        )  # fmt: skip
    merges = [_pair(text) for text in file.texts("tokenizer.ggml.merges")]
    tokenizer = _tokenizer(texts, merges, ignore_merges=name in WHOLE_WORDS)
    cuts = [pre_tokenizers.Split(Regex(p), "isolated") for p in PATTERNS[name]]
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, last])
    return tokenizer


def _pair(text: str) -> tuple[str, str]:
    left, _, right = text.partition(" ")
    return left, right


def _sentence_piece(file: GgufFile, texts: Sequence[str], kinds: Sequence[int]) -> Tokenizer:
    """Pieces with scores: of all neighbours that are a piece together, those of the best score are
    merged first."""
    scores = _array(file, "tokenizer.ggml.scores", len(texts))
    wrong = [text for text, k in zip(texts, kinds, strict=True)
             if k == BYTE and byte_of(text) is None]  # fmt: skip
    if wrong:
        raise InvalidModel(f"the token {wrong[0]!r} does not stand for a byte", token=wrong[0])
    if (longest := max(map(len, texts))) > MOST_PIECE:
        raise InvalidModel(
            f"the vocabulary has a token of {longest} characters",
            hint="The file is damaged, or its converter is wrong", most=MOST_PIECE,
        )  # fmt: skip
    numbers = {text: n for n, text in enumerate(texts)}
    merges = []
    for text, score, kind in zip(texts, scores, kinds, strict=True):
        if kind in (CONTROL, UNKNOWN, BYTE):
            continue
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in numbers and right in numbers:
                merges.append((-score, numbers[left], numbers[right], left, right))
    merges.sort()
    unknown = next((text for text, k in zip(texts, kinds, strict=True) if k == UNKNOWN), None)
    pairs = [(left, right) for _, _, _, left, right in merges]
    tokenizer = _tokenizer(texts, pairs, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", SPACE)]
    if file.flag("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, normalizers.Prepend(SPACE))
    tokenizer.normalizer = normalizers.Sequence(steps)
    return tokenizer


def _tokenizer(
    texts: Sequence[str], merges: Sequence[tuple[str, str]], **more: object
) -> Tokenizer:
    vocab = {text: number for number, text in enumerate(texts) if text}
    if len(vocab) < sum(map(bool, texts)):
        twice = next(text for number, text in enumerate(texts) if text and vocab[text] != number)
        raise InvalidModel(
            f"the vocabulary has the token {twice!r} twice",
            hint="The file is damaged, or its converter is wrong", token=twice,
        )  # fmt: skip
    for left, right in merges:  # the package would end the process's thread in a panic
        if not {left, right, left + right} <= vocab.keys():
            raise InvalidModel(
                f"the vocabulary merges {left!r} and {right!r}, but has no token for the result",
                hint="The file is damaged, or its converter is wrong",
            )
    try:
        return Tokenizer(models.BPE(vocab=vocab, merges=merges, **more))
    except Exception as cause:  # the package raises nothing narrower
        raise InvalidModel(
            f"the vocabulary cannot be read: {cause}"[:200],
            hint="The file is damaged, or its converter is wrong",
            tokenizers=tokenizers.__version__, tokens=len(texts), merges=len(merges),
        ) from cause  # fmt: skip


#: The readers of vocabularies, by the file's name for the kind.
KINDS = {"gpt2": _bpe, "llama": _sentence_piece}
