// What a page measures of the compiler in Pyodide: its start, listing a space, candidates one after the other.
// Input: /bench/hello: the bundle's digest, the device and its variant, kernels, how many candidates.  Output: a POST to /bench/result (in_page.py).

import { pyodideSource } from '/tune/sources/pyodide.js';

/** Milliseconds of Python's start and of the compiler's modules. */
let started = { python: 0, compiler: 0 };
let last = performance.now();
/** Milliseconds since the last call. */
const lap = () => -(last - (last = performance.now()));

async function measured() {
  /** @type {{digest: string, device: string, variant: string, specs: number[], count: number}} */
  const { count, ...asked } = await (await fetch('/bench/hello')).json();
  /** @type {Tune.Hello} */
  const hello = {
    ...asked, protocol: 0, bundle: 'b', browser: '', objective: 'latency', features: [], shares: asked.specs.map(() => 1), tried: {}, share: false,
    check: false,
  };
  const source = pyodideSource({ bundle: '/bundles/b/', onProgress: (value) => Object.assign(started, value) });
  lap();
  await source.open(hello);
  const open = lap() - started.python - started.compiler;
  const times = [];
  const candidates = [];
  while (times.length < count) {
    lap();
    const sent = await source.next();
    if (!sent || !('header' in sent)) break;
    times.push(lap());
    candidates.push([sent.header.spec, sent.header.candidate, sent.header.digest]);
  }
  return { started, open, times, candidates };
}

const result = await measured().catch((error) => ({ error: String(error) }));
await fetch('/bench/result', { method: 'POST', body: JSON.stringify(result) });
