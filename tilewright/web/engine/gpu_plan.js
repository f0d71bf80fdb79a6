// The kernels of a model on a GPU, the bundle's own and their replacements, and the dispatches of each plan, which are made once.
// Input: texts, a device, the plan's steps as in docs/bundle-wgsl.md.  Output: pipelines by slot; bindings and a block of numbers for each
// step; or a typed error.  Nothing is run here.

import { count, requireCounts, requireForm } from './bundle.js';
import { EngineError } from './errors.js';
import { ANNEX, MOST_ANNEXES, pipelineOf, WORD } from './gpu_device.js';

/** WebGPU's default limits: workgroups per dimension, threads of one, bytes of a step's block, and of all blocks. */
const [MOST_GROUPS, MOST_THREADS, MOST_BLOCK, MOST_BLOCKS] = [65535, 256, 2 ** 16, 2 ** 28];
/** Bytes; WebGPU's default of minUniformBufferOffsetAlignment. */
const ALIGNMENT = 256;

/** The features that kernels of a bundle need and a device lacks. @type {T.Lacking} */
export function lacking({ facts }, slots, features) {
  const needs = facts.needs ?? {};
  const text = (/** @type {unknown} */ name) => typeof name === 'string';
  for (const slot in requireForm(needs, {}, 'needs')) requireForm(needs[slot], [text], slot);
  const bySlot = Array.from({ length: slots }, (_, slot) => (needs[slot] ?? []).filter((name) => !features.includes(name)));
  return { needs, bySlot, names: [...new Set(bySlot.flat())].sort() };
}

/**
 * The steps with the best kernel that the device can run; without one a step keeps its own kernel.  Joined steps stay joined only if the
 * device can run one of their kernels.
 * @type {T.Resolved}
 */
export const resolved = (calls, { bySlot }) => {
  const able = (/** @type {{slot: number}} */ { slot }) => !bySlot[slot].length;
  return calls.map(({ better = [], joined, ...usual }) => {
    const way = joined?.ways.find(able);
    return { ...usual, ...better.find(able), ...(joined && way && { joined: { ...joined, ...way } }) };
  });
};

/**
 * The steps of a plan as the device runs them; throws `bundle-corrupt` if a step is invalid for a device with this memory.
 * @type {T.CallsOf}
 */
export function callsOf(listed, path, { steps, extents, dims }, lack, memory, banks = [], annexes = []) {
  requireCounts(path, ...extents.map((name) => dims[name]));
  const isNumber = (/** @type {any} */ value) => Array.isArray(value) ? value.length === 6 && value.every(count) && value[0] < extents.length && value[3] > 0
    : Number.isSafeInteger(value);
  const way = {
    slot: (/** @type {number} */ slot) => count(slot) && slot < lack.bySlot.length,
    tiles: isNumber,
    group: (/** @type {number} */ group) => count(group - 1) && group <= MOST_THREADS,
    scalars: [isNumber],
  };
  const lying = {
    words: [(/** @type {number} */ word) => count(word) && word * WORD <= Math.max(memory, ...banks, ...annexes)],
    bank: (/** @type {number | undefined} */ bank) => bank === undefined || (count(bank - 1) && bank <= banks.length),
    annexes: (/** @type {unknown} */ bound) => bound === undefined || (Array.isArray(bound) && bound.length <= MOST_ANNEXES && new Set(bound).size === bound.length
      && bound.every((annex) => count(annex - 1) && annex <= annexes.length)),
  };
  requireForm(listed, [{ ...way, ...lying }], path);
  for (const [at, { better, joined }] of listed.entries()) {
    if (better !== undefined) requireForm(better, [way], path);
    const within = (/** @type {number} */ number) => count(number - 2) && at + number <= listed.length;
    if (joined !== undefined) requireForm(joined, { ...lying, steps: within, ways: [way] }, path);
  }
  const calls = resolved(listed, lack);
  for (const { slot } of calls) {
    const missing = lack.bySlot[slot];
    if (missing.length) throw new EngineError('unsupported-host', `A kernel needs ${missing.join(', ')}, which this device lacks`, 'Build the bundle again: it then has another kernel as well', { missing });
  }
  const every = everyOf(calls);
  const stride = strideOf(every);
  requireCounts(path, calls.length - steps.length, steps.length - calls.length, MOST_BLOCK - stride, MOST_BLOCKS - stride * every.length);
  for (const { tiles, group } of every) {
    const most = typeof tiles === 'number' ? tiles : tiles[4] * tiles[5];
    requireCounts(path, most, group * MOST_GROUPS ** 2 - most);
  }
  return calls;
}

/** All possible dispatches: each step by itself, then joined steps. @param {T.GpuCall[]} calls @returns {T.Dispatched[]} */
const everyOf = (calls) => [...calls, ...calls.flatMap(({ joined = [] }) => joined)];

/** Joined steps: the first step of each group, and the step after its last. @type {(calls: T.GpuCall[]) => {first: number, last: number}[]} */
export const joinedStepsOf = (calls) => calls.flatMap(({ joined }, first) => (joined ? [{ first, last: first + joined.steps }] : []));

/** True if all buffers of a step are in the model's own buffer. @param {T.Dispatched} call */
export const isAlone = ({ bank, annexes }) => !bank && !annexes;

/** The slots of all plans. @type {T.SlotsOf} */
export const slotsOf = (plans) => [...new Set(plans.flatMap(everyOf).map(({ slot }) => slot))];

