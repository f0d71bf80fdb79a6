// Scenarios of names that every object has, and of reasons to abort, for page.mjs.

/** @type {import('./scenario.mjs').Scenarios} */
export const NAMES = {
  /**
   * Runs a model whose inputs, outputs, states and dimensions have such names: with fresh arrays and with the caller's, by `time` and
   * `profile`, and without one input.
   */
  names: ({ page }, { url, names, size, device }) => page.evaluate(async (url, names, size, device) => {
    const { load } = globalThis.spied;
    const engine = await load(url, { device });
    const plain = (/** @type {any} */ error) => JSON.parse(JSON.stringify(error));
    const given = () => Object.fromEntries(names.map((/** @type {string} */ name, /** @type {number} */ at) => [name, { data: new Float32Array(size).fill(at), shape: [size] }]));
    const listed = (/** @type {any} */ { outputs }) => Object.entries(outputs).map(([name, { data }]) => [name, Array.from(data)]);
    const { states } = engine;
    const [first] = engine.info.outputs;
    const before = await Promise.all(states.names.map((/** @type {string} */ name) => states.read(name)));
    const result = await engine.run(given());
    const into = Object.fromEntries([[first.name, new Float32Array(size)]]);
    const again = await engine.run(given(), { into });
    const bucket = Object.fromEntries(Object.keys(result.bucket).map((name) => [name, size]));
    const timed = await engine.time({ runs: 1, warmup: 0, bucket });
    const profiled = await engine.profile({ runs: 1, bucket });
    const missing = Object.fromEntries(Object.entries(given()).slice(1));
    const missed = await engine.run(missing).then(() => null, plain);
    const found = {
      outputs: listed(result), again: listed(again), mine: Array.from(Object.values(into)[0]), bucket: Object.entries(result.bucket),
      inherits: Object.getPrototypeOf(result.outputs) === Object.prototype, timed: Object.entries(timed.bucket), profiled: profiled.steps.length,
      states: states.names, before: before.map((data) => Array.from(data)), missed, unknown: await engine.run({ ...given(), isPrototypeOf: 1 }).then(() => null, plain),
    };
    engine.dispose();
    return found;
  }, url, names, size, device),

  /** What loads and runs reject with, for each kind of reason, aborted before the call and during it. */
  reasons: ({ page }, { url, inputs, device }) => page.evaluate(async (url, given, device) => {
    const { load, filled } = globalThis.spied;
    const inputs = filled(given);
    const engine = await load(url);
    const own = { mine: true };
    /** @type {Record<string, any[]>} */
    const kinds = { default: [], timeout: [new DOMException('late', 'TimeoutError')], object: [own], text: ['because'], null: [null] };
    const jobs = {
      load: (/** @type {AbortSignal} */ signal) => load(url, { signal, device }),
      run: (/** @type {AbortSignal} */ signal) => engine.run(inputs, { signal }),
    };
    /** @type {any} */
    const found = {};
    for (const [kind, reason] of Object.entries(kinds)) {
      for (const [name, job] of Object.entries(jobs)) {
        for (const when of ['before', 'during']) {
          const stop = new AbortController();
          if (when === 'before') stop.abort(...reason);
          const done = job(stop.signal).then(() => ({ wrong: 'it resolved' }), (/** @type {any} */ error) => ({ same: error === stop.signal.reason, name: error?.name ?? '' }));
          if (when === 'during') stop.abort(...reason);
          found[`${kind} ${name} ${when}`] = await done;
        }
      }
    }
    const { outputs } = await engine.run(inputs);
    return { found, works: Object.keys(outputs) };
  }, url, inputs, device),
};
