// The engine worker's side of the pool: gives every helper the modules, and knows who has to be replaced.
// Input: ports to helpers that link.js starts.  Output: helpers that serve; runs work with fewer as well.

import { SLEEPERS, stepOf, wordsOf } from './control.js';

/** @import {Setup} from './types.js' */

const START_LIMIT = 10_000;

export class Pool {
  /** @type {Map<number, MessagePort>} */
  #ports = new Map();
  /** Per helper what keeps it from serving, or '' once it does. @type {Map<number, PromiseWithResolvers<string>>} */
  #starts = new Map();
  /** @type {Setup | null} */
  #setup = null;

  /**
   * A helper was started, for the first time or anew.
   * @param {number} number
   * @param {MessagePort} port
   */
  add(number, port) {
    port.onmessage = ({ data }) => this.#start(number).resolve(data);
    this.#ports.set(number, port);
    if (this.#setup) port.postMessage(this.#setup);
  }

  /**
   * @param {Setup} setup
   * @param {number} threads the engine worker included
   * @returns {Promise<string[]>} what went wrong
   */
  async start(setup, threads) {
    this.#setup = setup;
    for (const port of this.#ports.values()) port.postMessage(setup);
    const started = Array.from({ length: threads - 1 }, (_, at) => this.#ready(at + 1));
    return (await Promise.all(started)).filter(Boolean);
  }

  /**
   * Replaces a helper that died.
   * @param {number} number
   */
  replace(number) {
    this.#starts.delete(number);
    self.postMessage({ replace: number });
    return this.#ready(number);
  }

  /** Replaces the helpers that are still inside a run although it has ended. */
  async mend() {
    if (!this.#setup) return;
    const words = wordsOf(this.#setup.memory);
    const stuck = [...this.#ports.keys()].filter((number) => Atomics.load(words, stepOf(number)));
    if (!stuck.length) return;
    await Promise.all(stuck.map((number) => this.replace(number)));
    Atomics.store(words, SLEEPERS, 0);
  }

  /** @param {number} number */
  #start(number) {
    const start = this.#starts.get(number) ?? Promise.withResolvers();
    this.#starts.set(number, start);
    return start;
  }

  /** @param {number} number */
  #ready(number) {
    const late = new Promise((resolve) => setTimeout(resolve, START_LIMIT, 'it did not start in time'));
    return Promise.race([this.#start(number).promise, late]);
  }
}
