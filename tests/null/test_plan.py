"""The neutral plan: dependencies by what is read and written, states that outlive a run."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from random import Random

import numpy as np
import onnx
import pytest
from helpers.seeds import seeds
from onnx import TensorProto, helper, numpy_helper

from tilewright.base.errors import InputError, UsageError
from tilewright.bundle import write
from tilewright.compiler import Compiled, Options, compile_model
from tilewright.hosts.reference import ReferenceHost
from tilewright.hosts.wasmtime import WasmtimeHost
from tilewright.plan import check, plan_from_data, plan_to_data
from tilewright.plan.depends import Range, dependencies

MODELS = Path(__file__).parents[1] / "models"
HOSTS = (ReferenceHost, WasmtimeHost)


# ---- dependencies --------------------------------------------------------------------------------


def conflicts(earlier: tuple[Range, list[Range]], later: tuple[Range, list[Range]]) -> bool:
    def meet(a: Range, b: Range) -> bool:
        return a[0] == b[0] and a[1] < b[2] and b[1] < a[2]

    write, reads = later
    return any(meet(earlier[0], r) for r in (write, *reads)) or any(
        meet(r, write) for r in earlier[1]
    )


@pytest.mark.parametrize("seed", seeds(200))
def test_whoever_conflicts_is_waited_for(seed: int) -> None:
    """By any chain of steps; and nobody is waited for without a conflict."""
    rng = Random(seed)

    def some() -> Range:
        begin = rng.randrange(12)
        return rng.randrange(3), begin, begin + rng.randint(1, 6)

    steps = [(some(), [some() for _ in range(rng.randrange(4))]) for _ in range(rng.randint(1, 14))]
    found = dependencies(steps)
    reached: list[set[int]] = []
    for number, after in enumerate(found):
        assert all(conflicts(steps[other], steps[number]) for other in after)
        reached.append(set(after).union(*(reached[other] for other in after)))
        wanted = {o for o in range(number) if conflicts(steps[o], steps[number])}
        assert wanted <= reached[number]


def test_a_long_chain_is_no_work() -> None:
    """Each step reads what the one before wrote, in parts of one value."""
    steps = [((0, n, n + 1), [(0, n - 1, n)] if n else []) for n in range(30_000)]
    found = dependencies(steps)
    assert found[0] == ()
    assert all(after == (n,) for n, after in enumerate(found[1:]))


@pytest.mark.parametrize("name", ["bert-tiny-sdpa-dynamo", "resnet-tiny-dynamo", "gru-tiny-dynamo"])
def test_plans_of_models_hold_their_invariants(name: str) -> None:
    buckets = {"n": (8, 16)} if "bert" in name else {}
    compiled = compile_model(MODELS / f"{name}.onnx", Options(buckets=buckets, variants=("x86",)))
    check(compiled.program)
    for plan in compiled.program.plans:
        assert plan_from_data(plan_to_data(plan)) == plan
        assert any(step.after for step in plan.steps)


# ---- states --------------------------------------------------------------------------------------


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


def stateful(folder: Path, case: str) -> tuple[Compiled, Path, dict[str, str]]:
    listed, states = CASES[case]
    nodes = [helper.make_node(op, ins, [out]) for op, ins, out in listed]
    path = model(folder, nodes, len(states), ["y", *states.values()])
    return compile_model(path, Options(states=states)), path, states


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("case", CASES)
def test_a_state_is_what_the_output_was(case: str, host: type, tmp_path: Path) -> None:
    """As if a caller gave each run's outputs to the next one."""
    onnxruntime = pytest.importorskip("onnxruntime")
    compiled, path, states = stateful(tmp_path, case)
    check(compiled.program)
    write(compiled.contents, tmp_path / "bundle")
    assert [i.name for i in compiled.manifest.inputs] == ["x"]
    assert [o.name for o in compiled.manifest.outputs] == ["y"]
    assert [s.name for s in compiled.manifest.states] == list(states)
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    opened = host(tmp_path / "bundle")
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
        if turn == 2:
            opened.reset()
            held = {name: np.zeros((2, 4), "f4") for name in states}
        if turn == 3:
            held = {name: rng.standard_normal((2, 4)).astype("f4") for name in states}
            for name, value in held.items():
                opened.set_state(name, value)


def test_what_nobody_reads_again_is_written_in_place(tmp_path: Path) -> None:
    """No step only copies."""
    assert len(stateful(tmp_path, "in place")[0].program.plans[0].steps) <= 2
    later = stateful(tmp_path, "read later")[0].program
    assert any("copy" in later.kernels[s.kernel].name for s in later.plans[0].steps)


def test_buckets_share_a_state(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 4))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ("n", 4))
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=1, axes=None),
        helper.make_node("Add", ["h", "s"], ["hn"]),
        helper.make_node("Add", ["x", "hn"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [x, info("h", 1, 1)], [y, info("hn", 1, 1)])
    path = saved(tmp_path, graph)
    compiled = compile_model(path, Options(buckets={"n": (2, 4)}, states={"h": "hn"}))
    write(compiled.contents, tmp_path / "bundle")
    for host in HOSTS:
        opened, total = host(tmp_path / "bundle"), 0.0
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


def test_states_are_checked_by_hosts(tmp_path: Path) -> None:
    write(stateful(tmp_path, "in place")[0].contents, tmp_path / "bundle")
    for host in HOSTS:
        opened = host(tmp_path / "bundle")
        with pytest.raises(InputError, match="no state"):
            opened.state("h9")
        with pytest.raises(InputError, match="another shape"):
            opened.set_state("h0", np.zeros((4, 2), "f4"))


@pytest.mark.parametrize("name", ["resnet-tiny-dynamo", "lstm-tiny-dynamo"])
def test_values_of_one_time_have_places_of_their_own(name: str) -> None:
    compiled = compile_model(MODELS / f"{name}.onnx", Options(variants=("x86",)))
    (plan,) = compiled.program.plans
    memory = json.loads(compiled.made["wasm"].section.programs["map"].data)
    placed = [
        (at, at + value.bytes, value)
        for at, value in zip(memory["values"][0], plan.values, strict=True)
    ]
    for (a, b, one), (c, d, two) in combinations(placed, 2):
        if one.first <= two.last and two.first <= one.last:
            assert b <= c or d <= a
