"""The benchmark beside the peers, without a browser and without their packages.

What is written of its records: test_peers_reports.py.
"""

from __future__ import annotations

import json
from importlib import import_module as module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"


def test_every_engine_has_its_adapter_title_and_pinned_package() -> None:
    peers = module("benchmarks.peers.engines")
    speaking = {e.name for e in (*peers.SPEAKING, *peers.SPEAKING_ON_GPU)}
    here = BENCHMARKS / "peers"
    adapters = {path.stem for path in (here / "page" / "engines").glob("*.js")}
    assert adapters == {*peers.ENGINES, *speaking, module("benchmarks.peers.machine").ENGINE}
    assert list(peers.ENGINES) == list(module("benchmarks.report.engines").TITLES)
    assert {e.title for e in peers.ENGINES.values()} == set(
        module("benchmarks.report.engines").TITLES.values()
    )
    pinned = json.loads((here / "package.json").read_text())["dependencies"]
    locked = json.loads((here / "package-lock.json").read_text())["packages"]
    assert {e.package for e in peers.ENGINES.values() if e.package} <= set(pinned)
    for name, version in pinned.items():
        assert version[0].isdigit(), f"{name} is not pinned"
        assert locked[f"node_modules/{name}"]["version"] == version


def test_cases_are_distinct_and_choosable() -> None:
    cases = module("benchmarks.peers.cases")
    names = [c.name for c in cases.CASES]
    assert len(names) == len(set(names))
    assert not set(names) & set(cases.groups(cases.CASES))
    assert set(cases.groups(cases.CASES)) == set(module("benchmarks.report.engines").GROUPS)
    assert {c.name for c in cases.chosen(cases.CASES, cases.QUICK)} == set(cases.QUICK)
    assert {c.group for c in cases.chosen(cases.CASES, ["gemm"])} == {"gemm"}
    with pytest.raises(SystemExit, match="Unknown: k9"):
        cases.chosen(cases.CASES, ["k9"])


def kernel_names() -> list[str]:
    cases = module("benchmarks.peers.cases")
    found = [c for c in cases.CASES if c.group in ("kernel", "conv", "gemm")]
    return [c.name for c in found if c.flops < 1e8]


@pytest.mark.parametrize("name", kernel_names())
def test_kernel_file_has_the_shapes_that_the_table_says(name: str) -> None:
    """onnxruntime agrees with the output shape; for matmuls also with NumPy."""
    cases = module("benchmarks.peers.cases")
    (case,) = cases.chosen(cases.CASES, [name])
    inputs, constants = module("benchmarks.peers.operands").operands(case.work)
    model = module("benchmarks.peers.files").onnx_of(name, case.work, constants)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (y,) = session.run(None, inputs)
    assert y.shape == case.work.y
    if case.work.op == "matmul":
        operands = inputs | constants
        wanted = operands["x"].astype(np.float64) @ operands["w"]
        np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-3)


def test_operations_and_traffic() -> None:
    cases = module("benchmarks.peers.cases")
    (k0,) = cases.chosen(cases.CASES, ["k0"])
    assert k0.flops == 2 * 384 * 768 * 768
    assert k0.bytes == 4 * (384 * 768 + 768 * 768 + 384 * 768)
    depthwise = cases.Conv(32, 112, 32, 3, 1, 1, 32)
    assert depthwise.flops == 2 * 112 * 112 * 32 * 9
    assert depthwise.y == (1, 32, 112, 112)


def test_answers_are_compared_in_either_layout() -> None:
    compared = module("benchmarks.peers.measure").compared
    want = np.random.default_rng(0).standard_normal((1, 3, 5, 7)).astype(np.float32)
    assert compared({"y": want}, {"y": want}) == (0.0, "")
    assert compared({"other": want.transpose(0, 2, 3, 1)}, {"y": want}) == (0.0, "")
    assert compared({"y": want * 1.01}, {"y": want})[0] == pytest.approx(0.01, rel=1e-3)
    assert "shape" in compared({"y": want[:, :2]}, {"y": want})[1]
    assert "outputs" in compared({}, {"y": want})[1]
    assert compared({"y": want * np.nan}, {"y": want})[1] == "output y is not finite"


