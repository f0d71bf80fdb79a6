// What a model computed on a GPU, on its way back; and what the next run goes on with, which need not come back.
// Input: places in the model's buffers, an encoder with what computes them.  Output: arrays, recorded copies; or a typed error.

import { EngineError } from './errors.js';
import { stored } from './gpu_device.js';
import { isFull, refusedWork, requireMade, scoped } from './gpu_errors.js';
import { bytesOf, copyPlaces, endOf, FIRST, inRow } from './gpu_places.js';
import { readOutputs } from './tensors.js';

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
