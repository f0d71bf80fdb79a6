"""The text of a Whisper model from its folder.

Input: a `ModelFolder`, which needs no weights here.  Output: `TextAssets` with `SpeechFacts`: the
ids of control tokens, and of tokens that are never chosen, as the folder's settings have them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tilewright.base.errors import InvalidModel
from tilewright.frontend.folder import ModelFolder, optional_json
from tilewright.frontend.speech import RATE
from tilewright.language.assets import SpeechFacts, TextAssets
from tilewright.language.folder_vocabulary import GENERATION, folder_text, ids_of
from tilewright.language.vocabulary import tokenizer_of

START, END, PLAIN = "<|startoftranscript|>", "<|endoftext|>", "<|notimestamps|>"
TASKS = ("transcribe", "translate")
#: One token with two names, by the age of the vocabulary.
SILENCE = ("<|nospeech|>", "<|nocaptions|>")
#: Tokens of models that know English alone, which do not read the tokens of languages that they
#: have.
ENGLISH = 51864
#: Where settings have tokens that are never chosen, and never first: Hugging Face, CTranslate2.
NEVER = ("suppress_tokens", "suppress_ids")
NEVER_FIRST = ("begin_suppress_tokens", "suppress_ids_begin")


def speech_text(folder: ModelFolder, words: int) -> TextAssets:
    """Raises InvalidModel, UnsupportedOp.

    words: how many tokens the model has logits for
    """
    text = folder_text(folder, words)
    tokenizer = tokenizer_of(text.tokenizer)
    known = {name: number for name, number in tokenizer.get_vocab().items() if number < words}
    values = {**folder.config.values, **optional_json(folder.path / GENERATION)}
    for name in (START, END, PLAIN):
        if name not in known:
            raise InvalidModel(
                f"tokenizer.json has no token {name}",
                hint="It belongs to another model: get the folder's own", token=name,
            )  # fmt: skip
    is_multilingual = values.get("is_multilingual")
    if not isinstance(is_multilingual, bool):
        is_multilingual = words > ENGLISH
    tasks = {task: known[f"<|{task}|>"] for task in TASKS if f"<|{task}|>" in known}
    facts = SpeechFacts(
        rate=RATE, start=known[START], plain=known[PLAIN],
        languages=_languages(known) if is_multilingual else {},
        tasks=tasks if is_multilingual else {},
        never=_never(values, NEVER, words), never_first=_never(values, NEVER_FIRST, words),
        silence=next((known[name] for name in SILENCE if name in known), None),
    )  # fmt: skip
    whole = msgspec.structs.replace(
        text.facts, template=None, begin=None, ends=(known[END],), speech=facts
    )
    return TextAssets(text.tokenizer, whole)


def _languages(known: Mapping[str, int]) -> dict[str, int]:
    """Ids by code: the tokens between the start and the tasks."""
    last = min(known.get(f"<|{task}|>", known[PLAIN]) for task in TASKS)
    found = {name[2:-2]: number for name, number in known.items() if known[START] < number < last}
    return dict(sorted(found.items(), key=lambda pair: pair[1]))


def _never(values: Mapping[str, object], keys: tuple[str, ...], words: int) -> tuple[int, ...]:
    found = {number for key in keys for number in ids_of(values.get(key))}
    return tuple(sorted(number for number in found if number < words))
