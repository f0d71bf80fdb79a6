"""A language model with caches as states: a prompt and then one token after the other, on every
host, against onnxruntime, which computes the whole sequence anew each time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import BROWSERS, SLOW, TARGETS, on, options_for
from helpers.llama import TINY, Sizes, llama
from helpers.once import made_once

from tilewright.base.errors import TilewrightError
from tilewright.bundle import open_bundle, write
from tilewright.compiler import compile_model
from tilewright.kernel.spec import Kernel
from tilewright.targets import target
from tilewright.targets.gpu.product.strategies import FEW_ROWS_INT8
from tilewright.targets.schedule import Schedule

pytestmark = [
    pytest.mark.by_turns,
    pytest.mark.one_in(4, *SLOW),
    pytest.mark.one_in(2, *(host for host in TARGETS if host not in SLOW)),
]

#: Rows of the prompt's bucket, and tokens that are then generated, also where one takes long.
PROMPT, TOKENS, FEW = 8, 20, 6
NONE: Mapping[str, Any] = MappingProxyType({})

#: Sizes, more options and settings of the target -> a folder with the bundle and its model.
Built = Callable[..., Path]


@pytest.fixture
def built(root: Path, host_name: str) -> Built:
    """Makes a bundle of the model for single tokens and for prompts, once for all hosts of a
    target; beside it model.onnx, the same in operators that onnxruntime has."""
    name = TARGETS[host_name]

    def made(sizes: Sizes, more: Mapping[str, Any] = NONE, **settings: int) -> Path:
        def put(folder: Path) -> None:
            onnx.save(llama(replace(sizes, plain=False, level=0)), folder / "model.onnx")
            onnx.save(llama(sizes), folder / "compiled.onnx")
            options = replace(options_for(name), buckets={"n": (1, PROMPT)}, states=sizes.states)
            options = replace(options, settings=settings, **more)
            if sizes.level and name == "cuda":  # there it is no first choice
                options = replace(options, schedule=_rounded)
            write(compile_model(folder / "compiled.onnx", options).contents, folder / "bundle")

        what = sha256(repr((sizes, sorted(more.items()), settings)).encode()).hexdigest()
        return made_once(root / "llama" / name / what[:16], put)

    return made


def _rounded(kernel: Kernel, variant: Any) -> Schedule:
    """Rows in bytes wherever that is allowed."""
    if FEW_ROWS_INT8.suits(kernel):
        return FEW_ROWS_INT8.default(kernel)
    return target("cuda").default(kernel, variant.name)


def whole(folder: Path, sizes: Sizes, ids: list[int]) -> np.ndarray:
    """The logits of the last row, computed from empty caches."""
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    cache = np.zeros((1, sizes.kv_heads, sizes.room, sizes.head), "f4")
    given = step(ids, 0) | dict.fromkeys(sizes.states, cache)
    return np.asarray(session.run(["logits"], given)[0])


def step(ids: list[int], past: int) -> dict[str, Any]:
    last = past + len(ids) - 1
    return {"input_ids": np.array([ids], "i8"), "seqlens_k": np.array([last], "i4")}


MODELS = {
    "4 bits": TINY,
    "f32": replace(TINY, bits=32, kv_heads=4),
    "plain": replace(TINY, plain=True),
}


@pytest.mark.parametrize("sizes", MODELS.values(), ids=MODELS)
def test_tokens_are_those_of_the_whole_sequence(
    sizes: Sizes, host_name: str, open_host: Callable[[Path], Any], built: Built
) -> None:
    """The prompt is shorter than its bucket; each token is the likeliest one."""
    folder = built(sizes)
    opened = open_host(folder / "bundle")
    ids = [int(i) for i in np.random.default_rng(3).integers(0, sizes.words, PROMPT - 3)]
    got = opened.run(step(ids, 0)).outputs["logits"]
    for _ in range(FEW if host_name in SLOW else TOKENS):
        want = whole(folder, sizes, ids)
        # sums of a few hundred products, in another order
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-5)
        ids.append(int(want.argmax()))
        got = opened.run(step(ids[-1:], len(ids) - 1)).outputs["logits"]
    opened.reset()
    again = opened.run(step(ids[:3], 0)).outputs["logits"]
    np.testing.assert_allclose(again, whole(folder, sizes, ids[:3]), rtol=1e-4, atol=2e-5)


def test_what_does_not_fit_is_refused(open_host: Callable[[Path], Any], built: Built) -> None:
    """A full cache and ids beyond the vocabulary stop the run; a prompt that is too long has no
    bucket.  The next run is right again."""
    sizes, folder = TINY, built(TINY)
    opened = open_host(folder / "bundle")
    for wrong in (step([1], sizes.room), step([sizes.words], 0)):
        with pytest.raises(TilewrightError) as caught:
            opened.run(wrong)
        assert caught.value.code == "kernel-trap"
    with pytest.raises(TilewrightError, match="bucket"):
        opened.run(step([1] * (PROMPT + 1), 0))
    opened.reset()
    got = opened.run(step([4, 2], 0)).outputs["logits"]
    np.testing.assert_allclose(got, whole(folder, sizes, [4, 2]), rtol=1e-4, atol=2e-5)


def test_a_long_cache_is_read_as_far_as_it_is_valid(
    open_host: Callable[[Path], Any], built: Built
) -> None:
    """Several blocks of keys, of which the last ones hold what no row may see."""
    sizes = replace(TINY, layers=1, room=700)
    folder = built(sizes)
    opened = open_host(folder / "bundle")
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    rng = np.random.default_rng(8)
    shape = (1, sizes.kv_heads, sizes.room, sizes.head)
    for past in (3, 255, 256, 500, sizes.room - 1):
        caches = {name: rng.standard_normal(shape, "f4") for name in sizes.states}
        for name, value in caches.items():
            opened.set_state(name, value)
        got = opened.run(step([7], past)).outputs["logits"]
        (want,) = session.run(["logits"], step([7], past) | caches)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-5)


@on(*(host for host, target in TARGETS.items() if target == "wgsl"))
def test_weights_and_caches_in_several_buffers(
    open_host: Callable[[Path], Any], built: Built
) -> None:
    """On WebGPU a buffer has a largest size: here 64 KiB, so that weights need several, and caches
    as well.  States are read, written and set to zero where they lie."""
    sizes = replace(TINY, layers=3, hidden=192, room=120)
    folder = built(sizes, bank=2**16)
    path = folder / "bundle"
    facts = open_bundle(path).manifest.section("wgsl").facts
    for further in (facts["banks"], facts["annexes"]):
        assert len(further["bytes"]) > 1
        assert max(further["bytes"]) <= 2**16
    assert facts["memory"]["bytes"] <= 2**16
    opened, ids = open_host(path), [5, 9, 2]
    for past in (0, 3, 4):
        got = opened.run(step(ids[past:], past)).outputs["logits"]
        np.testing.assert_allclose(got, whole(folder, sizes, ids), rtol=1e-4, atol=2e-5)
        ids.append(int(got.argmax()))
    kept = {name: opened.state(name) for name in sizes.states}
    opened.reset()
    assert not any(opened.state(name).any() for name in kept)
    for name, value in kept.items():
        opened.set_state(name, value)
    again = opened.run(step(ids[-1:], len(ids) - 1)).outputs["logits"]
    np.testing.assert_allclose(again, whole(folder, sizes, ids), rtol=1e-4, atol=2e-5)


@on("cuda-cpu", "cuda")
@pytest.mark.parametrize("sizes", [TINY, replace(TINY, width=256, hidden=288, block=32)])
def test_caches_of_16_bits(sizes: Sizes, open_host: Callable[[Path], Any], built: Built) -> None:
    """Half the bytes, f16 numbers in the caches, and logits that rounding to f16 explains."""
    options = {"halves": True}
    wide, folder = (built(sizes, options | {"compact_states": c}) for c in (False, True))
    memory = [open_bundle(f / "bundle").manifest.section("cuda").memory for f in (wide, folder)]
    cache = sizes.kv_heads * sizes.room * sizes.head
    assert memory[0] - memory[1] >= 2 * cache * len(sizes.states) - 64 * len(sizes.states)
    opened, ids = open_host(folder / "bundle"), [5, 9, 2]
    for number in range(FEW):
        got = opened.run(step(ids[-1:], len(ids) - 1) if number else step(ids, 0))
        found, want = got.outputs["logits"], whole(folder, sizes, ids)
        assert np.linalg.norm(found - want) / np.linalg.norm(want) < 4e-3
        ids.append(int(want.argmax()))
    held = {name: opened.state(name) for name in sizes.states}
    for value in held.values():
        np.testing.assert_array_equal(value, value.astype("f2"))
        assert np.abs(value).max() > 0
    last = opened.run(step(ids[-1:], len(ids) - 1)).outputs["logits"]
    opened.reset()
    for name, value in held.items():
        opened.set_state(name, value)
    again = opened.run(step(ids[-1:], len(ids) - 1)).outputs["logits"]
    np.testing.assert_array_equal(again, last)


def test_rows_may_be_rounded_to_bytes(
    host_name: str, open_host: Callable[[Path], Any], built: Built
) -> None:
    """Where the model allows it and the device has packed dot products; others compute in f32."""
    sizes = replace(TINY, layers=1, width=256, hidden=544, words=520, block=32, level=4)
    folder = built(sizes)
    opened, ids = open_host(folder / "bundle"), [5, 9, 2]
    for _ in range(2):
        got = opened.run(step(ids[-1:], len(ids) - 1) if ids[3:] else step(ids, 0))
        found, want = got.outputs["logits"], whole(folder, sizes, ids)
        error = np.linalg.norm(found - want) / np.linalg.norm(want)
        assert error < 0.03
        ids.append(int(want.argmax()))
    if host_name in ("dawn", "cuda-cpu"):
        assert error > 1e-4


#: Products long enough to be computed with the norms before them; what may be narrower.
WIDE = replace(TINY, width=256, hidden=288, words=264, block=32)
JOINED = {
    "4 bits": (WIDE, {}),
    "halves": (WIDE, {"halves": True}),
    "8 bits": (replace(WIDE, bits=8), {}),
    "f32": (replace(WIDE, bits=32), {}),
}


@pytest.mark.parametrize("name", JOINED)
@on("chromium-webgpu", "dawn")
def test_steps_that_one_dispatch_computes(
    name: str, open_host: Callable[[Path], Any], built: Built
) -> None:
    """In the engine on WebGPU a layer has fewer dispatches than steps, which a profile shows."""
    sizes, options = JOINED[name]
    folder = built(sizes, options)
    path = folder / "bundle"
    plans = open_bundle(path).manifest.section("wgsl").plans
    steps = open_bundle(path).manifest.plans[0].steps
    assert plans[0]["dispatches"] <= len(steps) - 5 * sizes.layers
    opened, ids = open_host(path), [5, 9, 2]
    for number in range(4):
        got = opened.run(step(ids[-1:], len(ids) - 1) if number else step(ids, 0))
        want = whole(folder, sizes, ids)
        error = np.linalg.norm(got.outputs["logits"] - want) / np.linalg.norm(want)
        assert error < (4e-3 if options else 1e-5)
        ids.append(int(want.argmax()))
        if number == 1:
            assert len(opened.profile(1, {"n": 1})) == plans[0]["dispatches"]


@pytest.mark.parametrize("token", ["greedy", "top-k"])
def test_the_device_chooses_the_token(
    token: str, open_host: Callable[[Path], Any], built: Built
) -> None:
    """One id comes back; of the likeliest ones a given number picks, as onnxruntime does."""
    sizes = replace(TINY, layers=1, words=700, token=token, top=5)
    folder = built(sizes)
    opened = open_host(folder / "bundle")
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    cache = np.zeros((1, sizes.kv_heads, sizes.room, sizes.head), "f4")
    seen = set()
    for chance in (0.0, 0.31, 0.62, 0.99):
        more = {"temperature": np.array([2.5], "f4"), "chance": np.array([chance], "f4")}
        given = step([5, 9, 2], 0) | (more if token == "top-k" else {})
        (want,) = session.run(["token"], given | dict.fromkeys(sizes.states, cache))
        got = opened.run(given).outputs["token"]
        assert got.shape == (1,)
        assert got == want
        seen.add(int(got[0]))
    assert (len(seen) > 1) == (token == "top-k")


@pytest.mark.parametrize("token", ["", "greedy"])
@on(*BROWSERS)
def test_text_is_generated_on_the_page(
    token: str, open_host: Callable[[Path], Any], built: Built
) -> None:
    """The engine's loop: a prompt in several parts, an end, going on, prompts that do not fit."""
    sizes = replace(TINY, layers=1, room=32, token=token)
    folder = built(sizes)
    opened = open_host(folder / "bundle")
    prompt = [int(i) for i in np.random.default_rng(4).integers(0, sizes.words, PROMPT + 3)]
    ids = list(prompt)
    for _ in range(6):
        session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
        cache = np.zeros((1, sizes.kv_heads, sizes.room, sizes.head), "f4")
        given = step(ids, 0) | dict.fromkeys(sizes.states, cache)
        ids.append(
            int(np.asarray(session.run(None, given)[0]).reshape(-1).argmax())
            if not token
            else int(session.run(["token"], given)[0][0])
        )
    want = ids[len(prompt) :]
    tokens, milliseconds = opened.generate(prompt, 4)
    assert (tokens, len(milliseconds)) == (want[:4], 4)
    # the last token is in no cache yet
    assert opened.generate([want[3]], 2, past=len(prompt) + 3)[0] == want[4:]
    assert opened.generate(prompt, 6, end=[want[2]])[0] == want[: want.index(want[2]) + 1]
    for wrong, past, words in (
        ([], 0, "empty"), ([-1], 0, "no id"), ([1] * 33, 0, "cache of 32"), ([1], 32, "0 free"),
    ):  # fmt: skip
        with pytest.raises(TilewrightError, match=words) as caught:
            opened.generate(wrong, 1, past=past)
        assert caught.value.code == "input"
    with pytest.raises(TilewrightError, match="full"):
        opened.generate(prompt, 99)
    with pytest.raises(TilewrightError) as caught:
        opened.generate([sizes.words], 1)
    assert caught.value.code == "kernel-trap"
    assert opened.generate(prompt, 4)[0] == want[:4]
