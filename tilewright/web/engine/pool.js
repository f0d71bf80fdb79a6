// The engine worker's side of its pool: sends modules to the helpers and has stuck ones replaced.  Runs also work with fewer helpers.

import { ABORT, SLEEPERS } from './abi.js';
import { stepOf, wordsOf } from './plan_runner.js';
import { within } from './errors.js';

/** Milliseconds that a helper has to start. */
export const START_LIMIT = 10_000;

/** @returns {T.Pool} */
export function makePool() {
  /** @type {Map<number, T.Helper>} */
  const helpers = new Map();
  /** @type {T.Setup | null} */
  let setup = null;

  /** @type {T.Pool} */
  const pool = {
    helpers,
    stopped: false,

    add(number, port) {
      /** @type {T.Helper} */
      const helper = { port, there: false, able: false, told: false, answer: Promise.withResolvers(), gone: Promise.withResolvers() };
      port.onmessage = ({ data: { version, problem } }) => {
        if (!version) {
          // Firefox may lose messages that are sent earlier.
          helper.there = true;
          if (setup) port.postMessage(setup);
          return;
        }
        if (version !== setup?.version) return; // the answer to an older setup
        helper.able = !problem;
        helper.told &&= !helper.able;
        helper.answer.resolve(problem);
        pool.tell(helper);
      };
      helpers.get(number)?.gone.resolve('');
      helpers.set(number, helper);
    },

    tell(helper) {
      if (pool.stopped || !helper.able) return;
      helper.told = true;
      helper.port.postMessage(null);
    },

    give(given) {
      setup = { ...given, version: (setup?.version ?? 0) + 1 };
      helpers.forEach((helper) => {
        Object.assign(helper, { able: false, answer: Promise.withResolvers() });
        if (helper.there) helper.port.postMessage(setup);
      });
    },

    async start(given) {
      pool.give(given);
      const problems = Array.from(helpers.values(), ({ answer, gone }) => within(START_LIMIT, answer.promise, gone.promise));
      return (await Promise.all(problems)).filter(Boolean);
    },

    replace(number) {
      self.postMessage({ replace: number });
      return within(START_LIMIT, helpers.get(number)?.gone.promise);
    },

    async mend() {
      if (!setup) return;
      const words = wordsOf(setup.memory);
      if (!Atomics.load(words, ABORT)) return;
      const stuck = [...helpers.keys()].filter((number) => Atomics.load(words, stepOf(number)));
      if (!stuck.length) return;
      await Promise.all(stuck.map(pool.replace));
      Atomics.store(words, SLEEPERS, 0);
    },
  };
  return pool;
}
