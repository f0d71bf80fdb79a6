// Checks a kernel by its results in the memory of a trial, whatever device that is on.
// Input: the memory's own steps (`Tune.Bench`).  Output: expected results with their tolerance; what is wrong with a kernel, or ''.

import { allowed, difference, filled, isFloat, spread } from './inputs.js';

/** Added tolerance, as a multiple of the change that perturbed inputs cause in the result. */
const DOUBTS = 4;
/** Maximum of it, as a multiple of the basic tolerance (1 % of the largest element): one element at a step of `round` must not excuse others. */
export const MOST_DOUBT = 500;

/** The browser does not accept the kernel. */
export class Refused extends Error {}
/** The kernel threw. */
export class Trapped extends Error {}

/** Contents of all inputs; null for the output, which is buffer 0. @type {Tune.InputsOf} */
export async function inputsOf({ buffers, spec }, set) {
  const inputs = [];
  for (const [number, buffer] of buffers.entries()) inputs.push(number ? await filled(buffer, set, 1 + number + 31 * spec) : null);
  return inputs;
}

/** @type {Tune.ChecksOf} */
export function checksOf({ current, begin, output, runAll, changedInput, perturb }) {
  /** Takes the output as this set's expected result. @type {Tune.Accept} */
  async function accept(set) {
    const { facts: { rounds, buffers: [{ dtype }] } } = current();
    const wanted = (await output()).slice();
    return Object.assign(set, { wanted, allowed: await allowed(wanted, dtype, rounds) });
  }

  /** Raises the set's tolerance by how much a correct kernel's result changes when inputs are perturbed. @type {Tune.Doubt} */
  async function doubt(set, runner) {
    const { facts: { buffers } } = current();
    if (!isFloat(buffers[0].dtype)) return;
    for (const [number, buffer] of buffers.entries()) if (number) await perturb(set, buffer, number);
    await runAll(runner, false);
    set.allowed += Math.min(DOUBTS * await spread(await output(), set.wanted), MOST_DOUBT * set.allowed);
  }

  /** What is wrong with a kernel, by all input sets, or ''; throws Trapped. @type {Tune.Check} */
  async function check(runner) {
    for (const [name, set] of Object.entries(current().sets)) {
      await begin(name);
      await runAll(runner, name === 'random');
      const wrong = await difference(await output(), set.wanted, set.allowed);
      if (wrong) return `on ${name} inputs ${wrong}`;
      const changed = await changedInput(set);
      if (changed < 0) return `on ${name} inputs it wrote outside of its output`;
      if (changed) return `on ${name} inputs it changed input ${changed}`;
    }
    return '';
  }

  /** Like `check`, but a trap is an answer, too. @type {Tune.Check} */
  async function refutation(runner) {
    try {
      return await check(runner);
    } catch (error) {
      if (!(error instanceof Trapped)) throw error;
      return error.message;
    }
  }

  return { accept, doubt, check, refutation };
}
