// Times of runs and steps of a model on a GPU: by the device's clock, or where it has none, by waiting.
// Input: what records runs, how often.  Output: milliseconds; states are as before, since nobody asked for these runs.

import { EngineError, requireCount } from './errors.js';
import { requireMade, scoped, WORD } from './gpu_device.js';
import { bytesOf, copyPlaces } from './gpu_places.js';

/** Milliseconds that a step runs to be timed: by the device's clock, which browsers round to 0.1, and by waiting; at most so often. */
const [STAMPED, WAITED, MOST_TIMES] = [2, 8, 512];
/** Factor by which that grows at most from one look to the next. */
const MOST_GROWTH = 32;
const NANO = 1e-6;

export class Timing {
  #runs;
  /** Where passes are timed, by their number. @type {Map<number, T.Stamps>} */
  #stamps = new Map();

  /** @param {import('./gpu_runs.js').Runs} runs */
  constructor(runs) {
    this.#runs = runs;
  }

  get #hasClock() {
    return this.#runs.device.features.has('timestamp-query');
  }

  /** @type {T.MeasureOnGpu} */
  async measure({ runs, warmup = 0, only, read, repeat, inOrder, ...work }) {
    const { device, buffers, program: { states } } = this.#runs;
    this.#requireOptions({ runs, warmup, only, repeat, inOrder });
    const encoder = device.createCommandEncoder();
    await this.#runs.take(work, encoder);
    device.queue.submit([encoder.finish()]);
    // Runs that nobody asked for must not move what the page's next run goes on with.
    const back = await keptStates(device, buffers, states);
    try {
      return await (only ? this.#stepTimes(work.plan, only, { runs, read, inOrder }) : this.#runTimes(work.plan, runs, warmup, repeat));
    } finally {
      back();
    }
  }

  /** @type {T.RequireMeasurable} */
  #requireOptions({ runs, warmup, only, repeat, inOrder }) {
    requireCount('runs', runs, 1);
    requireCount('warmup', warmup, 0);
    if (repeat !== undefined) requireCount('repeat', repeat, 1);
    if (inOrder && only !== 'all') throw new EngineError('input', "'inOrder' times whole plans", "Leave out 'only'");
    if ((repeat || inOrder) && !this.#hasClock) {
      throw new EngineError('unsupported-host', `The adapter ${this.#runs.adapter.name} has no clock of its own`, `Leave out '${repeat ? 'repeat' : 'inOrder'}'`);
    }
  }

  /** Whole runs; by the device's clock if each is a number of them, `repeat`. @type {T.RunTimes} */
  async #runTimes(plan, runs, warmup, repeat) {
    const { steps } = this.#runs.program.plans[plan];
    const milliseconds = [];
    for (let run = 0; run < warmup + runs; run++) {
      milliseconds.push(repeat ? (await this.#stamped(plan, 0, steps.length, repeat))[0] / repeat : await this.#waited(plan));
    }
    return { first: milliseconds[0], milliseconds: milliseconds.slice(warmup) };
  }

  /** Steps by themselves, or `inOrder`, within whole runs; `read`: the bytes of memory that they write. @type {T.StepTimes} */
  async #stepTimes(plan, only, { runs, read, inOrder }) {
    const { device, buffers: [memory], results, plans } = this.#runs;
    const { steps } = this.#runs.program.plans[plan];
    // What a kernel does not write must not look like the result of an earlier one.
    if (read) device.queue.writeBuffer(memory, read[0], new Uint8Array(read[1]).fill(255));
    const parts = only === 'all' ? plans[plan].parts() : only.map((step) => ({ first: step, last: step + 1 }));
    const rounds = [];
    for (let run = 0; inOrder && parts.length && run < runs; run++) rounds.push(await this.#stamped(plan, 0, steps.length, 1, parts.length));
    const found = [];
    for (const [at, { first, last }] of parts.entries()) {
      const milliseconds = inOrder ? median(rounds.map((round) => round[at]))
        : await (read ? this.#waited(plan, first, last, runs) : this.#timeOf(plan, first, last, runs));
      found.push({ step: first, ...joined(steps.slice(first, last)), milliseconds });
    }
    if (!read) return { steps: found };
    const { outputs: [{ data }] } = await results.read([{ name: '', dtype: 'i32', declared: 'i32', shape: [read[1] / WORD], address: read[0], bytes: read[1] }]);
    return { steps: found, read: new Uint8Array(data.buffer) };
  }

  /** Milliseconds of steps: so often at a time that the clock can tell. @type {(plan: number, first: number, last: number, times: number) => Promise<number>} */
  async #timeOf(plan, first, last, times) {
    const byDevice = this.#hasClock;
    const enough = byDevice ? STAMPED : WAITED;
    for (let [often, growth] = [times, 1]; ; often = Math.min(MOST_TIMES, growth * often)) {
      const milliseconds = byDevice ? (await this.#stamped(plan, first, last, often))[0] : await this.#waited(plan, first, last, often);
      if (milliseconds >= enough || often >= MOST_TIMES) return milliseconds / often;
      growth = Math.max(2, Math.min(MOST_GROWTH, Math.ceil(1.5 * enough / milliseconds)));
    }
  }

  /** Milliseconds of a run from its submission to its end, or of a step `times` over. @type {(plan: number, first?: number, last?: number, times?: number) => Promise<number>} */
  async #waited(plan, first, last, times) {
    const { device, health, results } = this.#runs;
    const start = performance.now();
    const encoder = this.#runs.record(plan, first, last, times);
    const since = health.errors();
    device.queue.submit([encoder.finish()]);
    await this.#runs.settled();
    const milliseconds = performance.now() - start;
    // After the clock: reading the trap word back is no part of the work.
    this.#runs.requireWhole(plan, (await results.read([], { since })).trapped);
    return milliseconds;
  }

  /** Milliseconds of passes with as many dispatches each, by the device's clock. @type {T.StampedSteps} */
  async #stamped(plan, first, last, times, passes = 1) {
    const own = this.#stamps.get(passes) ?? stampsOf(this.#runs.device, passes);
    this.#stamps.set(passes, own);
    const encoder = this.#runs.record(plan, first, last, times, { timed: own });
    own.resolve(encoder);
    const place = /** @type {const} */ ({ name: '', dtype: 'i64', declared: 'i64', address: 0, bytes: 16 * passes });
    const { trapped, outputs: [{ data }] } = await this.#runs.results.read([{ ...place, shape: [2 * passes] }], { from: [own.into], encoder });
    this.#runs.requireWhole(plan, trapped);
    return Array.from({ length: passes }, (_, n) => Number(data[2 * n + 1] - data[2 * n]) * NANO);
  }
}

