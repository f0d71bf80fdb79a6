"""A clock for scripts in Node that moves only when nothing else can happen, however slow the machine is.

Input: `CLOCK`, put before a script (node.py runs it).  Output there: `until(time)` moves it by hand,
`freely()` lets it go on by itself; timers, `performance.now` and `Date.now` go by it.  What Node
does in other threads is done at once, since the clock would not wait for it.
"""  # noqa: E501

from __future__ import annotations

CLOCK = """
let time = 0;
let timersMade = 0;
const timers = new Map();
performance.now = () => time;
Date.now = () => 1_800_000_000_000 + time;
const started = (every) => (work, wait = 0, ...given) => {
  const ms = Math.max(1, wait);
  timers.set(++timersMade, { at: time + ms, every: every ? ms : 0, work: () => work(...given) });
  return timersMade;
};
globalThis.setTimeout = started(false);
globalThis.setInterval = started(true);
globalThis.clearTimeout = globalThis.clearInterval = (id) => timers.delete(id);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const { createHash } = await import('node:crypto');
crypto.subtle.digest = async (name, data) => {
  const bytes = ArrayBuffer.isView(data) ? data : new Uint8Array(data);
  return Uint8Array.from(createHash(name.replace('-', '').toLowerCase()).update(bytes).digest()).buffer;
};
WebAssembly.compile = async (code) => new WebAssembly.Module(code);

/** All that needs no time has happened afterwards. */
async function breathe() {
  for (let turn = 0; turn < 4; turn++) await new Promise((resolve) => setImmediate(resolve));
}

/** Goes to what is due next and does it, if there is any. */
async function turned(end) {
  await breathe();
  let due = null;
  for (const [id, timer] of timers) if (timer.at <= end && !(timer.at >= due?.at)) due = { id, ...timer };
  if (!due) return false;
  if (due.every) timers.set(due.id, { ...due, at: due.at + due.every });
  else timers.delete(due.id);
  time = Math.max(time, due.at);
  due.work();
  return true;
}

async function until(end) {
  while (await turned(end));
  time = end;
  await breathe();
}

async function freely() {
  for (;;) await turned(Infinity);
}
"""  # noqa: E501
