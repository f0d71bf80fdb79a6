// The page's side of a kernel swap (exchange.js is the worker's); only pages that tune load it.
// Input: the tuned kernels in use, and changes.  Output: the new list, once all workers run it.

import { EngineError } from './errors.js';

const MOST_TILES = 2 ** 31 - 1;
/** What a kernel's module may import, and what it exports, as reflection tells it. */
const IMPORTS = ['env.memory memory', 'env.table table', 'env.scratch global'];
const EXPORTS = 'k0 function';

/** @type {T.Swapped} */
export async function swapped(link, program, kernels, changes) {
  const next = merged(program, kernels, changes);
  await link.request('swap', next);
  return next;
}

/** @type {T.Merged} */
function merged({ plans, memory }, kernels, changes) {
  const next = new Map(kernels.map((kernel) => [kernel.spec, kernel]));
  for (const { spec, module, tiles = 0, grains = {}, scratch = 0 } of changes) {
    const refuse = (/** @type {string} */ problem, /** @type {string} */ hint, facts = {}) => {
      throw new EngineError('input', `The kernel for specification ${spec} ${problem}`, hint, { spec, ...facts });
    };
    if (!plans.some(({ steps }) => steps.some((step) => step.spec === spec))) refuse('belongs to no step of the bundle', 'Use the spec number of a step in a plan');
    if (module === null) {
      next.delete(spec);
      continue;
    }
    const exported = WebAssembly.Module.exports(module).map(({ name, kind }) => `${name} ${kind}`).join();
    const known = WebAssembly.Module.imports(module).every(({ module: from, name, kind }) => IMPORTS.includes(`${from}.${name} ${kind}`));
    if (exported !== EXPORTS || !known) refuse('is not a tile kernel', 'Its module must export k0 alone and import only memory, table and scratch from env');
    if (!isCount(tiles, 1)) refuse(`has ${tiles} tiles`, 'Give its number of tiles, an integer from 1 on', { tiles });
    if (!isCount(scratch) || scratch > memory.scratch_bytes) {
      refuse(`needs ${scratch} bytes of scratch memory`, 'Use a kernel that needs at most what the bundle reserves', { scratch, limit: memory.scratch_bytes });
    }
    if (!Object.values(grains).every((grain) => isCount(grain))) refuse('has a wrong number of tiles per ticket', 'Give an integer per plan; 0 for one ticket', { grains });
    next.set(spec, { spec, module, tiles, grains, scratch });
  }
  return [...next.values()];
}

/** @type {T.IsCount} */
const isCount = (value, least = 0) => Number.isInteger(value) && value >= least && value <= MOST_TILES;
