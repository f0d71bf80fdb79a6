"""Export and import: the T4 schema by a transcription of our own, and import as the identity."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from helpers.reports import key, report
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.base.errors import InvalidReport
from tilewright.store import KernelStore, StoredGold, StoredReport, StoredVote

pytestmark = pytest.mark.by_turns

INVALIDITY = ("timeout", "compile", "runtime", "correctness", "constraints", "correct")
TIMES = ("compilation_time", "framework", "search_algorithm", "validation")


def check_t4(document: Any) -> None:
    """What version 1.1.0 of the schema asks for, and what it says of members that we write."""
    assert re.fullmatch(r"\d+\.\d+\.\d+", document["schema_version"])
    metadata = document["metadata"]
    for name in ("platform", "autotuner", "autotuner_version"):
        assert isinstance(metadata[name], str)
    assert metadata["timeunit"] in ("nanoseconds", "microseconds", "milliseconds", "seconds")
    assert metadata.get("compute_api", "CUDA") in ("OpenCL", "CUDA", "Vulkan")
    assert isinstance(document["results"], list)
    for result in document["results"]:
        assert {"configuration", "times", "invalidity", "correctness"} <= result.keys()
        assert isinstance(result["configuration"], dict)
        assert isinstance(result["times"], dict)
        assert all(isinstance(result["times"][k], float) for k in TIMES if k in result["times"])
        assert result["invalidity"] in INVALIDITY
        assert result["correctness"] in (0, 1)
        assert isinstance(result["timestamp"], str)
        assert all(isinstance(name, str) for name in result["objectives"])
        for measurement in result["measurements"]:
            assert isinstance(measurement["name"], str)
            assert isinstance(measurement["value"], (int, float, str, list))
            assert isinstance(measurement["unit"], str)


def exported(store: KernelStore) -> bytes:
    stream = io.BytesIO()
    count = store.export(stream)
    assert count == store.stats().reports
    return stream.getvalue()


def filled(url: str) -> KernelStore:
    """A store with keys at every stage, uncounted and empty reports."""
    now = [1000.0 * 86_400]
    store = KernelStore.open(url, clock=lambda: now[0])
    for i in range(16):
        store.submit(report({3: 1.5, 4: 1.4}), f"{i}")
    for i in range(6):
        store.submit(report({5: 1.3}, key(device="wasm-arm")), f"{i}")
    now[0] += 86_400
    store.submit(report({}, key("b" * 64)), "s")
    store.submit(report({6: 2.0}, None, StoredGold(0, 1, 0.5)), "liar")
    return store


def test_an_export_is_t4(url: str) -> None:
    with filled(url) as store:
        document = json.loads(exported(store))
    check_t4(document)
    first = document["results"][:5]
    assert [r["configuration"]["candidate"] for r in first] == [0, 3, 4, 3, 4]
    assert [r["measurements"][0]["value"] for r in first] == [1.0, 1.5, 1.4, 1.5, 1.4]
    assert [r["answer"] for r in first] == [False] * 3 + [True] * 2
    assert first[0]["objectives"] == ["speedup"]
    assert first[0]["timestamp"] == "1972-09-27"
    assert len(document["results"]) == 16 * 5 + 6 * 3 + 1 + 3


def test_an_export_names_no_source(url: str) -> None:
    with filled(url) as store:
        store.submit(report({3: 1.5}), "the-source-of-somebody")
        assert b"source" not in exported(store)


def test_import_of_an_export_is_the_identity(url: str, tmp_path: Path) -> None:
    with filled(url) as store:
        data = exported(store)
        standings = [store.standing(e.key) for e in store.overview()]
        assert store.import_(data) == 0
        assert exported(store) == data
    with KernelStore.open(f"sqlite:///{tmp_path / 'other.db'}") as other:
        assert other.import_(data) == 24
        assert exported(other) == data
        assert [other.standing(e.key) for e in other.overview()] == standings
        assert other.import_(data) == 0
        assert exported(other) == data


def test_an_import_adds_to_what_is_there(url: str, tmp_path: Path) -> None:
    with KernelStore.open(f"sqlite:///{tmp_path / 'site.db'}") as site:
        for i in range(4):
            site.submit(report({3: 1.5}), f"{i}")
        data = exported(site)
    with KernelStore.open(url) as store:
        for i in range(4):
            store.submit(report({3: 1.5}), f"{i}")
        assert store.standing(key()).shadow is None
        assert store.import_(data) == 4
        assert (store.standing(key()).shadow, store.standing(key()).voices) == (3, 8)


def test_an_import_whose_vote_fails_changes_nothing(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: object) -> None:
        raise MemoryError

    with KernelStore.open(f"sqlite:///{tmp_path / 'site.db'}") as site:
        site.submit(report({3: 1.5}), "0")
        data = exported(site)
    with KernelStore.open(url) as store:
        store.submit(report({4: 1.5}), "0")
        before = exported(store)
        monkeypatch.setattr("tilewright.store.store.tally", fails)
        with pytest.raises(MemoryError):
            store.import_(data)
        assert exported(store) == before


reports = st.builds(
    lambda kernel, device, top: (
        key(f"{kernel:064x}", device=device),
        tuple(sorted((StoredVote(c, r) for c, r in top.items()), key=lambda v: -v.ratio)),
    ),
    st.integers(0, 2),
    st.sampled_from(["wasm-x86", "wasm-ärm \"'\\"]),
    st.dictionaries(st.integers(0, 40), st.floats(0.001, 1000), max_size=5),
)


@pytest.mark.seldom(4)
@settings(max_examples=25)
@given(given_reports=st.lists(reports, max_size=12))
def test_any_store_survives_export_and_import(
    tmp_path_factory: pytest.TempPathFactory, given_reports: list[Any]
) -> None:
    folder = tmp_path_factory.mktemp("t4")
    with KernelStore.open(f"sqlite:///{folder / 'a.db'}") as store:
        for i, (of, top) in enumerate(given_reports):
            assert store.submit(
                StoredReport(f"nonce-{i:04d}", of, top, answers=top[:2]), f"{i}"
            ).accepted
        data = exported(store)
        entries = store.overview()
    check_t4(json.loads(data))
    with KernelStore.open(f"sqlite:///{folder / 'b.db'}") as other:
        assert other.import_(data) == len(given_reports)
        assert exported(other) == data
        assert other.overview() == entries


def changed(data: bytes, change: Any) -> bytes:
    document = json.loads(data)
    change(document)
    return json.dumps(document).encode()


def stand(**changes: Any) -> Any:
    """A change of the first key's standing."""
    return lambda d: d["metadata"]["tilewright"]["keys"][0].update(changes)


