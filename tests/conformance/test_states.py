"""States on every host: what a run leaves for the next one, as if the caller handed it over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import SLOW, TARGETS, options_for
from onnx import TensorProto, helper, numpy_helper

from tilewright.base.errors import TilewrightError, UsageError
from tilewright.bundle import write
from tilewright.compiler import Compiled, Options, compile_model
from tilewright.hosts.reference import ReferenceHost
from tilewright.plan import check


def saved(folder: Path, graph: onnx.GraphProto) -> Path:
    path = folder / "model.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return path


def info(name: str, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def model(folder: Path, nodes: list[onnx.NodeProto], states: int, outputs: list[str]) -> Path:
    """Inputs x and h0, h1, …, all [2, 4]; a constant matrix w."""
    w = numpy_helper.from_array(np.linspace(-1, 1, 16, dtype="f4").reshape(4, 4), "w")
    inputs = [info("x", 2, 4), *(info(f"h{n}", 2, 4) for n in range(states))]
    graph = helper.make_graph(nodes, "g", inputs, [info(o, 2, 4) for o in outputs], [w])
    return saved(folder, graph)


#: nodes, states (input → output), outputs in all
CASES = {
    "in place": ([("Add", ["x", "h0"], "n0"), ("Relu", ["n0"], "y")], {"h0": "n0"}),
    "read later": (
        [("Add", ["x", "h0"], "n0"), ("Softmax", ["h0"], "s"), ("Mul", ["s", "n0"], "y")],
        {"h0": "n0"},
    ),
    "through a product": (
        [("MatMul", ["h0", "w"], "m"), ("Add", ["m", "x"], "n0"), ("Tanh", ["n0"], "y")],
        {"h0": "n0"},
    ),
    "exchanged": (
        [("Identity", ["h1"], "n0"), ("Identity", ["h0"], "n1"), ("Sub", ["h0", "h1"], "d"),
         ("Add", ["d", "x"], "y")],
        {"h0": "n0", "h1": "n1"},
    ),
    "the input": ([("Identity", ["x"], "n0"), ("Sub", ["x", "h0"], "y")], {"h0": "n0"}),
    "kept as it is": ([("Identity", ["h0"], "n0"), ("Add", ["x", "h0"], "y")], {"h0": "n0"}),
    "two of one": (
        [("Add", ["x", "h0"], "n0"), ("Identity", ["n0"], "n1"), ("Mul", ["h1", "h0"], "y")],
        {"h0": "n0", "h1": "n1"},
    ),
    "an output too": (
        [("Add", ["x", "h0"], "n0"), ("Identity", ["h0"], "y")],
        {"h0": "n0"},
    ),
}  # fmt: skip


def stateful(
    folder: Path, case: str, target: str = "wasm", compact: bool = False, halves: bool = False
) -> tuple[Compiled, Path, dict[str, str]]:
    listed, states = CASES[case]
    nodes = [helper.make_node(op, ins, [out]) for op, ins, out in listed]
    path = model(folder, nodes, len(states), ["y", *states.values()])
    options = replace(options_for(target), states=states, compact_states=compact, halves=halves)
    return compile_model(path, options), path, states


@pytest.mark.by_turns
@pytest.mark.one_in(3, *SLOW)
@pytest.mark.parametrize("case", CASES)
def test_a_state_is_what_the_output_was(
    case: str, host_name: str, open_host: Callable[[Path], Any], tmp_path: Path
) -> None:
    """As if a caller gave each run's outputs to the next one."""
    compiled, path, states = stateful(tmp_path, case, TARGETS[host_name])
    check(compiled.program)
    write(compiled.contents, tmp_path / "bundle")
    assert [i.name for i in compiled.manifest.inputs] == ["x"]
    assert [o.name for o in compiled.manifest.outputs] == ["y"]
    assert [s.name for s in compiled.manifest.states] == list(states)
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    opened = open_host(tmp_path / "bundle")
    held = {name: np.zeros((2, 4), "f4") for name in states}
    rng = np.random.default_rng(0)
    for turn in range(5):
        x = rng.standard_normal((2, 4)).astype("f4")
        want = dict(zip(["y", *states.values()], session.run(None, {"x": x, **held}), strict=True))
        np.testing.assert_allclose(
            opened.run({"x": x}).outputs["y"], want["y"], rtol=1e-5, atol=1e-6
        )
        held = {name: want[result] for name, result in states.items()}
        for name, value in held.items():
            np.testing.assert_allclose(opened.state(name), value, rtol=1e-5, atol=1e-6)
        if host_name in ("chromium", "firefox"):
            opened.time(3)  # such runs leave the states as they were
        if turn == 2:
            opened.reset()
            held = {name: np.zeros((2, 4), "f4") for name in states}
        if turn == 3:
            held = {name: rng.standard_normal((2, 4)).astype("f4") for name in states}
            for name, value in held.items():
                opened.set_state(name, value)


