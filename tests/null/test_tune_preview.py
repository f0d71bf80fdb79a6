"""`tilewright reports preview`: exactly what is sent, and nothing that no message has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from cli_call import Called
from tuning_site import bundle

from tilewright.bundle import open_bundle, write
from tilewright.targets.classes import CLASSES
from tilewright.tuning.candidates import kernels_of, space_of
from tilewright.tuning.messages import TOP, FromClient, decode_from_client, encode
from tilewright.tuning.preview import FIELDS
from tilewright.tuning.relink import relink

KINDS = {kind.__struct_config__.tag: kind for kind in get_args(FromClient)}
DEVICE = "wasm-x86-relaxed-48k"


def test_every_field_of_every_message_is_explained_and_none_is_made_up() -> None:
    assert {n: tuple(f) for n, f in FIELDS.items()} == {
        name: kind.__struct_fields__ for name, kind in KINDS.items()
    }


Capsys = pytest.CaptureFixture[str]


def shown(capsys: Capsys, *arguments: object) -> Any:
    called = Called(capsys, "reports", "preview", *arguments, "--json")
    assert called.code == 0, called.err
    return called.json


def of(kind: str, data: Any) -> list[Any]:
    return [message for message in data["messages"] if message["type"] == kind]


def test_what_it_shows_is_what_the_server_takes(capsys: Capsys) -> None:
    for given, kernels in (((), 1), (("--bundle", bundle()), 4)):
        data = shown(capsys, *given)
        for message in data["messages"]:
            record = msgspec.convert(message, KINDS[message["type"]])
            assert decode_from_client(encode(record)) == record
        assert {message["type"] for message in data["messages"]} == set(KINDS)
        (hello,) = of("hello", data)
        assert len(hello["specs"]) == len(hello["shares"]) == kernels
        assert (hello["tried"], hello["skip"]) == ({}, 0)
        assert [report["spec"] for report in of("report", data)] == hello["specs"]
        # as many votes as a report may have
        assert len(of("report", data)[0]["top"]) == TOP
        assert "ratio" in data["invented"]
    assert of("report", shown(capsys))[0]["gold"] is not None


def kernel(spec: int, share: float) -> dict[str, Any]:
    return {"spec": spec, "share": share, "kind": "contract", "gain": 1.3, "tried": 9}


def trial(spec: int, candidate: int, ratio: float | None, verdict: str = "slower") -> Any:
    low, high = (ratio and ratio * 0.99), (ratio and ratio * 1.01)
    known = {"ratio": ratio, "low": low, "high": high, "milliseconds": 3.0, "why": ""}
    return {"type": "trial", "spec": spec, "candidate": candidate, "verdict": verdict} | known


def written(tmp_path: Path, *events: Any) -> Path:
    """As `tilewright tune --report` writes it."""
    run = {"host": "firefox", "class": DEVICE, "rounds": len(events)}
    run["kernels"] = [kernel(2, 0.7), kernel(0, 0.3)]
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run | {"events": events}))
    return path


def test_all_votes_and_results_of_a_real_run(tmp_path: Path, capsys: Capsys) -> None:
    """Ratios are to the default, whatever was in use when a candidate was tried."""
    run = written(
        tmp_path,
        trial(2, 5, 1.5, "faster"),
        {"type": "swap", "spec": 2, "candidate": 5, "ratio": 1.5},
        {"type": "latency", "round": 1, "milliseconds": 3.0},
        trial(2, 7, 0.8),
        trial(0, 3, None, "trapped"),
        trial(2, 1, 0.5),
        trial(2, 2, 1.2, "faster"),
        {"type": "swap", "spec": 2, "candidate": 2, "ratio": 1.8},
        trial(2, 4, 0.01),
        trial(2, 3, 0.9),
        trial(2, 8, 1e9),
    )
    data = shown(capsys, "--bundle", bundle(), "--run", run)
    (hello,) = of("hello", data)
    assert (hello["device"], hello["browser"]) == (DEVICE, "firefox")
    assert (hello["specs"], hello["shares"]) == ([2, 0], [1, 0.25])
    (report,) = of("report", data)  # nothing of kernel 0 was measured
    assert [vote["candidate"] for vote in report["top"]] == [8, 2, 3, 5, 7]
    ratios = [vote["ratio"] for vote in report["top"]]
    assert ratios == pytest.approx([20.0, 1.8, 1.62, 1.5, 1.2])
    assert report["gold"] is None
    results = [(r["candidate"], r["verdict"]) for r in of("result", data)]
    assert len(results) == 8
    assert (3, "trapped") in results
    assert data["invented"] == []
    (stored,) = data["stored"]
    assert (stored["device"], stored["browser"]) == (DEVICE, "firefox")


def test_the_answer_to_a_gold_question_is_shown(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.targets.simd.gold.DEEP", 16)
    asked = space_of(kernels_of(open_bundle(bundle()))[0], CLASSES[DEVICE]).gold
    run = written(tmp_path, trial(0, 3, 0.9), trial(0, asked, 0.125))
    (report,) = of("report", shown(capsys, "--bundle", bundle(), "--run", run, "--device", DEVICE))
    assert report["gold"] == {"a": 0, "b": asked, "ratio": 8.0}


def change(kind: str, spec: int, candidate: int, ratio: float) -> Any:
    return {"type": kind, "spec": spec, "candidate": candidate, "ratio": ratio}


def test_what_was_undone_at_the_end_is_told_as_the_page_tells_it(
    tmp_path: Path, capsys: Capsys
) -> None:
    """One result more, and no ratio above that of what came back (confirm.js)."""
    run = written(
        tmp_path,
        trial(2, 5, 1.5, "faster"),
        change("swap", 2, 5, 1.5),
        trial(2, 7, 0.8),
        trial(2, 3, 0.9),
        change("rollback", 2, 3, 0.9),  # it was in use for its looks alone
        trial(2, 4, 0.4),
        trial(0, 1, 1.2, "faster"),
        change("swap", 0, 1, 1.2),
        change("rollback", 2, 5, 1 / 1.5),
    )
    data = shown(capsys, "--bundle", bundle(), "--run", run)
    found = [(r["spec"], r["candidate"], r["verdict"]) for r in of("result", data)]
    slower = [(2, 7), (2, 3), (2, 4)]
    tried = [(2, 5, "faster"), *((*which, "slower") for which in slower), (0, 1, "faster")]
    assert found == [*tried, (2, 5, "slower")]
    votes = {r["spec"]: {v["candidate"]: v["ratio"] for v in r["top"]} for r in of("report", data)}
    expected = {2: {5: 1, 7: 1, 3: 1, 4: 0.6}, 0: {1: 1.2}}
    assert votes == {spec: pytest.approx(ratios) for spec, ratios in expected.items()}


def test_beside_another_default_the_compilers_own_is_named(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by tune/records/reports.js: votes of a relinked bundle are counted over candidate 0."""
    monkeypatch.setattr("tilewright.targets.simd.gold.DEEP", 16)
    base, device = open_bundle(bundle()), CLASSES[DEVICE]
    space = space_of(kernels_of(base)[0], device)
    own, *others = space.trial
    folder = tmp_path / "relinked"
    write(relink(base, device, {0: space.schedules[own]}), folder)
    six = [trial(0, c, 1 + n / 10) for n, c in enumerate(others[:6])]
    asked = trial(0, space.gold or 0, 0.125)

    def reports(*events: Any) -> Any:
        run = written(tmp_path, *events, trial(2, 3, 0.9))
        return {r["spec"]: r for r in of("report", shown(capsys, "--bundle", folder, "--run", run))}

    assert set(reports(*six, asked)) == {2}  # nothing to count over
    found = reports(trial(0, 0, 0.5), *six, asked)[0]
    assert [v["candidate"] for v in found["top"]] == [*reversed(others[2:6]), 0]
    assert found["gold"] == {"a": 0, "b": space.gold, "ratio": 4.0}
    example = {r["spec"]: r for r in of("report", shown(capsys, "--bundle", folder))}
    votes = {spec: {v["candidate"] for v in r["top"]} for spec, r in example.items()}
    assert {spec for spec, named in votes.items() if 0 in named} == {0}
    assert own not in votes[0]


