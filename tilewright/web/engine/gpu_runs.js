// Runs of a model on a GPU: writes inputs, records dispatches, checks for traps, and reads results back.
// Input: the model's plans and buffers, the inputs of a run.  Output: recorded work, arrays; or a typed error.

import { CHECK_BIT } from './abi.js';
import { EngineError, outOfRange } from './errors.js';
import { isFull, refusedWork, requireMade, scoped, stored, widen, WORD } from './gpu_device.js';
import { bytesOf, copyIn, copyPlaces, endOf, FIRST, inRow, padded } from './gpu_tensors.js';
import { readOutputs, sizesOf } from './tensors.js';

/** The most bytes of a result buffer that is kept for reuse. */
const MOST_IDLE = 2 ** 24;
/** The most bytes of all outputs of a run, after `FIRST`, that the next run may use on the device. */
export const MOST_CARRIED = FIRST + 64;

export class Results {
  #on;
  #buffers;
  #carrier;
  /** Outputs of the last run for the next one: their places in the carrier. @type {T.Placed[]} */
  #carried = [];
  /** A result buffer for reuse: results of successive runs usually have the same size. @type {GPUBuffer | null} */
  #idle = null;

  /**
   * `buffers`: the model's own and its annexes; `carrier`: of MOST_CARRIED bytes.
   * @param {T.OnGpu} on
   * @param {GPUBuffer[]} buffers
   * @param {GPUBuffer} carrier
   */
  constructor(on, buffers, carrier) {
    this.#on = on;
    this.#buffers = buffers;
    this.#carrier = carrier;
  }

  /**
   * Reads places back after recorded work, into new arrays or those of `wanted`.  The first words of memory tell where a kernel trapped.
   * @type {T.ReadPlaces}
   */
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
    // Only the device can tell that it lacks memory, or that a buffer is destroyed or of another device.  On the page's own device errors
    // outside of scopes belong to the page.
    const { value: mapping, problem } = unmade || foreign || theirs ? scoped(device, send) : { value: send(), problem: null };
    try {
      await mapping.catch(async () => {
        await requireMade(unmade, 'the results', size, 'Close other tabs, or ask for fewer outputs at a time; what the run left in states is not known');
        throw health.gone();
      });
      const mapped = back.getMappedRange();
      const trapped = [...new Int32Array(mapped, 0, 4)];
      // The only copy: from the device's memory to the returned array.
      const outputs = readOutputs(mapped, row.map((place) => ({ ...place, dtype: stored(place.dtype) })), wanted);
      this.#keep(back, size);
      const refused = await problem;
      if (refused) throw refusalOf(refused, foreign);
      health.requireSound(since);
      return { trapped, outputs };
    } catch (error) {
      // A later run may have set its own already.
      if (this.#carried === carried) this.#carried = [];
      throw error;
    }
  }

  /**
   * A result buffer of exactly this size; `unmade`: the device's error for a new one.
   * @type {(size: number) => {back: GPUBuffer, unmade: Promise<GPUError | null> | null}}
   */
  #backFor(size) {
    const back = this.#idle;
    if (back?.size === size) {
      this.#idle = null;
      return { back, unmade: null };
    }
    const { value, problem } = scoped(this.#on.device, () => this.#on.device.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST }));
    return { back: value, unmade: problem };
  }

  /** Keeps a result buffer for reuse, unless it is large. @type {(back: GPUBuffer, size: number) => void} */
  #keep(back, size) {
    back.unmap();
    if (size > MOST_IDLE) return back.destroy();
    this.#idle?.destroy();
    this.#idle = back;
  }

  /**
   * Copies an output of the last run to an input; it need not have been read back.
   * @type {(encoder: GPUCommandEncoder, place: T.Placed, from: string) => void}
   */
  follow(encoder, place, from) {
    const output = this.#carried.find(({ name, declared }) => name === from && declared === place.declared);
    if (!output || bytesOf(output) !== bytesOf(place)) {
      throw new EngineError('input', `Input '${place.name}' cannot take '${from}': the previous run has no such output`, 'Give an array', { input: place.name, from });
    }
    copyPlaces(encoder, [this.#carrier], [output], this.#buffers, [place]);
  }
}

/** The error of a submission that the device refused; `foreign`: it had buffers of the caller. @type {(refused: GPUError, foreign: boolean) => EngineError} */
const refusalOf = (refused, foreign) => (!foreign || isFull(refused) ? refusedWork(refused)
  : new EngineError('input', `The device refused a buffer of the run, which did not begin: ${refused.message}`, 'Give buffers of the device that the bundle was loaded on, which are not destroyed'));

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
  /** Writes frames to memory; made for the first frame. @type {Promise<T.TakeFrame> | undefined} */
  #frames;
  /** Resolves when the recording before is done: runs are recorded one after the other. @type {Promise<unknown>} */
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

  /**
   * Writes inputs to their places; copies on the device are only recorded.
   * @type {(work: T.RunWork, encoder: GPUCommandEncoder) => Promise<void>}
   */
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

  /**
   * Records steps, `times` over, and submits all but the last ones; the returned encoder has these and can take more.
   * @type {T.RecordSteps}
   */
  record(plan, first = 0, last = this.program.plans[plan].steps.length, times = 1, { timed, whole = false, encoder = this.device.createCommandEncoder() } = {}) {
    this.health.requireUsable();
    const own = this.plans[plan].dispatches(first, last);
    const count = own.length * times;
    encoder.clearBuffer(this.buffers[0], 0, WORD);
    const piece = timed ? count / timed.passes : whole ? count : undefined;
    // The device starts while the rest is recorded.  It is one submission if it is timed by the device's clock, or if a wrong buffer must
    // stop all of it.
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

  /**
   * Throws if a kernel trapped.  The first word has its step, counted from 1, and above it the number of its check; two words have the
   * index.
   * @type {(plan: number, trapped: number[]) => void}
   */
  requireWhole(plan, [word, , low, high]) {
    if (!word) return;
    const { steps, dims } = this.program.plans[plan];
    const step = (word & (2 ** CHECK_BIT - 1)) - 1;
    const { kernel, checks = [] } = steps[step] ?? {};
    const check = checks[word >>> CHECK_BIT];
    // The word of an older build's kernels has no more details.
    if (!check) throw new EngineError('kernel-trap', 'An index is out of range', 'Check token ids and other indices. A new build of the bundle names the index', { plan: dims });
    throw outOfRange(check, low, high, { step, kernel, plan: dims });
  }

  /** Resolves when the device has finished the submitted work. */
  async settled() {
    await this.device.queue.onSubmittedWorkDone().catch(() => { throw this.health.gone(); });
  }
}
