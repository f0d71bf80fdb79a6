"""The class that a device remembers between visits (web/tune/device/visit.js)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from node import run

AGENT = "Browser 1"
NOW = 1_800_000_000_000
DAY = 86_400_000

VISIT = """
globalThis.location = new URL('https://a.example/');
const kept = new Map(<kept> === null ? [] : [['tilewright-class', <kept>]]);
globalThis.localStorage = {
  getItem: (key) => kept.get(key) ?? null,
  setItem: (key, value) => kept.set(key, value),
};
Object.defineProperty(globalThis, 'navigator', { value: { userAgent: 'Browser 1' } });
Date.now = () => 1_800_000_000_000;
let asked = false;
globalThis.fetch = async () => {
  asked = true;
  return new Response('', { status: 404 });
};
const { knownClass, rememberClass } = await import('TUNE/device/visit.js');
const found = await knownClass();
const askedFirst = asked;
rememberClass('another');
console.log(JSON.stringify({ found, asked: askedFirst, later: await knownClass() }));
"""


def remembered(age: float = 0, agent: str = AGENT) -> str:
    return json.dumps({"device": "wasm-x86", "at": NOW - age, "agent": agent})


@pytest.mark.parametrize(
    ("kept", "known"),
    [
        (remembered(), True),
        (remembered(29 * DAY), True),
        (remembered(31 * DAY), False),
        (remembered(-DAY), False),  # the clock went back
        (remembered(agent="Browser 2"), False),
        ("wasm-x86", False),  # as older versions kept it
        (None, False),
    ],
)
def test_a_class_is_remembered_for_a_month_of_one_version(kept: Any, known: bool) -> None:
    found = run(VISIT, kept=kept)
    assert found["found"] == ("wasm-x86" if known else "")
    assert found["asked"] != known
    assert found["later"] == "another"


ODD = """
globalThis.location = new URL('https://a.example/');
Object.defineProperty(globalThis, 'navigator', { value: { userAgent: 'Browser 1' } });
globalThis.localStorage = { getItem: () => null, setItem() {} };
globalThis.fetch = async () => new Response(<body>, { status: 200 });
const { addressFor } = await import('TUNE/device/visit.js');
console.log(JSON.stringify(await addressFor('/bundles/m/')));
"""


@pytest.mark.parametrize("body", ["<!doctype html><title>404</title>", "", "null", "{}", "[]"])
def test_a_server_without_classes_may_answer_with_anything(body: str) -> None:
    """As one that gives its start page for every address it does not know."""
    assert run(ODD, body=body) == "/bundles/m/"
