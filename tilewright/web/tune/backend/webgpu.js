// Tuning of WebGPU kernels: their `Tune.Backend`.

import { launchWorker } from '../../engine/start_worker.js';

export { openSpecs } from '../trial/gpu_specs.js';

/** The most invocations of a candidate. */
export const MOST_TILES = 2 ** 28;
/** A GPU's class follows from its adapter, so nothing is probed. */
export const PROBES = 0;

export const start = () => launchWorker(() => new Worker(new URL('../trial/gpu_trial_worker.js', import.meta.url), { type: 'module', name: 'tilewright-trial' }));

/** Making a device and pipelines takes long. */
export const early = true;

/** The adapter's own facts. @type {Tune.FactsOf} */
export function factsOf({ adapter }) {
  const { vendor = '', architecture = '' } = adapter ?? {};
  return { kind: 'webgpu', vendor: vendor.toLowerCase(), architecture: architecture.toLowerCase(), features: [], l1: 0 };
}

/** The text; the engine vets it (engine/changes.js). @type {Tune.Backend['codeOf']} */
export const codeOf = async ({ module }) => new TextDecoder().decode(module);
