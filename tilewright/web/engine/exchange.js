// Swaps kernels of a loaded bundle between two runs, in the engine's worker; changes.js is the page's side.  Only pages that tune load it.
// Input: tuned kernels, each with its specification's number.  Output: new table entries and plan images.
// After a failure the previous kernels are in use.

import { ABORT, BEFORE, EPOCH, GRAIN, HEADER, RECORD, SLOT, STOP, TICKETS, TILES, TRAP, WIDEST } from './abi.js';
import { instantiate, wordsOf } from './driver.js';
import { EngineError } from './errors.js';
import { makeMachine } from './machine.js';
import { LATE, within } from './pool.js';

/** Milliseconds that a pool worker has to instantiate other kernels; a dead worker is detected at once. */
const TAKE_LIMIT = 2000;

/**
 * A plan image that uses the given kernels.  Example, a step of a swapped specification:
 * before: slot 2, 96 tiles in 48 tickets
 * after:  slot `slots` + index in `kernels`, the kernel's own tiles and tickets; the ticket offset BEFORE
 *         of all later steps changes accordingly
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
      // A serial step keeps its one ticket: other steps may be chained to it.
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

/** Number of hand-overs so far; tells a late continuation whether a newer one has started. */
let turns = 0;

/**
 * Gives all helpers a new setup; resolves with the problems.  No helper may serve with the old table once the new
 * one is in use, so serving stops first and resumes when every helper inside `serve` has left it or is gone.  If one
 * does neither in time, serving resumes with `back` as soon as it is gone.
 * @type {T.HandOver}
 */
async function handOver(pool, setup, back) {
  const turn = ++turns;
  const words = wordsOf(setup.memory);
  pool.stopped = true;
  Atomics.store(words, STOP, 1);
  // A helper that joined a run late may still wait inside it.
  Atomics.store(words, ABORT, TRAP);
  Atomics.add(words, EPOCH, 1);
  Atomics.notify(words, EPOCH);
  const serving = Array.from(pool.helpers).filter(([, { told }]) => told);
  pool.give(setup);
  const problems = await Promise.all(serving.map(async ([number, { answer, gone }]) => {
    const problem = await within(TAKE_LIMIT, answer.promise, gone.promise);
    return problem === LATE ? pool.replace(number) : problem;
  }));
  // A helper neither answers nor terminates: until it is gone, the engine's worker runs alone.
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

/** Lets helpers serve again: those with the setup at once, the others when they have it. @type {T.Resume} */
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
    throw new EngineError('host', `A pool worker could not load the new kernels: ${problems[0]}`,
      'The previous kernels are in use; if it happens again, the device may lack memory', { threads, problems });
  }
  places.forEach((words, plan) => words.set(images[plan]));
  bundle.setup = next;
  bundle.machine = makeMachine(plans, setup.memory, driver, threads, kernels);
}
