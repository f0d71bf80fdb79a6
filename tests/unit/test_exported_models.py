"""Language models as exporters write them: their tokens are those of onnxruntime, whose caches
grow with each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from helpers.exported_models import ROUNDED, Export, exported, greedy

from tilewright.base.errors import TilewrightError, UnsupportedOp, UsageError
from tilewright.bundle import write
from tilewright.compiler import Options, compile_model
from tilewright.frontend.exports import ExportedModel
from tilewright.frontend.read import load
from tilewright.graph.node import evaluate
from tilewright.hosts.reference import ReferenceHost
from tilewright.hosts.wasmtime import WasmtimeHost
from tilewright.language import CacheSession

GENAI, OPTIMUM = Export(), Export("optimum")
MODELS = {
    "genai": GENAI,
    "genai without positions": replace(GENAI, positions=False),
    "genai, rotated outside": replace(GENAI, turned=False),
    "genai, packed": replace(GENAI, packed=True, named=True),
    "genai, named width": replace(GENAI, named=True),
    "genai, window": replace(GENAI, window=5),
    "genai, f16": replace(GENAI, half=True),
    "genai, q4": replace(GENAI, weights="q4"),
    "genai, q4f16": replace(GENAI, weights="q4", half=True),
    "genai, int8": replace(GENAI, weights="int8"),
    "optimum": OPTIMUM,
    "optimum without positions": replace(OPTIMUM, positions=False),
    "optimum, triangle": replace(OPTIMUM, mask="triangle"),
    "optimum, table": replace(OPTIMUM, mask="table"),
    "optimum, window": replace(OPTIMUM, window=5),
    "optimum, merged": replace(OPTIMUM, merged=True),
    "optimum, f16": replace(OPTIMUM, half=True),
    "optimum, q4": replace(OPTIMUM, weights="q4"),
    "optimum, int8": replace(OPTIMUM, weights="int8"),
}
#: Tokens that caches hold, of a prompt in a bucket of eight, and that follow.
ROOM, PROMPT, AFTER = 40, (3, 1, 4, 1, 5, 9, 2), 20
#: What sums in another order may differ, of logits of about 5: in f32, and where f16 is stored.
CLOSE, HALF = 2e-5, 3e-2


def step_by_step(model: ExportedModel) -> Callable[[Sequence[int]], np.ndarray[Any, Any]]:
    """The last logits by the graphs' own meaning."""
    graphs = {rows: model.graph({"n": rows}) for rows in (1, 8)}
    caches = {name: np.zeros(n.shape, "f4") for name, n in graphs[1].inputs[2:]}
    past = 0

    def read(ids: Sequence[int]) -> np.ndarray[Any, Any]:
        nonlocal past
        part, rows = ids[past:], 8 if len(ids) - past > 1 else 1
        past = len(ids)
        graph = graphs[rows]
        padded = np.zeros((1, rows), "i8")
        padded[0, : len(part)] = part
        given = {"input_ids": padded, "seqlens_k": np.array([past - 1], "i4"), **caches}
        made = evaluate([n for _, n in graph.outputs], given)
        results = dict(zip((name for name, _ in graph.outputs), made, strict=True))
        caches.update({name: results[new] for name, new in model.states.items()})
        return np.asarray(results["logits"]).ravel()

    return read


def check(e: Export, read: Callable[[Sequence[int]], Any], wanted: onnx.ModelProto) -> None:
    tokens, logits = greedy(wanted.SerializeToString(), PROMPT, AFTER)
    ids = list(PROMPT)
    for token, row in zip(tokens, logits, strict=True):
        found = read(ids)
        bound = ROUNDED if e.weights == "int8" else HALF if e.half else CLOSE
        assert np.abs(found - row).max() < bound
        assert int(np.argmax(found)) == token or e.weights == "int8"
        ids.append(token)


@pytest.mark.parametrize("name", MODELS)
def test_tokens_are_those_of_onnxruntime(name: str) -> None:
    proto = exported(MODELS[name])
    check(MODELS[name], step_by_step(ExportedModel(load(proto), ROOM)), proto)


def bundle(proto: onnx.ModelProto, folder: Path) -> Path:
    model = ExportedModel(load(proto), ROOM)
    options = Options(buckets={"n": (1, 8)}, states=model.states)
    write(compile_model(model, options).contents, folder)
    return folder


