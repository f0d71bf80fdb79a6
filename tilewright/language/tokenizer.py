"""Text to ids and back, by the vocabulary of a GGUF file.

Input: a file's metadata.  Output: `Vocabulary`.  Text is cut and merged by the package tokenizers,
which gets the file's own merges (BPE) or those that follow from its scores (SentencePiece).  Ids
become bytes by a table, so that whoever streams them can wait for whole characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilewright.base.errors import InvalidModel, UnsupportedOp, UsageError
from tilewright.frontend.gguf import GgufFile

try:
    import tokenizers
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers
except ImportError as _missing:
    raise UsageError(
        "Language models need the packages tokenizers and jinja2",
        hint="Install them: pip install 'tilewright[language]'",
    ) from _missing

#: Types of tokens in a file.
UNKNOWN, CONTROL, USER, BYTE = 2, 3, 4, 6
SPACE = "▁"

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


@dataclass(frozen=True)
class Vocabulary:
    """pieces: the bytes of each id; those of control tokens are empty
    texts:  the tokens as the file has them;  ends: ids that end an answer
    begin:  the id that texts begin with, if they do
    """

    pieces: tuple[bytes, ...]
    texts: tuple[str, ...]
    ends: frozenset[int]
    begin: int | None
    _tokenizer: Tokenizer

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Ids of a text, the beginning included.

        special: whether names of control tokens in it mean these
        """
        self._tokenizer.encode_special_tokens = not special
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        begun = self.begin is None or ids[:1] == [self.begin]
        return ids if begun or self.begin is None else [self.begin, *ids]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; bytes that are not characters become U+FFFD."""
        return b"".join(self.pieces[i] for i in ids).decode("utf-8", "replace")


def vocabulary(file: GgufFile, words: int) -> Vocabulary:
    """The file's.  Raises InvalidModel, UnsupportedOp.

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
    if kind == "gpt2":
        tokenizer, pieces = _bpe(file, texts, kinds)
    elif kind == "llama":
        tokenizer, pieces = _sentence_piece(file, texts, kinds)
    else:
        raise UnsupportedOp(f"vocabularies of the kind {kind!r} are not supported", kind=kind)
    own = [
        AddedToken(text, special=bool(k == CONTROL), normalized=False)
        for text, k in zip(texts, kinds, strict=True)
        if k == CONTROL or (k == USER and SPACE not in text)
    ]
    tokenizer.add_tokens(own)
    bytes_of = tuple(
        b"" if k in (CONTROL, UNKNOWN) else piece for piece, k in zip(pieces, kinds, strict=True)
    )
    missing = (b"",) * (words - len(texts))
    begin = _begin(file, kind, len(texts))
    ends = _ends(file, texts, kinds)
    return Vocabulary(bytes_of + missing, tuple(texts), ends, begin, tokenizer)


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


def _ends(file: GgufFile, texts: Sequence[str], kinds: Sequence[int]) -> frozenset[int]:
    named = ("eos", "eot", "eom")
    keys = [key for key in (f"tokenizer.ggml.{n}_token_id" for n in named) if key in file.values]
    found = {file.whole(key) for key in keys}
    found |= {i for i, (text, k) in enumerate(zip(texts, kinds, strict=True))
              if k == CONTROL and text in ENDS}  # fmt: skip
    return frozenset(found)


# ---- the two kinds -------------------------------------------------------------------------------


def _bpe(
    file: GgufFile, texts: Sequence[str], kinds: Sequence[int]
) -> tuple[Tokenizer, list[bytes]]:
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
    table = _bytes_by_character()
    plain = (CONTROL, USER)
    return tokenizer, [
        text.encode() if k in plain or any(c not in table for c in text)
        else bytes(table[c] for c in text)
        for text, k in zip(texts, kinds, strict=True)
    ]  # fmt: skip


def _pair(text: str) -> tuple[str, str]:
    left, _, right = text.partition(" ")
    return left, right


def _bytes_by_character() -> dict[str, int]:
    """Printable bytes are themselves, the others follow from U+0100 on (as GPT-2 has it)."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in kept]
    return {chr(b): b for b in kept} | {chr(256 + n): b for n, b in enumerate(others)}


def _sentence_piece(
    file: GgufFile, texts: Sequence[str], kinds: Sequence[int]
) -> tuple[Tokenizer, list[bytes]]:
    """Pieces with scores: of all neighbours that are a piece together, those of the best score are
    merged first."""
    scores = _array(file, "tokenizer.ggml.scores", len(texts))
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
    return tokenizer, [_piece(text, k) for text, k in zip(texts, kinds, strict=True)]


def _piece(text: str, kind: int) -> bytes:
    if kind != BYTE:
        return text.replace(SPACE, " ").encode()
    try:
        return bytes([int(text[1:-1], 16)])  # <0x0A>
    except ValueError:
        raise InvalidModel(f"the token {text!r} is no byte", token=text) from None


def _tokenizer(
    texts: Sequence[str], merges: Sequence[tuple[str, str]], **more: object
) -> Tokenizer:
    vocab = {text: number for number, text in enumerate(texts)}
    for left, right in merges:  # the package would end the process's thread in a panic
        if not {left, right, left + right} <= vocab.keys():
            raise InvalidModel(
                f"the vocabulary merges {left!r} and {right!r}, which make no token of it",
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