BAD = {
    "no member": lambda d: d.pop("results"),
    "no time": lambda d: d["results"][6].pop("timestamp"),
    "no date": lambda d: d["results"][5].update(timestamp="yesterday"),
    "ratio": lambda d: d["results"][6]["measurements"][0].update(value=-1.0),
    "two measurements": lambda d: d["results"][6]["measurements"].append(
        {"name": "x", "value": 1.0, "unit": ""}
    ),
    "candidate": lambda d: d["results"][6]["configuration"].update(candidate=-4),
    "text": lambda d: d["results"][6]["configuration"].update(candidate="four"),
    "no default": lambda d: d["results"].pop(0),
    "two keys": lambda d: d["results"][6]["configuration"].update(device="other"),
    "order": lambda d: d["results"][6]["measurements"][0].update(value=0.5),
    "nonce": lambda d: d["results"].__setitem__(
        slice(0, 5), [r | {"report": "?"} for r in d["results"][:5]]
    ),
    "key": lambda d: d["metadata"]["tilewright"]["keys"][0].update(device=""),
    "default": stand(default=-1),
    "shadow": stand(shadow=1 << 20),
    "previous": stand(previous=-7),
    "fresh": stand(fresh=-1),
    "voices": stand(voices=1 << 40),
    "default after": stand(default_after=-1),
    "shadow after": stand(shadow_after=-1),
    "ranking": stand(ranked=[[3, 0.5, 6, 6, 1.5, 1.4, 1.6]] * 17),
    "ranked candidate": stand(ranked=[[-3, 0.5, 6, 6, 1.5, 1.4, 1.6]]),
    "ranked reporters": stand(ranked=[[3, 0.5, -6, 6, 1.5, 1.4, 1.6]]),
    "ranked ratio": stand(ranked=[[3, 0.5, 6, 6, -1.5, 1.4, 1.6]]),
    "key tomorrow": stand(day="9999-01-01"),
    "report tomorrow": lambda d: [r.update(timestamp="9999-01-01") for r in d["results"][:5]],
    "before time": stand(day="1900-01-01"),
    "format": lambda d: d["metadata"]["tilewright"].update(format=2),
}


@pytest.mark.parametrize("change", BAD.values(), ids=BAD.keys())
def test_a_malformed_import_changes_nothing(url: str, change: Any, tmp_path: Path) -> None:
    with filled(f"sqlite:///{tmp_path / 'from.db'}") as store:
        data = changed(exported(store), change)
    with KernelStore.open(url) as store:
        with pytest.raises(InvalidReport) as raised:
            store.import_(data)
        assert raised.value.hint
        assert (store.stats().keys, store.stats().reports) == (0, 0)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b"null", b"[" * 10**5])
def test_no_export_at_all(url: str, data: bytes) -> None:
    with KernelStore.open(url) as store, pytest.raises(InvalidReport, match="Not an export"):
        store.import_(data)
