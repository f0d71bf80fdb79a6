"""`tilewright tune` against a stand-in browser: table, JSON, files, options, Ctrl-C, bad usage."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bundle_factory import sample
from cli_call import Called
from helpers.waiting import PATIENCE, until

from lab.subjects import product_kernel
from tilewright import TOOL
from tilewright.bundle import write
from tilewright.targets.device_classes import find
from tilewright.tuning.candidates import space_of

command = importlib.import_module("tilewright.cli.tune")
FAKE = Path(__file__).with_name("fake_browser.py")
#: It waits long for a page that ends.
CLI = """
from tilewright.cli import main
from tilewright.hosts import browser
browser.ABORT_SECONDS = 300
main()
"""
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("TILEWRIGHT_CHROMIUM", str(program))


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    write(sample(), tmp_path / "bundle")
    return tmp_path / "bundle"


def tuned(capsys: Capture, bundle: Path, *options: object) -> Any:
    called = Called(capsys, "tune", bundle, *options, "--json")
    assert called.code == 0, called.json
    return called.json


def test_answer(capsys: Capture, bundle: Path) -> None:
    found = tuned(capsys, bundle, "--budget", 2, "--threads", 2)
    assert found["host"] == "chromium"
    assert found["threads"] == 2
    assert found["class"] == "wasm-x86-relaxed-32k"
    assert not found["cancelled"]
    assert [k["gain"] for k in found["kernels"]] == [1.25, 1.0]
    asked = {"seconds": 2, "budget": 1, "report": False, "objective": "latency"}
    assert (found["asked"], found["objective"]) == (asked, "latency")


def test_another_objective(capsys: Capture, bundle: Path) -> None:
    found = tuned(capsys, bundle, "--objective", "scratch")
    assert found["asked"]["objective"] == found["objective"] == "scratch"


def test_table(capsys: Capture, bundle: Path) -> None:
    called = Called(capsys, "tune", bundle)
    assert called.code == 0
    lines = called.out.splitlines()
    heads = ["kernel", "shape", "share", "in use", "in trials", "GFLOP/s", "tried"]
    assert lines[0].split() == " ".join(heads).split()
    assert lines[1].split() == ["matmul", "16x384x384", "60.0%", "#7", "1.25×", "25.0", "3"]
    assert lines[2].split()[:5] == ["rows", "16x384", "10.0%", "default", "–"]
    assert "Not tuned: kernels with 30% of the time" in called.out
    assert lines[-1].startswith("3 rounds in 0.5 s on a device of class wasm-x86-relaxed-32k")
    assert lines[-1].endswith(
        "; 1.14× as fast as with the bundle's own kernels (…): 10.00 → 8.80 ms"
    )


def test_without_an_exchange_there_is_no_gain(
    capsys: Capture, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the latencies of the session fell: in table, JSON and report."""
    monkeypatch.setenv("FAKE_MODE", "default")
    called = Called(capsys, "tune", bundle)
    assert "×" not in called.out
    assert called.out.rstrip().endswith("; no kernel changed, so no gain; inference 8.80 ms")
    found = tuned(capsys, bundle)
    assert found["gain"]["verdict"] == "none"
    assert not {"before", "after", "ratio"} & (set(found) | set(found["gain"]))


