"""Models whose length each run says: right at every length on every host, and nothing leaks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from helpers import lengths
from helpers.lengths import LAYERS, MOST, WIDTH, Made, expected, saved, tokens, transformer
from onnx import TensorProto, helper

from tilewright.base.abi import BEFORE, GRAIN, HEADER, RECORD, TABLE, TICKETS, TILES, WIDEST
from tilewright.base.errors import InputError, ShapeError, TilewrightError, UsageError
from tilewright.bundle import open_bundle, write
from tilewright.compiler import Compiled, Options, compile_model
from tilewright.hosts.native import NativeHost
from tilewright.hosts.plan_interpreter import PlanHost
from tilewright.hosts.reference import ReferenceHost
from tilewright.hosts.wasmtime import WasmtimeHost
from tilewright.targets.device_classes import CLASSES
from tilewright.tuning.relink import relink

Array = np.ndarray[Any, np.dtype[Any]]
Host = ReferenceHost | NativeHost | WasmtimeHost
MODELS = Path(__file__).parents[1] / "models"
ASKED = (1, 2, 7, 16, 37, MOST)
HOSTS: dict[str, Callable[[Path], Host]] = {
    "reference": ReferenceHost,
    "c": NativeHost,
    "wasm": WasmtimeHost,
    "wasm on two threads": lambda path: WasmtimeHost(path, threads=2),
    "wasm without relaxed SIMD": lambda path: WasmtimeHost(path, features=frozenset()),
}


class Built:
    """A model, its bundle, and what onnxruntime gives at some lengths."""

    def __init__(self, model: onnx.ModelProto, folder: Path) -> None:
        self.model, self.path = saved(model, folder), folder / "bundle"
        options = Options(extents={"n": MOST}, targets=("wasm", "c", "wgsl"))
        self.compiled: Compiled = compile_model(self.model, options)
        write(self.compiled.contents, self.path)
        self.inputs = {n: tokens(n) for n in ASKED}
        self.wanted = {n: expected(self.model, self.inputs[n]) for n in ASKED}

    def check(self, host: Host, n: int) -> None:
        outputs = host.run(self.inputs[n]).outputs
        for name, want in self.wanted[n].items():
            assert outputs[name].shape == want.shape
            np.testing.assert_allclose(outputs[name], want, 1e-4, 1e-4, err_msg=f"{name} at {n}")


@pytest.fixture(scope="module", params=["fused", "scores are outputs"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(transformer(request.param == "fused"), tmp_path_factory.mktemp("lengths"))


@pytest.fixture(scope="module")
def fused(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(transformer(), tmp_path_factory.mktemp("lengths"))


def poison(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a run must write before it reads it becomes NaN, or -1."""
    if isinstance(host, PlanHost):
        once = PlanHost._value

        def poisoned(self: PlanHost, value: Any) -> Array:
            made = once(self, value)
            if value.kind in ("temporary", "output"):
                made.view(np.uint8)[:] = 255
            return made

        monkeypatch.setattr(PlanHost, "_value", poisoned)
        return
    facts = host.bundle.manifest.section("wasm").facts["memory"]
    host.memory.write(b"\xff" * (facts["bytes"] - facts["arena"]), facts["arena"])


