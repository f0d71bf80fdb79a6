"""The demo page as a person sees it: ready, ranking, own text, cancel, errors in words, layout."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from tilewright.bundle import open_bundle

from . import bundles
from .bundles import Library, flip
from .conftest import Visit
from .driver import Page
from .search_model import LENGTHS, vector
from .serving import Site, serving

pytestmark = [pytest.mark.by_turns, pytest.mark.one_in(2)]

OWN = {
    "the moon is bright": "the moon is bright",
    "hot soup and bread": "hot soup and bread",
    "A dog in the garden.": "a dog in the garden .",
    "warm tea, warm milk": "warm tea , warm milk",
}
LONG = " ".join(["snow"] * 3 * LENGTHS[-1])
BYTES = r"[\d.]+ (kB|MB)"


def cosine(query: str, tokens: str) -> float:
    return float(np.dot(vector(*query.split()), vector(*tokens.split())))


def ready(page: Page) -> None:
    status = page.wait("ready", "error")
    assert status["state"] == "ready", status
    assert status["text"].startswith("Ready: ")


def use(page: Page, text: str) -> None:
    """Pastes a text and waits until all of it can be searched."""
    page.do("paste", text=text)
    page.do("text", selector="#collection-text", contains="Your text")
    ready(page)


def test_ready_and_ranking(visit: Visit, shop: Site) -> None:
    page = visit(shop.url)
    ready(page)
    status = page.wait("ready")
    loading = [text for text in status["texts"] if text.startswith("Loading weights")]
    assert loading
    assert all(re.fullmatch(rf"Loading weights: {BYTES} of {BYTES}", text) for text in loading)
    assert not status["cancel"]
    assert not status["retry"]
    ranking = page.ask("yeast and bread dough")
    scores = [hit["score"] for hit in ranking]
    assert len(ranking) == 12
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > scores[-1]
    assert ranking[0]["text"].startswith("Bread dough rises because yeast")
    chart = page.do("chart")
    assert chart["runs"] > chart["bars"] == 60
    assert chart["median"] >= 0
    assert chart["height"] > 20
    assert page.do("log")["errors"] == []


def test_facts_of_model_and_device(settled: Page) -> None:
    page = settled
    assert page.do("text", selector="#fact-model", contains="search").startswith("search (tilewrig")
    page.ask("sun")
    page.do("text", selector="#fact-bucket", contains=f"n = {LENGTHS[0]}")
    page.ask("the sun and the moon and the snow and the rain")
    page.do("text", selector="#fact-bucket", contains=f"n = {LENGTHS[1]}")
    page.do("text", selector="#fact-features", contains="isolated")
    page.do("text", selector="#fact-bytes", contains="kB downloaded")
    page.do("click", selector="#profile > summary")
    page.do("text", selector="#profile-text", contains="step")
    page.do("click", selector="#forget")
    page.do("text", selector="#fact-bytes", contains="deleted")


def test_pasted_text_scores_as_computed(settled: Page) -> None:
    page = settled
    use(page, "\n".join(OWN))
    assert page.wait("ready")["text"] == f"Ready: {len(OWN)} sentences to search"
    for query in ("bright moon", "hot tea with milk", "dog"):
        ranking = page.ask(query)
        expected = sorted(((cosine(query, t), s) for s, t in OWN.items()), reverse=True)
        assert [hit["text"] for hit in ranking] == [text for _, text in expected]
        np.testing.assert_allclose([h["score"] for h in ranking], [s for s, _ in expected], 0, 1e-5)
    page.do("click", selector="#restore")
    page.do("text", selector="#collection-text", contains="Examples")
    ready(page)


def test_file_as_collection(settled: Page, tmp_path: Path) -> None:
    page = settled
    (tmp_path / "notes.txt").write_text("The river is cold. The oven is hot.\n\n---\nGreen leaf")
    page.do("chooseFile", path=str(tmp_path / "notes.txt"))
    page.do("text", selector="#collection-text", contains="notes.txt: 3 sentences")
    ready(page)
    ranking = page.ask("hot oven")
    assert ranking[0]["text"] == "The oven is hot."
    assert len(ranking) == 3


def test_text_longer_than_the_model(settled: Page) -> None:
    """Cut, and said so; the cut keeps the end marker."""
    page = settled
    use(page, f"{LONG}\nmoon")
    assert f"cut to the first {LENGTHS[-1]} tokens" in page.wait("ready")["hint"]
    ranking = page.ask("snow")
    assert ranking[0]["text"] == LONG
    kept = " ".join(["snow"] * (LENGTHS[-1] - 2))
    assert ranking[0]["score"] == pytest.approx(cosine("snow", kept), abs=1e-5)
    page.ask(LONG)
    page.do("text", selector="#summary", contains=f"cut to {LENGTHS[-1]} tokens")


def test_text_without_a_sentence(settled: Page) -> None:
    page = settled
    page.do("paste", text=" \n--- !\n")
    page.do("text", selector="#collection-text", contains="no sentence in this text")
    assert page.ask("moon")


@pytest.mark.parametrize("part", ["pointer", "shard", "tokenizer"])
def test_cancel_and_try_again(visit: Visit, shop: Site, tmp_path: Path, part: str) -> None:
    """At once, whichever file is on its way."""
    manifest = open_bundle(tmp_path / "search").manifest
    files = {
        "pointer": "search/bundle.json",
        "shard": manifest.weights.shards[0].file,
        "tokenizer": manifest.assets[0].file,
    }
    with shop.server.holding(files[part]):
        page = visit(shop.url)
        shop.server.wait_until_asked(files[part])
        status = page.wait("loading")
        assert status["cancel"]
        page.do("click", selector="#cancel")
        status = page.wait("cancelled")
        assert status["text"].startswith("Cancelled")
        assert status["retry"]
        assert not status["cancel"]
    page.do("click", selector="#retry")
    ready(page)
    assert page.ask("moon")


def test_dead_worker_is_told_in_words(visit: Visit, shop: Site) -> None:
    page = visit(shop.url)
    ready(page)
    page.do("endWorkers")
    page.do("click", selector="#examples button")
    status = page.wait("error")
    assert status["code"] == "host"
    assert "worker died" in status["text"]
    page.do("click", selector="#retry")
    ready(page)


def test_broken_bundle_is_told_in_words(visit: Visit, shop: Site, tmp_path: Path) -> None:
    """And after the repair the same page goes on."""
    (file,) = bundles.shards(tmp_path / "search")
    flip(tmp_path / "search" / file)
    page = visit(shop.url)
    status = page.wait("error")
    assert status["code"] == "bundle-corrupt"
    assert file in status["text"]
    assert "digest" in status["text"]
    assert status["hint"].startswith("Copy the bundle")
    assert status["retry"]
    assert not status["cancel"]
    flip(tmp_path / "search" / file)
    page.do("click", selector="#retry")
    ready(page)


def test_broken_tokenizer(visit: Visit, shop: Site, tmp_path: Path) -> None:
    (asset,) = open_bundle(tmp_path / "search").manifest.assets
    flip(tmp_path / "search" / asset.file)
    status = visit(shop.url).wait("error", "ready")
    assert status["code"] == "bundle-corrupt"
    assert asset.file in status["text"]


def test_broken_bundle_hides_no_good_one(visit: Visit, library: Library, tmp_path: Path) -> None:
    broken = library.copied("search", tmp_path / "broken")
    flip(broken / open_bundle(broken).pointer.manifest.file)
    served = {"a broken": broken, "b other": library.path("linear"), "c": library.path("search")}
    with serving(served) as site:
        ready(visit(site.url))


def test_no_bundle_that_fits(visit: Visit, library: Library) -> None:
    with serving({"linear": library.path("linear")}) as site:
        status = visit(site.url).wait("error", "ready")
    assert status["code"] == "input"
    assert "No bundle of this server embeds sentences (it has 1 bundle)" in status["text"]


def test_reload_without_the_server(visit: Visit, library: Library) -> None:
    with ExitStack() as running:
        site = running.enter_context(serving({"search": library.path("search")}))
        page = visit(site.url)
        ready(page)
        first = page.ask("hot soup")
        page.do("serviceWorker")
        running.close()
        page.do("reload")
        ready(page)
        assert page.ask("hot soup") == first
        page.do("text", selector="#fact-bytes", contains="0.0 kB downloaded")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("width", [320, 768, 1280])
def test_nothing_overflows(visit: Visit, shop: Site, tmp_path: Path, width: int) -> None:
    """With a ranking, with words that fit no line, and with an error."""
    page = visit(shop.url, width)
    ready(page)
    page.ask("bread and butter")
    page.do("click", selector="#profile > summary")
    page.do("text", selector="#profile-text", contains="step")
    fits(page, tmp_path / "ranking.png", width)
    long = "unbreakable" * 16
    (tmp_path / f"{long}.txt").write_text(f"{long}{long}\nmoon")
    page.do("chooseFile", path=str(tmp_path / f"{long}.txt"))
    page.do("text", selector="#collection-text", contains=long)
    ready(page)
    page.ask(long)
    fits(page, tmp_path / "long.png", width)
    (file,) = bundles.shards(tmp_path / "search")
    flip(tmp_path / "search" / file)
    page.do("click", selector="#forget")
    page.do("text", selector="#fact-bytes", contains="deleted")
    page.do("reload")
    assert page.wait("error", "ready")["state"] == "error"
    fits(page, tmp_path / "error.png", width)


def fits(page: Page, screenshot: Path, width: int) -> None:
    found = page.do("layout", screenshot=str(screenshot))
    assert found["width"] <= width
    assert not found["overflow"], found["outside"]
    assert found["outside"] == []
    assert screenshot.read_bytes().startswith(b"\x89PNG")