def test_kernels_that_cannot_be_tuned_say_why(
    capsys: Capture, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MODE", "extents")
    lines = Called(capsys, "tune", bundle).out.splitlines()
    assert lines[2].split()[3:5] == ["default", "extents"]
    assert "; kernels that end at run time are not tuned" in lines[-1]


def test_what_nobody_measured_is_no_number(
    capsys: Capture, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a kernel that took a wrong one's place; of all the time nothing is left out."""
    monkeypatch.setenv("FAKE_MODE", "replaced")
    out = Called(capsys, "tune", bundle).out
    assert out.splitlines()[1].split()[2:6] == ["90.0%", "#7", "not", "measured"]
    assert "Not tuned" not in out


def test_progress_says_what_changed_so_far() -> None:
    """And no gain: that is measured at the end."""
    lines: list[str] = []
    session = command.TuningLog(2, lambda line, *_: lines.append(line))
    kernel = {"spec": 3, "kind": "matmul", "shape": "16x16"}
    session.take({"type": "start", "kernels": [kernel]})
    swap = {"spec": 3, "candidate": 7, "ratio": 1.6}
    trial = {"type": "trial", "round": 1, "spec": 3}
    for event in ({"type": "swap"} | swap, trial, {"type": "rollback"} | swap, trial):
        session.take(event)
    session.take({"type": "turns", "pairs": 3})
    assert lines == [
        "round 1 · matmul 16x16 · 1 changed so far",
        "round 1 · matmul 16x16 · 0 changed so far",
        "measuring the whole model by turns · 3 pairs",
    ]


def test_hottest_kernels_only(capsys: Capture, bundle: Path) -> None:
    found = tuned(capsys, bundle, "--kernels", 2)
    assert found["asked"]["specs"] == [3, 8]


def test_report_has_every_trial(capsys: Capture, bundle: Path, tmp_path: Path) -> None:
    answer = tuned(capsys, bundle, "--report", tmp_path / "report.json")
    report = json.loads((tmp_path / "report.json").read_text())
    events = report.pop("events")
    assert [message["type"] for message in report.pop("sent")] == ["hello", "bye"]
    assert report == answer | {"tool": TOOL}
    kinds = [e["type"] for e in events]
    assert kinds == ["latency", "trial", "trial", "swap", "latency", "trial"]
    assert [e["verdict"] for e in events if "verdict" in e] == ["slower", "faster", "wrong"]


def interrupted(tmp_path: Path, mode: str, *words: object) -> str:
    """What Ctrl-C leaves on stdout, once the session has begun; the exit code is 130."""
    process = subprocess.Popen(
        [sys.executable, "-c", CLI, *map(str, words)],
        env=os.environ | {"FAKE_MODE": mode, "FAKE_TOLD": str(tmp_path / "told")},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # whoever started the tests may ignore it, as shells do for jobs in the background
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    until(lambda: (tmp_path / "told").exists() or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, out + err
    assert "Traceback" not in err
    return out


@pytest.mark.usefixtures("bundle")
def test_ctrl_c_gives_what_was_found(tmp_path: Path) -> None:
    """The answer and the report are there, and no browser is left."""
    report = tmp_path / "report.json"
    found = json.loads(
        interrupted(tmp_path, "tune", "tune", tmp_path / "bundle", "--json", "--report", report)
    )
    assert found["cancelled"]
    assert found["kernels"][0]["current"]["candidate"] == 7
    assert json.loads(report.read_text())["rounds"] == 3


@pytest.mark.usefixtures("bundle")
@pytest.mark.parametrize("as_json", [True, False])
def test_ctrl_c_before_the_class_is_known(tmp_path: Path, as_json: bool) -> None:
    """There is an answer, but there are no winners."""
    save, report = tmp_path / "winners.json", tmp_path / "report.json"
    options = ("--save", save, "--report", report, *(["--json"] if as_json else []))
    out = interrupted(tmp_path, "early", "tune", tmp_path / "bundle", *options)
    assert not save.exists()
    assert json.loads(report.read_text())["class"] == ""
    if as_json:
        found = json.loads(out)
        assert (found["cancelled"], found["class"], found["saved"]) == (True, "", None)
    else:
        assert "a device of unknown class" in out
        assert f"{save} was not written" in out


@pytest.mark.usefixtures("bundle")
def test_ctrl_c_shows_what_was_sent(tmp_path: Path) -> None:
    command = ("reports", "preview", "--bundle", tmp_path / "bundle", "--json")
    found = json.loads(interrupted(tmp_path, "tune", *command))
    assert found["cancelled"]
    assert [message["type"] for message in found["messages"]] == ["hello", "bye"]
    assert found["stored"] == []


def test_a_preview_without_a_report(capsys: Capture, bundle: Path) -> None:
    """Nothing is made up."""
    options = ("--bundle", bundle, "--budget", 2, "--json")
    called = Called(capsys, "reports", "preview", *options)
    assert (called.code, called.json["error"]["code"]) == (11, "not-measured")
    assert "--budget" in called.json["error"]["hint"]
    assert called.json["error"]["facts"]["budget_seconds"] == 2


def test_a_preview_in_no_browser(capsys: Capture) -> None:
    assert Called(capsys, "reports", "preview", "--host", "wasmtime").code == 2
    called = Called(capsys, "reports", "preview", "--host", "cuda")
    assert called.code == 2
    assert "Choose one of chromium, firefox, chromium-webgpu, node, dawn" in called.err


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--host", "wasmtime"), 2, "Nothing can be tuned on wasmtime"),
        (("--host", "wasmtime"), 2, "tuned on chromium or firefox"),
        (("--host", "cuda-cpu"), 2, "Nothing can be tuned on cuda-cpu: its times mean nothing"),
        (("--host", "cuda-cpu"), 2, "The same bundle can be tuned on cuda"),
        (("--host", "wgpu", "--threads", "2"), 2, "The host wgpu has no threads"),
        (("--host", "wgpu", "--objective", "traffic"), 2, "tunes for latency, not for traffic"),
        (("--host", "cuda", "--threads", "2"), 2, "The host cuda has no threads"),
        (("--host", "nowhere"), 2, "Unknown host"),
        (("--budget", "0"), 2, "--budget"),
        (("--objective", "beauty"), 2, "latency, traffic, scratch"),
        (("--report", "missing/report.json"), 2, "There is no folder missing"),
        (("--save", "missing/winners.json"), 2, "There is no folder missing"),
        (("--report", "."), 2, ". is a folder"),
        (("--save", "."), 2, ". is a folder"),
    ],
)
def test_bad_usage(
    capsys: Capture, bundle: Path, monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...], code: int, words: str,
) -> None:  # fmt: skip
    """Before any browser starts."""
    monkeypatch.setenv("FAKE_MODE", "die")
    called = Called(capsys, "tune", bundle, *options)
    assert called.code == code
    assert words in called.err


def test_a_file_that_may_not_be_written(
    capsys: Capture, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or lies in such a folder; whoever runs the tests may write everything, perhaps."""
    monkeypatch.setenv("FAKE_MODE", "die")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    (tmp_path / "old.json").touch()
    for name in ("old.json", "new.json"):
        called = Called(capsys, "tune", bundle, "--save", tmp_path / name)
        assert called.code == 2
        assert "may not be written" in called.err


def test_files_of_others_are_kept(
    capsys: Capture, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any browser starts; a report of an earlier session may be replaced by the next one."""
    report, mine = tmp_path / "report.json", tmp_path / "mine.json"
    mine.write_text('{"kernels": []}')
    for _ in range(2):
        tuned(capsys, bundle, "--report", report)
    monkeypatch.setenv("FAKE_MODE", "die")
    for option in ("--report", "--save"):
        called = Called(capsys, "tune", bundle, option, mine)
        assert called.code == 2
        assert f"{mine} exists, and this command" in called.err
        assert "--force" in called.err
    assert mine.read_text() == '{"kernels": []}'
    monkeypatch.delenv("FAKE_MODE")
    tuned(capsys, bundle, "--report", mine, "--force")
    assert json.loads(mine.read_text())["tool"] == TOOL


def test_no_bundle(capsys: Capture, tmp_path: Path) -> None:
    called = Called(capsys, "tune", tmp_path / "nothing", "--json")
    assert (called.code, called.json["error"]["code"]) == (6, "bundle-corrupt")


def test_browser_that_dies(capsys: Capture, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MODE", "die")
    called = Called(capsys, "tune", bundle, "--json")
    assert (called.code, called.json["error"]["code"]) == (8, "host")


def test_winners_for_relink(
    capsys: Capture, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Schedules and their class; also where the change is back to what the compiler chose."""
    kernels = [product_kernel("mk,kn->mn", (16, 384), (384, 384), weight=True)] * 6
    monkeypatch.setattr(command, "kernels_of", lambda _: kernels)
    found = tuned(capsys, bundle, "--save", tmp_path / "winners.json")
    assert found["saved"] == str(tmp_path / "winners.json")
    schedules = space_of(kernels[3], find("wasm-x86-relaxed-32k")).schedules
    saved = {"class": "wasm-x86-relaxed-32k", "schedules": {"3": schedules[7].to_json()}}
    saved["tool"] = TOOL
    assert json.loads((tmp_path / "winners.json").read_text()) == saved
    # None: the bundle's own is none of the space
    for own in (7, None):
        back = {"spec": 0, "default": {"candidate": own}, "current": {"candidate": 0}}
        found = command.winners({"class": "wasm-x86-relaxed-32k", "kernels": [back]}, kernels)
        assert found["schedules"] == {"0": schedules[0].to_json()}
