"""What a page fetches before any digest names its length has a limit: a server that never ends, or
sends a gigabyte, is a typed error after some megabytes."""

from __future__ import annotations

import pytest
from node import run

#: Bytes that a reader may take of an answer without an end.
MOST = 2**23

PAGE = """
const navigator = { userAgent: 'Firefox', hardwareConcurrency: 2 };
Object.defineProperty(globalThis, 'navigator', { value: navigator, configurable: true });
Object.assign(globalThis, { isSecureContext: true, location: { href: 'https://a.example/' } });
Promise.withResolvers ??= () => {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
};
"""

ENDLESS = """
let taken = 0;
/** Of spaces, which JSON may begin with. */
const endless = () => new ReadableStream({
  type: 'bytes',
  pull(controller) {
    const piece = new Uint8Array(65536).fill(32);
    if ((taken += piece.length) > 2 ** 26) throw new Error('it reads on and on');
    controller.enqueue(piece);
  },
}, { highWaterMark: 0 });
globalThis.fetch = async () => new Response(endless());
const uses = {
  async bundle() {
    const { inspect } = await import('TUNE/../engine/engine.js');
    return inspect('https://a.example/m/');
  },
  async folder() {
    const { folderSource } = await import('TUNE/sources/folder.js');
    return folderSource('https://a.example/tuning/').classes();
  },
  async server() {
    const { socketSource } = await import('TUNE/sources/socket.js');
    return socketSource('https://a.example/api/tune').classes();
  },
  async visit() {
    const { addressFor } = await import('TUNE/device/visit.js');
    return addressFor('https://a.example/bundles/m/');
  },
};
const said = await uses[<use>]().catch(({ code, message }) => code ?? message);
console.log(JSON.stringify({ said, taken }));
"""


@pytest.mark.parametrize(
    ("use", "said"),
    [
        ("bundle", "bundle-corrupt"),
        ("folder", "bundle-corrupt"),
        ("server", "input"),
        ("visit", "https://a.example/bundles/m/"),  # without the server's classes
    ],
)
def test_an_answer_without_an_end_is_refused(use: str, said: str) -> None:
    found = run(PAGE + ENDLESS, use=use)
    assert found["said"] == said
    assert found["taken"] <= MOST


CLASSES = """
globalThis.fetch = async () => new Response(JSON.stringify(<table>));
const { addressFor } = await import('TUNE/device/visit.js');
console.log(JSON.stringify(await addressFor('https://a.example/bundles/m/')));
"""


@pytest.mark.parametrize("table", [None, {}, [None], [{"id": 1}], "page"])
def test_a_visit_does_without_a_table_that_is_none(table: object) -> None:
    assert run(PAGE + CLASSES, table=table) == "https://a.example/bundles/m/"
