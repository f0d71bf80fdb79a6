// Runs of a model on a GPU: inputs on their way to their places, dispatches, and whether a kernel trapped.
// Input: the model's plans and buffers, the inputs of a run.  Output: what is recorded; or a typed error.

import { CHECK_BIT } from './abi.js';
import { EngineError, outOfRange } from './errors.js';
import { widen, WORD } from './gpu_device.js';
import { copyIn, padded } from './gpu_places.js';
import { sizesOf } from './tensors.js';

/** Dispatches in the first submission of a run, and in each further one. */
const [FIRST_PIECE, PIECE] = [16, 128];

export class Runs {
  device;
  health;
  adapter;
  program;
  /** By plan, its dispatches. */
  plans;
  /** The model's own buffer, then its annexes. */
  buffers;
  results;
  /** What takes frames; made for the first of them. @type {Promise<T.TakeFrame> | undefined} */
  #frames;
  /** Runs are recorded one after the other. @type {Promise<unknown>} */
  #turn = Promise.resolve();

  /** @param {T.OnGpu} on @param {T.Program} program @param {ReturnType<T.DispatchesOf>[]} plans @param {GPUBuffer[]} buffers @param {import('./gpu_results.js').Results} results */
  constructor({ device, health, adapter }, program, plans, buffers, results) {
    this.device = device;
    this.health = health;
    this.adapter = adapter;
    this.program = program;
    this.plans = plans;
    this.buffers = buffers;
    this.results = results;
  }

  /** @type {T.InTurn} */
  inTurn(job) {
    const done = this.#turn.then(job);
    this.#turn = done.catch(() => {});
    return done;
  }

  /** Brings inputs to their places; copies on the device are recorded. @type {(work: T.RunWork, encoder: GPUCommandEncoder) => Promise<void>} */
  async take({ plan, sizes, tensors: given }, encoder) {
    const { device, buffers: [memory] } = this;
    this.plans[plan].resize(sizesOf(this.program.plans[plan], sizes));
    if (!given) return;
    for (const [at, place] of this.program.plans[plan].inputs.entries()) {
      const { data, shape } = given[at] ?? {};
      if (typeof data?.from === 'string') this.results.follow(encoder, place, data.from);
      else if (data?.from) copyIn(encoder, memory, place, shape, data.from);
      else if (data && 'pixels' in data) await (await this.#taker())(place, shape, data);
      else device.queue.writeBuffer(memory, place.address, widen(place.dtype, padded(place, given[at])));
    }
  }

  #taker() {
    return (this.#frames ??= import('./gpu_frames.js').then(({ frameTaker }) => frameTaker(this.device, this.buffers[0])));
  }

  /** Records steps, `times` over, and begins with them; what it returns has the last ones, for others to follow. @type {T.RecordSteps} */
  record(plan, first = 0, last = this.program.plans[plan].steps.length, times = 1, { timed, whole = false, encoder = this.device.createCommandEncoder() } = {}) {
    this.health.requireUsable();
    const own = this.plans[plan].dispatches(first, last);
    const count = own.length * times;
    encoder.clearBuffer(this.buffers[0], 0, WORD);
    const piece = timed ? count / timed.passes : whole ? count : undefined;
    // The device begins while the rest is recorded.  One submission is what is timed by its clock, and what a wrong buffer must stop as a whole.
    for (let done = 0, end = piece ?? Math.min(FIRST_PIECE, count), number = 0; ; end = Math.min(end + (piece ?? PIECE), count)) {
      const pass = encoder.beginComputePass(timed && { timestampWrites: timed.writes(number++) });
      let set;
      for (; done < end; done++) {
        const { pipeline, bindings, groups: [columns, rows] } = own[done % own.length];
        if (pipeline !== set) pass.setPipeline(set = pipeline);
        pass.setBindGroup(0, bindings);
        pass.dispatchWorkgroups(columns, rows);
      }
      pass.end();
      if (done === count) return encoder;
      if (timed) continue;
      this.device.queue.submit([encoder.finish()]);
      encoder = this.device.createCommandEncoder();
    }
  }

  /** Throws if a kernel trapped: the first word has its step, counted from 1, and above that the number of its check; two have the index. @type {(plan: number, trapped: number[]) => void} */
  requireWhole(plan, [word, , low, high]) {
    if (!word) return;
    const { steps, dims } = this.program.plans[plan];
    const step = (word & (2 ** CHECK_BIT - 1)) - 1;
    const { kernel, checks = [] } = steps[step] ?? {};
    const check = checks[word >>> CHECK_BIT];
    // The word of an older build's kernels says no more than that.
    if (!check) throw new EngineError('kernel-trap', 'An index is out of range', 'Check token ids and other indices. A bundle that is built anew says which one', { plan: dims });
    throw outOfRange(check, low, high, { step, kernel, plan: dims });
  }

  /** Resolves when the device has done what was submitted. */
  async settled() {
    await this.device.queue.onSubmittedWorkDone().catch(() => { throw this.health.gone(); });
  }
}
