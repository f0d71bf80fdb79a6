"""The command line without a compiler: exit codes, JSON, errors, serving, arrays, statistics."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import typer
from bundle_factory import sample
from cli_call import Called
from helpers.waiting import PATIENCE
from rich.console import Console
from rich.text import Text

from tilewright import __version__
from tilewright.base.errors import InputError, ShapeError, UsageError
from tilewright.bundle import write
from tilewright.cli.entry import app
from tilewright.cli.npz import read_arrays, write_arrays
from tilewright.cli.options import bundle_names, sizes
from tilewright.cli.output import Answer, pairs, print_answer, print_error, progress, size, table

COMMANDS = (
    "build", "check", "run", "serve", "show", "relink", "tune", "doctor", "generate",
)  # fmt: skip


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    write(sample(), tmp_path / "bundle")
    return tmp_path / "bundle"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert Called(capsys, "--version").out == f"tilewright {__version__}\n"
    called = Called(capsys, "--version", "--json")
    assert (called.code, called.json) == (0, {"version": __version__})


def test_installed_program() -> None:
    """The entry point of the package, as people start it."""
    program = Path(sys.executable).with_name("tilewright")
    done = subprocess.run([program, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"tilewright {__version__}\n")


def test_every_command_explains_itself_and_has_json(capsys: pytest.CaptureFixture[str]) -> None:
    listed = Called(capsys, "--help").out
    for command in COMMANDS:
        assert command in listed
        called = Called(capsys, command, "--help")
        assert called.code == 0
        assert "--json" in called.out


def test_the_help_of_every_argument_and_option_is_a_sentence() -> None:
    def parameters(command: Any, path: str) -> Iterator[tuple[str, str]]:
        for one in command.params:
            yield f"{path} {one.name}", one.help or ""
        for name, inner in getattr(command, "commands", {}).items():
            yield f"{path} {name}", inner.help or ""
            yield from parameters(inner, f"{path} {name}")

    found = dict(parameters(typer.main.get_command(app), "tilewright"))
    assert {"tilewright build", "tilewright build target", "tilewright db export file"} <= set(
        found
    )
    fragment = re.compile(r"(A|An|The|Of|Number|Where|How|Which|What) |.*; repeatable")
    wrong = {name: text for name, text in found.items() if fragment.match(text)}
    wrong |= {name: text for name, text in found.items() if not text.endswith(".")}
    assert wrong == {}


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nothing",),
        ("build",),
        ("build", "m.onnx"),
        ("build", "m.onnx", "-o", "x", "--target", "abacus"),
        ("show", "m.onnx", "--stage", "abacus"),
        ("run", "m.onnx", "--inputs", "x.npz", "--host", "abacus"),
        ("serve",),
        ("serve", "x", "--port", "99999"),
    ],
    ids=" ".join,
)
def test_usage_errors(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    words = Called(capsys, *arguments)
    assert words.code == 2
    assert words.out == ""
    assert words.err.startswith("Error: ")
    assert "Traceback" not in words.err
    plain = Called(capsys, *arguments, "--json")
    assert plain.code == 2
    assert plain.err == ""
    assert plain.json["error"]["code"] == "usage"
    assert plain.json["error"]["hint"]


def test_error_with_its_own_exit_code(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "bundle.json").write_text('{"format": 99}')
    called = Called(capsys, "serve", tmp_path, "--json")
    assert called.code == 6
    assert called.json["error"]["code"] == "bundle-version"
    assert called.json["error"]["facts"]["found"] == 99


def test_error_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(ShapeError("No [b]size[/b]", hint="Give [one]", node="Add_1", op="Add"), False)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "Error: No [b]size[/b]",
        "  node: Add_1",
        "  op: Add",
        "What to do: Give [one]",
    ]


def test_answers(capsys: pytest.CaptureFixture[str]) -> None:
    answer = Answer({"a": [1, 2.5, None], "b": {"c": "[red]"}}, "words")
    print_answer(answer, as_json=True)
    assert capsys.readouterr().out == '{"a":[1,2.5,null],"b":{"c":"[red]"}}\n'
    print_answer(answer, as_json=False)
    assert capsys.readouterr().out == "words\n"
    long = Answer({}, Text("word " * 200 + "end"))
    print_answer(long, as_json=False)
    assert capsys.readouterr().out == "word " * 200 + "end\n"
    with progress(as_json=True) as report:
        report("stage", 1, 2)
    assert capsys.readouterr().out == ""


def test_tables_show_text_as_it_is() -> None:
    console = Console(width=60, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(table(("name", "count"), [("[x]", 3)]))
    console.print(pairs({"[y]": "[z]"}))
    text = console.export_text()
    assert "[x]" in text
    assert "[y]" in text
    assert "[z]" in text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (91_000_000, "91.0 MB"), (10**12, "1000.0 GB")],
)
def test_size(count: int, text: str) -> None:
    assert size(count) == text


def test_sizes() -> None:
    assert sizes("384x768x3", "x", "h") == (384, 768, 3)
    for bad in ("3x", "x", "3x-1", "3x0", "a", "3 x 4", "٣"):
        with pytest.raises(UsageError, match="how"):
            sizes(bad, "x", "how")


def test_bundle_names(tmp_path: Path) -> None:
    (tmp_path / "a=b").mkdir()
    one, two = tmp_path / "one", tmp_path / "two"
    assert bundle_names([str(one), f"second={two}"]) == {"one": one, "second": two}
    assert bundle_names([str(one / "bundle.json")]) == {"one": one}
    assert bundle_names([f"m={one}/", "n=./two"]) == {"m": one, "n": Path("two")}
    assert bundle_names([f"m={one}/bundle.json"]) == {"m": one}
    assert bundle_names([str(tmp_path / "a=b")]) == {"a=b": tmp_path / "a=b"}
    with pytest.raises(UsageError, match="called one"):
        bundle_names([str(one), f"{tmp_path}/other/one"])
    for bad in ("=x", "a/b=x"):
        with pytest.raises(UsageError, match="name"):
            bundle_names([bad])


def test_serve(bundle: Path) -> None:
    command = [sys.executable, "-c", "from tilewright.cli import main; main()", "serve"]
    process = subprocess.Popen(
        [*command, f"m={bundle}", "--port", "0", "--json"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert said["bundles"] == ["m"]
        with urllib.request.urlopen(
            said["url"] + "/bundles/m/bundle.json", timeout=PATIENCE
        ) as answer:
            assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.communicate()


def test_serve_on_a_taken_port(capsys: pytest.CaptureFixture[str], bundle: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        called = Called(capsys, "serve", bundle, "--port", port, "--json")
    assert called.code == 9
    assert called.json["error"]["code"] == "port-in-use"
    assert called.json["error"]["facts"]["port"] == port


@pytest.mark.seldom(4)
def test_doctor_without_browsers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("CHROMIUM", "FIREFOX"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\necho some browser 1.0\nexit 3\n")
        program.chmod(0o755)
        monkeypatch.setenv(f"TILEWRIGHT_{name}", str(program))
    called = Called(capsys, "doctor", "--json")
    assert called.code == 8
    assert called.json["tilewright"] == __version__
    assert called.json["cores"] >= 1
    for browser in called.json["browsers"]:
        assert browser["version"] == "some browser 1.0"
        assert browser["error"]["code"] == "host"
        assert browser["error"]["facts"]["exit_code"] == 3
    assert "ended unexpectedly" in Called(capsys, "doctor").out


def test_arrays(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6).reshape(2, 3), "file": np.float32(1), "x/y": np.array([True])}
    write_arrays(tmp_path / "out.dat", arrays)
    found = read_arrays(tmp_path / "out.dat")
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


def test_arrays_of_bf16_are_written_as_their_bits(tmp_path: Path) -> None:
    given = np.array([1, -2.5, np.inf]).astype(ml_dtypes.bfloat16)
    write_arrays(tmp_path / "out.dat", {"a": given})
    found = read_arrays(tmp_path / "out.dat")["a"]
    np.testing.assert_array_equal(found.view(ml_dtypes.bfloat16), given)


def test_bad_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.zeros(3))
    np.savez(tmp_path / "object.npz", x=np.array([{}], dtype=object))
    (tmp_path / "text").write_text("text")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "object.npz").read_bytes()[:50])
    for name in ("one.npy", "object.npz", "text", "empty", "cut.npz", "none"):
        with pytest.raises(InputError, match=name):
            read_arrays(tmp_path / name)