def test_nothing_is_sent_of_a_kernel_that_was_refuted(tmp_path: Path, capsys: Capsys) -> None:
    """As web/tune/loop/candidate.js: the bundle's own was wrong, so no ratio to it counts."""
    wrong = {"refuted": True, "why": "the kernel in use is wrong"}
    run = written(
        tmp_path,
        trial(0, 3, 0.9),
        trial(2, 4, 0.9),
        trial(2, 0, 1.0, "faster") | wrong,
        change("swap", 2, 0, 1.0),
        trial(0, 5, None, "refused") | wrong,
    )
    data = shown(capsys, "--bundle", bundle(), "--run", run)
    assert [(r["spec"], r["candidate"]) for r in of("result", data)] == [(0, 3), (2, 4)]
    assert [report["spec"] for report in of("report", data)] == [0]


@pytest.mark.parametrize("device", ["webgpu-apple", "webgpu", "wasm-arm-relaxed"])
def test_a_class_that_a_server_refuses(device: str, capsys: Capsys) -> None:
    """There is no code for it at all, or none in this bundle; the error names all others."""
    called = Called(
        capsys, "reports", "preview", "--bundle", bundle(), "--device", device, "--json"
    )
    assert (called.code, called.json["error"]["code"]) == (2, "usage")
    known = called.json["error"]["facts"]["known"]
    assert known == [id for id, of_it in CLASSES.items() if of_it.variant in ("x86", "x86-simd")]


RUN = f'{{"host": "firefox", "class": "{DEVICE}", '


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        '{"kernels": []}',
        RUN + '"kernels": [{"spec": 99, "share": 1}], "events": []}',
        RUN + '"kernels": [], "events": [{"type": "trial"}]}',
        RUN + '"kernels": [], "events": [{"type": "swap", "spec": 0, "ratio": 2}]}',
        RUN + '"kernels": [{"spec": 0, "share": 1}], "events": '
        '[{"type": "trial", "spec": 0, "candidate": 4000, "verdict": "same"}]}',
    ],
)
def test_a_run_that_is_none(tmp_path: Path, text: str, capsys: Capsys) -> None:
    (tmp_path / "run.json").write_text(text)
    given = ("--bundle", bundle(), "--run", tmp_path / "run.json")
    called = Called(capsys, "reports", "preview", *given, "--json")
    assert called.code == 5
    assert called.json["error"]["code"] == "input"


def test_people_can_read_it(capsys: Capsys) -> None:
    called = Called(capsys, "reports", "preview")
    assert called.code == 0
    for words in ("nonce", "128 random bits", "only if results are shared", "Never sent"):
        assert words in called.out
