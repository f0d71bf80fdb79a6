"""Encoder-decoder models as exporters write them: their tokens are those of onnxruntime, which runs
the decoder over all tokens at each step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from helpers.encoder_decoders import Tiny, decoder, encoder, greedy
from helpers.exported_models import ROUNDED

from tilewright.base.errors import ContextFull, InputError, TilewrightError, UsageError
from tilewright.bundle import open_bundle, write
from tilewright.compiler import Options, compile_model
from tilewright.frontend.exports import EncoderDecoderExport
from tilewright.frontend.read import load
from tilewright.graph.node import evaluate
from tilewright.hosts.reference import ReferenceHost
from tilewright.hosts.wasmtime import WasmtimeHost
from tilewright.language import PromptSession

PROMPT, OTHER, AFTER = (3, 1, 4, 1, 5, 9, 2), (2, 7, 1, 8), 12
SIZES = {"m": (0, 8, 24), "n": (4, 16)}
#: What sums in another order may differ, of logits of about 5.
CLOSE = 5e-5
WEIGHTS = ("f32", "int8")


def source(weights: str = "f32", prompt: int = 24, room: int = 16) -> EncoderDecoderExport:
    t = Tiny(weights)
    return EncoderDecoderExport(load(encoder(t)), load(decoder(t)), prompt, room, first=4)


def check(weights: str, session: PromptSession) -> None:
    t = Tiny(weights)
    files = encoder(t).SerializeToString(), decoder(t).SerializeToString()
    for prompt in (PROMPT, OTHER, tuple(range(24)), PROMPT):
        tokens, logits = greedy(*files, prompt, AFTER)
        for number, row in enumerate(logits):
            found = session.after(prompt, tokens[:number])
            assert found is not None
            assert np.abs(found - row).max() < (ROUNDED if weights == "int8" else CLOSE)
            assert session.held(prompt) == len(prompt)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_logits_are_those_of_onnxruntime(weights: str) -> None:
    """By the graphs' own meaning, at the sizes of a bundle."""
    model = source(weights)
    graphs = {tuple(d.values()): model.graph(d) for d in model.combinations(SIZES)}
    states = {name: np.zeros(n.shape, "f4") for name, n in graphs[0, 4].inputs[4:]}

    def run(given: Any) -> dict[str, Any]:
        m, n = given["encoder_ids"].shape[1], given["input_ids"].shape[1]
        fits = (d for d in model.combinations(SIZES) if d["m"] >= m and d["n"] >= n)
        sizes = next(fits)
        padded = dict(given) | states
        for name, size in (("encoder_ids", sizes["m"]), ("input_ids", sizes["n"])):
            padded[name] = np.zeros((1, size), "i8")
            padded[name][0, : given[name].shape[1]] = given[name]
        graph = graphs[sizes["m"], sizes["n"]]
        made = evaluate([n for _, n in graph.outputs], padded)
        results = dict(zip((name for name, _ in graph.outputs), made, strict=True))
        states.update({old: results[new] for old, new in model.states.items()})
        return results

    manifest = compile_model(model, Options(buckets=SIZES, states=model.states)).manifest
    check(weights, PromptSession(run, manifest, [0]))


@pytest.mark.parametrize("weights", WEIGHTS)
def test_logits_of_a_bundle(tmp_path: Path, weights: str) -> None:
    model = source(weights)
    options = Options(buckets=SIZES, states=model.states)
    write(compile_model(model, options).contents, tmp_path)
    for host in WasmtimeHost(tmp_path, threads=2), ReferenceHost(tmp_path):
        check(weights, PromptSession(lambda x, h=host: h.run(x).outputs, host.bundle.manifest, [0]))  # type: ignore[misc]


def test_the_prompt_is_computed_once(tmp_path: Path) -> None:
    """Runs with an empty prompt have no step of the encoder, and keep the states."""
    model = source()
    write(compile_model(model, Options(buckets=SIZES, states=model.states)).contents, tmp_path)
    plans = open_bundle(tmp_path).manifest.plans
    assert [tuple(p.dims.values()) for p in plans] == [(0, 4), (0, 16), (8, 4), (24, 4)]
    assert len(plans[0].steps) < 0.7 * len(plans[2].steps)


def test_what_does_not_fit(tmp_path: Path) -> None:
    model = source(prompt=8, room=4)
    sizes = {"m": (0, 8), "n": (4,)}
    made = compile_model(model, Options(buckets=sizes, states=model.states))
    session = PromptSession(lambda _: {"logits": np.zeros(60)}, made.manifest, [0])
    for prompt, written in ((range(9), ()), ((1,), (1, 2, 3, 4))):
        with pytest.raises(ContextFull):
            session.after(list(prompt), list(written))
    with pytest.raises(InputError, match="empty"):
        session.after([], [])
    assert session.after([1], [], lambda: True) is None
    for wrong in ({"m": (8,), "n": (4,)}, {"m": (0, 8), "n": (2, 4)}, {"m": (0,), "n": (4,)}, {}):
        with pytest.raises(UsageError, match="needs sizes"):
            model.combinations(wrong)
    with pytest.raises(UsageError, match="do not fit"):
        model.graph({"m": 9, "n": 4})


def renamed(model: onnx.ModelProto, old: str, new: str) -> onnx.ModelProto:
    for each in model.graph.node:
        for names in each.input, each.output:
            for number, name in enumerate(names):
                names[number] = new if name == old else name
    for info in (*model.graph.input, *model.graph.output):
        info.name = new if info.name == old else info.name
    return model


@pytest.mark.parametrize(("part", "old", "words"), [
    ("encoder", "attention_mask", "the encoder has no input 'attention_mask'"),
    ("decoder", "encoder_hidden_states", "the decoder has no input 'encoder_hidden_states'"),
    ("decoder", "logits", "no output 'logits'"),
])  # fmt: skip
def test_files_of_another_form(part: str, old: str, words: str) -> None:
    files = {"encoder": encoder(Tiny()), "decoder": decoder(Tiny())}
    renamed(files[part], old, "other")
    with pytest.raises(TilewrightError, match=words):
        EncoderDecoderExport(load(files["encoder"]), load(files["decoder"]), 8, 8)


def test_a_mean_over_all_tokens() -> None:
    """Padding would count."""
    made = encoder(Tiny())
    made.graph.node[-1].output[0] = "before"
    made.graph.node.extend(
        [
            onnx.helper.make_node("ReduceMean", ["before", "one"], ["mean"], "mean"),
            onnx.helper.make_node("Sub", ["before", "mean"], ["last_hidden_state"]),
        ]
    )
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "one"))
    with pytest.raises(TilewrightError, match="ReduceMean over all tokens"):
        EncoderDecoderExport(load(made), load(decoder(Tiny())), 8, 8)
