"""The assets `tokenizer.json` and `language.json`, with which a bundle's host handles text.

Input: a bundle, or facts about a vocabulary.  Output: `TextAssets`, or files for a bundle.
docs/bundle.md documents both files.  It cuts no text; see vocabulary.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import msgspec

from tilewright.base.errors import InputError, InvalidModel
from tilewright.bundle import Bundle
from tilewright.bundle.format import MALFORMED

TOKENIZER, LANGUAGE = "tokenizer.json", "language.json"


class RoundedWeights(msgspec.Struct, frozen=True):
    """Weights that were rounded when the bundle was made.

    error: the root of the mean square of errors, over that of weights
    """

    bits: int
    error: float


class SpeechFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Of a model that writes what is said.

    rate:      samples a second
    start:     the id that answers begin with;  plain: the id that asks for a text without times
    languages: ids by code;  tasks: ids by name; none of a model that knows one language
    never, never_first: ids that are never chosen, and those that are no first one
    silence:   the id whose probability behind `start` is that nobody speaks
    """

    rate: Annotated[int, msgspec.Meta(gt=0)]
    start: int
    plain: int
    languages: dict[str, int] = {}
    tasks: dict[str, int] = {}
    never: tuple[int, ...] = ()
    never_first: tuple[int, ...] = ()
    silence: int | None = None

    @property
    def ids(self) -> tuple[int, ...]:
        """All that are named."""
        named = (*self.languages.values(), *self.tasks.values(), *self.never, *self.never_first)
        silence = () if self.silence is None else (self.silence,)
        return (self.start, self.plain, *named, *silence)


class LanguageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """language.json.

    template: the chat template (Jinja2);  texts: of tokens that it names, such as `bos_token`
    ends:     ids that end an answer;  begin: the id that texts begin with, if they do
    close:    the id that prompts end with, if they do
    starts:   ids that answers of an encoder-decoder model begin with; none: the model goes on with
              the prompt
    pieces:   how a token's text becomes bytes: "bytes": a character of GPT-2's table is a byte;
              "spaces": `▁` is a space and `<0x0A>` a byte
    weights:  None if they are those of the model's file
    speech:   None if the model reads text
    """

    name: str
    template: str | None = None
    texts: dict[str, str] = {}
    ends: tuple[int, ...] = ()
    begin: int | None = None
    close: int | None = None
    starts: tuple[int, ...] = ()
    pieces: Literal["bytes", "spaces"]
    weights: RoundedWeights | None = None
    speech: SpeechFacts | None = None


@dataclass(frozen=True)
class TextAssets:
    """tokenizer: contents of tokenizer.json, as the package tokenizers reads it"""

    tokenizer: bytes
    facts: LanguageFacts

    def rounded(self, weights: RoundedWeights) -> TextAssets:
        """The same, of a model whose weights were rounded."""
        return replace(self, facts=msgspec.structs.replace(self.facts, weights=weights))

    def files(self) -> dict[str, bytes]:
        """The assets of a bundle, by name."""
        return {TOKENIZER: self.tokenizer, LANGUAGE: msgspec.json.encode(self.facts)}


def text_assets(bundle: Bundle) -> TextAssets:
    """The bundle's.  Raises InputError for a bundle without them, InvalidModel, BundleCorrupt."""
    refs = {asset.name: asset for asset in bundle.manifest.assets}
    missing = [name for name in (TOKENIZER, LANGUAGE) if name not in refs]
    if missing:
        raise InputError(
            f"the bundle has no {' and no '.join(missing)}, so it cannot read or write text",
            hint="Build it with `tilewright build` from a language model's file or folder",
            bundle=str(bundle.folder),
        )
    try:
        facts = msgspec.json.decode(bundle.read(refs[LANGUAGE]), type=LanguageFacts)
    except MALFORMED as cause:
        raise InvalidModel(
            f"{LANGUAGE} of the bundle cannot be read: {cause}",
            hint="See docs/bundle.md", bundle=str(bundle.folder),
        ) from cause  # fmt: skip
    return TextAssets(bundle.read(refs[TOKENIZER]), facts)
