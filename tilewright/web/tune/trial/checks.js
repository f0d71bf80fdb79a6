// Checks a kernel by its results in the memory of a trial, on any device.
// Input: the operations of the memory (`Tune.Bench`).  Output: expected results with their tolerance; a sentence about what is wrong with a
// kernel, or ''.

import { allowed, difference, filled, isFloat, spread } from './trial_inputs.js';

/** Added tolerance, as a multiple of the change that perturbed inputs cause in the result. */
const DOUBTS = 4;
/** The most that is added, as a multiple of the basic tolerance (1 % of the largest element).  Without this limit one element at a step of `round` would raise the tolerance for all others. */
export const MOST_DOUBT = 500;

/** The browser does not accept the kernel. */
export class Refused extends Error {}
/** The kernel threw. */
export class Trapped extends Error {}
/** The device was lost while the kernel ran, because of the kernel or for another reason. */
export class Lost extends Error {}

/** Contents of all inputs; null for the output, which is buffer 0. @type {Tune.InputsOf} */
export async function inputsOf({ buffers, spec }, set) {
  const inputs = [];
  for (const [number, buffer] of buffers.entries()) inputs.push(number ? await filled(buffer, set, 1 + number + 31 * spec) : null);
  return inputs;
}

/** @type {Tune.ChecksOf} */
export function checksOf({ current, begin, output, runAll, changedInput, perturb }) {
  /** Sets this set's expected result: the present output, or the result that an earlier worker found. @type {Tune.Accept} */
  async function accept(set, given) {
    const { facts: { rounds, buffers: [{ dtype }] } } = current();
    const wanted = given ?? (await output()).slice();
    return Object.assign(set, { wanted, allowed: await allowed(wanted, dtype, rounds) });
  }

  /**
   * Raises a set's tolerance, once, by the change of the reference's result when inputs are perturbed.  The reference may be slow, so this
   * waits until a result differs.  It is the bundle's own code on rewritten inputs, so no candidate can influence it.
   * @type {Tune.Doubt}
   */
  async function doubt(name) {
    const { facts: { buffers }, reference, sets } = current();
    const set = sets[name];
    if (set.doubted) return;
    await begin(name);
    for (const [number, buffer] of buffers.entries()) if (number) await perturb(set, buffer, number);
    set.doubted = true;
    try {
      await runAll(reference, false);
    } catch (error) {
      if (error instanceof Trapped) return; // on perturbed inputs, so not the candidate's fault
      throw error;
    }
    set.allowed += Math.min(DOUBTS * await spread(await output(), set.wanted), MOST_DOUBT * set.allowed);
  }

  /** A sentence about how the output differs from the set's expected result beyond its tolerance, or ''. @type {Tune.Differs} */
  async function differs(name) {
    const { facts: { buffers: [{ dtype }] }, sets } = current();
    const { wanted } = sets[name];
    // NaN and infinities give no useful tolerance, so `special` uses that of ordinary numbers.
    const usual = name === 'special' ? 'random' : name;
    const limit = sets[usual].allowed;
    const found = await output();
    const wrong = await difference(found, wanted, limit);
    if (!wrong || !isFloat(dtype) || await difference(found, wanted, (1 + MOST_DOUBT) * limit)) return wrong;
    const kept = found.slice();
    await doubt(usual);
    return difference(kept, wanted, sets[usual].allowed);
  }

  /** A sentence about what is wrong with a kernel on any input set, or ''; throws Trapped. @type {Tune.Check} */
  async function check(runner) {
    for (const [name, set] of Object.entries(current().sets)) {
      await begin(name);
      await runAll(runner, name === 'random');
      // Canaries first: a tolerance is estimated in this memory, which must be intact.
      const changed = await changedInput(set);
      if (changed < 0) return `on ${name} inputs it wrote outside of its output`;
      if (changed) return `on ${name} inputs it changed input ${changed}`;
      const wrong = await differs(name);
      if (wrong) return `on ${name} inputs ${wrong}`;
    }
    return '';
  }

  /** Like `check`, but a trap is also reported as a problem. @type {Tune.Check} */
  async function refutation(runner) {
    try {
      return await check(runner);
    } catch (error) {
      if (!(error instanceof Trapped)) throw error;
      return error.message;
    }
  }

  return { accept, check, refutation };
}
