"""`tilewright generate` and `tilewright chat`, on a tiny model without training."""

from __future__ import annotations

import io
import json
import signal
import threading
from pathlib import Path
from typing import Any

import onnx
import pytest
from cli_call import Called
from helpers.gguf_files import Tiny, write_tiny
from helpers.llama import llama
from helpers.vocabularies import merges, pieces

from tilewright.base.errors import MemoryLimit
from tilewright.bundle import open_bundle
from tilewright.cli import language, main
from tilewright.hosts.wasmtime import SharedBytes, WasmtimeHost

SMALL = {"layers": 1, "width": 32, "heads": 2, "kv_heads": 1, "hidden": 32, "words": 300}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, and the cache that all tests share."""
    made = tmp_path_factory.mktemp("language")
    write_tiny(made / "model.gguf", Tiny(room=128, text=merges().write, type="Q4_0", **SMALL))
    plain = SMALL | {"words": 400}
    write_tiny(made / "plain.gguf", Tiny(room=16, text=pieces().write, **plain))
    return made


@pytest.fixture
def call(folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def called(command: str, *more: object, model: str = "model") -> Called:
        cache = ("--cache", folder / "cache", "--threads", 1)
        return Called(capsys, command, folder / f"{model}.gguf", *cache, *more)

    return called


def test_generate_as_text_and_as_json(call: Any) -> None:
    found = call("generate", "--prompt", "the cat", "--most", 6, "--json").json
    assert (found["prompt_tokens"] > 1, found["host"]) == (True, "wasmtime")
    assert len(found["ids"]) == 6 or found["ended"] == "end"
    shown = call("generate", "--prompt", "the cat", "--most", 6)
    assert (shown.code, shown.out) == (0, found["text"] + "\n")
    assert "a second" in shown.err


def test_the_built_model_is_used_again(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = call("generate", "--prompt", "a", "--most", 2, "--json").json
    monkeypatch.setattr("tilewright.compiler.compile_model", None)
    assert call("generate", "--prompt", "a", "--most", 2, "--json").json["ids"] == first["ids"]


@pytest.fixture(scope="module")
def bundle(folder: Path) -> Path:
    """The model as a bundle, and no file of it beside."""
    with pytest.raises(SystemExit) as ended:
        main(["build", str(folder / "model.gguf"), "-o", str(folder / "bundle")])
    assert ended.value.code == 0
    return folder / "bundle"


def test_a_bundle_needs_no_file(call: Any, bundle: Path, capsys: Any, typed: Any) -> None:
    asked = ("--prompt", "the cat", "--most", 6, "--chat", "--json")
    expected, found = call("generate", *asked).json, Called(capsys, "generate", bundle, *asked).json
    assert found["ids"] == expected["ids"]
    typed("the cat", "/bye")
    assert Called(capsys, "chat", bundle, "--most", 6).out == expected["text"] + "\n\n"
    names = [asset.name for asset in open_bundle(bundle).manifest.assets]
    assert names == ["tokenizer.json", "language.json"]


def test_bundles_that_cannot_be_used(capsys: Any, bundle: Path, tmp_path: Path) -> None:
    asked = ("--prompt", "a", "--json")
    found = Called(capsys, "generate", bundle, "--context", 64, *asked)
    assert (found.code, found.json["error"]["code"]) == (2, "usage")
    found = Called(capsys, "generate", tmp_path, *asked)
    assert (found.code, found.json["error"]["code"]) == (6, "bundle-corrupt")
    onnx.save(llama(), tmp_path / "llama.onnx")
    made = ("--state", "past_key_values.*=present.*", "--buckets", "n=1,8", "-o", tmp_path / "b")
    assert Called(capsys, "build", tmp_path / "llama.onnx", *made).code == 0
    found = Called(capsys, "generate", tmp_path / "b", *asked)
    assert (found.code, found.json["error"]["code"]) == (5, "input")
    assert "tokenizer.json" in found.json["error"]["message"]


def test_context_of_a_built_model(call: Any, capsys: Any, folder: Path, tmp_path: Path) -> None:
    model, to = folder / "model.gguf", tmp_path / "b"
    assert Called(capsys, "build", model, "-o", to, "--context", 16).code == 0
    assert open_bundle(to).manifest.states[0].shape[-2] == 16
    onnx.save(llama(), tmp_path / "llama.onnx")
    found = Called(capsys, "build", tmp_path / "llama.onnx", "-o", to, "--context", 16, "--json")
    assert (found.code, found.json["error"]["code"]) == (2, "usage")


def test_random_choices_follow_the_seed(call: Any) -> None:
    def ids(seed: int) -> list[int]:
        options = ("--temperature", 2, "--top-k", 0, "--top-p", 1, "--min-p", 0, "--most", 12)
        made: list[int] = call(
            "generate", "--prompt", "a", *options, "--seed", seed, "--json"
        ).json["ids"]
        return made

    assert ids(1) == ids(1) != ids(2)


def test_penalties_and_biases(call: Any) -> None:
    def ids(*options: object) -> list[int]:
        made: list[int] = call("generate", "--prompt", "a", "--most", 8, *options, "--json").json[
            "ids"
        ]
        return made

    plain = ids()
    assert ids("--logit-bias", f"{plain[0]}=-100", "--logit-bias", "7=100") == [7] * 8
    assert len(set(ids("--frequency-penalty", 50))) == 8
    assert len(set(ids("--presence-penalty", 50))) == 8


def test_a_schema(call: Any, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
              "additionalProperties": False}  # fmt: skip
    file.write_text(json.dumps(schema))
    found = call("generate", "--chat", "--prompt", "a", "--schema", file, "--json").json
    assert set(json.loads(found["text"])) == {"ok"}
    assert found["ended"] == "end"
    for text, word in (("[]", "object"), ("{", "cannot be read"), ('{"not": {}}', "not supported")):
        file.write_text(text)
        found = call("generate", "--prompt", "a", "--schema", file, "--json")
        assert (found.code, word in found.json["error"]["message"]) == (2, True)
    assert call("generate", "--prompt", "a", "--schema", tmp_path / "none", "--json").code == 2


def test_chat_in_one_call(call: Any) -> None:
    plain = call("generate", "--prompt", "a", "--most", 1, "--json").json
    found = call("generate", "--prompt", "a", "--most", 1, "--chat", "--json").json
    more = call("generate", "--prompt", "a", "--most", 1, "--chat", "--system", "be", "--json").json
    assert plain["prompt_tokens"] < found["prompt_tokens"] < more["prompt_tokens"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--prompt", "a", "--system", "b"), 2, "--add --chat"),
        (("--prompt", ""), 5, "empty"),
        (("--prompt", "a b c d " * 50), 5, "context-full"),
        (("--prompt", "a", "--context", 999), 2, "trained for 128"),
        (("--prompt", "a", "--temperature", -1), 2, "cannot choose a token"),
        (("--prompt", "a", "--logit-bias", "7"), 2, "id and a number"),
        (("--prompt", "a", "--logit-bias", "300=1"), 2, "the model has 300"),
        (("--prompt", "a", "--frequency-penalty", "nan"), 2, "finite"),
        (("--prompt", "a", "--host", "abacus"), 2, "abacus"),
    ],
)
def test_what_cannot_be(call: Any, arguments: Any, code: int, words: str) -> None:
    found = call("generate", *arguments, "--json")
    assert found.code == code
    assert words.removeprefix("--add ") in found.out


def test_files_that_are_no_models(call: Any, folder: Path) -> None:
    (folder / "text.gguf").write_text("hello")
    found = call("generate", "--prompt", "a", "--json", model="text")
    assert (found.code, found.json["error"]["code"]) == (3, "invalid-model")
    found = call("generate", "--prompt", "a", "--json", model="nowhere")
    assert (found.code, found.json["error"]["code"]) == (3, "invalid-model")


def test_a_model_without_a_template(call: Any) -> None:
    found = call("generate", "--prompt", "a", "--chat", "--json", model="plain")
    assert (found.code, found.json["error"]["code"]) == (2, "usage")


def test_a_full_context_keeps_the_text(call: Any) -> None:
    found = call("generate", "--prompt", "the cat", "--most", 99, "--json", model="plain")
    assert (found.code, found.json["ended"]) == (5, "context")
    assert found.json["prompt_tokens"] + len(found.json["ids"]) == 17


# ---- chat ----------------------------------------------------------------------------------------


class Typed(io.StringIO):
    """What a user types."""

    def isatty(self) -> bool:
        return False


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda *lines: monkeypatch.setattr("sys.stdin", Typed("\n".join(lines) + "\n"))


def test_a_chat(call: Any, typed: Any) -> None:
    typed("the cat", "", "/reset", "the cat", "/bye", "never read")
    found = call("chat", "--most", 4)
    lines = found.out.split("\n")
    assert found.code == 0
    assert lines[0] == lines[1]
    assert found.err.count("a second") == 2
    assert "128 tokens of context" in found.err


def test_a_chat_survives_a_full_context(call: Any, typed: Any) -> None:
    typed("a b c d " * 50, "a", "/bye")
    found = call("chat", "--most", 3)
    assert found.code == 0
    assert "context holds 128" in found.err
    assert found.err.count("a second") == 1


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches cannot grow beyond their first block."""
    reach = SharedBytes.reach
    first: dict[SharedBytes, int] = {}

    def reached(memory: SharedBytes, size: int) -> None:
        if size > first.setdefault(memory, size):
            raise MemoryLimit("there is no memory for a longer text", hint="Shorten the text")
        reach(memory, size)

    monkeypatch.setattr(SharedBytes, "reach", reached)


