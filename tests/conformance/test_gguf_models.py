"""A language model from a GGUF file that has every type of weights, on every host, against NumPy:
a prompt in a padded bucket, one in whole parts, and single tokens."""

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


@pytest.mark.parametrize("name", CASES)
def test_logits(name: str, root: Path, host_name: str, open_host: Callable[[Path], Any]) -> None:
    tiny, target = CASES[name], TARGETS[host_name]

    def put(folder: Path) -> None:
        write_tiny(folder / "model.gguf", tiny)
        model = GgufModel(folder / "model.gguf")
        options = replace(options_for(target), buckets={"n": (1, 8)}, states=model.states)
        write(compile_model(model, options).contents, folder / "bundle")

    folder = made_once(root / "gguf" / target / name, put)
    want = Forward(folder / "model.gguf")
    host = open_host(folder / "bundle")
    session = CacheSession(
        lambda inputs: host.run(inputs).outputs, open_bundle(folder / "bundle").manifest
    )
    for count in (5, 13, 14, 19):
        found, expected = session.read(IDS[:count]), want(IDS[:count])
        assert found is not None
        assert np.abs(found - expected).max() <= CLOSE * max(1, np.abs(expected).max())
