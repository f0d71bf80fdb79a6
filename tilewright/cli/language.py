"""The commands of language models: `generate` and `chat`.

Input: a GGUF file, a prompt or a terminal.  Output: text as it comes, or one JSON document.  The
bundle of a file is built once and kept in a cache; models are in tilewright/language.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tilewright.base.compiler_digest import compiler_name
from tilewright.base.errors import ContextFull, InputError, UsageError
from tilewright.bundle import is_bundle, open_bundle, write
from tilewright.cli.hosts import HOSTS, check_host, open_runner, targets_of, variants_of
from tilewright.cli.options import Json
from tilewright.cli.output import Answer, progress

if TYPE_CHECKING:
    from tilewright.frontend.gguf import GgufModel
    from tilewright.language import Completion, LanguageModel, Run, Sampling

#: Tokens that the caches hold, if the model was trained for as many.
CONTEXT = 4096
#: New tokens of a run: one, and parts of prompts.
ROWS = (1, 8, 64)
#: The exit code of a command that Ctrl-C ended.
INTERRUPTED = 130

ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A GGUF file.")]
Most = Annotated[int, typer.Option(min=1, help="The largest number of new tokens.")]
System = Annotated[str | None, typer.Option(help="What the model is told before the chat.")]
Temperature = Annotated[
    float, typer.Option(help="How random the choice is; 0 takes the likeliest token.")
]
TopK = Annotated[int, typer.Option(help="Choose among so many tokens; 0: all.")]
TopP = Annotated[float, typer.Option(help="Choose among those of this probability together.")]
MinP = Annotated[
    float, typer.Option(help="Leave out tokens below this share of the likeliest one's.")
]
Penalty = Annotated[float, typer.Option(help="Makes tokens of the last 64 less likely; 1: not.")]
Seed = Annotated[int, typer.Option(help="Of the random choice.")]
Stops = Annotated[
    list[str] | None, typer.Option("--stop", help="A text that ends the answer; repeatable.")
]
Context = Annotated[
    int | None,
    typer.Option(min=1, help=f"Tokens that fit, by default {CONTEXT} if the model allows it."),
]
Host = Annotated[str, typer.Option(help=f"Where to run: {', '.join(HOSTS)}.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Number of threads; by default as many as cores.")
]
Cache = Annotated[
    Path | None, typer.Option(help="Where built models are kept, by default the user's cache.")
]


def generate(
    model: ModelFile,
    prompt: Annotated[str, typer.Option(help="The text to go on with, or a user's message.")],
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
    seed: Seed = 0,
    stop: Stops = None,
    context: Context = None,
    host: Host = "wasmtime",
    threads: Threads = None,
    cache: Cache = None,
    as_json: Json = False,
) -> Answer:
    """Let a language model go on with a text, or answer one message."""
    if system is not None and not chat:
        raise UsageError("--system is for chats", hint="Add --chat")
    choice = _choice(temperature, top_k, top_p, min_p, penalty, seed)
    with (
        _opened(_Where(model, host, threads, context, cache), as_json) as lm,
        _interrupts() as is_over,
    ):
        if chat:
            answer = lm.chat(_messages(system, prompt), most, choice, stop or (), is_over)
        else:
            answer = lm.complete(prompt, most, choice, stop or (), is_over)
        code = _shown(answer, None if as_json else _write)
    if not as_json:
        _say(_figures(answer))
    return Answer(_data(answer, host), Text(""), code)


def chat(
    model: ModelFile,
    system: System = None,
    most: Most = 1024,
    temperature: Temperature = 0.0,
    top_k: TopK = 40,
    top_p: TopP = 0.95,
    min_p: MinP = 0.05,
    penalty: Penalty = 1.0,
    seed: Seed = 0,
    context: Context = None,
    host: Host = "wasmtime",
    threads: Threads = None,
    cache: Cache = None,
) -> Answer:
    """Talk to a language model in the terminal."""
    choice = _choice(temperature, top_k, top_p, min_p, penalty, seed)
    with _opened(_Where(model, host, threads, context, cache), False) as lm:
        _say(f"{lm.language.name}: {lm.session.room} tokens of context on {host}.")
        _say("/reset begins anew, Ctrl-C stops an answer, /bye or Ctrl-D ends the chat.")
        messages = _messages(system)
        while (line := _line()) is not None:
            if line == "/bye":
                break
            if line == "/reset":
                messages = _messages(system)
            elif line:
                messages = _turn(lm, messages, line, most, choice)
    return Answer({}, Text(""))


def _turn(
    lm: LanguageModel, messages: list[dict[str, str]], line: str, most: int, choice: Sampling
) -> list[dict[str, str]]:
    """The chat with the message and its answer; without both if the answer could not begin."""
    asked = [*messages, {"role": "user", "content": line}]
    try:
        with _interrupts() as is_over:
            answer = lm.chat(asked, most, choice, stopped=is_over)
            full = _shown(answer, _write) == ContextFull.exit_code
    except InputError as error:
        _say(f"{error.message}. {error.hint}.")
        return messages
    _write("\n")
    _say(_figures(answer))
    if full:
        _say("The context is full: /reset begins anew, --context allows more.")
        if not answer.ids:
            return messages
    return [*asked, {"role": "assistant", "content": answer.text}]


def _messages(system: str | None, *user: str) -> list[dict[str, str]]:
    before = [{"role": "system", "content": system}] if system is not None else []
    return [*before, *({"role": "user", "content": text} for text in user)]


# ---- words in and out ----------------------------------------------------------------------------


def _shown(answer: Completion, show: Callable[[str], None] | None) -> int:
    """Runs the answer to its end; gives the exit code."""
    try:
        for piece in answer:
            if show is not None:
                show(piece)
    except ContextFull:
        if not answer.ids:
            raise  # the prompt itself is too long
        return ContextFull.exit_code
    return INTERRUPTED if answer.ended == "stopped" else 0


def _write(text: str) -> None:
    """To stdout.  A model's text must not steer the terminal."""
    if sys.stdout.isatty():
        text = "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text)
    sys.stdout.write(text)
    sys.stdout.flush()


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _line() -> str | None:
    """What the user types; None at its end.  Ctrl-C drops the line."""
    while True:
        try:
            return input("> " if sys.stdin.isatty() else "").strip()
        except EOFError:
            return None
        except KeyboardInterrupt:
            _say("")


