"""A language model that answers: vocabulary, template, caches and choosing as one thing.

Input: a bundle's text assets, and a session on the bundle's host.  Output: `Completion`s, which
give their text piece by piece.  It compiles nothing and opens no host.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Literal, Protocol, TypedDict, Unpack

from tilewright.base.errors import ContextFull, InputError, UsageError
from tilewright.base.numpy_scalars import Array
from tilewright.bundle import Bundle
from tilewright.frontend.language import LOGITS
from tilewright.language.assets import TextAssets, text_assets
from tilewright.language.cache_session import Stopped
from tilewright.language.logprobs import TokenLogprob, token_logprob
from tilewright.language.sampling import Sampler, Sampling
from tilewright.language.stream import TextStream
from tilewright.language.template import ChatTemplate, Message
from tilewright.language.vocabulary import vocabulary

#: Why an answer ended: by a token, by a stop string, because it was long enough, because it was
#: stopped; "context" if the caches are full.
Ended = Literal["end", "stop", "most", "stopped", "context"]


#: What a model does with a prompt: it goes on with it, or writes a new text from it.
Kind = Literal["decoder", "encoder-decoder"]


class TextSession(Protocol):
    """What a host holds of one text.  room: tokens that a prompt may have"""

    room: int

    def after(
        self, prompt: Sequence[int], written: Sequence[int], stopped: Stopped = ...
    ) -> Array | None:
        """The logits after a prompt and the tokens written so far; None if it was stopped."""
        ...

    def held(self, ids: Sequence[int]) -> int:
        """How many tokens of a prompt need not be computed."""
        ...


class SamplingOptions(TypedDict, total=False):
    """How tokens are chosen, as of `Sampling`."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    penalty: float
    recent: int
    seed: int
    frequency_penalty: float
    presence_penalty: float
    logit_bias: Mapping[int, float]


class Completion:
    """An answer that is made while it is read: iterate over it for pieces of its text, in an event
    loop by `async for`.  Iterating raises ContextFull when no token fits any more.

    prompt: ids of the prompt;  reused: how many of them the caches held
    text, ids: the answer so far;  ended: why it ended, None before
    logprobs: how likely each of the ids was, if that was asked for
    first, seconds: until the first token, and from then on
    """

    def __init__(
        self, model: LanguageModel, prompt: Sequence[int], most: int, choice: Sampling,
        stops: Sequence[str], logprobs: int | None,
    ) -> None:  # fmt: skip
        self.prompt, self.most = prompt, most
        self.logprobs: list[TokenLogprob] = []
        self.text = ""
        self.ids: list[int] = []
        self.ended: Ended | None = None
        self.reused = 0
        self.first = self.seconds = 0.0
        self._model, self._choice, self._top = model, choice, logprobs
        self._is_stopped = False
        self._pieces = self._shown(TextStream(stops))

    def __repr__(self) -> str:
        how = f"ended: {self.ended}" if self.ended else "not ended"
        return f"<Completion of {len(self.prompt)} + {len(self.ids)} tokens, {how}>"

    def stop(self) -> None:
        """Ends the answer before its next token.  Any thread and any signal handler may call it."""
        self._is_stopped = True

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return next(self._pieces)

    async def __aiter__(self) -> AsyncIterator[str]:
        """Computes in another thread, so that the loop goes on; ends with whoever reads."""
        try:
            while (piece := await asyncio.to_thread(next, self._pieces, None)) is not None:
                yield piece
        finally:
            self.stop()

    @property
    def speed(self) -> float:
        """Tokens a second after the first one; 0 if there are none."""
        return (len(self.ids) - 1) / self.seconds if self.seconds else 0.0

    def _shown(self, stream: TextStream) -> Iterator[str]:
        try:
            for piece in self._bytes():
                text = stream.add(piece)
                self.text += text
                if stream.stopped:
                    self.ended = "stop"
                if text:
                    yield text
                if stream.stopped:
                    return
        except ContextFull:
            self.ended = "context"
            raise
        finally:
            self.text += (rest := stream.add(b"", last=True))
        if rest:
            yield rest

    def _bytes(self) -> Iterator[bytes]:
        """Of one token after the other; says why it ended."""
        model, choose, start = self._model, Sampler(self._choice), time.perf_counter()
        self.reused = model.session.held(self.prompt)
        is_new = model.kind == "encoder-decoder"
        text = [] if is_new else list(self.prompt)
        while len(self.ids) < self.most:
            logits = model.after(self.prompt, self.ids, lambda: self._is_stopped)
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
            if self._top is not None:
                self.logprobs.append(token_logprob(logits, token, self._top, model.vocabulary))
            if token in model.vocabulary.ends:
                self.ended = "end"
                return
            piece = model.vocabulary.piece(token)
            if is_new and piece:  # a new text has no space before its first word
                piece, is_new = piece.removeprefix(b" "), False
            yield piece
        self.ended = "most"


