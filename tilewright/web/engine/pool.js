// The engine worker's side of the pool: gives helpers the modules, knows who must be replaced.
// Runs work with fewer helpers as well.

import { ABORT, EPOCH, SLEEPERS, stepOf, STOP, wordsOf } from './driver.js';

const START_LIMIT = 10_000;

/** @returns {T.Pool} */
export function makePool() {
  /** @type {Map<number, MessagePort>} */
  const ports = new Map();
  /** Per helper what keeps it from serving, or '' once it can. @type {T.Starts} */
  const starts = new Map();
  /** @type {T.Setup | null} */
  let setup = null;
  let version = 0;
  /** Helpers are out of `serve`, and wait to be told. */
  let stopped = false;

  /** Who waits for one that is gone waits for its successor. @param {number} number */
  function ready(number) {
    const start = Promise.withResolvers();
    starts.get(number)?.resolve(start.promise);
    starts.set(number, start);
    setTimeout(start.resolve, START_LIMIT, 'it did not start in time');
    return start.promise;
  }

  return {
    add(number, port) {
      port.onmessage = ({ data }) => {
        if (data.version !== version) return; // of the setup of before
        starts.get(number)?.resolve(data.problem);
        if (!stopped) port.postMessage(null);
      };
      ports.set(number, port);
      if (setup) port.postMessage(setup);
    },

    async start(given, threads) {
      setup = { ...given, version: ++version };
      stopped = true;
      const words = wordsOf(setup.memory);
      Atomics.store(words, STOP, 1);
      Atomics.add(words, EPOCH, 1);
      Atomics.notify(words, EPOCH);
      for (const port of ports.values()) port.postMessage(setup);
      const started = await Promise.all(Array.from({ length: threads - 1 }, (_, at) => ready(at + 1)));
      Atomics.store(words, STOP, 0);
      stopped = false;
      for (const port of ports.values()) port.postMessage(null);
      return started.filter(Boolean);
    },

    replace(number) {
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