class FakeSession:
    """Answers with times that are a multiple of the engine's name."""

    threads = 1

    def __init__(self, engine: str, milliseconds: float, fails_in: int = -1) -> None:
        self.engine, self.milliseconds, self.fails_in = engine, milliseconds, fails_in
        self.turns = 0

    def round(self, samples: int, *_: object) -> dict[str, Any]:
        from tilewright.base.errors import HostError

        self.turns += 1
        if self.turns == self.fails_in:
            raise HostError("The browser did not answer")
        return {"times": [self.milliseconds] * samples, "inside": []}


def test_rounds_go_on_without_an_engine_that_fails() -> None:
    measure = module("benchmarks.peers.measure")
    files = module("benchmarks.peers.files").Files
    cases = module("benchmarks.peers.cases")
    (case,) = cases.chosen(cases.CASES, ["k0"])
    given = files(case, Path(), Path(), {}, {}, {}, 1_000_000)
    lanes = [
        measure.Lane(FakeSession(name, ms, fails), given, {"status": "ok", "why": ""}, samples=2)
        for name, ms, fails in (("a", 1.0, -1), ("b", 2.0, 2), ("c", 4.0, -1))
    ]
    said: list[str] = []
    measure.rounds(lanes, measure.Plan(rounds=4), lambda: 0.0, said.append)
    for lane in lanes:
        measure.finished(lane)
    assert [len(lane.rounds) for lane in lanes] == [4, 1, 4]
    assert lanes[1].row["status"] == "failed"
    assert "did not answer" in lanes[1].row["why"]
    assert "did not answer" in said[0]
    assert (lanes[2].row["median_ms"], lanes[2].row["n"]) == (4.0, 8)
    assert lanes[0].row["gflops"] == 1.0


def test_engines_can_be_kept_to_one_thread() -> None:
    lanes_of = module("benchmarks.peers.browsers").lanes_of
    assert lanes_of("ort,jax:1", "1,2") == [("ort", 1), ("ort", 2), ("jax", 1)]


def test_an_engine_beyond_patience_runs_once() -> None:
    measure = module("benchmarks.peers.measure")
    files = module("benchmarks.peers.files").Files
    cases = module("benchmarks.peers.cases")
    (case,) = cases.chosen(cases.CASES, ["k0"])
    given = files(case, Path(), Path(), {}, {}, {}, 1_000_000)
    plan = measure.Plan(seconds=1.0)
    rows = [{"status": "ok", "why": "", "first_ms": ms} for ms in (10.0, 2000 * plan.patience)]
    lanes = [measure.Lane(FakeSession("a", 1.0), given, row) for row in rows]
    ticks = iter(range(1000))  # every turn takes a second, more than a whole share
    measure.rounds(lanes, plan, lambda: float(next(ticks)), lambda _: None)
    assert [len(lane.rounds) for lane in lanes] == [measure.LEAST_ROUNDS, 1]


@pytest.mark.parametrize("name", ["gpt2-tiny-dynamo", "roberta-tiny-sdpa-dynamo"])
def test_fixed_sizes_leave_the_answer_alone(name: str, tmp_path: Path) -> None:
    """What jax-js gets: nothing that its loader lacks, and onnxruntime's very answer."""
    examples = module("benchmarks.peers.examples")
    source, target = ROOT / "tests" / "models" / f"{name}.onnx", tmp_path / "fixed.onnx"
    model = onnx.load(source)
    inputs = {k: np.minimum(v, 90) for k, v in examples.example(model, 24).items()}
    dims = examples.named_sizes(model, 24)
    module("benchmarks.peers.fixed").write_fixed(source, target, dims)
    made = {node.op_type for node in onnx.load(target).graph.node}
    assert not made & {"GatherND", "Range", "Shape", "Expand"}
    options = onnxruntime.SessionOptions()
    # optimising what it has written itself, onnxruntime may give one name to two tensors
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    want, got = (
        onnxruntime.InferenceSession(str(path), options).run(None, inputs)[0]
        for path in (source, target)
    )
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


