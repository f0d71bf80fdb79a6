// Exchanges kernels of a loaded bundle between two inferences, in the engine's worker; changes.js is the
// page's side.  Input: kernels by number of their specification.  Output: the same engine with other
// table entries and plan images; after a failure everything is as before.

import { ABORT, BEFORE, EPOCH, GRAIN, HEADER, RECORD, SLOT, STOP, TICKETS, TILES, TRAP, WIDEST } from './abi.js';
import { instantiate, wordsOf } from './driver.js';
import { EngineError } from './errors.js';
import { makeMachine } from './machine.js';
import { LATE, within } from './pool.js';

/** Milliseconds for a worker of the pool to take on other kernels; one that died is noticed at once. */
const TAKE_LIMIT = 2000;

/**
 * before: step 3 of specification 7: slot 2, 96 tiles in 48 tickets
 * after:  step 3 of specification 7: slot `slots` + place in `kernels`, other tiles and tickets, and
 *         all later steps with another number of tickets before them
 * @type {T.Drawn}
 */
export function drawn(original, { steps }, plan, slots, kernels) {
  const words = original.slice();
  let before = 0;
  let widest = 0;
  for (const [number, { spec }] of steps.entries()) {
    const record = words.subarray(HEADER + RECORD * number);
    const place = kernels.findIndex((kernel) => kernel.spec === spec);
    if (place >= 0) {
      const { tiles, grains } = kernels[place];
      // A serial step stays serial, for it may be part of a chain.
      const grain = record[TICKETS] > 1 ? grains[plan] : 0;
      if (grain === undefined) {
        throw new EngineError('input', `The kernel for specification ${spec} has no number of tiles per ticket for plan ${plan}`,
          'Give one for every plan that uses it', { spec, plan });
      }
      record[SLOT] = slots + place;
      record[TILES] = tiles;
      record[GRAIN] = Math.min(grain || tiles, tiles);
      record[TICKETS] = Math.ceil(tiles / record[GRAIN]);
    }
    record[BEFORE] = before;
    before += record[TICKETS];
    widest = Math.max(widest, record[TICKETS]);
  }
  words[WIDEST] = widest;
  words[HEADER + RECORD * steps.length + BEFORE] = before;
  return words;
}

/** Hand-overs so far: who waits for the end of one knows whether another came meanwhile. */
let turns = 0;

/**
 * Has the pool take on a setup; gives what went wrong.  Nobody serves with an older table: helpers serve
 * again when all of them that may still be inside of `serve` have come out, or are gone.  Others join later.
 * `back` is what they serve with if that lasts too long.
 * @type {T.HandOver}
 */
async function handOver(pool, setup, back) {
  const turn = ++turns;
  const words = wordsOf(setup.memory);
  pool.stopped = true;
  Atomics.store(words, STOP, 1);
  // Who came too late for a run may be held back in it.
  Atomics.store(words, ABORT, TRAP);
  Atomics.add(words, EPOCH, 1);
  Atomics.notify(words, EPOCH);
  const serving = Array.from(pool.helpers).filter(([, { told }]) => told);
  pool.give(setup);
  const problems = await Promise.all(serving.map(async ([number, { answer, gone }]) => {
    const problem = await within(TAKE_LIMIT, answer.promise, gone.promise);
    return problem === LATE ? pool.replace(number) : problem;
  }));
  // One that can neither answer nor be ended: the engine's worker goes on alone until it is gone after all.
  const late = serving.filter((_, at) => problems[at] === LATE).map(([, { gone }]) => gone.promise);
  if (late.length) {
    Promise.all(late).then(() => {
      if (turn !== turns) return;
      pool.give(back);
      resume(pool, words);
    });
    return problems.filter(Boolean);
  }
  resume(pool, words);
  return problems.filter(Boolean);
}

/** Nobody is inside of `serve`: who is able enters it, others do so once they are. @type {T.Resume} */
function resume(pool, words) {
  pool.stopped = false;
  Atomics.store(words, STOP, 0);
  pool.helpers.forEach(pool.tell);
}

/** @type {T.Exchange} */
export async function exchange(bundle, pool, kernels) {
  const { program: { plans, slots }, setup, threads } = bundle;
  const places = plans.map(({ address, steps }) => new Uint32Array(setup.memory.buffer, address, HEADER + RECORD * (steps.length + 1)));
  bundle.images ??= places.map((words) => words.slice());
  const images = bundle.images.map((words, plan) => drawn(words, plans[plan], plan, slots, kernels));
  const next = { ...setup, tuned: kernels };
  const driver = await instantiate(next, 0);
  const problems = await handOver(pool, next, setup);
  if (problems.length) {
    if (!pool.stopped) await handOver(pool, setup, setup);
    throw new EngineError('host', `A worker of the pool did not take on the new kernels: ${problems[0]}`,
      'The kernels of before are in use; if it happens again, the device may lack memory', { threads, problems });
  }
  places.forEach((words, plan) => words.set(images[plan]));
  bundle.setup = next;
  bundle.machine = makeMachine(plans, setup.memory, driver, threads, kernels);
}
