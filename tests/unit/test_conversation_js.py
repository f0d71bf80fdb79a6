"""The messages of the chat page (web/page/conversation.js): edits, reloads, damaged storage."""

from __future__ import annotations

from typing import Any

import pytest
from node import run

SCRIPT = """
const { Conversation, tabStorage } = await import('TUNE/../page/conversation.js');
const kept = new Map();
const place = { getItem: (name) => kept.get(name) ?? null, setItem: (name, text) => kept.set(name, text) };
const answer = (content) => ({ role: 'assistant', content });
const shown = (chat) => chat.messages.map(({ content }) => content).join(' ');
"""  # noqa: E501


def told(script: str, **values: Any) -> Any:
    return run(SCRIPT + script, **values)


def test_an_edit_replaces_the_last_message_and_its_answer() -> None:
    found = told(
        """
        const chat = new Conversation(place);
        chat.ask('a', false);
        chat.answer(answer('b'));
        chat.ask('c', false);
        chat.answer(answer(''));
        const asked = [shown(chat), chat.lastAsked];
        chat.answer(answer('d'));
        chat.ask('e', true);
        chat.answer(answer('f'));
        const edited = shown(chat);
        chat.askAgain();
        console.log(JSON.stringify([asked, edited, shown(chat), chat.prompt('be'), shown(new Conversation(place))]));
        """  # noqa: E501
    )
    roles = ["system", "user", "assistant", "user"]
    prompt = [{"role": r, "content": c} for r, c in zip(roles, ("be", "a", "b", "e"), strict=True)]
    assert found == [["a b c", 2], "a b e f", "a b e", prompt, "a b e"]


@pytest.mark.parametrize("text", ["{", "{}", "[1]", '[{"role": "root", "content": "a"}]', "null"])
def test_what_is_kept_may_be_damaged(text: str) -> None:
    found = told(
        """
        kept.set('tilewright-chat', <text>);
        const chat = new Conversation(place);
        const before = [chat.messages, chat.lastAsked];
        chat.ask('a', false);
        console.log(JSON.stringify([before, shown(chat), chat.prompt('')]));
        """,
        text=text,
    )
    assert found == [[[], -1], "a", [{"role": "user", "content": "a"}]]


@pytest.mark.parametrize("trouble", ["refused", "full"])
def test_a_tab_without_storage_still_chats(trouble: str) -> None:
    found = told(
        """
        const full = { getItem: () => null, setItem() { throw new Error('full'); } };
        Object.defineProperty(globalThis, 'sessionStorage', { configurable: true, get() {
          if (<trouble> === 'full') return full;
          throw new Error('refused');
        } });
        const chat = new Conversation(tabStorage());
        chat.ask('a', false);
        console.log(JSON.stringify(shown(chat)));
        """,
        trouble=trouble,
    )
    assert found == "a"
