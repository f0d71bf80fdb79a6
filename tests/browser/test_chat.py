"""The chat page with a tiny model: load, answer, stop, edit, reload, offline, hostile text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from helpers.vocabularies import merges

from tilewright.bundle import open_bundle

from . import language_model
from .bundles import Library
from .conftest import Visit
from .driver import WIDE, Page
from .language_model import Made
from .patient import patient
from .replacing import replace_once
from .serving import Site, serving
from .test_page import fits

pytestmark = pytest.mark.one_in(2)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return language_model.made(tmp_path_factory.mktemp("chat") / "tiny")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return language_model.made(tmp_path_factory.mktemp("chat") / "hostile", hostile=True)


@pytest.fixture(scope="module")
def site(tiny: Made) -> Iterator[Site]:
    with serving({"tiny": tiny.bundle}) as running:
        yield running


def loaded(visit: Visit, site: Site, width: int = WIDE, most: int = 6) -> Page:
    """The page with a model that takes the likeliest tokens, and few of them."""
    page = visit(f"{site.url}/chat", width)
    assert page.do("chat")["able"] == ["load"]
    settle(page, most)
    page.do("click", selector="#load")
    found = page.do("chat", states=["ready", "error"])
    assert found["state"] == "ready", found
    return page


def settle(page: Page, most: int) -> None:
    page.do("type", selector="#temperature", text="0")
    page.do("type", selector="#most", text=str(most))


def say(page: Page, text: str) -> Any:
    """What the page shows after the answer."""
    page.do("type", selector="#message", text=text)
    page.do("keys", keys=["Enter"])
    return page.do("chat")


@pytest.mark.by_turns
def test_from_the_card_to_an_answer(visit: Visit, site: Site) -> None:
    page = visit(f"{site.url}/chat")
    before = page.do("chat")
    name, size, context = before["card"]
    assert name == "tiny"
    assert size.endswith("MB to download once")
    assert context == f"context of {language_model.ROOM} tokens"
    settle(page, 6)
    page.do("click", selector="#load")
    ready = page.do("chat", states=["ready", "error"])
    assert ready["state"] == "ready"
    assert ready["able"] == []
    assert ready["focus"] == "message"
    page.do("keys", text="the cat", keys=["Shift+Enter"])
    assert page.do("chat")["message"] == "the cat\n"
    page.do("keys", text="hello", keys=["Enter"])
    found = page.do("chat", messages=2)
    asked, answered = found["messages"]
    assert (asked["role"], asked["text"]) == ("user", "the cat\nhello")
    assert answered["role"] == "assistant"
    assert answered["text"]
    assert "tokens/s" in answered["about"]
    assert float(found["speed"]["first"]) > 0
    assert found["able"] == ["again", "edit", "clear"]
    assert found["message"] == ""
    again = say(page, "a")
    assert len(again["messages"]) == 4
    assert int(again["speed"]["reused"]) > 0
    assert page.do("log")["errors"] == []


@pytest.mark.by_turns
def test_a_model_that_does_not_chat(visit: Visit, tmp_path: Path) -> None:
    """It says so, and writes a text from each message alone."""
    with serving({"translator": language_model.translator(tmp_path)}) as site:
        page = loaded(visit, site)
        found = page.do("chat")
        rows = language_model.ROOM_OF_PROMPTS
        assert found["card"][2] == f"writes a new text from up to {rows} tokens"
        assert "does not chat" in found["hint"]
        first = say(page, "the cat")["messages"][1]
        assert first["text"]
        assert say(page, "hello")["messages"][2]["text"] == "hello"
        assert say(page, "the cat")["messages"][5]["text"] == first["text"]
        assert page.do("log")["errors"] == []


@pytest.mark.by_turns
def test_stop_again_edit_and_clear(visit: Visit, site: Site) -> None:
    page = loaded(visit, site)
    first = say(page, "the cat")["messages"][1]
    page.do("click", selector="#again")
    again = page.do("chat")["messages"]
    assert [m["text"] for m in again] == ["the cat", first["text"]]
    say(page, "hello")
    page.do("click", selector="#edit")
    editing = page.do("chat")
    assert (editing["message"], editing["label"]) == ("hello", "Edit your last message")
    assert (editing["focus"], editing["able"]) == ("message", ["send", "edit-end"])
    page.do("keys", keys=["Escape"])
    assert page.do("chat")["message"] == ""
    page.do("click", selector="#edit")
    edited = say(page, "a")["messages"]
    assert [m["text"] for m in edited[:3]] == ["the cat", first["text"], "a"]
    assert len(edited) == 4
    page.do("click", selector="#clear")
    found = page.do("chat")
    assert (found["messages"], found["able"]) == ([], [])
    assert say(page, "the cat")["messages"][1]["text"] == first["text"]


#: From some run on none ends; it rejects when it is aborted, as the engine's do.
RUN = "    past += count;\n"
HELD = (
    f"{RUN}    if (globalThis.runsLeft-- <= 0) return new Promise((_, reject) => "
    "signal?.addEventListener('abort', () => reject(signal.reason)));\n"
)


@pytest.mark.by_turns
def test_an_answer_is_stopped_by_button_and_by_key(
    visit: Visit, tiny: Made, tmp_path: Path
) -> None:
    """What came before stays; an answer without a token is none."""
    web = patient(tmp_path)
    replace_once(web / "engine" / "generate.js", RUN, HELD)
    with serving({"tiny": tiny.bundle}, web=web) as site:
        page = loaded(visit, site)
        page.do("globals", values={"runsLeft": 0})
        page.do("keys", text="the cat", keys=["Enter"])
        assert page.do("chat", chats=["writing"])["able"] == ["stop"]
        page.do("click", selector="#stop")
        found = page.do("chat")
        assert [m["role"] for m in found["messages"]] == ["user"]
        assert (found["state"], found["note"], found["focus"]) == ("ready", "", "message")
        page.do("globals", values={"runsLeft": 5})
        page.do("click", selector="#again")
        page.do("text", selector="#messages > li + li", contains="")
        page.do("runsLeft", count=-1)
        page.do("keys", keys=["Escape"])
        found = page.do("chat", messages=2)
        assert found["messages"][1]["ended"] == "aborted"
        assert "stopped" in found["messages"][1]["about"]
        page.do("globals", values={"runsLeft": 99})
        page.do("click", selector="#again")
        whole = page.do("chat", messages=2)["messages"][1]
        assert whole["ended"] == "most"
        assert whole["text"].startswith(found["messages"][1]["text"])


@pytest.mark.by_turns
def test_a_full_context_is_said_and_the_chat_goes_on(visit: Visit, site: Site) -> None:
    page = loaded(visit, site, most=1000)
    found = say(page, "the cat " * 200)
    assert found["noteCode"] == "context-full"
    assert "Clear the chat, or edit your message" in found["note"]
    assert [m["role"] for m in found["messages"]] == ["user"]
    page.do("click", selector="#edit")
    settle(page, 4)
    found = say(page, "the cat")
    assert (len(found["messages"]), found["note"]) == (2, "")


@pytest.mark.by_turns
def test_a_reload_keeps_the_chat_and_loads_from_this_device(visit: Visit, tiny: Made) -> None:
    with serving({"tiny": tiny.bundle}) as site:
        page = loaded(visit, site)
        before = say(page, "the cat")["messages"]
        weights = [ref.file for ref in open_bundle(tiny.bundle).manifest.weights.shards]
        asked = site.server.asked(*weights)
        page.do("reload")
        found = page.do("chat", states=["ready", "error"])
        assert (found["state"], found["messages"]) == ("ready", before)
        assert site.server.asked(*weights) == asked
        settle(page, 6)
        page.do("click", selector="#again")
        again = page.do("chat", messages=2)["messages"]
        assert [m["text"] for m in again] == [m["text"] for m in before]


@pytest.mark.by_turns
def test_without_the_server(visit: Visit, tiny: Made) -> None:
    with ExitStack() as running:
        site = running.enter_context(serving({"tiny": tiny.bundle}))
        page = loaded(visit, site)
        before = say(page, "the cat")["messages"]
        page.do("serviceWorker")
        running.close()
        page.do("reload")
        assert page.do("chat", states=["ready", "error"])["state"] == "ready"
        settle(page, 6)
        page.do("click", selector="#again")
        again = page.do("chat", messages=2)["messages"]
        assert [m["text"] for m in again] == [m["text"] for m in before]


@pytest.mark.by_turns
def test_a_download_stops_and_resumes(visit: Visit, tiny: Made) -> None:
    with serving({"tiny": tiny.bundle}) as site:
        page = visit(f"{site.url}/chat")
        page.do("chat")
        shard = open_bundle(tiny.bundle).manifest.weights.shards[0].file
        with site.server.holding(shard):
            page.do("click", selector="#load")
            site.server.wait_until_asked(shard)
            assert page.do("chat", states=["loading"])["able"] == ["cancel"]
            page.do("click", selector="#cancel")
            found = page.do("chat", states=["cancelled"])
        assert (found["able"], found["retry"]) == (["retry"], "Resume")
        page.do("click", selector="#retry")
        assert page.do("chat", states=["ready", "error"])["state"] == "ready"


@pytest.mark.by_turns
def test_text_of_a_model_is_never_html(visit: Visit, hostile: Made) -> None:
    """Its name and every token are pieces of HTML."""
    with serving({"<b>bold": hostile.bundle}) as site:
        page = loaded(visit, site)
        found = say(page, "<img src=x onerror=globalThis.hacked=1>")
        assert found["messages"][0]["text"] == "<img src=x onerror=globalThis.hacked=1>"
        assert found["messages"][1]["text"].startswith("<img src=x onerror=")
        assert found["card"][0].startswith("<img src=x onerror=")
        page.do("reload")
        assert page.do("chat", states=["ready"])["messages"] == found["messages"]
        assert page.do("injected") == {"images": 0, "hacked": None}


@pytest.mark.by_turns
def test_no_model_and_one_without_text_files(
    visit: Visit, library: Library, tmp_path: Path
) -> None:
    textless = language_model.made(tmp_path / "textless", textless=True)
    with serving({"search": library.path("search"), "mute": textless.bundle}) as site:
        page = visit(f"{site.url}/chat")
        found = page.do("chat")["none"]
        fits(page, tmp_path / "none.png", WIDE)
    assert "tilewright build model.gguf" in found
    assert "mute: a language model without tokenizer.json" in found


@pytest.mark.by_turns
def test_a_model_without_a_chat_template_goes_on_with_a_text(visit: Visit, tmp_path: Path) -> None:
    untold = language_model.made(tmp_path / "untold", untold=True)
    with serving({"untold": untold.bundle}) as site:
        page = loaded(visit, site)
        assert "no chat template" in page.do("chat")["hint"]
        first = say(page, "the cat")["messages"][1]["text"]
        found = say(page, "the cat")
    assert first
    assert found["messages"][3]["text"] == first
    assert int(found["speed"]["reused"]) == len(merges().ids("the cat")) - 1


@pytest.mark.by_turns
def test_a_broken_model_is_an_error_in_words(visit: Visit, tmp_path: Path) -> None:
    made = language_model.made(tmp_path / "broken")
    (asset,) = (a for a in open_bundle(made.bundle).manifest.assets if a.name == "tokenizer.json")
    (made.bundle / asset.file).write_bytes(b"x" * asset.bytes)
    with serving({"broken": made.bundle}) as site:
        page = visit(f"{site.url}/chat")
        page.do("chat")
        page.do("click", selector="#load")
        found = page.do("chat", states=["error"])
    assert (found["code"], found["retry"]) == ("bundle-corrupt", "Try again")
    assert found["able"] == ["retry"]


@pytest.mark.browser
def test_the_device_is_switched_and_the_chat_stays(gpu_visit: Visit, site: Site) -> None:
    page = gpu_visit(f"{site.url}/chat")
    page.do("chat")
    page.do("select", selector="#device-choice", value="wasm")
    settle(page, 6)
    page.do("click", selector="#load")
    assert page.do("chat", states=["ready", "error"])["device"] == "wasm"
    before = say(page, "the cat")["messages"]
    page.do("select", selector="#device-choice", value="webgpu")
    page.do("text", selector="#device", contains="GPU")
    found = page.do("chat", states=["ready", "error"])
    assert (found["device"], found["messages"]) == ("webgpu", before)
    page.do("click", selector="#again")
    again = page.do("chat")["messages"]
    assert [m["text"] for m in again] == [m["text"] for m in before]


@pytest.mark.by_turns
def test_several_models(visit: Visit, tiny: Made, hostile: Made) -> None:
    with serving({"other": hostile.bundle, "tiny": tiny.bundle}) as site:
        page = visit(f"{site.url}/chat")
        assert page.do("chat")["models"] == ["other", "tiny"]
        page.do("select", selector="#model-choice", value="/bundles/tiny/")
        found = page.do("chat")
        assert (found["card"][0], found["able"]) == ("tiny", ["load"])
        settle(page, 3)
        page.do("click", selector="#load")
        assert page.do("chat", states=["ready"])
        assert "<img" not in say(page, "the cat")["messages"][1]["text"]


@pytest.mark.by_turns
@pytest.mark.parametrize("width", [320, 390, WIDE])
def test_nothing_overflows(visit: Visit, hostile: Made, tmp_path: Path, width: int) -> None:
    """Before the load, with long words, with a note and the settings."""
    with serving({"a-bundle-with-quite-a-long-name" * 3: hostile.bundle}) as site:
        page = visit(f"{site.url}/chat", width)
        page.do("chat")
        fits(page, tmp_path / "card.png", width)
        page.do("click", selector="#load")
        page.do("chat", states=["ready"])
        say(page, "m" * 120)
        fits(page, tmp_path / "chat.png", width)
        say(page, "the cat " * 300)
        page.do("click", selector="details > summary")
        fits(page, tmp_path / "note.png", width)
