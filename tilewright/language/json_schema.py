"""Answers that fit a JSON schema: which tokens may come next.

Input: a vocabulary, a schema, the tokens of an answer.  Output: a mask for logits, or a typed error
for a schema that is not supported.  The package llguidance reads schemas and follows the answer;
it is an extra, and is imported when the first schema comes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tilewright.base.errors import InputError, UsageError
from tilewright.base.numpy_scalars import Array
from tilewright.language.vocabulary import Vocabulary

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from llguidance._lib import JsonCompileOptions

JsonSchema = Mapping[str, object]

#: JSON as Python's module writes it, and nothing approximated, whatever the schema's own
#: "x-guidance" says: with free white space a model could write spaces without end.
FORM: JsonCompileOptions = {
    "whitespace_flexible": False, "item_separator": ", ", "key_separator": ": ",
    "lenient": False, "coerce_one_of": False,
}  # fmt: skip


#: Begins a text that is cut as if it were the middle of one: nothing is merged with it.
BEFORE = "\x02"


class _Words:
    """The vocabulary as llguidance wants it: the last token of all is the end of the text."""

    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self.tokens = [vocabulary.piece(token) for token in range(vocabulary.words)]
        # control tokens and the like, which no text has
        silent = [token for token, piece in enumerate(self.tokens) if not piece]
        for token in silent:
            self.tokens[token] = b"<%d>" % token
        self.tokens.append(b"<end>")
        self.eos_token_id = vocabulary.words
        self.special_token_ids = [*silent, self.eos_token_id]

    def __call__(self, text: bytes) -> list[int]:
        """How the model would write a text that is the only one that fits."""
        ids, skipped = self._vocabulary.cut(BEFORE + text.decode()), b""
        while ids and not skipped.endswith(BEFORE.encode()):
            skipped += self.tokens[ids.pop(0)]
        if b"".join(self.tokens[token] for token in ids) == text:
            return ids
        return self._longest(text)

    def _longest(self, text: bytes) -> list[int]:
        """The longest token, then the longest one that follows, and so on."""
        ids, at = [], 0
        while at < len(text):
            length = next(n for n in range(self._most, 0, -1) if text[at : at + n] in self._ids)
            ids.append(self._ids[text[at : at + length]])
            at += length
        return ids

    @cached_property
    def _ids(self) -> Mapping[bytes, int]:
        known = set(self.special_token_ids)
        return {piece: n for n, piece in enumerate(self.tokens) if n not in known}

    @cached_property
    def _most(self) -> int:
        return max(map(len, self._ids))


class SchemaMatchers:
    """Makes a matcher for each answer of one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def matcher(self, schema: JsonSchema) -> SchemaMatcher:
        """Raises UsageError for a schema that is not supported, or if the package is missing."""
        if not isinstance(schema, Mapping):
            raise _unsupported("it is not an object")
        from_json, tokenizer = _library().grammar_from_json_schema, self._tokenizer
        try:
            grammar = from_json(json.dumps(schema, allow_nan=False), overrides=FORM)
            is_wrong, told = _library().validate_grammar_with_warnings(grammar, tokenizer)
        except (TypeError, ValueError, RecursionError) as cause:
            is_wrong, told = True, [str(cause)]
        if is_wrong:
            raise _unsupported(told[0])
        return SchemaMatcher(_library()(tokenizer, grammar, log_level=0), self._vocabulary)

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        from llguidance import LLTokenizer, TokenizerWrapper

        words = _Words(self._vocabulary)
        return LLTokenizer(TokenizerWrapper(words), n_vocab=len(words.tokens))


class SchemaMatcher:
    """Follows one answer."""

    def __init__(self, matcher: LLMatcher, vocabulary: Vocabulary) -> None:
        self._matcher = matcher
        self._words, self._ends = vocabulary.words, sorted(vocabulary.ends)

    @property
    def is_complete(self) -> bool:
        """Whether the answer is whole, and nothing can follow."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    def allowed(self) -> Array:
        """Which tokens may come next.  Raises InputError if none may."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        found = np.unpackbits(bits, bitorder="little")[: self._words].astype(np.bool_)
        found[self._ends] = self._matcher.is_accepting()
        if self._matcher.is_error() or not found.any():
            told = self._matcher.get_error().partition("\n")[0] or "no token could come next"
            raise InputError(
                f"the answer cannot go on as the schema wants: {told}"[:300],
                hint="Use a simpler schema, which JSON of some length fits", option="schema",
            )  # fmt: skip
        return found

    def take(self, token: int) -> None:
        """A token that was allowed, and is not an end."""
        self._matcher.consume_token(token)


def _library() -> type[LLMatcher]:
    """Raises UsageError."""
    try:
        from llguidance import LLMatcher
    except ImportError as cause:
        raise UsageError(
            "JSON schemas need the package llguidance",
            hint="Install it: pip install 'tilewright[schema]'", option="schema",
        ) from cause  # fmt: skip
    return LLMatcher


def _unsupported(why: str) -> UsageError:
    return UsageError(
        f"the JSON schema is not supported: {' '.join(why.split())}"[:300],
        hint="See docs/language-models.md for the keywords that an answer can follow",
        option="schema",
    )