# ---- files and loading ---------------------------------------------------------------------------


def test_a_change_of_length_makes_the_files_anew(tmp_path: Path) -> None:
    files = module("benchmarks.peers.files")
    cases = module("benchmarks.peers.cases")
    (case,) = cases.chosen(cases.CASES, ["minilm"])
    model = tmp_path / "minilm.onnx"
    model.write_bytes(b"a model")
    (tmp_path / "made").mkdir()
    made: list[int] = []

    def stamped(length: int, dim: int) -> None:
        inputs = {"x": np.zeros((1, length))}
        given = files.Files(case, tmp_path / "made", model, inputs, {}, {}, 0, dims={"n": dim})
        files.stamped(given, "bundle", "maker", lambda *_: made.append(length))
        assert not given.missing

    for length, dim in ((128, 128), (128, 128), (384, 384), (384, 384), (384, 128)):
        stamped(length, dim)
    assert made == [128, 384, 384]


class FakeVisits:
    """A session that gives the expected answer; loads last as many ms as its name has letters."""

    def __init__(self, engine: str, threads: int, browser: str) -> None:
        self.engine, self.threads = engine, threads
        self.reloads = 0

    def __enter__(self) -> FakeVisits:
        return self

    def __exit__(self, *_: object) -> None: ...

    def add(self, files: Any) -> None:
        self.files = files

    def memory(self) -> dict[str, Any]:
        return {"wasm_bytes": 100, "js_bytes": 1, "resident_peak_bytes": 1000 + self.reloads}

    def open(self, files: Any) -> dict[str, Any]:
        assert (files.folder / "bundle").is_dir()
        return {"milliseconds": float(len(self.engine))}

    def first(self) -> tuple[float, Any, dict[str, Any]]:
        return 1.0, self.files.expected, {}

    def warm(self, milliseconds: float, most: int) -> float:
        return 1.0

    def reload(self) -> None:
        self.reloads += 1


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """models.load without browsers and packages; its files and results in `tmp_path`."""
    load = module("benchmarks.models.load")
    monkeypatch.setattr(load, "Session", FakeVisits)
    monkeypatch.setattr(load, "install", lambda: None)
    monkeypatch.setattr(module("benchmarks.peers.files"), "MADE", tmp_path / "build")
    monkeypatch.setattr(module("benchmarks.common"), "RESULTS", tmp_path / "results")

    def run(*arguments: str) -> list[dict[str, Any]]:
        given = ["--only", "gemm_7x13x11", "--models", str(tmp_path), *arguments]
        with pytest.raises(SystemExit) as ended:
            module("benchmarks.__main__").main(["models.load", *given])
        assert ended.value.code == 0
        path = tmp_path / "results" / "models.load.chromium.json"
        rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"]
        return rows

    return run


def test_loads_of_both_engines_are_recorded(load: Any) -> None:
    rows = load("--rounds", "2", "--visits", "3")
    assert [row["engine"] for row in rows] == ["tilewright", "ort"]
    assert [(row["load_cold_n"], row["load_warm_n"]) for row in rows] == [(2, 6)] * 2
    assert [row["load_warm_ms"] for row in rows] == [10.0, 3.0]
    assert [row["counted_bytes"] for row in rows] == [101, 101]


@pytest.mark.parametrize("option", ["--visits", "--rounds", "--threads"])
def test_loads_need_a_visit(option: str, load: Any, capsys: Any) -> None:
    with pytest.raises(AssertionError):
        load(option, "0")
    assert f"'{option}': Input should be greater than or equal to 1" in capsys.readouterr().err