@pytest.mark.parametrize("kind", HOSTS)
def test_every_length_in_any_order(
    built: Built, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = HOSTS[kind](built.path)
    order = [*ASKED, *ASKED]
    Random(kind).shuffle(order)
    for n in order:
        poison(host, monkeypatch)
        built.check(host, n)


@pytest.mark.parametrize(
    "name", ["bert-tiny-sdpa-dynamo", "gpt2-tiny-dynamo", "t5-tiny-encoder-dynamo"]
)
def test_models_of_exporters(name: str, tmp_path: Path) -> None:
    model = MODELS / f"{name}.onnx"
    shapes = dict.fromkeys(("input_ids", "attention_mask"), (1, "n"))
    options = Options(shapes=shapes, extents={"n": 32}, targets=("wasm",))
    write(compile_model(model, options).contents, tmp_path)
    run = lengths.session(model)
    names = [output.name for output in run.get_outputs()]
    for host in (ReferenceHost(tmp_path), WasmtimeHost(tmp_path)):
        for n in (7, 32, 1, 16, 31):
            ids = np.random.default_rng(n).integers(0, 50, (1, n))
            inputs = {"input_ids": ids, "attention_mask": np.ones((1, n), np.int64)}
            inputs["attention_mask"][:, n - n // 4 :] = 0
            inputs = {i.name: inputs[i.name] for i in run.get_inputs()}
            found = host.run(inputs).outputs
            for key, want in zip(names, run.run(None, inputs), strict=True):
                np.testing.assert_allclose(found[key], want, 1e-4, 1e-4, err_msg=f"{key} at {n}")


def image(host: WasmtimeHost, step: int, field: int) -> int:
    return host.memory.word(host.places[0].address + HEADER + RECORD * step + field)


def test_short_runs_have_fewer_tiles_and_tickets(fused: Built) -> None:
    host = WasmtimeHost(fused.path, threads=2)
    steps = range(len(fused.compiled.manifest.plans[0].steps))
    counted = {}
    for n in (MOST, 16, 1, MOST):
        fused.check(host, n)
        tiles = [image(host, s, TILES) for s in steps]
        tickets = [image(host, s, TICKETS) for s in steps]
        assert tickets == [
            -(-t // image(host, s, GRAIN)) for s, t in zip(steps, tiles, strict=True)
        ]
        befores = [image(host, s, BEFORE) for s in range(len(steps) + 1)]
        assert befores == [sum(tickets[:s]) for s in range(len(steps) + 1)]
        assert host.memory.word(host.places[0].address + WIDEST) == max(tickets)
        counted.setdefault(n, tiles)
        assert counted[n] == tiles
    assert all(a <= b for a, b in zip(counted[1], counted[16], strict=True))
    assert all(a <= b for a, b in zip(counted[16], counted[MOST], strict=True))
    assert sum(counted[16]) < sum(counted[MOST])


def test_one_plan_says_what_its_extent_is(fused: Built) -> None:
    manifest = fused.compiled.manifest
    assert (manifest.dims, manifest.extents) == ({"n": (MOST,)}, ("n",))
    assert [plan.dims for plan in manifest.plans] == [{"n": MOST}]
    assert manifest.inputs[0].shape == (1, "n")
    assert {o.name: o.shape for o in manifest.outputs}["tokens"] == (1, "n", WIDTH)
    # both layers share their kernels
    assert len(manifest.plans[0].steps) > 1.5 * len(fused.compiled.program.kernels) / LAYERS


def test_bundles_without_extents_have_nothing_of_them(fused: Built, tmp_path: Path) -> None:
    plain = compile_model(fused.model, Options(buckets={"n": (MOST,)}))
    sized = fused.compiled
    (build, *_), (other, *_) = (c.made["wasm"].section.builds for c in (plain, sized))
    word = slice(TABLE, TABLE + 4)
    assert plain.manifest.extents == ()
    assert build.plans[0].data[word] == bytes(4)
    assert other.plans[0].data[word] != bytes(4)
    drivers = [c.made["wasm"].section.programs["driver"].data for c in (plain, sized)]
    assert [b"resize" in data for data in drivers] == [False, True]


def test_longer_than_the_bound_and_empty(fused: Built) -> None:
    for make in (ReferenceHost, WasmtimeHost):
        host = make(fused.path)
        with pytest.raises(InputError, match="larger than the largest bucket"):
            host.run(tokens(MOST + 1))
        with pytest.raises(InputError, match="empty in dimension n"):
            host.run(tokens(0))


def test_a_bound_that_is_another_size_of_the_model(tmp_path: Path) -> None:
    """The 32 of a mean over 32 channels stays; the 32 of the mean over n follows."""
    model = saved(transformer(most=WIDTH), tmp_path)
    write(compile_model(model, Options(extents={"n": WIDTH})).contents, tmp_path / "bundle")
    for host in (ReferenceHost(tmp_path / "bundle"), WasmtimeHost(tmp_path / "bundle")):
        for n in (5, WIDTH, 1):
            outputs = host.run(tokens(n)).outputs
            for name, want in expected(model, tokens(n)).items():
                np.testing.assert_allclose(outputs[name], want, 1e-4, 1e-4, err_msg=name)


def test_beside_buckets(tmp_path: Path) -> None:
    """One plan for each batch size; the length is set by each run."""
    m = Made()
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "batch", 8])
    y = m.op("MatMul", "x", m.weight(8, 12))
    m.named(m.op("ReduceMean", m.op("Relu", y), m.ints(0), keepdims=0), "y")
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 12])
    model = saved(m.model([x], [out]), tmp_path)
    made = compile_model(model, Options(buckets={"batch": (2, 3)}, extents={"n": 20}))
    write(made.contents, tmp_path / "bundle")
    assert len(made.program.plans) == 2
    rng = np.random.default_rng(0)
    for host in (ReferenceHost(tmp_path / "bundle"), WasmtimeHost(tmp_path / "bundle")):
        for n, batch in ((5, 2), (20, 3), (1, 3), (13, 2)):
            given = {"x": rng.standard_normal((n, batch, 8), np.float32)}
            found, want = host.run(given).outputs["y"], expected(model, given)["y"]
            np.testing.assert_allclose(found, want, 1e-5, 1e-5)


