"""Tuning without a server: candidates in a folder, by Python and by the command line.

Input: a small bundle.  Output: what pages get.  The compiler for a page: test_modes_client.py;
pages: tests/browser/test_modes.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from bundle_factory import later
from cli_call import Called
from helpers.hasty import LONG, Hasty
from modes_factory import NARROW, WIDE, files_below, given, read_json, small
from test_cli_models import save_model

from tilewright.base.errors import CompilerBug, UsageError
from tilewright.bundle import Bundle, open_bundle, write
from tilewright.cli.compile_workers import makers
from tilewright.kernel.spec import Kernel
from tilewright.server.workers import Workers
from tilewright.targets.device_classes import CLASSES, find
from tilewright.targets.schedule import Schedule
from tilewright.tuning.candidate_folder import tunable_classes, write_candidates
from tilewright.tuning.candidates import Built, build, space_of
from tilewright.tuning.catalogue import kernels_of
from tilewright.tuning.page_compiler import PageCompiler
from tilewright.tuning.relink import relink


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return small(tmp_path / "bundle")


def test_folder_holds_every_candidate(bundle: Bundle) -> None:
    """Each one is what its digest says, and what `build` makes of its schedule."""
    device = find(NARROW)
    written = write_candidates(bundle, [device])
    folder = bundle.folder / "tuning"
    index = read_json(folder / "index.json")
    assert index["bundle"] == bundle.pointer.manifest.digest
    assert [row["id"] for row in index["classes"]] == list(CLASSES)
    listed = read_json(folder / index["spaces"][NARROW]["file"])["kernels"]
    kernels = kernels_of(bundle)
    assert [k["spec"] for k in listed] == list(range(len(kernels)))
    modules = set()
    for kernel, entry in zip(kernels, listed, strict=True):
        space = space_of(kernel, device)
        assert entry["count"] == len(space.schedules) == len(entry["candidates"])
        assert tuple(entry["order"]) == space.order
        assert entry["checksum"] == space.checksum
        for schedule, found in zip(space.schedules, entry["candidates"], strict=True):
            built = build(kernel, schedule, device.target, device.variant)
            data = (folder / f"blobs/{found['digest']}.wasm").read_bytes()
            assert data == built.module
            assert hashlib.sha256(data).hexdigest() == found["digest"]
            assert (found["bytes"], found["tiles"]) == (len(data), built.tiles)
            assert set(found["grains"]) == {"0"}
            modules.add(found["digest"])
    assert written.candidates == sum(len(k["candidates"]) for k in listed) > 10
    assert written.modules == len(modules)
    assert written.bytes == sum(map(len, files_below(folder).values()))


def test_a_candidate_that_cannot_be_made_is_left_out(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, kernel = find(NARROW), kernels_of(bundle)[0]
    space = space_of(kernel, device)
    bad = space.order[3]

    def built(kernel: Kernel, schedule: Schedule, *target: str) -> Built:
        if schedule == space.schedules[bad]:
            raise CompilerBug("this one cannot be made")
        return build(kernel, schedule, *target)

    monkeypatch.setattr("tilewright.tuning.candidate_folder.build", built)
    written = write_candidates(bundle, [device])
    index = read_json(bundle.folder / "tuning/index.json")
    (listed,) = read_json(bundle.folder / "tuning" / index["spaces"][NARROW]["file"])["kernels"]
    assert listed["order"] == [n for n in space.order if n != bad]
    assert [n for n, c in enumerate(listed["candidates"]) if c is None] == [bad]
    assert written.candidates == len(space.schedules) - 1
    (lost,) = written.left_out
    assert (lost.spec, lost.kernel, lost.variant) == (0, kernel.name, device.variant)
    assert lost.schedule == str(space.schedules[bad])
    assert "this one cannot be made" in lost.why


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Schedule]]:
    """Candidates whose compile does not end before the test."""
    released = Event()
    found: list[Schedule] = []

    def built(kernel: Kernel, schedule: Schedule, *target: str) -> Built:
        if schedule in found:
            released.wait(LONG)
        return build(kernel, schedule, *target)

    monkeypatch.setattr("tilewright.tuning.candidate_folder.build", built)
    yield found
    released.set()


def among(hanging: list[Schedule]) -> Callable[..., bool]:
    return lambda _, __, schedule=None, *___: schedule in hanging


def test_a_candidate_that_hangs_is_left_out(bundle: Bundle, hanging: list[Schedule]) -> None:
    device = find(NARROW)
    space = space_of(kernels_of(bundle)[0], device)
    hanging += [space.schedules[n] for n in space.order[3:5]]
    workers = Hasty(makers(0).pool, 2, LONG, hangs=among(hanging))
    written = write_candidates(bundle, [device], call=workers.run)
    assert {lost.schedule for lost in written.left_out} == set(map(str, hanging))
    assert all("did not finish in time" in lost.why for lost in written.left_out)
    assert written.candidates == len(space.schedules) - 2


def test_equal_candidates_of_two_classes_are_one_file(bundle: Bundle) -> None:
    alone = write_candidates(bundle, [find(NARROW)])
    both = write_candidates(bundle, [find(NARROW), find(WIDE)])
    assert both.candidates == 2 * alone.candidates
    assert both.modules == alone.modules


def test_folder_has_the_same_bytes_again(bundle: Bundle) -> None:
    write_candidates(bundle, [find(NARROW)])
    before = files_below(bundle.folder)
    workers = Workers(makers(2).pool, 2, LONG)
    try:
        write_candidates(bundle, [find(NARROW)], call=workers.run)
    finally:
        workers.close()
    assert files_below(bundle.folder) == before


def test_what_no_class_needs_any_more_goes(bundle: Bundle) -> None:
    write_candidates(bundle, [find("wasm")])
    old = set(files_below(bundle.folder / "tuning"))
    for _ in range(2):
        write_candidates(bundle, [find(NARROW)])
        later(bundle.folder)
    new = set(files_below(bundle.folder / "tuning"))
    assert len(old - new) > 10
    bundle.verify()


def test_relinked_bundle_starts_elsewhere(bundle: Bundle, tmp_path: Path) -> None:
    """What it already has is its default, and is judged by the compiler's own before all others."""
    device = find(NARROW)
    (kernel,) = kernels_of(bundle)
    space = space_of(kernel, device)
    best = space.order[2]
    write(relink(bundle, device, {0: space.schedules[best]}), tmp_path / "again")
    again = open_bundle(tmp_path / "again")
    write_candidates(again, [device])
    index = read_json(again.folder / "tuning" / "index.json")
    (listed,) = read_json(again.folder / "tuning" / index["spaces"][NARROW]["file"])["kernels"]
    assert listed["default"] == best
    assert listed["order"] == [0, *(n for n in space.order if n != best)]
    (offer,) = PageCompiler(given(again)).offers([0])
    assert offer.items() <= listed.items()