class Language:
    """A model's facts about text: vocabulary and chat template."""

    def __init__(self, text: TextAssets, words: int) -> None:
        """Raises InvalidModel.

        words: how many tokens the model has logits for
        """
        facts = text.facts
        self.name = facts.name
        self.vocabulary = vocabulary(text, words)
        self.kind: Kind = "encoder-decoder" if facts.starts else "decoder"
        self._template = ChatTemplate(facts.template, facts.texts) if facts.template else None

    @classmethod
    def of(cls, bundle: Bundle) -> Language:
        """The bundle's.  Raises InputError for a bundle without one, InvalidModel."""
        text = text_assets(bundle)
        shapes = {info.name: info.shape for info in bundle.manifest.outputs}
        words = (shapes.get(LOGITS) or (0,))[-1]
        return cls(text, words if isinstance(words, int) else 0)

    def check_chats(self) -> ChatTemplate:
        """The chat template.  Raises UsageError for a model that answers no messages, and says what
        it is for."""
        if self.kind == "encoder-decoder":
            raise UsageError(
                f"{self.name} does not chat: it is an encoder-decoder model, which writes one text "
                "from another, such as a title or a translation",
                hint="Call generate(text), in the terminal `tilewright generate --prompt TEXT`",
            )
        if self._template is None:
            raise UsageError(
                "the model has no chat template",
                hint="Let it go on with a text: `generate` without --chat, or `complete`",
            )
        return self._template

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """The ids of a chat.  Control tokens are those of the template: their names in messages are
        words.  Raises UsageError for a model without a template, InputError."""
        template = self.check_chats()
        wrong = [number for number, each in enumerate(messages) if not _is_message(each)]
        if wrong or not messages:
            raise InputError(
                f"message {wrong[0]} does not consist of texts" if wrong else "there is no message",
                hint='A message is {"role": "user", "content": "Hello"}',
            )
        hidden, stand_ins = self.vocabulary.control.hidden(messages, template.source)
        return self.vocabulary.encode(template.render(hidden), stand_ins=stand_ins)


def _is_message(found: object) -> bool:
    return (
        isinstance(found, Mapping)
        and {"role", "content"} <= found.keys()
        and all(isinstance(value, str) for value in found.values())
    )


class LanguageModel:
    """One model on one host, for one text at a time.  A context manager that closes it."""

    def __init__(
        self, language: Language, session: TextSession, host: str = "",
        close: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.language, self.session, self.host = language, session, host
        self.vocabulary = language.vocabulary
        self._close: Callable[[], None] | None = close
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        state = "closed" if self._close is None else f"{self.context} tokens of context"
        return f"<LanguageModel {self.name} on {self.host or 'a host'}, {state}>"

    def __enter__(self) -> LanguageModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        return self.language.name

    @property
    def kind(self) -> Kind:
        """ "decoder": it goes on with a prompt; "encoder-decoder": it writes a new text from it."""
        return self.language.kind

    @property
    def context(self) -> int:
        """The largest number of tokens of prompt and answer together; of the prompt alone, if the
        model is an encoder-decoder."""
        return self.session.room

    def close(self) -> None:
        """Ends the host.  An answer that is being made fails at its next token."""
        with self._lock:
            close, self._close = self._close, None
        if close is not None:
            close()

    def complete(
        self, prompt: str, most: int = 256, stop: str | Sequence[str] = (),
        logprobs: int | None = None, **choice: Unpack[SamplingOptions],
    ) -> Completion:  # fmt: skip
        """The text that follows the prompt; the arguments are those of `generate`.

        Raises UsageError for an encoder-decoder model, too.
        """
        if self.kind == "encoder-decoder":
            raise UsageError(
                f"{self.name} does not go on with a text: it writes a new one from it",
                hint="Call generate(text)",
            )
        return self.generate(prompt, most, stop, logprobs, **choice)

    def generate(
        self, prompt: str, most: int = 256, stop: str | Sequence[str] = (),
        logprobs: int | None = None, **choice: Unpack[SamplingOptions],
    ) -> Completion:  # fmt: skip
        """What a model of any kind writes from the prompt, in which names of control tokens mean
        these.

        most: the largest number of new tokens;  stop: texts that end it
        logprobs: whether the answer tells how likely its tokens were, and how many others it names
        choice: how tokens are chosen: temperature (0: always the likeliest), top_k, top_p, min_p,
        penalty, recent, seed, frequency_penalty, presence_penalty, logit_bias (by id)

        Raises UsageError.
        """
        return self._answer(self.vocabulary.encode(prompt), most, stop, logprobs, choice)

    def _answer(
        self, prompt: Sequence[int], most: int, stop: str | Sequence[str], logprobs: int | None,
        choice: SamplingOptions,
    ) -> Completion:  # fmt: skip
        if most < 1:
            raise UsageError(f"an answer cannot have {most} tokens", hint="Ask for one or more")
        if logprobs is not None and logprobs < 0:
            raise UsageError(f"there are no {logprobs} likeliest tokens", hint="Ask for 0 or more")
        stops = (stop,) if isinstance(stop, str) else tuple(stop)
        sampling = Sampling(**choice)
        sampling.check_ids(self.vocabulary.words)
        return Completion(self, prompt, most, sampling, stops, logprobs)

    def chat(
        self, messages: Sequence[Message], most: int = 1024, stop: str | Sequence[str] = (),
        logprobs: int | None = None, **choice: Unpack[SamplingOptions],
    ) -> Completion:  # fmt: skip
        """The answer to messages; the other arguments are those of `complete`.

        Raises UsageError for a model without a template, InputError for messages that it refuses.
        """
        return self._answer(self.language.prompt(messages), most, stop, logprobs, choice)

    def after(
        self, prompt: Sequence[int], written: Sequence[int], stopped: Stopped
    ) -> Array | None:
        """The logits, as of `TextSession.after`, for one thread at a time."""
        with self._lock:
            if self._close is None:
                raise UsageError("the model is closed", hint="Open it again")
            return self.session.after(prompt, written, stopped)
