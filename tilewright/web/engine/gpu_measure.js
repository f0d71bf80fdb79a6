// Times runs and steps of a model on a GPU: by the device's clock, or by waiting if it has none.
// Input: a recorder of runs, a number of runs.  Output: milliseconds.  States are restored, since the page did not ask for these runs.

import { EngineError, requireCount } from './errors.js';
import { requireMade, scoped, WORD } from './gpu_device.js';
import { bytesOf, copyPlaces } from './gpu_tensors.js';

/**
 * Milliseconds of repetitions by which a step is timed: by the device's clock, which browsers round to 0.1, and by waiting; the most
 * repetitions.
 */
const [STAMPED, WAITED, MOST_TIMES] = [2, 8, 512];
/** The most by which the number of repetitions grows from one measurement to the next, as a factor. */
const MOST_GROWTH = 32;
const NANO = 1e-6;

export class Timing {
  #runs;
  /** Time stamps by number of passes. @type {Map<number, T.Stamps>} */
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
    // These runs must not change the states with which the page's next run continues.
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

  /** Times whole runs; by the device's clock if each one is `repeat` runs. @type {T.RunTimes} */
  async #runTimes(plan, runs, warmup, repeat) {
    const { steps } = this.#runs.program.plans[plan];
    const milliseconds = [];
    for (let run = 0; run < warmup + runs; run++) {
      milliseconds.push(repeat ? (await this.#stamped(plan, 0, steps.length, repeat))[0] / repeat : await this.#waited(plan));
    }
    return { first: milliseconds[0], milliseconds: milliseconds.slice(warmup) };
  }

  /** Times steps alone, or, with `inOrder`, within whole runs; `read`: the bytes of memory that they write. @type {T.StepTimes} */
  async #stepTimes(plan, only, { runs, read, inOrder }) {
    const { device, buffers: [memory], results, plans } = this.#runs;
    const { steps } = this.#runs.program.plans[plan];
    // Bytes that a kernel does not write must not look like the result of an earlier one.
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

  /**
   * Milliseconds of steps, repeated often enough for the clock.
   * @type {(plan: number, first: number, last: number, times: number) => Promise<number>}
   */
  async #timeOf(plan, first, last, times) {
    const byDevice = this.#hasClock;
    const enough = byDevice ? STAMPED : WAITED;
    for (let [often, growth] = [times, 1]; ; often = Math.min(MOST_TIMES, growth * often)) {
      const milliseconds = byDevice ? (await this.#stamped(plan, first, last, often))[0] : await this.#waited(plan, first, last, often);
      if (milliseconds >= enough || often >= MOST_TIMES) return milliseconds / often;
      growth = Math.max(2, Math.min(MOST_GROWTH, Math.ceil(1.5 * enough / milliseconds)));
    }
  }

  /**
   * Milliseconds from submission to end, of a run or of steps repeated `times`.
   * @type {(plan: number, first?: number, last?: number, times?: number) => Promise<number>}
   */
  async #waited(plan, first, last, times) {
    const { device, health, results } = this.#runs;
    const start = performance.now();
    const encoder = this.#runs.record(plan, first, last, times);
    const since = health.errors();
    device.queue.submit([encoder.finish()]);
    await this.#runs.settled();
    const milliseconds = performance.now() - start;
    // After the time was taken: reading the trap word is not part of the work.
    this.#runs.requireWhole(plan, (await results.read([], { since })).trapped);
    return milliseconds;
  }

  /** Milliseconds of `passes` passes with equally many dispatches, by the device's clock. @type {T.StampedSteps} */
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

/** The description of steps that one dispatch may run. @type {(steps: T.Step[]) => T.Step} */
const joined = (steps) => ({
  ...steps[0],
  kernel: steps.map(({ kernel }) => kernel).join(' + '),
  flops: steps.reduce((sum, { flops }) => sum + flops, 0),
  bytes: steps.reduce((sum, { bytes }) => sum + bytes, 0),
});

/** @param {number[]} times */
const median = (times) => times.toSorted((a, b) => a - b)[times.length >> 1];

/** Time stamps around `passes` compute passes: two 64-bit numbers for each; WebGPU allows 2048. @type {T.StampsOf} */
function stampsOf(device, passes) {
  const set = device.createQuerySet({ type: 'timestamp', count: 2 * passes });
  const into = device.createBuffer({ size: 16 * passes, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC });
  return {
    passes, into,
    writes: (number) => ({ querySet: set, beginningOfPassWriteIndex: 2 * number, endOfPassWriteIndex: 2 * number + 1 }),
    resolve: (encoder) => encoder.resolveQuerySet(set, 0, 2 * passes, into, 0),
  };
}

/**
 * Copies each state on the device to its own buffer, since all together may exceed one buffer; returns a function that restores them.
 * @type {T.KeptStates}
 */
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