def test_embeddings_of_positions_that_are_as_wide_as_the_room() -> None:
    """They are added to each token's, and are no mask."""
    e = replace(OPTIMUM, width=ROOM, placed=True)
    proto = exported(e)
    check(e, step_by_step(ExportedModel(load(proto), ROOM)), proto)


@pytest.mark.parametrize("name", ["genai, q4f16", "optimum", "optimum, window", "optimum, f16"])
def test_tokens_of_a_bundle(tmp_path: Path, name: str) -> None:
    proto = exported(MODELS[name])
    folder = bundle(proto, tmp_path / "bundle")
    for host in WasmtimeHost(folder, threads=1), ReferenceHost(folder):
        session = CacheSession(lambda x, h=host: h.run(x).outputs, host.bundle.manifest)  # type: ignore[misc]
        check(MODELS[name], session.read, proto)


def test_both_forms_become_the_same_steps() -> None:
    """Caches are written in place, masks are comparisons, heads are not repeated in memory: the
    form of operators has only the tables of the rotation more."""
    counts = {}
    for e in GENAI, OPTIMUM:
        model = ExportedModel(load(exported(e)), ROOM)
        compiled = compile_model(model, Options(buckets={"n": (1,)}, states=model.states))
        counts[e.form] = len(compiled.plans[0].steps)
    assert counts["genai"] < counts["optimum"] <= counts["genai"] + 2


# ---- what is refused -----------------------------------------------------------------------------


def refused(proto: onnx.ModelProto, room: int = ROOM) -> TilewrightError:
    with pytest.raises(TilewrightError) as caught:
        ExportedModel(load(proto), room).graph({"n": 8})
    assert caught.value.hint
    return caught.value


def renamed(old: str, new: str) -> onnx.ModelProto:
    proto = exported(OPTIMUM)
    for value in (*proto.graph.input, *proto.graph.output):
        value.name = value.name.replace(old, new)
    for node in proto.graph.node:
        for names in (node.input, node.output):
            names[:] = [name.replace(old, new) for name in names]
    return proto


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("input_ids", "inputs_embeds", "no input 'input_ids'"),
        ("past_key_values", "memory", "no caches"),
        ("logits", "hidden", "no output 'logits'"),
        ("attention_mask", "mask", "input 'mask' is not known"),
    ],
)
def test_unknown_names(old: str, new: str, words: str) -> None:
    error = refused(renamed(old, new))
    assert isinstance(error, UnsupportedOp)
    assert words in error.message


def test_open_heads() -> None:
    proto = exported(OPTIMUM)
    for value in proto.graph.input:
        if value.name.startswith("past"):
            value.type.tensor_type.shape.dim[1].dim_param = "heads"
    assert "how many heads" in refused(proto).message


def test_a_mask_that_is_no_comparison() -> None:
    proto = exported(OPTIMUM)
    greater = next(n for n in proto.graph.node if n.op_type == "Greater")
    greater.op_type = "Less"
    assert "hides keys" in refused(proto).message


def test_attention_without_a_mask() -> None:
    proto = exported(OPTIMUM)
    softmax = next(n for n in proto.graph.node if n.op_type == "Softmax")
    add = next(n for n in proto.graph.node if softmax.input[0] in n.output)
    softmax.input[0] = add.input[0]
    assert "hides no keys" in refused(proto).message


def test_a_room_that_the_rotation_does_not_have() -> None:
    error = refused(exported(GENAI), GENAI.most + 1)
    assert isinstance(error, UsageError)
    assert str(GENAI.most) in str(error.hint)


def test_a_mean_over_all_keys() -> None:
    proto = exported(OPTIMUM)
    graph = proto.graph
    softmax = next(n for n in graph.node if n.op_type == "Softmax")
    axes = onnx.numpy_helper.from_array(np.array([-1]), "last axis")
    graph.initializer.append(axes)
    at = list(graph.node).index(softmax)
    mean = onnx.helper.make_node("ReduceMean", [softmax.input[0], "last axis"], ["mean"])
    less = onnx.helper.make_node("Sub", [softmax.input[0], "mean"], ["less"])
    softmax.input[0] = "less"
    for number, node in enumerate((mean, less)):
        graph.node.insert(at + number, node)
    assert "ReduceMean over past and new" in refused(proto).message