def test_two_extents(tmp_path: Path) -> None:
    """Attention from one sequence to another."""
    m = Made()
    rows = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, dim, 16])
        for name, dim in (("q", "n"), ("k", "m"), ("v", "m"))
    ]
    scores = m.op("MatMul", "q", m.op("Transpose", "k", perm=[0, 2, 1]))
    m.named(m.op("MatMul", m.op("Softmax", scores, axis=-1), "v"), "y")
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, "n", 16])
    model = saved(m.model(rows, [out]), tmp_path)
    options = Options(extents={"n": 24, "m": 40}, targets=("wasm", "c"))
    write(compile_model(model, options).contents, tmp_path / "bundle")
    rng = np.random.default_rng(0)
    for make in (ReferenceHost, NativeHost, WasmtimeHost):
        host = make(tmp_path / "bundle")
        for n, k in ((5, 33), (24, 1), (1, 40), (13, 2)):
            sizes = {"q": n, "k": k, "v": k}
            given = {s: rng.standard_normal((1, i, 16), np.float32) for s, i in sizes.items()}
            found, want = host.run(given).outputs["y"], expected(model, given)["y"]
            np.testing.assert_allclose(found, want, 1e-4, 1e-5)


def test_relinked(fused: Built, tmp_path: Path) -> None:
    """A bundle that is linked anew keeps its tables."""
    device = next(d for d in CLASSES.values() if d.target == "wasm")
    write(relink(open_bundle(fused.path), device, {}), tmp_path)
    host = WasmtimeHost(tmp_path)
    for n in (7, MOST, 16):
        fused.check(host, n)


Model = Callable[[Made], str]


def four(m: Made) -> str:
    """min(n, 4), which only short lengths tell from 4."""
    length = m.op("Gather", m.op("Shape", "x"), m.constant(np.array(1)))
    return m.op("Min", length, m.constant(np.array(4)))


#: By the name of a refusal, what its hint advises.
ADVICE = {
    "one more": "let the input have",
    "joined": "cache of fixed size",
    "inner": "an axis of its own",
    "at most four, as a number": "such as 15",
}

REFUSED: dict[str, tuple[Model, str]] = {
    "running sum": (lambda m: m.op("CumSum", "x", m.ints(1)), "CumSum"),
    "reversed": (
        lambda m: m.op("Slice", "x", m.ints(-1), m.ints(-1000), m.ints(1), m.ints(-1)), "Slice"
    ),
    "one more": (lambda m: m.op("Pad", "x", m.ints(0, 0, 0, 0, 1, 0)), "Pad"),
    "half": (lambda m: m.op("Slice", "x", m.ints(0), m.ints(10**6), m.ints(1), m.ints(2)), "Slice"),
    "the last one": (lambda m: m.op("Gather", "x", m.ints(-1), axis=1), "Gather"),
    "the first four": (
        lambda m: m.op("Slice", "x", m.ints(0), m.ints(4), m.ints(1), m.ints(1)), "Slice"
    ),
    "the first four, which shorter runs lack": (
        lambda m: m.op("Reshape", m.op("Slice", "x", m.ints(0), m.ints(4), m.ints(1), m.ints(1)),
                       m.ints(4, 6)), "Slice"
    ),
    "the third": (lambda m: m.op("Gather", "x", m.ints(2), axis=1), "Gather"),
    "at most four, as a number": (
        lambda m: m.op("Mul", "x", m.op("Cast", four(m), to=1)), "Mul"
    ),
    "at most four rows": (
        lambda m: m.op("Add", "x", m.op("ReduceSum", m.op("Slice", m.weight(16, 6), m.ints(0),
                                                          m.op("Unsqueeze", four(m), m.ints(0)),
                                                          m.ints(0)), m.ints(0))), "Add"
    ),
    "joined": (lambda m: m.op("Concat", "x", "x", axis=1), "Concat"),
    "inner": (
        lambda m: m.op("Reshape", m.op("Transpose", "x", perm=[2, 0, 1]), m.ints(1, -1)), "Reshape"
    ),
    "the best of each row": (lambda m: m.op("TopK", "x", m.ints(3)), "TopK"),
    "along another axis": (
        lambda m: m.op("GatherElements", "x", m.op("Cast", "x", to=TensorProto.INT64), axis=2),
        "GatherElements",
    ),
    "a loop": (
        lambda m: m.op("RNN", m.op("Transpose", "x", perm=[1, 0, 2]), m.weight(1, 4, 6),
                       m.weight(1, 4, 4), hidden_size=4), "RNN"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_follow_is_refused_by_name(name: str, tmp_path: Path) -> None:
    make, op = REFUSED[name]
    m = Made()
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, "n", 6])
    m.named(m.op("Exp", make(m)), "y")
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    model = saved(m.model([x], [out]), tmp_path)
    with pytest.raises(ShapeError, match="'n' cannot be an extent: a tensor") as caught:
        compile_model(model, Options(extents={"n": 16}, shapes={"x": (1, "n", 6)}))
    facts = caught.value.facts
    assert facts["op"] == op
    assert {"node", "opset", "shape", "other", "sizes"} <= facts.keys()
    assert "--buckets n=16" in caught.value.hint
    assert ADVICE.get(name, "") in caught.value.hint


