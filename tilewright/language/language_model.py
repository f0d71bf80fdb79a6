"""A language model that answers: vocabulary, chat template, caches and the choice of tokens.

Input: a bundle's text assets, and a session on the bundle's host.  Output: `Completion`s, which
give their text piece by piece.  It compiles nothing and opens no host.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, Protocol, TypedDict, Unpack

from tilewright.base.errors import InputError, UsageError
from tilewright.base.numpy_scalars import Array
from tilewright.bundle import Bundle
from tilewright.frontend.language import LOGITS
from tilewright.language.assets import SpeechFacts, TextAssets, text_assets
from tilewright.language.cache_session import Stopped
from tilewright.language.json_schema import JsonSchema, SchemaMatcher, SchemaMatchers
from tilewright.language.logprobs import TokenLogprob, token_logprob
from tilewright.language.recording_session import RecordingSession
from tilewright.language.recordings import Recording, samples_of
from tilewright.language.sampling import Sampler, Sampling
from tilewright.language.template import ChatTemplate, Message
from tilewright.language.text_answer import TextAnswer
from tilewright.language.transcript import Hearing, Transcript
from tilewright.language.vocabulary import vocabulary

#: What a model does: it goes on with a prompt, writes a new text from it, or writes what is said.
Kind = Literal["decoder", "encoder-decoder", "speech"]

#: What models of a kind are for, and how to use them.
PURPOSES: Mapping[Kind, tuple[str, str]] = {
    "decoder": (
        "it is a language model, which goes on with a text",
        "Call generate(text), in the terminal `tilewright generate MODEL --prompt TEXT`",
    ),
    "encoder-decoder": (
        "it is an encoder-decoder model, which writes one text from another, such as a title or a "
        "translation",
        "Call generate(text), in the terminal `tilewright generate MODEL --prompt TEXT`",
    ),
    "speech": (
        "it is a speech model, which writes what is said in a recording",
        "Call transcribe(recording), in the terminal `tilewright transcribe MODEL recording.wav`",
    ),
}


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


class Completion(TextAnswer):
    """An answer to a prompt.  Iterating raises ContextFull when no token fits any more,
    and MemoryLimit when there is no memory for more tokens; the caches keep those before.

    prompt: ids of the prompt;  reused: how many of them the caches held
    logprobs: how likely each of the ids was, if that was asked for
    """

    def __init__(
        self, model: LanguageModel, prompt: Sequence[int], most: int, choice: Sampling,
        stops: Sequence[str], logprobs: int | None, matcher: SchemaMatcher | None,
    ) -> None:  # fmt: skip
        super().__init__(stops)
        self.prompt, self.most = prompt, most
        self.logprobs: list[TokenLogprob] = []
        self.reused = 0
        self._model, self._choice, self._top, self._matcher = model, choice, logprobs, matcher

    def __repr__(self) -> str:
        how = f"ended: {self.ended}" if self.ended else "not ended"
        return f"<Completion of {len(self.prompt)} + {len(self.ids)} tokens, {how}>"

    def _bytes(self) -> Iterator[bytes]:
        model, choose = self._model, Sampler(self._choice)
        self.reused = model.held(self.prompt)
        is_new = model.kind == "encoder-decoder"
        text = [] if is_new else list(self.prompt)
        while len(self.ids) < self.most:
            logits = model.after(self.prompt, self.ids, lambda: self._is_stopped)
            if logits is None:
                self.ended = "stopped"
                return
            token = choose(logits, text, self._matcher.allowed() if self._matcher else None)
            self._add(token)
            text.append(token)
            if self._top is not None:
                self.logprobs.append(token_logprob(logits, token, self._top, model.vocabulary))
            if token in model.vocabulary.ends:
                self.ended = "end"
                return
            if self._matcher:
                self._matcher.take(token)
            piece = model.vocabulary.piece(token)
            if is_new and piece:  # a new text has no space before its first word
                piece, is_new = piece.removeprefix(b" "), False
            yield piece
            if self._matcher and self._matcher.is_complete:
                self.ended = "end"
                return
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
        self.speech = facts.speech
        self.kind: Kind = (
            "speech" if facts.speech else "encoder-decoder" if facts.starts else "decoder"
        )
        self.schemas = SchemaMatchers(self.vocabulary)
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
        if self.kind != "decoder":
            raise self.refusal("chat")
        if self._template is None:
            raise UsageError(
                "the model has no chat template",
                hint="Let it go on with a text: `generate` without --chat, or `complete`",
            )
        return self._template

    def refusal(self, what: str) -> UsageError:
        """The error for what a model of this kind does not do."""
        purpose, hint = PURPOSES[self.kind]
        return UsageError(f"{self.name} does not {what}: {purpose}", hint=hint)

    def check_hears(self, language: str, task: str) -> SpeechFacts:
        """Raises UsageError for a model that reads text, or does not know the language or task."""
        if self.speech is None:
            raise self.refusal("hear")
        for what, asked, known in (
            ("language", language, self.speech.languages), ("task", task, self.speech.tasks)
        ):  # fmt: skip
            if asked and asked not in known and (known or asked not in ("en", "transcribe")):
                raise UsageError(
                    f"{self.name} does not know the {what} {asked[:40]!r}",
                    hint=f"It knows {', '.join(known)}" if known else "It transcribes English",
                )
        return self.speech

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
        self, language: Language, session: TextSession | RecordingSession, host: str = "",
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
        """ "decoder": it goes on with a prompt; "encoder-decoder": it writes a new text from it;
        "speech": it writes what is said in a recording."""
        return self.language.kind

    @property
    def context(self) -> int:
        """The largest number of tokens of prompt and answer together; of the prompt alone, if the
        model is an encoder-decoder; of the text of 30 seconds, if it is a speech model."""
        return self.session.room

    def close(self) -> None:
        """Ends the host.  An answer that is being made fails at its next token."""
        with self._lock:
            close, self._close = self._close, None
        if close is not None:
            close()

    def complete(
        self, prompt: str, most: int = 256, stop: str | Sequence[str] = (),
        logprobs: int | None = None, schema: JsonSchema | None = None,
        **choice: Unpack[SamplingOptions],
    ) -> Completion:  # fmt: skip
        """The text that follows the prompt; the arguments are those of `generate`.

        Raises UsageError for models of other kinds, too.
        """
        if self.kind != "decoder":
            raise self.language.refusal("go on with a text")
        return self.generate(prompt, most, stop, logprobs, schema, **choice)

    def generate(
        self, prompt: str, most: int = 256, stop: str | Sequence[str] = (),
        logprobs: int | None = None, schema: JsonSchema | None = None,
        **choice: Unpack[SamplingOptions],
    ) -> Completion:  # fmt: skip
        """What a model writes from the prompt, in which names of control tokens mean these.

        most: the largest number of new tokens;  stop: texts that end it
        logprobs: whether the answer tells how likely its tokens were, and how many others it names
        schema: a JSON schema, which an answer that has come to its end fits
        choice: how tokens are chosen: temperature (0: always the likeliest), top_k, top_p, min_p,
        penalty, recent, seed, frequency_penalty, presence_penalty, logit_bias (by id)

        Raises UsageError.
        """
        return self._answer(self.vocabulary.encode(prompt), most, stop, logprobs, schema, choice)

    def _answer(
        self, prompt: Sequence[int], most: int, stop: str | Sequence[str], logprobs: int | None,
        schema: JsonSchema | None, choice: SamplingOptions,
    ) -> Completion:  # fmt: skip
        if self.kind == "speech":
            raise self.language.refusal("read text")
        if most < 1:
            raise UsageError(f"an answer cannot have {most} tokens", hint="Ask for one or more")
        if logprobs is not None and logprobs < 0:
            raise UsageError(f"there are no {logprobs} likeliest tokens", hint="Ask for 0 or more")
        stops = (stop,) if isinstance(stop, str) else tuple(stop)
        if schema is not None and any(stops):
            raise UsageError(
                "a stop text would cut the JSON of a schema",
                hint="Leave out the stop texts: the answer ends with its JSON", option="stop",
            )  # fmt: skip
        sampling = Sampling(**choice)
        sampling.check_ids(self.vocabulary.words)
        matcher = None if schema is None else self.language.schemas.matcher(schema)
        return Completion(self, prompt, most, sampling, stops, logprobs, matcher)

    def chat(
        self, messages: Sequence[Message], most: int = 1024, stop: str | Sequence[str] = (),
        logprobs: int | None = None, schema: JsonSchema | None = None,
        **choice: Unpack[SamplingOptions],
    ) -> Completion:  # fmt: skip
        """The answer to messages; the other arguments are those of `complete`.

        Raises UsageError for a model without a template, InputError for messages that it refuses.
        """
        return self._answer(self.language.prompt(messages), most, stop, logprobs, schema, choice)

    def transcribe(
        self, recording: Recording, language: str = "", task: str = "transcribe"
    ) -> Transcript:
        """What is said in a recording of any length, computed while it is read.

        recording: the path of a .wav file of 16-bit PCM, or samples of 16 kHz from -1 to 1
        language:  its code, such as "en", for models that know several; by default it is heard
        task:      "transcribe", or "translate" into English

        Raises UsageError for a model that reads text, InputError.
        """
        facts = self.language.check_hears(language, task)
        samples, session = samples_of(recording, facts.rate), self._recordings
        hearing = Hearing(session.room, session.window, self._heard)
        return Transcript(hearing, self.vocabulary, facts, samples, language, task)

    def held(self, ids: Sequence[int]) -> int:
        """How many tokens of a prompt need not be computed."""
        return self._texts.held(ids)

    def after(
        self, prompt: Sequence[int], written: Sequence[int], stopped: Stopped
    ) -> Array | None:
        """The logits, as of `TextSession.after`, for one thread at a time."""
        with self._open():
            return self._texts.after(prompt, written, stopped)

    def _heard(self, samples: Array, ids: Sequence[int], stopped: Stopped) -> Array | None:
        with self._open():
            return self._recordings.after(samples, ids, stopped)

    @contextmanager
    def _open(self) -> Generator[None]:
        with self._lock:
            if self._close is None:
                raise UsageError("the model is closed", hint="Open it again")
            yield

    @property
    def _texts(self) -> TextSession:
        if isinstance(self.session, RecordingSession):
            raise self.language.refusal("read text")
        return self.session

    @property
    def _recordings(self) -> RecordingSession:
        if not isinstance(self.session, RecordingSession):
            raise self.language.refusal("hear")
        return self.session
