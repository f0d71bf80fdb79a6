// Timing in the engine's worker: whole runs back to back, or single steps of a plan.
// Input: a plan, the number of runs, the steps.  Output: milliseconds of driver calls alone.  Loaded on demand.  It imports nothing, since
// bundlers cannot make workers with shared parts.

/** Bytes of a page of memory. */
const PAGE = 65536;

/** @type {T.MeasureLoaded} */
export function measure(loaded, asked, requireCount, EngineError) {
  if (asked.repeat !== undefined) throw new EngineError('input', 'Only a GPU has a clock of its own', "Leave out 'repeat'");
  requireCount('runs', asked.runs, 1);
  requireCount('warmup', asked.warmup ?? 0, 0);
  const { program: { states, growth }, setup: { memory } } = loaded;
  // These runs must not change the states with which the page's next run continues.
  const ranges = growth ? [[growth.behind, memory.grow(0) * PAGE]] : states.map(({ address, bytes }) => [address, address + bytes]);
  const kept = ranges.map(([begin, end]) => new Uint8Array(memory.buffer.slice(begin, end)));
  try {
    return measured(loaded, asked);
  } finally {
    kept.forEach((bytes, at) => new Uint8Array(memory.buffer).set(bytes, ranges[at][0]));
  }
}

/** @type {T.Measured} */
function measured({ machine, program: { plans }, setup }, { runs, warmup = 0, only, read, ...work }) {
  machine.take(work);
  const { steps } = plans[work.plan];
  if (!only) {
    const times = Array.from({ length: warmup + runs }, () => machine.call(work.plan));
    return { first: times[0], milliseconds: times.slice(warmup) };
  }
  const wanted = [...steps.keys()].filter((step) => only === 'all' || only.includes(step));
  const times = wanted.map(() => new Float64Array(runs));
  // Bytes that a kernel does not write must not look like the result of an earlier one.
  const region = read && new Uint8Array(setup.memory.buffer, ...read).fill(255);
  for (let run = 0; run < runs; run++) times.forEach((row, at) => (row[run] = machine.call(work.plan, wanted[at], wanted[at] + 1)));
  // With a coarse clock a median would be a whole number of ticks.
  const summary = (/** @type {Float64Array} */ row) => (globalThis.crossOriginIsolated ? row.toSorted()[runs >> 1] : row.reduce((sum, time) => sum + time) / runs);
  return { steps: wanted.map((step, at) => ({ step, ...steps[step], milliseconds: summary(times[at]) })), read: region?.slice() };
}
