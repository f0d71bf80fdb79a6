"""Runs in a real engine: right numbers, buckets, wrong inputs, traps, order, many runs."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from helpers import outputs

from tilewright.base.errors import HostError, InputError, KernelTrap, TilewrightError
from tilewright.bundle import open_bundle
from tilewright.graph.node import evaluate
from tilewright.hosts.wasmtime import REGISTERS

from .bundles import BERT, BERT_LENGTHS, DOUBLED, TABLE_NODE, TABLE_ROWS, Array, Library
from .conftest import Load, Visit
from .driver import Driver
from .serving import serving

pytestmark = [pytest.mark.by_turns, pytest.mark.one_in(2)]

MANY = 6000
WARM = 2000
MEBIBYTE = 2**20


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def sentence(length: int, seed: int = 0) -> dict[str, Array]:
    ids = np.random.default_rng(seed).integers(0, 100, (1, length))
    return {"input_ids": ids, "attention_mask": np.ones((1, length), np.int64)}


def mixed(**changes: Array | None) -> dict[str, Array]:
    """Right inputs of the bundle `mixed`, but for the changes; None leaves one out."""
    right: dict[str, Array | None] = {
        "x": normal(2, 3),
        "keep": np.array([[1, 0, 1], [0, 0, 1]], bool),
        "long": np.arange(6).reshape(2, 3) + 2**40,
        "short": -np.arange(6, dtype=np.int32).reshape(2, 3),
    }
    return {k: v for k, v in (right | changes).items() if v is not None}


def distance(a: Array, b: Array) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


@pytest.mark.parametrize("name", ["linear", "shards", "mixed"])
def test_agrees_with_the_graph_interpreter(load: Load, library: Library, name: str) -> None:
    graph = library.graph(name)
    inputs = mixed() if name == "mixed" else {"x": normal(*graph.inputs[0][1].shape)}
    outputs = load(name).run(inputs).outputs
    expected = evaluate([n for _, n in graph.outputs], dict(inputs))
    for (label, _), want in zip(graph.outputs, expected, strict=True):
        assert outputs[label].shape == want.shape
        assert outputs[label].dtype == want.dtype
        assert distance(outputs[label], want) < 1e-6


@pytest.mark.parametrize(("length", "bucket"), [(1, 8), (7, 8), (8, 8), (9, 16), (16, 16)])
def test_takes_the_smallest_bucket_and_crops(load: Load, length: int, bucket: int) -> None:
    inputs = sentence(length)
    result = load("bert").run(inputs)
    assert result.bucket == {"n": bucket}
    (want,) = onnxruntime.InferenceSession(BERT).run(None, inputs)
    (found,) = result.outputs.values()
    assert found.shape == want.shape == (1, length, 32)
    assert distance(found, want) < 1e-5


def test_padding_is_written_anew_for_each_run(load: Load) -> None:
    """The longer run before must not shine through the padding of the shorter one."""
    model = load("bert")
    (first,) = model.run(sentence(3)).outputs.values()
    model.run(sentence(8, seed=1))
    (again,) = model.run(sentence(3)).outputs.values()
    np.testing.assert_array_equal(again, first)


def test_larger_than_the_largest_bucket(load: Load) -> None:
    with pytest.raises(InputError, match=r"largest is n=16") as caught:
        load("bert").run(sentence(17))
    assert caught.value.facts["sizes"] == {"n": 17}
    assert caught.value.facts["largest"] == {"n": BERT_LENGTHS[-1]}


WRONG: dict[str, tuple[dict[str, Array | None], str, str, dict[str, Any]]] = {
    "missing": ({"long": None}, "long", "missing", {"expected": "i64 [2, 3]"}),
    "unknown": ({"y": normal(2)}, "y", "no input", {"known": ["x", "keep", "long", "short"]}),
    "dtype": ({"x": np.ones((2, 3), np.int32)}, "x", "wrong type", {"expected": "float32"}),
    "double": ({"x": np.ones((2, 3))}, "x", "wrong type", {"found": "float64"}),
    "no integers": ({"long": normal(2, 3)}, "long", "wrong type", {"expected": "int64"}),
    "rank": ({"x": normal(6)}, "x", "wrong rank", {"expected": [2, 3], "found": [6]}),
    "size": ({"x": normal(3, 2)}, "x", "wrong size", {"expected": [2, 3], "found": [3, 2]}),
    "empty": ({"x": normal(0, 3)}, "x", "wrong size", {"elements": 0}),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_input_that_does_not_fit(load: Load, wrong: str) -> None:
    changes, name, words, facts = WRONG[wrong]
    model = load("mixed")
    with pytest.raises(InputError, match=words) as caught:
        model.run(mixed(**changes))
    assert caught.value.facts["input"] == name
    assert caught.value.facts | facts == caught.value.facts
    assert caught.value.hint
    assert model.run(mixed()).run == 1


@pytest.mark.parametrize(
    ("mask", "words"), [(5, "disagrees with another input on dimension n"), (0, "empty")]
)
def test_dimension_that_does_not_fit(load: Load, mask: int, words: str) -> None:
    inputs = sentence(4) | {"attention_mask": np.ones((1, mask), np.int64)}
    with pytest.raises(InputError, match=words) as caught:
        load("bert").run(inputs)
    assert caught.value.facts["input"] == "attention_mask"


def test_nan_and_infinity_pass_through(load: Load) -> None:
    x = normal(2, 3)
    x[0, 0], x[0, 2], x[1, 2] = np.nan, np.inf, -np.inf
    outputs = load("mixed").run(mixed(x=x)).outputs
    np.testing.assert_array_equal(outputs["chosen"], np.where(mixed()["keep"], x, -1))


def test_nan_stays_in_its_row(load: Load) -> None:
    x = normal(4, 24)
    x[2, 5] = np.nan
    y = load("linear").run({"x": x}).outputs["y"]
    np.testing.assert_array_equal(np.isnan(y).all(axis=1), [False, False, True, False])
    assert np.isfinite(y[[0, 1, 3]]).all()


@pytest.mark.parametrize("index", [TABLE_ROWS, -1, 2**40])
def test_index_out_of_range(load: Load, index: int) -> None:
    model = load("table")
    ids = np.arange(14).reshape(2, 7) % TABLE_ROWS
    bad = ids.copy()
    bad[1, 6] = index
    right = model.run({"ids": ids}).outputs["y"]
    with pytest.raises(KernelTrap) as caught:
        model.run({"ids": bad})
    assert caught.value.facts["node"] == TABLE_NODE
    assert caught.value.facts["kernel"]
    assert caught.value.facts["step"] == 0
    assert caught.value.facts["tuned"] is False
    assert TABLE_NODE in caught.value.message
    np.testing.assert_array_equal(model.run({"ids": ids}).outputs["y"], right)


@pytest.mark.parametrize("name", ["linear", "bert"])
def test_plain_simd_agrees(load: Load, name: str) -> None:
    inputs = sentence(9) if name == "bert" else {"x": normal(4, 24)}
    plain = load(name, features=[])
    best = load(name)
    assert plain.info["variant"]["features"] == []
    if needed := best.info["variant"]["features"]:
        assert ", ".join(needed) in " ".join(plain.info["lost"])
    ours, theirs = (next(iter(m.run(inputs).outputs.values())) for m in (plain, best))
    assert distance(ours, theirs) < 1e-6


@pytest.mark.parametrize("name", ["linear", "bert"])
def test_variants_agree(load: Load, library: Library, name: str) -> None:
    """Every variant that runs here, named by the caller, gives what the graph means."""
    inputs = sentence(9) if name == "bert" else {"x": normal(4, 24)}
    best = load(name)
    want = next(iter(best.run(inputs).outputs.values()))
    for build in open_bundle(library.path(name)).manifest.section("wasm").builds:
        if not set(build.features) <= set(best.info["variant"]["features"]):
            continue
        model = load(name, variant=build.variant)
        info = model.info
        assert info["variant"]["name"] == build.variant
        assert info["variant"]["registers"] == build.facts["registers"]
        spilling = build.facts["registers"] != info["features"]["registers"]
        assert any("vector registers" in text for text in info["lost"]) is spilling
        assert distance(next(iter(model.run(inputs).outputs.values())), want) < 1e-6


def test_the_probe_finds_the_registers(load: Load) -> None:
    """Tests and browser share the machine, so Python knows what the probe must find."""
    info = load("linear").info
    assert info["features"]["registers"] == REGISTERS
    assert info["variant"]["registers"] == REGISTERS
    assert f"{REGISTERS} registers" in info["variant"]["why"]


def test_an_unknown_variant_is_refused(load: Load) -> None:
    with pytest.raises(TilewrightError, match="riscv") as caught:
        load("linear", variant="riscv")
    assert caught.value.hint


def test_the_first_run_is_told(load: Load) -> None:
    model = load("linear")
    first = model.run({"x": normal(4, 24)})
    again = model.run({"x": normal(4, 24)})
    assert first.first_milliseconds == first.milliseconds == again.first_milliseconds


def test_runs_queue_in_order(load: Load, library: Library) -> None:
    """Requests that come while the engine works wait for their turn, each with its own inputs."""
    model = load("busy")
    xs = [normal(1024, 1024, seed=seed) for seed in range(4)]
    weight = evaluate([library.graph("busy").outputs[0][1]], {"x": np.eye(1024, dtype=np.float32)})
    with ThreadPoolExecutor(len(xs)) as pool:
        results = list(pool.map(lambda x: model.run({"x": x}), xs))
    assert sorted(r.run for r in results) == [1, 2, 3, 4]
    for x, result in zip(xs, results, strict=True):
        assert distance(result.outputs["y"], x @ weight[0]) < 1e-5


def test_dispose_twice_and_run_after(load: Load) -> None:
    model = load("linear")
    model.run({"x": normal(4, 24)})
    model.dispose()
    model.dispose()
    with pytest.raises(HostError, match="disposed") as caught:
        model.run({"x": normal(4, 24)})
    assert caught.value.facts["engine_code"] == "disposed"
    assert load("linear").run({"x": normal(4, 24)}).run == 1


def test_timing_and_profile(load: Load) -> None:
    model = load("bert")
    timing = model.time(runs=5, warmup=2, bucket={"n": 16})
    assert timing.bucket == {"n": 16}
    assert len(timing.milliseconds) == 5
    steps = model.profile(runs=3, bucket={"n": 8})
    assert len(steps) == model.info["plans"][0]["steps"]
    assert all(step["milliseconds"] >= 0 for step in steps)
    with pytest.raises(TilewrightError, match="runs must be an integer"):
        model.time(runs=0)


@pytest.mark.parametrize("isolation", [True, False])
def test_arrays_for_outputs(visit: Visit, library: Library, isolation: bool) -> None:
    """`into` takes the output; inputs count as they were at the call, queued or not."""
    with serving({"doubled": library.path("doubled")}, isolation=isolation) as site:
        page = visit(site.blank)
        ask = {"url": site.bundle("doubled"), "inputs": {"x": DOUBLED}}
        assert page.do("engine", **ask)["isolated"] is isolation
        found = page.do("into", size=DOUBLED)
    assert found["right"] == [True, True]
    assert found["same"]
    assert found["codes"] == ["input"] * 4
    assert found["outcomes"] == ["AbortError", "done"]
    assert found["kept"]


def test_inputs_in_halves(visit: Visit, library: Library) -> None:
    """Arrays of f16 are widened, where the page has such; outputs are f32."""
    with serving({"doubled": library.path("doubled")}) as site:
        page = visit(site.blank)
        page.do("engine", url=site.bundle("doubled"), inputs={"x": DOUBLED}, show=False)
        found = page.do("halves", size=DOUBLED)
    if found is None:
        pytest.skip("the browser has no Float16Array")
    assert (found["type"], found["same"]) == ("Float32Array", True)
    assert found["error"] == [
        "Input 'x' has the wrong type: expected f32, found Float64Array",
        "Give Float32Array or Float16Array or Array",
    ]


@pytest.mark.parametrize("isolation", [True, False])
def test_outputs_that_no_kernel_makes(visit: Visit, library: Library, isolation: bool) -> None:
    """With and without arrays for them, in memory that is shared and that is not."""
    with serving({"outputs": library.path("outputs")}, isolation=isolation) as site:
        page = visit(site.blank)
        ask = {"url": site.bundle("outputs"), "inputs": {"x": [1] * 4}}
        assert page.do("engine", **ask)["isolated"] is isolation
        for length, bucket in ((8, 8), (3, 4)):
            found = page.do("outputs", x=outputs.given(length).ravel().tolist())
            for name, want in outputs.wanted(length, bucket).items():
                right = {"shape": list(want.shape), "bytes": list(want.tobytes())}
                assert found["fresh"][name] == found["into"][name] == right, name
            assert all(found["same"].values())


@pytest.mark.parametrize("isolation", [True, False])
def test_inputs_that_were_given_away(visit: Visit, library: Library, isolation: bool) -> None:
    """Who times with them what they were for gets zeros instead."""
    with serving({"doubled": library.path("doubled")}, isolation=isolation) as site:
        page = visit(site.blank)
        ask = {"url": site.bundle("doubled"), "inputs": {"x": DOUBLED}}
        assert page.do("engine", **ask, show=False)["isolated"] is isolation
        assert page.do("givenAway", size=DOUBLED) == ["done"] * 3


@pytest.mark.parametrize("isolation", [True, False])
def test_inputs_in_their_places(visit: Visit, library: Library, isolation: bool) -> None:
    """`input` gives the place itself where memory is shared; what lies there is read first."""
    with serving({"difference": library.path("difference")}, isolation=isolation) as site:
        page = visit(site.blank)
        ask = {"url": site.bundle("difference"), "inputs": {"x": [1] * 96, "z": [1] * 96}}
        assert page.do("engine", **ask)["isolated"] is isolation
        found = page.do("inPlace", isolated=isolation)
    assert found["wrong"] == []
    assert found["mixed"] == 50 - 4
    # the run before has put its own array in the place of z
    assert found["swapped"] == (4 - 50 if isolation else 1 - 50)
    assert found["into"]
    assert found["place"] is not isolation
    assert found["unknown"] == "input"
    if isolation:
        assert found["held"]
        assert found["late"], "a loop of short runs must let timers come"
        assert found["sent"] < 10, "short runs stay in the page"
    else:
        assert found["sent"] == 50


def test_many_runs_keep_no_memory(visit: Visit, driver: Driver, library: Library) -> None:
    """What leaks only one copy of an input or output fails here twice over.

    The runs must be many: Firefox lets up to a gigabyte of garbage lie before it collects.
    """
    runs_without_growth(visit, driver, library, MANY)


def runs_without_growth(visit: Visit, driver: Driver, library: Library, count: int) -> None:
    process = driver.call("process")
    if not Path(f"/proc/{process}/statm").exists():
        pytest.skip("memory of processes is read from /proc, which this system has not")
    with serving({"doubled": library.path("doubled")}) as site:
        page = visit(site.blank)
        ask = {"url": site.bundle("doubled"), "inputs": {"x": DOUBLED}}
        # each thread has memory of its own
        before = page.do("engine", **ask, options={"threads": 2})["info"]
        runs = {"input": "x", "size": DOUBLED}
        assert page.do("manyRuns", count=WARM, **runs) == WARM
        start = resident(process)
        for _ in range(count // MANY):
            assert page.do("manyRuns", count=MANY, **runs) == MANY
        grown = resident(process) - start
    one_copy = count // MANY * MANY * DOUBLED * np.dtype(np.float32).itemsize
    assert before["memoryBytes"] < 2 * MEBIBYTE
    assert grown < one_copy / 2, f"{grown / MEBIBYTE:.0f} MiB more"


def resident(root: int) -> int:
    """Bytes in memory of a process and all below it."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has just ended
    family = {root}
    while more := {p for p, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(_pages(p) for p in family) * os.sysconf("SC_PAGE_SIZE")


def _pages(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except OSError:
        return 0
