// Winners of earlier visits: into an engine, so that it starts tuned without any server, or out of it.
// Input: an engine.  Output: the same with the device's own kernels, or with the bundle's.  What is kept, and
// whether it still fits, is record.js's business.

import { asEngineError } from '../../engine/errors.js';
import { guard } from '../exchange/guard.js';
import { changeOf, erase, keep, recall } from './record.js';

/** Of each engine, the record whose winners are in use. @type {WeakMap<T.Engine, Tune.TuningRecord>} */
const inUse = new WeakMap();

/**
 * Puts the device's winners into an engine, best before its first run; gives how many there are.
 * `anew` looks again, for another tab may have found more.
 * @type {Tune.Restore}
 */
export async function restore(engine, anew = false) {
  const before = inUse.get(engine);
  const record = await recall(engine, anew);
  if (before && !anew) return record.winners.length;
  const gone = before?.winners.filter(({ spec }) => !record.winners.some((winner) => winner.spec === spec)) ?? [];
  try {
    const changes = [...await Promise.all(record.winners.map(changeOf)), ...gone.map(({ spec }) => ({ spec, module: null }))];
    if (changes.length) await engine.swap(changes);
  } catch (thrown) {
    const error = asEngineError(thrown);
    if (error.code === 'disposed') throw error;
    // The kernels of before are in use.  Else the host failed: these may be tried again.
    const left = before?.winners ?? [];
    for (const { spec, candidate } of record.winners) {
      if (!left.some((winner) => winner.spec === spec && winner.candidate === candidate)) record.tried[spec] = record.tried[spec]?.filter((other) => other !== candidate);
    }
    record.winners = left;
    // A record that cannot be goes.
    if (error.code === 'input') await (before ? keep(engine, record) : erase(engine));
  }
  inUse.set(engine, record);
  guard(engine);
  return record.winners.length;
}

/** Forgets what was kept for the engine's bundle; the bundle's own kernels are in use again. @param {T.Engine} engine */
export async function forget(engine) {
  const { winners } = await recall(engine);
  await erase(engine);
  inUse.delete(engine);
  if (winners.length) await engine.swap(winners.map(({ spec }) => ({ spec, module: null })));
}
