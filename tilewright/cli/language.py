"""The commands of language models: `generate`, `chat` and `transcribe`.

Input: a model's file or folder or a bundle, and a prompt, a terminal or a recording.  Output: text
as it comes, or one JSON document.  The bundle of a model is built once and kept in a cache.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

import msgspec
import typer
from rich.text import Text

from tilewright.api.host_registry import HOSTS
from tilewright.base.errors import ContextFull, InputError, MemoryLimit, UsageError
from tilewright.cli.options import Json, Lookup, WeightBits
from tilewright.cli.output import Answer, progress

if TYPE_CHECKING:
    from tilewright.language import Completion, LanguageModel, TextAnswer, Transcript
    from tilewright.language.language_model import SamplingOptions

#: What a chat says when no token fits any more, by why.
FULL = {
    "context": "The context is full: /reset starts a new chat, --context allows more.",
    "memory": "There is no memory for a longer chat: /reset starts a new one, or free memory and "
    "go on.",
}
#: The exit code of a command that Ctrl-C ended.
INTERRUPTED = 130

LanguageModelFile = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL|BUNDLE",
        help="Read the model from a GGUF file, an exported .onnx file with its tokenizer, or a "
        "bundle's folder. A folder with such a file, with safetensors files, with a Whisper model "
        "of CTranslate2, or with encoder_model.onnx and decoder_model.onnx can be read, too.",
    ),
]
Most = Annotated[int, typer.Option(min=1, help="Write at most this number of new tokens.")]
System = Annotated[
    str | None, typer.Option(help="Give the model this instruction before the chat.")
]
Temperature = Annotated[
    float,
    typer.Option(help="Set how random the choice of a token is. 0 takes the likeliest token."),
]
TopK = Annotated[
    int, typer.Option(help="Choose among this number of likeliest tokens. 0 means all tokens.")
]
TopP = Annotated[
    float,
    typer.Option(help="Choose among the likeliest tokens that together have this probability."),
]
MinP = Annotated[
    float,
    typer.Option(
        help="Leave out tokens whose probability is below this share of the likeliest token's."
    ),
]
Penalty = Annotated[
    float,
    typer.Option(help="Make the last 64 tokens less likely to come again. 1 changes nothing."),
]
FrequencyPenalty = Annotated[
    float,
    typer.Option(
        help="Subtract this from a token's logit for each time that the answer has the token."
    ),
]
PresencePenalty = Annotated[
    float, typer.Option(help="Subtract this once from the logit of each token of the answer.")
]
LogitBias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ID=NUMBER",
        help="Add this number to the logit of this token. You can repeat this option.",
    ),
]
Seed = Annotated[int, typer.Option(help="Start the random choice from this number.")]
Schema = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write an answer that fits this JSON schema."),
]
Stops = Annotated[
    list[str] | None,
    typer.Option("--stop", help="End the answer at this text. You can repeat this option."),
]
Context = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Let the caches hold this number of tokens. By default 4096, or what the model was "
        "trained for if that is less.",
    ),
]
Host = Annotated[str, typer.Option(help=f"Run on this host: {', '.join(HOSTS)}.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Use this number of threads. By default one per core.")
]
Cache = Annotated[
    Path | None,
    typer.Option(help="Keep built models in this folder. By default in the user's cache folder."),
]


def generate(
    model: LanguageModelFile,
    prompt: Annotated[str, typer.Option(help="Continue this text, or answer this message.")],
    chat: Annotated[
        bool, typer.Option("--chat", help="Put the prompt into the model's chat template.")
    ] = False,
    system: System = None,
    most: Most = 256,
    temperature: Temperature = 0.0,
    top_k: TopK = 40,
    top_p: TopP = 0.95,
    min_p: MinP = 0.05,
    penalty: Penalty = 1.0,
    frequency_penalty: FrequencyPenalty = 0.0,
    presence_penalty: PresencePenalty = 0.0,
    logit_bias: LogitBias = None,
    seed: Seed = 0,
    stop: Stops = None,
    schema: Schema = None,
    context: Context = None,
    weights: WeightBits = None,
    host: Host = "wasmtime",
    threads: Threads = None,
    lookup: Lookup = False,
    cache: Cache = None,
    as_json: Json = False,
) -> Answer:
    """Let a language model continue a text, answer one message, or write from a text."""
    if system is not None and not chat:
        raise UsageError("--system is for chats", hint="Add --chat")
    choice = _choice(
        temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, penalty=penalty, seed=seed,
        frequency_penalty=frequency_penalty, presence_penalty=presence_penalty,
        logit_bias=_biases(logit_bias or ()),
    )  # fmt: skip
    fits = None if schema is None else _schema(schema)
    with _opened(model, host, threads, context, weights, cache, as_json, lookup) as lm:
        if chat:
            answer = lm.chat(_messages(system, prompt), most, stop or (), schema=fits, **choice)
        else:
            answer = lm.generate(prompt, most, stop or (), schema=fits, **choice)
        with _interrupts(answer):
            code = _shown(answer, None if as_json else _write)
    if not as_json:
        _say_behind(_figures(answer) + _rounding(lm))
    return Answer(_data(answer, lm), Text(""), code)


def chat(
    model: LanguageModelFile,
    system: System = None,
    most: Most = 1024,
    temperature: Temperature = 0.0,
    top_k: TopK = 40,
    top_p: TopP = 0.95,
    min_p: MinP = 0.05,
    penalty: Penalty = 1.0,
    frequency_penalty: FrequencyPenalty = 0.0,
    presence_penalty: PresencePenalty = 0.0,
    logit_bias: LogitBias = None,
    seed: Seed = 0,
    context: Context = None,
    weights: WeightBits = None,
    host: Host = "wasmtime",
    threads: Threads = None,
    lookup: Lookup = False,
    cache: Cache = None,
) -> Answer:
    """Talk to a language model in the terminal."""
    choice = _choice(
        temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, penalty=penalty, seed=seed,
        frequency_penalty=frequency_penalty, presence_penalty=presence_penalty,
        logit_bias=_biases(logit_bias or ()),
    )  # fmt: skip
    with _opened(model, host, threads, context, weights, cache, lookup=lookup) as lm:
        lm.language.check_chats()
        _say(f"{lm.name}: {lm.context} tokens of context on {host}.{_rounding(lm)}")
        _say("/reset starts a new chat, Ctrl-C stops an answer, /bye or Ctrl-D ends the chat.")
        messages = _messages(system)
        while (line := _line()) is not None:
            if line == "/bye":
                break
            if line == "/reset":
                messages = _messages(system)
            elif line:
                messages = _turn(lm, messages, line, most, choice)
    return Answer({}, Text(""))


def transcribe(
    model: LanguageModelFile,
    recording: Annotated[
        Path, typer.Argument(help="Read this .wav file of 16-bit PCM, of any length and rate.")
    ],
    language: Annotated[
        str,
        typer.Option(
            help="Expect this language, such as en. By default the model hears which one."
        ),
    ] = "",
    translate: Annotated[
        bool, typer.Option("--translate", help="Write English, whatever is spoken.")
    ] = False,
    weights: WeightBits = None,
    host: Host = "wasmtime",
    threads: Threads = None,
    cache: Cache = None,
    as_json: Json = False,
) -> Answer:
    """Write down what is said in a recording, with a Whisper model."""
    with _opened(model, host, threads, None, weights, cache, as_json) as lm:
        start = time.perf_counter()
        said = lm.transcribe(recording, language, "translate" if translate else "transcribe")
        with _interrupts(said):
            code = _shown(said, None if as_json else _write)
        took = time.perf_counter() - start
    if not as_json:
        _say_behind(f"[{said.duration:.1f} s of sound in {took:.1f} s]" + _rounding(lm))
    return Answer({**_transcript_data(said, lm), "seconds": took}, Text(""), code)


def _transcript_data(said: Transcript, lm: LanguageModel) -> dict[str, object]:
    return {
        "text": said.text,
        "ids": said.ids,
        "ended": said.ended,
        "language": said.language or None,
        "duration_seconds": said.duration,
        "host": lm.host,
        **_weights_data(lm),
        "first_seconds": said.first,
        "tokens_per_second": said.speed,
    }


def _weights_data(lm: LanguageModel) -> dict[str, object]:
    weights = lm.vocabulary.facts.weights
    return {
        "weight_bits": weights.bits if weights else None,
        "weight_error": weights.error if weights else None,
    }


def _turn(
    lm: LanguageModel, messages: list[dict[str, str]], line: str, most: int, choice: SamplingOptions
) -> list[dict[str, str]]:
    """The chat with the message and its answer added; the old chat if the answer could not
    begin."""
    asked = [*messages, {"role": "user", "content": line}]
    try:
        answer = lm.chat(asked, most, **choice)
        with _interrupts(answer):
            _shown(answer, _write)
    except (InputError, MemoryLimit) as error:
        _say(f"{error.message}. {error.hint}.")
        return messages
    _write("\n")
    _say(_figures(answer))
    if answer.ended in FULL:
        _say(FULL[answer.ended])
        if not answer.ids:
            return messages
    return [*asked, {"role": "assistant", "content": answer.text}]


def _messages(system: str | None, *user: str) -> list[dict[str, str]]:
    before = [{"role": "system", "content": system}] if system is not None else []
    return [*before, *({"role": "user", "content": text} for text in user)]


# ---- words in and out ----------------------------------------------------------------------------


def _shown(answer: TextAnswer, show: Callable[[str], None] | None) -> int:
    """Generates and shows the answer; returns the exit code."""
    try:
        for piece in answer:
            if show is not None:
                show(piece)
    except (ContextFull, MemoryLimit) as error:
        if not answer.ids:
            raise  # the prompt itself is too long
        return error.exit_code
    return INTERRUPTED if answer.ended == "stopped" else 0


def _write(text: str) -> None:
    """Writes text to stdout.  On a terminal, control characters of the text are replaced."""
    if sys.stdout.isatty():
        text = "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text)
    sys.stdout.write(text)
    sys.stdout.flush()


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _say_behind(text: str) -> None:
    """Behind an answer on stdout, which ends with its line when the command does."""
    is_below = sys.stdout.isatty() and sys.stderr.isatty()
    _say("\n" + text if is_below else text)


def _line() -> str | None:
    """The next line that the user types; None at the end of input.  Ctrl-C discards the line."""
    while True:
        try:
            return input("> " if sys.stdin.isatty() else "").strip()
        except EOFError:
            return None
        except KeyboardInterrupt:
            _say("")


def _figures(answer: Completion) -> str:
    read = len(answer.prompt) - answer.reused
    ends = {
        "most": "; --most allows more", "context": "; the context is full",
        "memory": "; there is no memory for a longer text",
    }  # fmt: skip
    end = ends.get(answer.ended or "", "")
    return (
        f"[{read} tokens read in {answer.first:.2f} s, "
        f"{len(answer.ids)} written, {answer.speed:.1f} a second{end}]"
    )


def _rounding(lm: LanguageModel) -> str:
    """How exact the model's weights are, if they were rounded."""
    weights = lm.vocabulary.facts.weights
    return f" Weights of {weights.bits} bits, error {weights.error:.2%}." if weights else ""


