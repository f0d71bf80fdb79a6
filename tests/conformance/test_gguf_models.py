"""A language model from a GGUF file that has every type of weights, on every host, against NumPy:
a prompt in a padded bucket, one in whole parts, and single tokens, in caches that grow by
8 rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import SLOW, TARGETS, options_for
from helpers.gguf_files import ALL_TYPES, MODELS, Forward, Tiny, write_tiny
from helpers.once import made_once

from tilewright.bundle import open_bundle, write
from tilewright.compiler import compile_model
from tilewright.frontend.gguf import GgufModel
from tilewright.language.cache_session import CacheSession
from tilewright.plan import Growth

pytestmark = [
    pytest.mark.by_turns,
    pytest.mark.one_in(2, *SLOW),
]

#: What f32 sums in another order may differ by, of logits around 1 after two layers.
CLOSE = 1e-4
IDS = tuple(int(i) for i in np.random.default_rng(0).integers(0, 48, 19))
CASES = {
    "types": ALL_TYPES,
    "tied": Tiny(type="Q8_0", layers=1, words=50, tied=True, room=24),
    "gemma3": MODELS["gemma3"],
    "qwen3": MODELS["qwen3"],
}


Opener = Callable[[Path], Any]


def opened(root: Path, name: str, target: str, open_host: Opener) -> tuple[Forward, Any]:
    """What the model computes, and its bundle on a host."""

    def put(folder: Path) -> None:
        write_tiny(folder / "model.gguf", CASES[name])
        model = GgufModel(folder / "model.gguf")
        options = replace(
            options_for(target), buckets={"n": (1, 8)}, states=model.states,
            growth=Growth("seqlens_k", "n", 8),
        )  # fmt: skip
        write(compile_model(model, options).contents, folder / "bundle")

    folder = made_once(root / "gguf" / target / name, put)
    return Forward(folder / "model.gguf"), open_host(folder / "bundle")


def session_of(root: Path, name: str, target: str, host: Any) -> CacheSession:
    manifest = open_bundle(root / "gguf" / target / name / "bundle").manifest
    return CacheSession(lambda inputs: host.run(inputs).outputs, manifest)


@pytest.mark.parametrize("name", CASES)
def test_logits(name: str, root: Path, host_name: str, open_host: Opener) -> None:
    want, host = opened(root, name, TARGETS[host_name], open_host)
    session = session_of(root, name, TARGETS[host_name], host)
    for count in (5, 13, 14, 19):
        found, expected = session.read(IDS[:count]), want(IDS[:count])
        assert found is not None
        assert np.abs(found - expected).max() <= CLOSE * max(1, np.abs(expected).max())


def test_a_text_goes_on_from_caches_that_a_host_gave(
    root: Path, host_name: str, open_host: Opener
) -> None:
    """Of two blocks, when a third one follows."""
    name, target = "tied", TARGETS[host_name]
    want, host = opened(root, name, target, open_host)
    session = session_of(root, name, target, host)
    session.read(IDS[:13])
    states = open_bundle(root / "gguf" / target / name / "bundle").manifest.states
    kept = {state.name: host.state(state.name) for state in states}
    assert all(value[0, :, :13].any(-1).all() for value in kept.values())
    assert not any(value[0, :, 16:].any() for value in kept.values())
    host.reset()
    assert not any(host.state(name).any() for name in kept)
    for state, value in kept.items():
        host.set_state(state, value)
    for state, value in kept.items():
        np.testing.assert_array_equal(host.state(state), value)
    found, expected = session.read(IDS), want(IDS)
    assert found is not None
    assert np.abs(found - expected).max() <= CLOSE * max(1, np.abs(expected).max())
