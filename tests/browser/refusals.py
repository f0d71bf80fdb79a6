"""Pages of any server that load a bundle, each under headers or in a place that may refuse it.

Input: the bundle `linear`, headers.  Output: addresses of a page, which says what it saw in `told`:
names of outputs, or the error.  It judges nothing.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import tilewright

ENGINE = Path(tilewright.__file__).parent / "web" / "engine"

#: What every place does: `engine`, `url`, `options` and `call` come with the address.
ASK = """
export async function ask(search) {
  const { engine: address, url = '/b/linear/', options = '{}', call = 'load' } = Object.fromEntries(new URLSearchParams(search));
  try {
    const module = await import(address ?? '/engine/engine.js');
    const engine = await module[call](url, JSON.parse(options));
    const { outputs } = await engine.run({ x: new Float32Array(96) });
    const { url: folder, lost } = engine.info;
    engine.dispose();
    return { outputs: Object.keys(outputs), folder, lost };
  } catch (error) {
    const { name, code, message, hint, facts } = error;
    return { name, code, message, hint, facts };
  }
}
"""  # noqa: E501
#: A service worker may not import on demand.
ASK_AT_ONCE = ASK.replace("export", "import * as module from '/engine/engine.js';\nexport").replace(
    "    const module = await import(address ?? '/engine/engine.js');\n", ""
)

PAGE = '<!doctype html><title>page</title><script type="module" src="/page.js"></script>'
FRAME = '<!doctype html><title>frame</title><script type="module" src="/frame.js"></script>'

SCRIPTS = {
    "ask.js": ASK,
    "ask_at_once.js": ASK_AT_ONCE,
    "page.js": """
import { ask } from './ask.js';
const PLACES = {
  page: () => ask(location.search),
  shared: () => new Promise((resolve) => {
    const { port } = new SharedWorker('/shared.js', { type: 'module' });
    port.onmessage = ({ data }) => resolve(data);
    port.postMessage(location.search);
  }),
  service: async () => {
    await navigator.serviceWorker.register('/service.js', { type: 'module' });
    const { active } = await navigator.serviceWorker.ready;
    const { port1, port2 } = new MessageChannel();
    const answer = new Promise((resolve) => (port1.onmessage = ({ data }) => resolve(data)));
    active.postMessage(location.search, [port2]);
    return answer;
  },
  sandbox: () => new Promise((resolve) => {
    addEventListener('message', ({ data }) => resolve(data));
    const frame = document.createElement('iframe');
    frame.sandbox = 'allow-scripts';
    frame.src = `/frame.html${location.search}`;
    document.body.append(frame);
  }),
};
const place = new URLSearchParams(location.search).get('place') ?? 'page';
globalThis.told = await PLACES[place]().catch((error) => ({ failed: String(error) }));
""",
    "shared.js": """
import { ask } from './ask.js';
onconnect = ({ ports: [port] }) => {
  port.onmessage = async ({ data }) => port.postMessage(await ask(data));
};
""",
    "service.js": """
import { ask } from './ask_at_once.js';
onmessage = ({ data, ports: [port] }) => ask(data).then((told) => port.postMessage(told));
""",
    "frame.js": """
import { ask } from './ask.js';
parent.postMessage(await ask(location.search), '*');
""",
}


def site(folder: Path, bundle: Path) -> Path:
    """The folder of a server: engine, bundle, and the pages."""
    shutil.copytree(ENGINE, folder / "engine")
    shutil.copytree(bundle, folder / "b" / "linear")
    for name, text in {**SCRIPTS, "page.html": PAGE, "frame.html": FRAME}.items():
        (folder / name).write_text(text)
    return folder
