"""Encoder-decoder models with caches as exporters write them, in two decoders or merged in one:
their tokens are those of onnxruntime, which gives the decoder its caches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from helpers.encoder_decoders import Tiny, decoder, encoder, greedy_with_caches, merged
from helpers.exported_models import ROUNDED

from tilewright.base.errors import ContextFull, TilewrightError, UsageError
from tilewright.bundle import open_bundle, write
from tilewright.compiler import Options, compile_model
from tilewright.frontend import load
from tilewright.frontend.exports import CachedEncoderDecoder
from tilewright.hosts.reference import ReferenceHost
from tilewright.hosts.wasmtime import WasmtimeHost
from tilewright.language import PromptSession

PROMPT, OTHER, AFTER = (3, 9, 12, 5, 7), (40, 41, 9), 12
SIZES = {"m": (0, 8, 24), "n": (1,)}
#: f32 sums in another order, of logits that spread by about 2.
CLOSE = 5e-5
TINY = {
    "f32": Tiny(caches=True),
    "bias": Tiny(caches=True, bias=True),
    "int8": Tiny("int8", caches=True, bias=True),
}


def source(t: Tiny, how: str) -> CachedEncoderDecoder:
    files = (merged(t), None) if how == "merged" else (decoder(t), decoder(t, past=True))
    first, second = (load(model) if model else None for model in files)
    assert first is not None
    return CachedEncoderDecoder(load(encoder(t)), first, second, 24, 16)


@pytest.mark.parametrize("how", ["two", "merged"])
@pytest.mark.parametrize("kind", TINY)
def test_logits_are_those_of_onnxruntime(tmp_path: Path, kind: str, how: str) -> None:
    t, bound = TINY[kind], ROUNDED if kind == "int8" else CLOSE
    files = [m.SerializeToString() for m in (encoder(t), decoder(t), decoder(t, past=True))]
    model = source(t, how)
    options = Options(buckets=SIZES, states=model.states)
    write(compile_model(model, options).contents, tmp_path)
    for host in WasmtimeHost(tmp_path, threads=2), ReferenceHost(tmp_path):
        session = PromptSession(
            lambda x, h=host: h.run(x).outputs,
            host.bundle.manifest,
            [0],  # type: ignore[misc]
        )
        assert (session.room, session.most) == (24, 16)
        for prompt in (PROMPT, OTHER, tuple(range(24)), PROMPT):
            tokens, logits = greedy_with_caches(*files, prompt, AFTER)
            for number, row in enumerate(logits):
                found = session.after(prompt, tokens[:number])
                assert found is not None
                assert np.abs(found - row).max() < bound
                assert session.held(prompt) == len(prompt)
            # another text of the same prompt
            found = session.after(prompt, [])
            assert found is not None
            assert np.abs(found - logits[0]).max() < bound


def test_a_token_computes_no_prompt(tmp_path: Path) -> None:
    """Runs without a prompt have no step of the encoder, nor of cross-attention's keys."""
    model = source(TINY["f32"], "merged")
    write(compile_model(model, Options(buckets=SIZES, states=model.states)).contents, tmp_path)
    plans = open_bundle(tmp_path).manifest.plans
    assert [tuple(p.dims.values()) for p in plans] == [(0, 1), (8, 1), (24, 1)]
    nodes = [{step.node for step in plan.steps} for plan in plans]
    assert nodes[0] < nodes[1]
    rooms = {s.name: s.shape[-2] for s in open_bundle(tmp_path).manifest.states}
    assert rooms["past_encoder.0.key"] == 24
    assert rooms["past_decoder.1.value"] == 16


def test_what_does_not_fit(tmp_path: Path) -> None:
    model = source(TINY["f32"], "merged")
    manifest = compile_model(model, Options(buckets=SIZES, states=model.states)).manifest
    session = PromptSession(lambda _: {"logits": np.zeros(60)}, manifest, [0])
    for prompt, written in ((range(25), ()), ((1,), range(16))):
        with pytest.raises(ContextFull):
            session.after(list(prompt), list(written))
    assert session.after([1], [], lambda: True) is None
    assert session.held([1]) == 0
    with pytest.raises(UsageError, match="do not fit"):
        model.graph({"m": 8, "n": 2})
    with pytest.raises(UsageError, match="room for more"):
        CachedEncoderDecoder(load(encoder(TINY["f32"])), load(merged(TINY["f32"])), None, 8, 3)


def without(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    kept = [o for o in model.graph.output if o.name != name]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    return model


@pytest.mark.parametrize(("part", "name", "words"), [
    (0, "present.0.encoder.key", "has no output 'present.0.encoder.key'"),
    (1, "present.0.decoder.key", "no caches of past tokens"),
    (1, "logits", "no output 'logits'"),
])  # fmt: skip
def test_files_of_another_form(part: int, name: str, words: str) -> None:
    t: Any = TINY["f32"]
    files = [decoder(t), decoder(t, past=True)]
    files[part] = without(files[part], name)
    with pytest.raises(TilewrightError, match=words):
        CachedEncoderDecoder(load(encoder(t)), load(files[0]), load(files[1]), 8, 8)