def test_a_folder_for_another_objective_holds_what_serves_it(bundle: Bundle) -> None:
    """And the compiler's own, in case it must judge; numbers stay."""
    device = find("wasm")
    everything = write_candidates(bundle, [device])
    written = write_candidates(bundle, [device], "traffic")
    index = read_json(bundle.folder / "tuning/index.json")
    assert index["objective"] == "traffic"
    (listed,) = read_json(bundle.folder / "tuning" / index["spaces"]["wasm"]["file"])["kernels"]
    trial = space_of(kernels_of(bundle)[0], device, "traffic").trial
    assert listed["order"] == list(trial)
    made = [n for n, c in enumerate(listed["candidates"]) if c is not None]
    assert made == sorted((0, *trial))
    assert 1 < written.candidates == len(made) < everything.candidates == listed["count"]


def test_classes_of_targets_that_the_bundle_lacks_have_no_candidates(bundle: Bundle) -> None:
    device = find(NARROW)
    written = write_candidates(bundle, [CLASSES["webgpu"], device])
    assert written.classes == (NARROW,)
    with pytest.raises(UsageError, match="no code for any"):
        write_candidates(bundle, [CLASSES["webgpu"]])


def test_wanted_classes() -> None:
    assert tunable_classes(()) == tuple(CLASSES.values())
    assert [c.id for c in tunable_classes([WIDE, NARROW, WIDE])] == [WIDE, NARROW]
    with pytest.raises(UsageError, match="no device class"):
        tunable_classes(["wasm-vax"])


@pytest.mark.parametrize("as_json", [True, False])
def test_build_static_says_who_is_left_out(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    hanging: list[Schedule],
    as_json: bool,
) -> None:
    """The bundle is whole without it: no error."""
    model = save_model(tmp_path / "model.onnx")
    options = [model, "-o", tmp_path / "b", "--buckets", "n=4"]
    assert Called(capsys, "build", *options).code == 0
    space = space_of(kernels_of(open_bundle(tmp_path / "b"))[0], find(NARROW))
    hanging.append(space.schedules[space.order[0]])
    monkeypatch.setattr("tilewright.cli.compile_workers.makers", lambda _: makers(0))
    hasty = partial(Hasty, hangs=among(hanging))
    monkeypatch.setattr("tilewright.server.workers.Workers", hasty)
    given = ["--static", "--classes", NARROW, *(["--json"] if as_json else [])]
    called = Called(capsys, "build", *options, *given)
    assert called.code == 0, called.err
    if as_json:
        assert {lost["schedule"] for lost in called.json["left_out"]} == {str(hanging[0])}
    assert "left" in called.out
    assert str(hanging[0]) in called.out
    assert "did not finish in time" in called.out


def test_build_static_for_an_objective(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = save_model(tmp_path / "model.onnx")
    options = ["--static", "--classes", NARROW, "--objective", "traffic", "--json"]
    called = Called(capsys, "build", model, "-o", tmp_path / "b", "--buckets", "n=4", *options)
    assert called.code == 0, called.err
    assert called.json["objective"] == "traffic"
    assert read_json(tmp_path / "b/tuning/index.json")["objective"] == "traffic"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--classes", "wasm"], "--static"),
        (["--pyodide", "x"], "--client"),
        (["--static", "--classes", "wasm-vax"], "wasm"),
        (["--static", "--objective", "beauty"], "scratch"),
        (["--objective", "traffic"], "--static"),
        (["--objective", "traffic", "--client"], "?tune=client&objective=traffic"),
    ],
)
def test_build_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    """Before the model is looked at."""
    called = Called(capsys, "build", tmp_path / "none", "-o", tmp_path / "b", *options, "--json")
    assert called.code == UsageError.exit_code
    assert words in called.json["error"]["hint"]
