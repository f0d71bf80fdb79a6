// Swaps kernels of a loaded bundle between two runs, in the engine's worker; changes.js is the page's side.  Only pages that tune load this
// file.  It imports nothing, since bundlers cannot split a worker into files that share a third one.
// Input: tuned kernels, each with its specification's number, and plan images that use them.  Output: new table entries.  After a failure
// the previous kernels are in use.

/** Milliseconds that a helper has to instantiate other kernels; a dead worker is detected at once. */
const TAKE_LIMIT = 2000;

/** The number of hand-overs so far; it tells a late continuation whether a newer one has started. */
let turns = 0;

/**
 * Gives all helpers a new setup; resolves with the problems.  No helper may serve with the old table once the new one is in use, so serving
 * first stops, and resumes when every helper has left `serve` or is gone.  If a helper does neither in time, serving resumes with `back` as
 * soon as it is gone.
 * @type {T.HandOver}
 */
async function handOver({ ABORT, EPOCH, STOP, TRAP, LATE, within, wordsOf }, pool, setup, back) {
  const resume = () => resumed(pool, words, STOP);
  const turn = ++turns;
  const words = wordsOf(setup.memory);
  pool.stopped = true;
  Atomics.store(words, STOP, 1);
  // A helper that joined a run late may still be waiting inside it.
  Atomics.store(words, ABORT, TRAP);
  Atomics.add(words, EPOCH, 1);
  Atomics.notify(words, EPOCH);
  const serving = Array.from(pool.helpers).filter(([, { told }]) => told);
  pool.give(setup);
  const problems = await Promise.all(serving.map(async ([number, { answer, gone }]) => {
    const problem = await within(TAKE_LIMIT, answer.promise, gone.promise);
    return problem === LATE ? pool.replace(number) : problem;
  }));
  // A helper that neither answers nor terminates: until it is gone, the engine's worker runs alone.
  const late = serving.filter((_, at) => problems[at] === LATE).map(([, { gone }]) => gone.promise);
  if (late.length) {
    Promise.all(late).then(() => {
      if (turn !== turns) return;
      pool.give(back);
      resume();
    });
    return problems.filter(Boolean);
  }
  resume();
  return problems.filter(Boolean);
}

/** Lets helpers serve again: those with the setup at once, the others when they have it. @type {T.Resume} */
function resumed(pool, words, stop) {
  pool.stopped = false;
  Atomics.store(words, stop, 0);
  pool.helpers.forEach(pool.tell);
}

/** @type {T.Exchange} */
export async function exchange(tools, bundle, pool, { kernels, images }) {
  const { EngineError, instantiate, makePlanRunner } = tools;
  const { program: { plans }, setup, threads } = bundle;
  const next = { ...setup, tuned: kernels };
  const driver = await instantiate(next, 0);
  const problems = await handOver(tools, pool, next, setup);
  if (problems.length) {
    if (!pool.stopped) await handOver(tools, pool, setup, setup);
    throw new EngineError('host', `A pool worker could not load the new kernels: ${problems[0]}`,
      'The previous kernels are in use; if it happens again, the device may lack memory', { threads, problems });
  }
  images.forEach((words, plan) => new Uint32Array(setup.memory.buffer, plans[plan].address, words.length).set(words));
  bundle.setup = next;
  bundle.machine = makePlanRunner(plans, setup.memory, driver, threads, kernels);
}
