// Takes cases, one JSON line each, and says what becomes of them, one line each: `>` and the use that begins,
// then `=` and all outcomes.  The reader ends a process that stays silent (fuzz_node.py).
// Input: the kind of cases as argument, cases on stdin.  Output: lines on stdout.

import { writeSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { EngineError } from '../../../tilewright/web/engine/errors.js';

const { attempt } = await import(`./${process.argv[2]}.mjs`);

const say = (mark, value) => writeSync(1, `${mark}${JSON.stringify(value)}\n`);

/** Errors of WebAssembly that the engine passes on by design: the browser refused the code. */
const OF_CODE = /^The browser failed: (CompileError|LinkError|RuntimeError)/;

/** The error's code; what is not typed, with its stack. */
function nameOf(error) {
  if (error instanceof EngineError) {
    if (error.code !== 'host' || !error.message.startsWith('The browser failed') || OF_CODE.test(error.message)) return error.code;
    return `untyped ${error.facts.stack ?? error.message}`;
  }
  return `untyped ${error?.stack ?? error}`;
}

async function judge(use) {
  try {
    return { result: await use(), said: 'right' };
  } catch (error) {
    return { said: nameOf(error) };
  }
}

/** Errors that nobody waits for. */
let lost = [];
process.on('unhandledRejection', (error) => lost.push(nameOf(error)));
process.on('uncaughtException', (error) => lost.push(nameOf(error)));

for await (const line of createInterface({ input: process.stdin })) {
  lost = [];
  const from = process.cpuUsage();
  const found = await attempt(JSON.parse(line), { judge, enter: (name) => say('>', name) });
  await new Promise((resolve) => setImmediate(resolve));
  const { user, system } = process.cpuUsage(from);
  say('=', { ...found, lost: lost.filter((name) => name.startsWith('untyped')), seconds: (user + system) / 1e6 });
}
process.exit(0);