def _figures(answer: Completion) -> str:
    read = len(answer.prompt) - answer.reused
    end = {"most": "; --most allows more", "context": "; the context is full"}.get(answer.ended, "")
    return (
        f"[{read} tokens read in {answer.first:.2f} s, "
        f"{len(answer.ids)} written, {answer.speed:.1f} a second{end}]"
    )


def _data(answer: Completion, host: str) -> dict[str, object]:
    return {
        "text": answer.text,
        "ids": answer.ids,
        "ended": answer.ended,
        "prompt_tokens": len(answer.prompt),
        "host": host,
        "first_seconds": answer.first,
        "tokens_per_second": answer.speed,
    }


def _choice(
    temperature: float, top_k: int, top_p: float, min_p: float, penalty: float, seed: int
) -> Sampling:
    from tilewright.language import Sampling

    return Sampling(temperature, top_k, top_p, min_p, penalty, seed=seed)


@contextmanager
def _interrupts() -> Generator[Callable[[], bool]]:
    """While inside, Ctrl-C only makes the function give True; a second one ends the command."""
    pressed = False

    def press(_number: int, _frame: object) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)


# ---- opening -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Where:
    """A model and where it runs."""

    model: Path
    host: str
    threads: int | None
    context: int | None
    cache: Path | None


@contextmanager
def _opened(where: _Where, as_json: bool) -> Generator[LanguageModel]:
    """The model on its host; it is built if it is not in the cache."""
    from tilewright.frontend.gguf import GgufModel, is_gguf, read_gguf
    from tilewright.language import CacheSession, Language, LanguageModel

    check_host(where.host)
    if where.model.is_file() and not is_gguf(where.model):
        raise UsageError(
            "this is no GGUF file",
            hint="Language models are read from GGUF files",
            path=where.model,
        )
    model = GgufModel(read_gguf(where.model), where.context or 0, most=CONTEXT)
    language = Language(model)
    folder = _built(model, where, as_json)
    manifest = open_bundle(folder).manifest
    with _runner(where, folder) as run:
        yield LanguageModel(language, CacheSession(run, manifest))


@contextmanager
def _runner(where: _Where, folder: Path) -> Generator[Run]:
    """A function that runs the bundle."""
    if where.host != "wasmtime":
        with open_runner(where.host, folder, where.threads) as run:
            yield lambda inputs: run(inputs).outputs
        return
    from tilewright.hosts.wasmtime import WasmtimeHost

    # without a limit of time, which costs speed: the bundle is our own
    host = WasmtimeHost(folder, threads=where.threads or len(os.sched_getaffinity(0)))
    yield lambda inputs: host.run(inputs).outputs


def _built(model: GgufModel, where: _Where, as_json: bool) -> Path:
    """The folder of the model's bundle."""
    from tilewright.compiler import Options, compile_model
    from tilewright.frontend.language import ROWS as NAME

    rows = tuple(n for n in ROWS if n <= model.room)
    options = Options(
        buckets={NAME: rows}, states=model.states, targets=targets_of(where.host),
        variants=variants_of(where.host),
    )  # fmt: skip
    with progress(as_json) as report:
        report("reading the file", 0, 1)
        digest = _digest(
            where.model, (compiler_name(), model.room, rows, options.targets, options.variants)
        )
        folder = _cache(where.cache) / digest
        if is_bundle(folder):
            return folder
        compiled = compile_model(model, replace(options, name=model.name), report)
        report("writing weights", 0, 1)
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix="building-", dir=folder.parent))
        try:
            write(compiled.contents, made)
            if not is_bundle(folder):
                made.rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return folder


def _digest(path: Path, what: Sequence[object]) -> str:
    """Of the file's contents and of how it is built."""
    with path.open("rb") as file:
        contents = hashlib.file_digest(file, "sha256").hexdigest()
    return hashlib.sha256(repr((contents, *what)).encode()).hexdigest()[:32]


def _cache(given: Path | None) -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return given or (Path(base) if base else Path.home() / ".cache") / "tilewright" / "language"
