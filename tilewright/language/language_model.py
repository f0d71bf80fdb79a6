"""A language model that answers: vocabulary, template, caches and choosing as one thing.

Input: a GGUF model, and its bundle on a host.  Output: `Completion`s, which give their text piece
by piece.  It compiles nothing and opens no host.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tilewright.base.errors import ContextFull, UsageError
from tilewright.frontend.gguf import GgufModel
from tilewright.language.cache_session import CacheSession, Stopped
from tilewright.language.sampling import Sampler, Sampling
from tilewright.language.stream import TextStream
from tilewright.language.template import ChatTemplate, Message
from tilewright.language.tokenizer import vocabulary

#: Why an answer ended: by a token, by a stop string, because it was long enough, because it was
#: stopped; "context" if the caches are full.
Ended = Literal["end", "stop", "most", "stopped", "context"]

#: A number that no token has.
NONE = 1 << 40


@dataclass
class Completion:
    """An answer that is being made: iterate over it for its text.  It raises ContextFull.

    reused: tokens of the prompt that the caches held;  ids: of the answer, its end included
    first, seconds: until the first token, and from then on
    """

    model: LanguageModel
    prompt: Sequence[int]
    most: int
    choice: Sampling = field(default_factory=Sampling)
    stops: Sequence[str] = ()
    stopped: Stopped = lambda: False
    reused: int = 0
    ids: list[int] = field(default_factory=list)
    text: str = ""
    ended: Ended = "most"
    first: float = 0.0
    seconds: float = 0.0

    def __iter__(self) -> Iterator[str]:
        stream = TextStream(self.stops)
        try:
            for piece in self._pieces():
                yield from self._shown(stream.add(piece))
                if stream.stopped:
                    self.ended = "stop"
                    return
        except ContextFull:
            self.ended = "context"
            raise
        finally:
            self.text += (rest := stream.add(b"", last=True))
        if rest:
            yield rest

    def _shown(self, text: str) -> Iterator[str]:
        if text:
            self.text += text
            yield text

    def _pieces(self) -> Iterator[bytes]:
        session, vocabulary = self.model.session, self.model.vocabulary
        choose, start = Sampler(self.choice), time.perf_counter()
        self.reused = session.held(self.prompt)
        text = list(self.prompt)
        while len(self.ids) < self.most:
            logits = session.read(text, self.stopped)
            if logits is None:
                self.ended = "stopped"
                return
            token = choose(logits, text)
            now = time.perf_counter()
            if self.ids:
                self.seconds = now - start - self.first
            else:
                self.first = now - start
            self.ids.append(token)
            text.append(token)
            if token in vocabulary.ends:
                self.ended = "end"
                return
            yield vocabulary.pieces[token]

    @property
    def speed(self) -> float:
        """Tokens a second after the first one; 0 if there are none."""
        return (len(self.ids) - 1) / self.seconds if self.seconds else 0.0


class Language:
    """The parts of a file that concern text: vocabulary and chat template."""

    def __init__(self, model: GgufModel) -> None:
        """Raises InvalidModel, UnsupportedOp."""
        file = model.file
        self.name = file.text("general.name", model.name)
        self.vocabulary = vocabulary(file, model.words)
        source = file.text("tokenizer.chat_template", "")
        named = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown"}
        numbers = {name: file.whole(f"tokenizer.ggml.{key}_token_id", NONE)
                   for name, key in named.items()}  # fmt: skip
        known = self.vocabulary.texts
        texts = {name: known[number] for name, number in numbers.items() if number < len(known)}
        self._template = ChatTemplate(source, texts) if source else None

    def prompt(self, messages: Sequence[Message]) -> str:
        """The text of a chat.  Raises UsageError for a model without a template, InputError."""
        if self._template is None:
            raise UsageError("the model has no chat template", hint="Use `generate` without --chat")
        return self._template.render(messages)


class LanguageModel:
    """One model on one host, for one text at a time."""

    def __init__(self, language: Language, session: CacheSession) -> None:
        self.language, self.session = language, session
        self.vocabulary = language.vocabulary

    def complete(
        self, prompt: str, most: int, choice: Sampling | None = None, stops: Sequence[str] = (),
        stopped: Stopped = lambda: False,
    ) -> Completion:  # fmt: skip
        """The text that follows the prompt, as a `Completion`."""
        return Completion(
            self, self.vocabulary.encode(prompt), most, choice or Sampling(), stops, stopped
        )

    def chat(
        self, messages: Sequence[Message], most: int, choice: Sampling | None = None,
        stops: Sequence[str] = (), stopped: Stopped = lambda: False,
    ) -> Completion:  # fmt: skip
        """The answer to messages.  Raises UsageError for a model without a template, InputError."""
        return self.complete(self.language.prompt(messages), most, choice, stops, stopped)
