"""Look-up in the text: proposals, runs that check them, and answers that stay the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_call import Called
from helpers.gguf_files import Tiny, write_tiny
from helpers.vocabularies import merges

import tilewright as tw
from tilewright.base.errors import MemoryLimit, UsageError
from tilewright.bundle import Manifest, StateEntry, TensorInfo, Weights
from tilewright.bundle.format import FileRef
from tilewright.language import CacheSession, Sampling
from tilewright.language.lookup import Lookup
from tilewright.language.sampling import Sampler

TEXTS = (
    [1, 2, 3, 4, 1, 2, 3],
    [1, 2, 3, 4],
    [5] * 4,
    [7, 1, 2, 3, 8, 1, 2, 3, 9, 1, 2, 3],
    [1],
    [],
)
WORDS = 40


def test_the_text_goes_on_as_it_did_before() -> None:
    look = Lookup(3)
    # a continuation that reaches the end of the text begins again
    assert [look.next(ids) for ids in TEXTS] == [[4, 1, 2], [], [5, 5, 5], [9, 1, 2], [], []]


class Writer:
    """A model with caches: its logits follow from all ids that the caches hold up to a place.

    runs: ids of each run;  fits: how many ids there is memory for
    """

    def __init__(self, fits: int = 1000) -> None:
        self.rows: dict[int, int] = {}
        self.runs: list[list[int]] = []
        self.fits = fits

    def __call__(self, inputs: Any) -> dict[str, Any]:
        ids, places = inputs["input_ids"][0].tolist(), inputs["seqlens_k"].tolist()
        if places[0] >= self.fits:
            raise MemoryLimit("no memory", hint="")
        self.runs.append(ids)
        first = places[0] + 1 - len(ids)
        self.rows |= dict(enumerate(ids, first))
        return {"logits": np.stack([self.logits(place) for place in places])[None]}

    def logits(self, place: int) -> Any:
        """Like a text that repeats itself, with a change now and then."""
        text = [self.rows[at] for at in range(place + 1)]
        rng = np.random.default_rng([*text[-2:], sum(text) % 3])
        values = rng.standard_normal(WORDS)
        values[(text[-1] * 7 + 3) % 11] += 0 if sum(text) % 5 == 0 else 6
        return values.astype("f4")


def session(run: Any, lookup: bool = True, checked: int = 2, room: int = 200) -> CacheSession:
    empty = FileRef(file="", digest="", bytes=0)
    info = [TensorInfo(name=n, dtype="i64", shape=()) for n in ("input_ids", "seqlens_k")]
    state = StateEntry(name="k", dtype="f32", shape=(1, 1, room, 2))
    dims = {"n": tuple(sorted({1, 8, checked})), "k": tuple(sorted({1, checked}))}
    manifest = Manifest(
        tool="", name="", dims=dims, extents=(), inputs=tuple(info), outputs=(),
        states=(state,), weights=Weights(bytes=0), kernels=empty, plans=(), targets={}, assets=(),
    )  # fmt: skip
    return CacheSession(run, manifest, lookup=lookup)


def written(own: CacheSession, prompt: Sequence[int], choice: Sampling, most: int) -> list[int]:
    choose, ids = Sampler(choice), [*prompt]
    while len(ids) < len(prompt) + most:
        found = own.read(ids)
        assert found is not None
        ids.append(choose(found, ids))
    return ids[len(prompt) :]


CHOICES = (
    Sampling(),
    Sampling(penalty=1.3),
    Sampling(temperature=1.0, seed=3),
    Sampling(temperature=1.5, top_k=0, min_p=0, seed=4, frequency_penalty=0.2),
)


@pytest.mark.parametrize("checked", [2, 4])
@pytest.mark.parametrize("choice", CHOICES)
def test_a_look_up_writes_the_same_text_in_fewer_runs(choice: Sampling, checked: int) -> None:
    plain, quick = Writer(), Writer()
    one, other = session(plain, False), session(quick, True, checked)
    for prompt in ([1, 2, 3, 1, 2, 3], [4, 5, 6, 7], [4, 5, 9]):
        assert written(one, prompt, choice, 60) == written(other, prompt, choice, 60)
    if choice.temperature <= 1 and choice.penalty == 1:  # others repeat little
        assert len(quick.runs) < 0.9 * len(plain.runs)
    assert {len(ids) for ids in quick.runs} <= {1, 3, 4, 6, checked}


def test_nothing_is_proposed_that_does_not_fit() -> None:
    """Neither behind the end of the caches, nor where there is no memory."""
    quick = Writer()
    text = written(session(quick, room=12), [1, 2, 3, 1, 2, 3], Sampling(), 6)
    assert len(text) == 6
    short = Writer(fits=9)
    own = session(short)
    assert written(own, [5, 5, 5, 5, 5], Sampling(logit_bias={5: 100}), 5) == [5] * 5
    with pytest.raises(MemoryLimit):
        own.read([5] * 10)
    assert own.read([5] * 3) is not None


def test_a_stopped_answer_takes_no_proposal() -> None:
    quick = Writer()
    own = session(quick)
    own.read([5] * 6)
    own.read([5] * 7)
    assert quick.runs[-1] == [5, 5]
    assert own.read([5] * 8, lambda: True) is None
    assert own.read([5] * 8) is not None
    assert len(quick.runs) == 2


# ---- with kernels --------------------------------------------------------------------------------

KINDS = ("F32", "Q4_0", "Q6_K")
PROMPT = "the cat sat on a mat the cat sat on a mat the cat"


@pytest.mark.parametrize("kind", KINDS)
def test_kernels_of_two_rows_give_the_bits_of_one(kind: str, tmp_path: Path) -> None:
    """So that the likeliest token, and one that is drawn, are the same."""
    width = 256 if kind.endswith("K") else 64
    tiny = Tiny(
        type=kind, words=400, text=merges().write, layers=1, width=width, heads=4, kv_heads=2,
        head=width // 4, hidden=width, room=128,
    )  # fmt: skip
    file = write_tiny(tmp_path / "tiny.gguf", tiny)
    plain, quick = (
        tw.language_model(file, threads=1, cache=tmp_path, context=100, lookup=lookup)
        for lookup in (False, True)
    )
    with plain, quick:
        ids = plain.vocabulary.encode(PROMPT)
        assert isinstance(plain.session, CacheSession)
        assert isinstance(quick.session, CacheSession)
        rows = [plain.session.read(ids[:count]) for count in range(1, len(ids) + 1)]
        checked = 0
        for count in range(1, len(ids) + 1):
            found, wanted = quick.session.read(ids[:count]), rows[count - 1]
            assert found is not None
            assert wanted is not None
            assert found.tobytes() == wanted.tobytes(), count
            checked += len(quick.session.ids) > count
        assert checked > 2
        for choice in ({}, {"temperature": 1.0, "seed": 2}):
            texts = [
                "".join(lm.complete(PROMPT, most=40, logit_bias={5: 3.0}, **choice))
                for lm in (plain, quick)
            ]
            assert texts[0] == texts[1]


def test_bundles_and_models_without_such_plans(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="no plan that checks"):
        session(Writer(), True, 1)
    file = write_tiny(tmp_path / "tiny.gguf", Tiny(
        words=400, text=merges().write, layers=1, width=32, heads=2, kv_heads=1, hidden=32
    ))  # fmt: skip
    for name, more in (("with", ["--lookup"]), ("without", [])):
        assert Called(capsys, "build", file, "-o", tmp_path / name, *more, "--json").code == 0
    ask = ("--prompt", "the cat the cat the", "--most", "9", "--json")
    found = [
        Called(capsys, "generate", tmp_path / name, *ask, *more).json["ids"]
        for name, more in (("with", ["--lookup"]), ("with", []), ("without", []))
    ]
    assert found[0] == found[1] == found[2]
    refused = Called(capsys, "generate", tmp_path / "without", *ask, "--lookup")
    assert "--lookup" in refused.out
    assert refused.code == 2