#: Hosts whose memory holds compact states as f16.
HALVED = ("wasmtime", "wasmtime-simd", "chromium", "firefox", "node", "cuda", "cuda-cpu")


@pytest.mark.by_turns
@pytest.mark.one_in(3, *SLOW)
@pytest.mark.parametrize("case", CASES)
def test_compact_states(
    case: str, host_name: str, open_host: Callable[[Path], Any], tmp_path: Path
) -> None:
    """On WebAssembly, and on CUDA with `halves`, f16 numbers to the nearest, at most 65504;
    elsewhere f32 as ever."""
    halves = TARGETS[host_name] == "cuda"
    compiled, path, states = stateful(tmp_path, case, TARGETS[host_name], True, halves)
    check(compiled.program)
    write(compiled.contents, tmp_path / "bundle")
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    opened = open_host(tmp_path / "bundle")
    oracle = ReferenceHost(tmp_path / "bundle")
    held = {name: np.zeros((2, 4), "f4") for name in states}
    rng = np.random.default_rng(0)
    for _ in range(3):
        x = rng.standard_normal((2, 4)).astype("f4")
        want = dict(zip(["y", *states.values()], session.run(None, {"x": x, **held}), strict=True))
        np.testing.assert_allclose(opened.run({"x": x}).outputs["y"], want["y"], atol=4e-3)
        oracle.run({"x": x})
        held = {name: opened.state(name) for name in states}
        for name, result in states.items():
            np.testing.assert_allclose(held[name], want[result], rtol=1e-3, atol=4e-3)
            if halves:
                kept = oracle.state(name)
                np.testing.assert_array_equal(kept, kept.astype("f2"))
                np.testing.assert_allclose(kept, held[name], rtol=2e-3, atol=1e-6)
            if host_name in HALVED:
                np.testing.assert_array_equal(held[name], held[name].astype("f2"))
    given = np.array([[1e6, -1e6, 65519, 1e-7], [1 / 3, 2**-25, -3e-8, 0]], "f4")
    opened.set_state("h0", given)
    rounded = np.clip(given, -65504, 65504).astype("f2").astype("f4")
    expected = rounded if host_name in HALVED else given
    np.testing.assert_array_equal(opened.state("h0"), expected)
    opened.reset()
    np.testing.assert_array_equal(opened.state("h0"), np.zeros((2, 4)))


def test_what_nobody_reads_again_is_written_in_place(tmp_path: Path) -> None:
    """No step only copies."""
    assert len(stateful(tmp_path, "in place")[0].program.plans[0].steps) <= 2
    later = stateful(tmp_path, "read later")[0].program
    assert any("copy" in later.kernels[s.kernel].name for s in later.plans[0].steps)


