// Tuning of WebAssembly kernels: their `Tune.Backend`.

import { EngineError } from '../../engine/errors.js';
import { kernelsOf, objectionTo } from '../../engine/vet.js';

export { openSpecs } from '../trial/specs.js';
export { factsOf } from '../device/device_class.js';

/** The most tiles of a candidate: a trial lists them. */
export const MOST_TILES = 1 << 20;
/** Probes of the L1 size; the largest result counts, since other work on the core can only make it look smaller. */
export const PROBES = 3;

/**
 * Compiled modules by their bytes: a module that is compiled again would start unoptimised.
 * @type {WeakMap<Tune.Bytes, Promise<WebAssembly.Module>>}
 */
const compiled = new WeakMap();

/** @type {Tune.Backend['codeOf']} */
export async function codeOf({ spec, module: bytes }) {
  const objection = objectionTo(bytes, kernelsOf(1));
  if (objection) throw new EngineError('input', `The kernel kept for specification ${spec} is not one of Tilewright's: ${objection}`, 'It is dropped', { spec });
  const module = compiled.get(bytes) ?? WebAssembly.compile(bytes);
  compiled.set(bytes, module);
  return module;
}