/** What is told of steps that one dispatch may run. @type {(steps: T.Step[]) => T.Step} */
const joined = (steps) => ({
  ...steps[0],
  kernel: steps.map(({ kernel }) => kernel).join(' + '),
  flops: steps.reduce((sum, { flops }) => sum + flops, 0),
  bytes: steps.reduce((sum, { bytes }) => sum + bytes, 0),
});

/** @param {number[]} times */
const median = (times) => times.toSorted((a, b) => a - b)[times.length >> 1];

/** Stamps of the device's clock around so many compute passes: two numbers of 64 bits for each; WebGPU allows 2048. @type {T.StampsOf} */
function stampsOf(device, passes) {
  const set = device.createQuerySet({ type: 'timestamp', count: 2 * passes });
  const into = device.createBuffer({ size: 16 * passes, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC });
  return {
    passes, into,
    writes: (number) => ({ querySet: set, beginningOfPassWriteIndex: 2 * number, endOfPassWriteIndex: 2 * number + 1 }),
    resolve: (encoder) => encoder.resolveQuerySet(set, 0, 2 * passes, into, 0),
  };
}

/** Copies all states on the device, each to a buffer of its own: together they may be more than one can have; returns what puts them back. @type {T.KeptStates} */
async function keptStates(device, memory, places) {
  const bytes = places.map(bytesOf);
  const { value: copies, problem } = scoped(device, () => bytes.map((size) => device.createBuffer({ size, usage: GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST })));
  const drop = () => copies.forEach((copy) => copy.destroy());
  await requireMade(problem, 'a copy of the states', bytes.reduce((sum, size) => sum + size, 0), 'Close other tabs: the states must be there again after runs that are timed').catch((error) => {
    drop();
    throw error;
  });
  const kept = places.map((place, annex) => ({ ...place, address: 0, annex }));
  const move = (/** @type {boolean} */ back) => {
    const encoder = device.createCommandEncoder();
    if (back) copyPlaces(encoder, copies, kept, memory, places);
    else copyPlaces(encoder, memory, places, copies, kept);
    device.queue.submit([encoder.finish()]);
  };
  move(false);
  return () => {
    move(true);
    drop();
  };
}
