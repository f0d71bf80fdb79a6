// The engine worker's side of the pool: gives helpers the modules, knows who must be replaced.
// Runs work with fewer helpers as well.

import { ABORT, SLEEPERS, stepOf, wordsOf } from './driver.js';

const START_LIMIT = 10_000;

/** @returns {T.Pool} */
export function makePool() {
  /** @type {Map<number, MessagePort>} */
  const ports = new Map();
  /** Per helper what keeps it from serving, or '' once it does. @type {Map<number, PromiseWithResolvers<string>>} */
  const starts = new Map();
  /** @type {T.Setup | null} */
  let setup = null;

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
      port.onmessage = ({ data }) => startOf(number).resolve(data);
      ports.set(number, port);
      if (setup) port.postMessage(setup);
    },

    async start(given, threads) {
      setup = given;
      for (const port of ports.values()) port.postMessage(setup);
      const started = Array.from({ length: threads - 1 }, (_, at) => ready(at + 1));
      return (await Promise.all(started)).filter(Boolean);
    },

    replace(number) {
      starts.delete(number);
      self.postMessage({ replace: number });
      return ready(number);
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
