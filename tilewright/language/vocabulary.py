"""Text to ids and back, by the assets of a bundle.

Input: `TextAssets`.  Output: `Vocabulary`.  The package tokenizers turns text into ids.  Ids become
bytes one by one, so that a stream of text can wait for whole characters.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tokenizers import AddedToken, Tokenizer

from tilewright.base.errors import InputError, InvalidModel
from tilewright.language.assets import LanguageFacts, TextAssets
from tilewright.language.control_tokens import ControlTokens, StandIns, seal

SPACE = "▁"
_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")
#: What no reader of a file may swallow.
_ENDS_OF_PROGRAMS = (KeyboardInterrupt, SystemExit, GeneratorExit)


def _bytes_by_character() -> dict[str, int]:
    """Printable bytes are themselves, the others follow from U+0100 on (as GPT-2 has it)."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in kept]
    return {chr(b): b for b in kept} | {chr(256 + n): b for n, b in enumerate(others)}


BYTES = _bytes_by_character()
CHARACTERS = {byte: character for character, byte in BYTES.items()}


def byte_of(text: str) -> int | None:
    """The byte that `<0x0A>` means."""
    found = _BYTE.fullmatch(text)
    return int(found[1], 16) if found else None


@dataclass(frozen=True)
class Vocabulary:
    """words: how many ids there are;  ends: ids that end an answer
    control: names of control tokens
    """

    facts: LanguageFacts
    words: int
    ends: frozenset[int]
    control: ControlTokens
    _tokenizer: Tokenizer
    _added: Mapping[int, AddedToken]
    _sealed: Mapping[int, int]

    def encode(
        self, text: str, special: bool = True, stand_ins: StandIns | None = None
    ) -> list[int]:
        """Ids of a text, with the ids that texts begin and prompts end with.

        special: whether names of control tokens in it mean these
        stand_ins: in names that do not, as of `ControlTokens.hidden`

        Raises InputError for a text that is not Unicode, InvalidModel.
        """
        _check_unicode(text)
        text = self.control.sealed(text) if special else text
        ids = self.cut(text.translate(stand_ins or {}))
        begin, close = self.facts.begin, self.facts.close
        ids = ids if begin is None or ids[:1] == [begin] else [begin, *ids]
        return ids if close is None or ids[-1:] == [close] else [*ids, close]

    def cut(self, text: str) -> list[int]:
        """Ids of a text alone, in which only seals mean control tokens.  Raises InvalidModel."""
        with _told("cannot cut this text"):
            found: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return [token for each in found for token in self._meant(each)]

    def _meant(self, token: int) -> list[int]:
        """A seal's own token; for a control token that the merges of a text's words give, ids of
        its name's characters."""
        if token in self._sealed:
            return [self._sealed[token]]
        added = self._added.get(token)
        if added is None or not added.special or added.content == self._unknown:
            return [token]
        named = [self._tokenizer.token_to_id(part) for part in self._characters(added.content)]
        return [number for number in named if number is not None]

    @property
    def _unknown(self) -> str | None:
        """What stands for characters that the vocabulary does not have."""
        name: str | None = getattr(self._tokenizer.model, "unk_token", None)
        return name

    def _characters(self, text: str) -> Iterator[str]:
        """Tokens of one character or byte each."""
        if self.facts.pieces == "bytes":
            yield from (CHARACTERS[byte] for byte in text.encode())
            return
        for character in text.replace(" ", SPACE):
            known = self._tokenizer.token_to_id(character) is not None
            yield from [character] if known else (f"<0x{b:02X}>" for b in character.encode())

    def piece(self, token: int) -> bytes:
        """The bytes of an id; none if it is a control token, or no token at all."""
        added = self._added.get(token)
        text = self._tokenizer.id_to_token(token) if added is None else added.content
        if text is None or (added is not None and added.special):
            return b""
        if self.facts.pieces == "spaces":
            byte = byte_of(text)
            return text.replace(SPACE, " ").encode() if byte is None else bytes([byte])
        if added is not None or any(c not in BYTES for c in text):
            return text.encode()
        return bytes(BYTES[c] for c in text)

    def name(self, token: int) -> str:
        """What an id is called: its text, or the name of a control token."""
        added = self._added.get(token)
        return added.content if added is not None else self.decode([token])

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; bytes that are not characters become U+FFFD."""
        return b"".join(self.piece(i) for i in ids).decode("utf-8", "replace")


def tokenizer_of(contents: bytes) -> Tokenizer:
    """Of the contents of tokenizer.json.  Raises InvalidModel."""
    with _told("cannot be read"):
        tokenizer = Tokenizer.from_str(contents.decode())
        tokenizer.no_truncation()
        tokenizer.no_padding()
    return tokenizer


def vocabulary(text: TextAssets, words: int) -> Vocabulary:
    """Raises InvalidModel.

    words: how many tokens the model has logits for
    """
    tokenizer = tokenizer_of(text.tokenizer)
    count, added = tokenizer.get_vocab_size(), tokenizer.get_added_tokens_decoder()
    begin = text.facts.begin
    speech = text.facts.speech
    named = (
        begin or 0, text.facts.close or 0, *text.facts.starts, *(speech.ids if speech else ())
    )  # fmt: skip
    if not 0 < count <= words or not all(0 <= number < words for number in named):
        raise InvalidModel(
            f"the vocabulary has {count} tokens, the model {words}",
            hint="The file tokenizer.json belongs to another model",
            tokens=count, words=words, begin=begin,
        )  # fmt: skip
    control, sealed = _sealed(tokenizer, added)
    ends = frozenset(text.facts.ends)
    return Vocabulary(text.facts, words, ends, control, tokenizer, added, sealed)


def _sealed(
    tokenizer: Tokenizer, added: Mapping[int, AddedToken]
) -> tuple[ControlTokens, dict[int, int]]:
    """Control tokens, which the tokenizer from now on reads from seals alone: ids by those that it
    gives to the seals."""
    control = {number: token for number, token in added.items() if token.special}
    words = [token.content for number, token in added.items() if number not in control]
    seals = {seal(number): number for number in control}
    with _told("cannot be read"):
        tokenizer.encode_special_tokens = True
        tokenizer.add_tokens([
            AddedToken(seal(number), lstrip=token.lstrip, rstrip=token.rstrip, normalized=False)
            for number, token in control.items()
        ])  # fmt: skip
        known = tokenizer.get_added_tokens_decoder()
    sealed = {
        number: seals[each.content] for number, each in known.items() if each.content in seals
    }
    return ControlTokens({t.content: n for n, t in control.items()}, words), sealed


@contextmanager
def _told(what: str) -> Generator[None]:
    """What the package tokenizers does inside: it raises nothing narrow, and panics."""
    try:
        yield
    except BaseException as cause:
        if isinstance(cause, _ENDS_OF_PROGRAMS):
            raise
        raise InvalidModel(
            f"the vocabulary {what}: {cause}"[:200],
            hint="The file tokenizer.json is damaged, or needs a newer package tokenizers",
        ) from cause


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as cause:
        raise InputError(
            f"the text has an incomplete character at {cause.start}",
            hint="Decode it as UTF-8, with errors='replace' for unknown bytes",
        ) from cause