@pytest.mark.usefixtures("little_memory")
def test_a_chat_survives_the_end_of_memory(call: Any, typed: Any, folder: Path) -> None:
    """In the middle of an answer, whose text stays, and before one."""
    write_tiny(folder / "long.gguf", Tiny(room=600, text=merges().write, type="Q4_0", **SMALL))
    typed("a b c d " * 30, "a", "/reset", "a b c d " * 60, "a", "/bye")
    found = call("chat", "--most", 200, model="long")
    assert found.code == 0
    assert "no memory for a longer chat: /reset" in found.err
    assert found.err.count("there is no memory for a longer text. Shorten the text") == 2
    assert found.err.count("a second") == 2
    asked = ("--prompt", "a b c d " * 30, "--most", 300, "--json")
    found = call("generate", *asked, model="long")
    assert (found.code, found.json["ended"]) == (7, "memory")
    assert found.json["prompt_tokens"] + len(found.json["ids"]) == 257


def test_ctrl_c_stops_the_answer_and_keeps_the_chat(
    call: Any, typed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pressed in the third run; the next message is answered."""
    runs = 0
    run = WasmtimeHost.run

    def interrupted(self: WasmtimeHost, inputs: Any) -> Any:
        nonlocal runs
        runs += 1
        if runs == 3:
            signal.raise_signal(signal.SIGINT)
        return run(self, inputs)

    monkeypatch.setattr(WasmtimeHost, "run", interrupted)
    typed("the cat", "the cat", "/bye")
    found = call("chat", "--most", 20)
    assert found.code == 0
    assert found.err.count("a second") == 2
    assert threading.current_thread() is threading.main_thread()


def test_ctrl_c_ends_generate(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = WasmtimeHost.run

    def interrupted(self: WasmtimeHost, inputs: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return run(self, inputs)

    monkeypatch.setattr(WasmtimeHost, "run", interrupted)
    found = call("generate", "--prompt", "a", "--most", 20, "--json")
    assert (found.code, found.json["ended"], len(found.json["ids"])) == (130, "stopped", 1)


def test_a_terminal_is_not_steered(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Typed()
    monkeypatch.setattr(shown, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout", shown)
    language._write("a\x1b[2Jb\n")
    assert shown.getvalue() == "a�[2Jb\n"