@pytest.mark.parametrize(
    "options",
    [
        Options(extents={"n": 3}),
        Options(extents={"n": MOST}, buckets={"n": (8, MOST)}),
    ],
)
def test_extents_that_cannot_be(options: Options, fused: Built) -> None:
    with pytest.raises(UsageError, match="cannot be an extent"):
        compile_model(fused.model, options)


def test_a_state_has_no_run_time_axis(tmp_path: Path) -> None:
    m = Made()
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, "n", 6]) for name in ("x", "h")
    ]
    m.named(m.op("Add", "x", "h"), "y")
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, "n", 6])
    model = saved(m.model(infos, [out]), tmp_path)
    with pytest.raises(TilewrightError, match="is an extent"):
        compile_model(model, Options(extents={"n": 16}, states={"h": "y"}))


ROOM = 16


def cache(folder: Path) -> Path:
    """Attention over the first n rows of a cache of `ROOM` rows, of which a run writes one."""
    m = Made()
    shapes: dict[str, list[int | str]] = {"k": [ROOM, 6], "x": [1, 6], "seen": ["n"]}
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    infos.append(helper.make_tensor_value_info("at", TensorProto.INT64, [1, 1]))
    here = m.op("Equal", m.op("Unsqueeze", m.ints(*range(ROOM)), m.ints(1)), "at")
    m.named(m.op("Where", here, "x", "k"), "kn")
    used = m.op("Slice", "kn", m.ints(0), m.op("Shape", "seen"), m.ints(0))
    scores = m.op("MatMul", "x", m.op("Transpose", used))
    m.named(m.op("MatMul", m.op("Softmax", scores), used), "y")
    outs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("kn", "y")]
    return saved(m.model(infos, outs), folder)


@pytest.mark.parametrize("name", ["reference", "c", "wasm"])
def test_a_state_is_read_as_far_as_a_run_says(name: str, tmp_path: Path) -> None:
    model, states = cache(tmp_path), {"k": "kn"}
    with pytest.raises(ShapeError, match="two at another size") as caught:
        compile_model(model, Options(extents={"n": ROOM}, states=states, targets=("wasm", "c")))
    assert f"such as {ROOM - 1}" in caught.value.hint
    options = Options(extents={"n": ROOM - 1}, states=states, targets=("wasm", "c"))
    write(compile_model(model, options).contents, tmp_path / "bundle")
    host = HOSTS[name](tmp_path / "bundle")
    held = np.zeros((ROOM, 6), np.float32)
    for turn in range(ROOM - 1):
        x = np.random.default_rng(turn).standard_normal((1, 6)).astype(np.float32)
        given = {"x": x, "at": np.array([[turn]]), "seen": np.zeros(turn + 1, np.float32)}
        want = expected(model, {**given, "k": held})
        np.testing.assert_allclose(host.run(given).outputs["y"], want["y"], 1e-5, 1e-6)
        held = want["kn"]
        np.testing.assert_array_equal(host.state("k"), held)
