// The page's side of an exchange of kernels; only pages that tune load it.
// Input: the kernels in use, and changes.  Output: those in use afterwards, once all workers have them.

import { EngineError } from './errors.js';

const MOST_TILES = 2 ** 31 - 1;
const IMPORTS = ['memory', 'table', 'scratch'];

/** @type {T.Swapped} */
export async function swapped(link, program, nearby, kernels, changes) {
  const next = merged(program, kernels, changes);
  const near = await nearby(next);
  await link.request('swap', next);
  return [next, near];
}

/** @type {T.Merged} */
function merged({ plans, memory }, kernels, changes) {
  const next = new Map(kernels.map((kernel) => [kernel.spec, kernel]));
  for (const { spec, module, tiles = 0, grains = {}, scratch = 0 } of changes) {
    const refuse = (/** @type {string} */ problem, /** @type {string} */ hint, facts = {}) => {
      throw new EngineError('input', `The kernel for specification ${spec} ${problem}`, hint, { spec, ...facts });
    };
    if (!plans.some(({ steps }) => steps.some((step) => step.spec === spec))) refuse('belongs to no step of the bundle', 'Take numbers from the steps of the plans');
    if (module === null) {
      next.delete(spec);
      continue;
    }
    const exported = WebAssembly.Module.exports(module).some(({ name, kind }) => name === 'k0' && kind === 'function');
    const known = WebAssembly.Module.imports(module).every(({ module: from, name }) => from === 'env' && IMPORTS.includes(name));
    if (!exported || !known) refuse('is no tile kernel', 'Its module exports k0 and imports memory, table and scratch alone');
    if (!isCount(tiles, 1)) refuse(`has ${tiles} tiles`, 'Give the number of its tiles', { tiles });
    if (!isCount(scratch) || scratch > memory.scratch_bytes) {
      refuse(`needs ${scratch} bytes of scratch memory`, 'Take one that needs no more than the bundle reserves', { scratch, limit: memory.scratch_bytes });
    }
    if (!Object.values(grains).every((grain) => isCount(grain))) refuse('has a wrong number of tiles per ticket', 'Give an integer per plan; 0 for one ticket', { grains });
    next.set(spec, { spec, module, tiles, grains, scratch });
  }
  return [...next.values()];
}

/** @type {T.IsCount} */
const isCount = (value, least = 0) => Number.isInteger(value) && value >= least && value <= MOST_TILES;