/** Bytes from one step's block to the next. @param {T.Dispatched[]} calls */
const strideOf = (calls) => calls.reduce((most, { words, scalars }) => Math.max(most, aligned((1 + words.length + scalars.length) * WORD)), ALIGNMENT);

/** Bytes of the blocks of all plans. @type {(plans: T.GpuCall[][]) => number} */
export const blockBytesOf = (plans) => plans.map(everyOf).reduce((sum, every) => sum + strideOf(every) * Math.max(every.length, 1), 0);

/** Every dispatch of a plan with its bindings, made once. @type {T.DispatchesOf} */
export function planOf(device, layout, memory, pipelines, calls, steps, { banks, annexes } = { banks: [], annexes: [] }) {
  const every = everyOf(calls);
  const stride = strideOf(every);
  const blocks = new Uint32Array(blockBytesOf([calls]) / WORD);
  const uniform = device.createBuffer({ size: blocks.byteLength, usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST });
  /** @type {T.Dispatch[]} */
  const dispatches = every.map(({ slot, bank = 1, annexes: own = [] }, at) => ({
    pipeline: pipelines[slot],
    bindings: device.createBindGroup({
      layout,
      entries: [
        { binding: 0, resource: { buffer: memory } },
        { binding: 1, resource: { buffer: uniform, offset: at * stride, size: stride } },
        ...banks.slice(bank - 1, bank).map((buffer) => ({ binding: 2, resource: { buffer } })),
        // All dispatches bind equally many annexes, each at most once: a buffer must not be writable through two bindings.
        ...[...own.map((annex) => annexes[annex - 1]), ...annexes.filter((_, n) => !own.includes(n + 1))].slice(0, MOST_ANNEXES)
          .map((buffer, n) => ({ binding: ANNEX + n, resource: { buffer } })),
      ],
    }),
    groups: [0, 0],
  }));
  let last = '';
  /** Kernels that replace the bundle's own, by kernel number. @type {Map<number, T.GpuTuned>} */
  let tuned = new Map();
  /** The replacement at a step.  A kernel that loads vectors needs aligned buffers; other steps keep the bundle's kernel. @type {(at: number) => T.GpuTuned | undefined} */
  const tunedAt = (at) => {
    const found = at < steps.length ? tuned.get(steps[at].spec) : undefined;
    // Replacements are not made for banks and annexes.
    return found && isAlone(calls[at]) && calls[at].words.every((word) => word % found.lanes === 0) ? found : undefined;
  };
  const joins = new Map(joinedStepsOf(calls).map((join, number) => [join.first, { ...join, dispatch: dispatches[calls.length + number] }]));
  /** The dispatches of a whole run.  A step with a replaced kernel runs by itself, and so do the steps joined with it. @type {() => T.GpuPart[]} */
  function partsOf() {
    /** @type {T.GpuPart[]} */
    const found = [];
    for (let at = 0; at < calls.length; at = found[found.length - 1].last) {
      const join = joins.get(at);
      const own = Array.from({ length: join ? join.last - at : 0 }, (_, n) => at + n);
      found.push(join && !own.some(tunedAt) ? join : { first: at, last: at + 1, dispatch: dispatches[at] });
    }
    return found;
  }
  let parts = partsOf();
  const wholeOf = () => parts.map(({ dispatch }) => dispatch);
  let whole = wholeOf();
  return {
    parts: () => parts,

    dispatches: (first, last) => (last - first === calls.length ? whole : parts.flatMap((part) => (part.first >= first && part.last <= last ? [part.dispatch]
      : dispatches.slice(Math.max(part.first, first), Math.max(Math.min(part.last, last), first))))),

    use(kernels) {
      tuned = kernels;
      last = '';
      calls.forEach(({ slot }, at) => (dispatches[at].pipeline = tunedAt(at)?.pipeline ?? pipelines[slot]));
      parts = partsOf();
      whole = wholeOf();
    },

    resize(sizes) {
      if (last === (last = `of ${sizes}`)) return;
      every.forEach(({ tiles, group, words, scalars }, at) => {
        const own = tunedAt(at);
        const [invocations, ...numbers] = [own?.tiles ?? tiles, ...scalars].map((number) => numberAt(number, sizes));
        blocks.set([invocations, ...words, ...numbers], (at * stride) / WORD);
        dispatches[at].groups = groupsOf(invocations, own?.group ?? group);
      });
      device.queue.writeBuffer(uniform, 0, blocks);
    },
  };
}

/** Workgroups in two dimensions that cover the invocations. @type {(count: number, group: number) => [number, number]} */
export function groupsOf(count, group) {
  const wanted = Math.ceil(count / group);
  const rows = Math.max(1, Math.ceil(wanted / MOST_GROUPS));
  return [Math.ceil(wanted / rows), rows];
}

/** A number that is fixed, or depends on an extent: min((n * times + plus) // by, most) * each. @type {T.NumberAt} */
export function numberAt(number, sizes) {
  if (typeof number === 'number') return number;
  const [extent, times, plus, by, most, each] = number;
  return Math.min(Math.floor((sizes[extent] * times + plus) / by), most) * each;
}

/** @param {number} bytes */
const aligned = (bytes) => Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;

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
        this.refused.push(`A kernel that needs ${needed.join(', ')} cannot become a pipeline on the adapter ${adapter.name}, so another is used: ${error}`);
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
      throw new EngineError('input', `The kernel for specification ${spec} cannot become a pipeline on this device: ${error}`, 'It must come from the compiler that built the bundle', { spec });
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
