// The engine worker's side of the pool: gives helpers the modules, knows who must be replaced.
// Runs work with fewer helpers as well.

import { ABORT, EPOCH, SLEEPERS, stepOf, STOP, wordsOf } from './driver.js';

const START_LIMIT = 10_000;

/** @returns {T.Pool} */
export function makePool() {
  /** @type {Map<number, MessagePort>} */
  const ports = new Map();
  /** Per helper what keeps it from serving, or '' once it can. @type {Map<number, PromiseWithResolvers<string>>} */
  const starts = new Map();
  /** @type {T.Setup | null} */
  let setup = null;
  let version = 0;
  /** Helpers come out of `serve`, and wait for the word to serve again. */
  let stopped = false;

  /** @param {number} number */
  function startOf(number) {
    const start = starts.get(number) ?? Promise.withResolvers();
    starts.set(number, start);
    return start;
  }

  /** @param {number} number */
  function ready(number) {
    const late = new Promise((resolve) => setTimeout(resolve, START_LIMIT, 'it did not start in time'));
    return Promise.race([startOf(number).promise, late]);
  }

  return {
    add(number, port) {
      port.onmessage = ({ data }) => {
        // An answer to the setup of before is none.
        if (data.version !== version) return;
        startOf(number).resolve(data.problem);
        if (!stopped) port.postMessage(null);
      };
      ports.set(number, port);
      if (setup) port.postMessage(setup);
    },

    async start(given, threads) {
      setup = { ...given, version: ++version };
      starts.clear();
      stopped = true;
      const words = wordsOf(setup.memory);
      Atomics.store(words, STOP, 1);
      Atomics.add(words, EPOCH, 1);
      Atomics.notify(words, EPOCH);
      const tell = (/** @type {T.Setup | null} */ message) => ports.forEach((port) => port.postMessage(message));
      tell(setup);
      const started = await Promise.all(Array.from({ length: threads - 1 }, (_, at) => ready(at + 1)));
      Atomics.store(words, STOP, 0);
      stopped = false;
      tell(null);
      return started.filter(Boolean);
    },

    replace(number) {
      const before = starts.get(number);
      starts.delete(number);
      self.postMessage({ replace: number });
      const now = ready(number);
      // Who waits for the one that is gone waits for its successor.
      before?.resolve(now);
      return now;
    },

    async mend() {
      if (!setup) return;
      const words = wordsOf(setup.memory);
      if (!Atomics.load(words, ABORT)) return;
      const stuck = [...ports.keys()].filter((number) => Atomics.load(words, stepOf(number)));
      if (!stuck.length) return;
      await Promise.all(stuck.map(this.replace));
      Atomics.store(words, SLEEPERS, 0);
    },
  };
}
