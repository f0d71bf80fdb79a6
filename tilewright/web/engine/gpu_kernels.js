// The kernels of a model on a GPU: the bundle's own kernels that the device can run, and their replacements. Input: texts, the steps that
// need them, a device.  Output: pipelines, by slot; or a typed error.

import { EngineError } from './errors.js';
import { pipelineOf } from './gpu_device.js';
import { callsOf, lacking, slotsOf } from './gpu_plan.js';

/** The most pipelines of replaced kernels that are kept for the next exchange. */
const MOST_KEPT = 64;

export class Kernels {
  #on;
  #layout;
  /** By slot; slots that no step uses on this device have none. @type {GPUComputePipeline[]} */
  pipelines = [];
  /** Features whose kernels could not become pipelines; they count as lacking. @type {string[]} */
  refused = [];
  /** Features that kernels need and the device lacks. @type {T.Lack} */
  lack = { needs: {}, bySlot: [], names: [] };
  /** The features that the kernels in use need. @type {string[]} */
  features = [];
  /** Pipelines of exchanged kernels, by their text. @type {Map<string, Promise<GPUComputePipeline>>} */
  #exchanged = new Map();

  /** @param {T.OnGpu} on @param {GPUBindGroupLayout} layout */
  constructor(on, layout) {
    this.#on = on;
    this.#layout = layout;
  }

  /** Makes the pipelines, and returns each plan's steps with the kernels that the device runs. @type {T.ChooseKernels} */
  async choose(texts, listed, { program, build, own: [memory, ...annexes], banks }, meter) {
    const { adapter } = this.#on;
    for (;;) {
      const lack = lacking(build, texts.length, adapter.features);
      const calls = program.plans.map((plan, number) => callsOf(listed[number], build.plans[number]?.file, plan, lack, memory, banks, annexes));
      const used = slotsOf(calls);
      const failed = await this.#make(used, texts, lack, meter);
      if (!failed.length) {
        this.lack = lack;
        this.features = [...new Set(used.flatMap((slot) => lack.needs[slot] ?? []))].sort();
        return calls;
      }
      // Drivers fail mostly on sizes and configurations, so only these count as refused if there are any.
      const named = failed.filter((name) => /-\d/.test(name));
      adapter.features = adapter.features.filter((name) => !(named.length ? named : failed).includes(name));
    }
  }

  /** Makes the pipelines of slots that have none yet; returns the features of kernels for which that failed. @type {T.MakePipelines} */
  async #make(slots, texts, { needs }, meter) {
    const { device, adapter } = this.#on;
    /** @type {string[]} */
    const failed = [];
    let made = 0;
    const tell = () => (meter.pipelines = { made, of: slots.length });
    tell();
    meter.enter('code');
    await Promise.all(slots.map(async (slot) => {
      try {
        this.pipelines[slot] ??= await pipelineOf(device, this.#layout, texts[slot]);
      } catch (error) {
        const needed = needs[slot];
        if (!needed) throw error;
        failed.push(...needed);
        this.refused.push(`A kernel that needs ${needed.join(', ')} makes no pipeline on the adapter ${adapter.name}, another is used: ${error}`);
        return;
      }
      made++;
      tell();
      meter.count(0, false);
    }));
    return failed;
  }

  /** @type {(kernel: T.TunedKernel) => Promise<T.GpuTuned>} */
  async tuned({ spec, module, tiles, group = 0, lanes = 1 }) {
    const { health } = this.#on;
    health.requireUsable();
    const code = /** @type {string} */ (module);
    try {
      return { pipeline: await this.#exchangedOf(code), tiles, group, lanes };
    } catch (error) {
      this.#exchanged.delete(code);
      health.requireThere();
      throw new EngineError('input', `The kernel for specification ${spec} makes no pipeline on this device: ${error}`, 'Its compiler must be this one', { spec });
    }
  }

  /** The pipeline of a text; it becomes the most recently used one. @param {string} code */
  #exchangedOf(code) {
    const known = this.#exchanged;
    const making = known.get(code) ?? pipelineOf(this.#on.device, this.#layout, code);
    known.delete(code);
    known.set(code, making);
    for (const [old] of known) if (known.size > MOST_KEPT) known.delete(old);
    return making;
  }
}