def test_buckets_share_a_state(
    host_name: str, open_host: Callable[[Path], Any], tmp_path: Path
) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 4))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ("n", 4))
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=1, axes=None),
        helper.make_node("Add", ["h", "s"], ["hn"]),
        helper.make_node("Add", ["x", "hn"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [x, info("h", 1, 1)], [y, info("hn", 1, 1)])
    path = saved(tmp_path, graph)
    compiled = compile_model(
        path, replace(options_for(TARGETS[host_name]), buckets={"n": (2, 4)}, states={"h": "hn"})
    )
    write(compiled.contents, tmp_path / "bundle")
    opened, total = open_host(tmp_path / "bundle"), 0.0
    for length in (2, 4, 1, 3):
        given = np.full((length, 4), 0.5, "f4")
        total += 2.0 * length
        np.testing.assert_allclose(opened.run({"x": given}).outputs["y"], given + total)


@pytest.mark.parametrize(
    ("states", "words"),
    [({"h9": "n0"}, "no state"), ({"h0": "n9"}, "no state"), ({"h0": "z"}, "cannot be one")],
)
def test_a_wrong_state_is_refused(states: dict[str, str], words: str, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Add", ["x", "h0"], ["n0"]),
        helper.make_node("ReduceSum", ["x"], ["z"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes, "g", [info("x", 2, 4), info("h0", 2, 4)], [info("n0", 2, 4), info("z")]
    )
    with pytest.raises(UsageError, match=words):
        compile_model(saved(tmp_path, graph), Options(states=states))


def test_states_are_checked_by_hosts(
    host_name: str, open_host: Callable[[Path], Any], tmp_path: Path
) -> None:
    write(stateful(tmp_path, "in place", TARGETS[host_name])[0].contents, tmp_path / "bundle")
    opened = open_host(tmp_path / "bundle")
    with pytest.raises(TilewrightError, match="no state 'h9'"):
        opened.state("h9")
    with pytest.raises(TilewrightError, match="'h0'"):
        opened.set_state("h0", np.zeros((4, 3), "f4"))


def test_a_pattern_names_many_states(tmp_path: Path) -> None:
    listed, states = CASES["exchanged"]
    path = model(
        tmp_path, [helper.make_node(op, i, [o]) for op, i, o in listed], 2, ["y", "n0", "n1"]
    )
    made = compile_model(path, Options(states={"h*": "n*"}))
    assert [s.name for s in made.program.states] == list(states)
    for wrong in ({"z*": "n*"}, {"h*": "n"}):
        with pytest.raises(UsageError, match="no states"):
            compile_model(path, Options(states=wrong))


#: Rows of a cache that a step changes: nodes, whether the old contents are read as well.
UPDATES = {
    "alone": [("TensorScatter", ["h0", "turned", "at"], "n0"), ("ReduceSum", ["n0", "rows"], "y")],
    "and the old ones": [
        ("TensorScatter", ["h0", "turned", "at"], "n0"), ("Mul", ["n0", "h0"], "m"),
        ("ReduceSum", ["m", "rows"], "y"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("case", UPDATES)
def test_rows_of_a_cache(
    case: str, host_name: str, open_host: Callable[[Path], Any], tmp_path: Path
) -> None:
    """New rows, computed in the step that stores them, change a cache where it lies; where others
    read the old contents, they are copied first."""
    room, new = 6, 2
    first = [helper.make_node("Tanh", ["x"], ["turned"])]
    nodes = [helper.make_node(op, i, [o]) for op, i, o in UPDATES[case]]
    nodes[0].attribute.append(helper.make_attribute("axis", 1))
    if nodes[-1].op_type == "ReduceSum":
        nodes[-1].attribute.append(helper.make_attribute("keepdims", 0))
    at = helper.make_tensor_value_info("at", TensorProto.INT64, [1])
    graph = helper.make_graph(
        first + nodes, "g", [info("x", 1, new, 4), at, info("h0", 1, room, 4)],
        [info("y", 1, 4), info("n0", 1, room, 4)],
        [numpy_helper.from_array(np.array([1]), "rows")],
    )  # fmt: skip
    path = tmp_path / "model.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10), path
    )
    options = replace(options_for(TARGETS[host_name]), states={"h0": "n0"})
    compiled = compile_model(path, options)
    check(compiled.program)
    names = [compiled.program.kernels[s.kernel].name for s in compiled.program.plans[0].steps]
    assert any("copy" in name for name in names) == (case != "alone")
    write(compiled.contents, tmp_path / "bundle")
    opened = open_host(tmp_path / "bundle")
    rng, held = np.random.default_rng(2), np.zeros((1, room, 4), "f4")
    for start in (0, 4, 1, 2):
        x, old = rng.standard_normal((1, new, 4)).astype("f4"), held.copy()
        held[:, start : start + new] = np.tanh(x)
        want = (held if case == "alone" else held * old).sum(1)
        got = opened.run({"x": x, "at": np.array([start])}).outputs["y"]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(opened.state("h0"), held, rtol=1e-5, atol=1e-6)
    for wrong in (-1, room - new + 1):
        with pytest.raises(TilewrightError) as caught:
            opened.run({"x": x, "at": np.array([wrong])})
        assert caught.value.code == "kernel-trap"
    np.testing.assert_allclose(opened.state("h0"), held, rtol=1e-5, atol=1e-6)