def _data(answer: Completion, lm: LanguageModel) -> dict[str, object]:
    return {
        "text": answer.text,
        "ids": answer.ids,
        "ended": answer.ended,
        "prompt_tokens": len(answer.prompt),
        "host": lm.host,
        **_weights_data(lm),
        "first_seconds": answer.first,
        "tokens_per_second": answer.speed,
    }


def _choice(**choice: Unpack[SamplingOptions]) -> SamplingOptions:
    """Checked before the model is opened, which may take long."""
    from tilewright.language import Sampling

    Sampling(**choice)
    return choice


def _schema(file: Path) -> dict[str, object]:
    """Raises UsageError."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, object])
    except (OSError, msgspec.MsgspecError, RecursionError) as cause:
        raise UsageError(
            f"--schema {file} cannot be read: {cause}"[:300],
            hint="Give a file with a JSON schema, which is an object",
        ) from cause


def _biases(given: Sequence[str]) -> dict[int, float]:
    """Of options ID=NUMBER.  Raises UsageError."""
    found = {}
    for text in given:
        token, _, value = text.partition("=")
        try:
            found[int(token)] = float(value)
        except ValueError as cause:
            raise UsageError(
                f"--logit-bias {text} is not a token's id and a number",
                hint="Write --logit-bias 42=-100; `generate --json` tells the ids of an answer",
            ) from cause
    return found


@contextmanager
def _interrupts(answer: TextAnswer) -> Generator[None]:
    """While inside, Ctrl-C only stops the answer; a second one ends the command."""
    pressed = False

    def press(_number: int, _frame: object) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        answer.stop()

    before = signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _opened(
    model: Path, host: str, threads: int | None, context: int | None, weights: int | None,
    cache: Path | None, as_json: bool = False, lookup: bool = False,
) -> LanguageModel:  # fmt: skip
    from tilewright.api.language import language_model

    with progress(as_json) as report:
        return language_model(model, host, threads, context, weights, cache, report, lookup)
