// Runs of a model on a GPU: inputs on their way to their places, dispatches, whether a kernel trapped, and results on their way back.
// Input: the model's plans and buffers, the inputs of a run.  Output: what is recorded, arrays; or a typed error.

import { CHECK_BIT } from './abi.js';
import { EngineError, outOfRange } from './errors.js';
import { isFull, refusedWork, requireMade, scoped, stored, widen, WORD } from './gpu_device.js';
import { bytesOf, copyIn, copyPlaces, endOf, FIRST, inRow, padded } from './gpu_places.js';
import { readOutputs, sizesOf } from './tensors.js';

/** Bytes of a buffer for results that is kept for the next ones. */
const MOST_IDLE = 2 ** 24;
/** Bytes of all outputs of a run, after `FIRST`, that the next one may go on with. */
export const MOST_CARRIED = FIRST + 64;

export class Results {
  #on;
  #buffers;
  #carrier;
  /** What a run gave, for the next one: their places in the carrier. @type {T.Placed[]} */
  #carried = [];
  /** For the next results of the same size: those of a run are as long as those before. @type {GPUBuffer | null} */
  #idle = null;

  /** `buffers`: the model's own and its annexes; `carrier`: of MOST_CARRIED bytes. @param {T.OnGpu} on @param {GPUBuffer[]} buffers @param {GPUBuffer} carrier */
  constructor(on, buffers, carrier) {
    this.#on = on;
    this.#buffers = buffers;
    this.#carrier = carrier;
  }

  /** Reads places back after what was recorded, into fresh arrays or those of `wanted`; the first words of the memory tell where a kernel trapped. @type {T.ReadPlaces} */
  async read(places, { wanted = places, from = this.#buffers, carries = false, foreign = false, since = this.#on.health.errors(), encoder = this.#on.device.createCommandEncoder() } = {}) {
    const { device, health, theirs } = this.#on;
    const row = inRow(places);
    const size = endOf(row);
    const { back, unmade } = this.#backFor(size);
    encoder.copyBufferToBuffer(this.#buffers[0], 0, back, 0, FIRST);
    copyPlaces(encoder, from, places, [back], row);
    const carried = size > MOST_CARRIED ? [] : row;
    if (carries) {
      this.#carried = carried;
      copyPlaces(encoder, from, places, [this.#carrier], carried);
    }
    const send = () => {
      device.queue.submit([encoder.finish()]);
      return back.mapAsync(GPUMapMode.READ);
    };
    // Only the device can tell that it has no room, or that a buffer is of another one, or destroyed; what it says outside of scopes is for the page, if it is the page's.
    const { value: mapping, problem } = unmade || foreign || theirs ? scoped(device, send) : { value: send(), problem: null };
    try {
      await mapping.catch(async () => {
        await requireMade(unmade, 'the results', size, 'Close other tabs, or ask for fewer outputs at a time; what the run left in states is not known');
        throw health.gone();
      });
      const mapped = back.getMappedRange();
      const trapped = [...new Int32Array(mapped, 0, 4)];
      // The only copy: from the device's memory to the array that is handed over.
      const outputs = readOutputs(mapped, row.map((place) => ({ ...place, dtype: stored(place.dtype) })), wanted);
      this.#keep(back, size);
      const refused = await problem;
      if (refused) throw refusalOf(refused, foreign);
      health.requireSound(since);
      return { trapped, outputs };
    } catch (error) {
      // A later run may have left its own already.
      if (this.#carried === carried) this.#carried = [];
      throw error;
    }
  }

  /** A buffer for results, of exactly this size; `unmade`: what the device finds wrong with a new one. @type {(size: number) => {back: GPUBuffer, unmade: Promise<GPUError | null> | null}} */
  #backFor(size) {
    const back = this.#idle;
    if (back?.size === size) {
      this.#idle = null;
      return { back, unmade: null };
    }
    const { value, problem } = scoped(this.#on.device, () => this.#on.device.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST }));
    return { back: value, unmade: problem };
  }

  /** Keeps a buffer whose results were read for the next ones, unless it is large. @type {(back: GPUBuffer, size: number) => void} */
  #keep(back, size) {
    back.unmap();
    if (size > MOST_IDLE) return back.destroy();
    this.#idle?.destroy();
    this.#idle = back;
  }

  /** An input := what an output of the run before was, which need not have come back. @type {(encoder: GPUCommandEncoder, place: T.Placed, from: string) => void} */
  follow(encoder, place, from) {
    const output = this.#carried.find(({ name, declared }) => name === from && declared === place.declared);
    if (!output || bytesOf(output) !== bytesOf(place)) {
      throw new EngineError('input', `Input '${place.name}' cannot be what '${from}' was: the run before gave no such output`, 'Give an array', { input: place.name, from });
    }
    copyPlaces(encoder, [this.#carrier], [output], this.#buffers, [place]);
  }
}

/** The error of a submission that the device refused; `foreign`: it had buffers of the caller. @type {(refused: GPUError, foreign: boolean) => EngineError} */
const refusalOf = (refused, foreign) => (!foreign || isFull(refused) ? refusedWork(refused)
  : new EngineError('input', `The device refused a buffer of the run, which did not begin: ${refused.message}`, 'Give buffers of the device that the bundle was loaded on, which nobody has destroyed'));

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

  /** @param {T.OnGpu} on @param {T.Program} program @param {ReturnType<T.DispatchesOf>[]} plans @param {GPUBuffer[]} buffers @param {Results} results */
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
