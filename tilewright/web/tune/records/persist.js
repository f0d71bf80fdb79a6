// Restores the winners of earlier visits into an engine, so that it starts tuned without a server; or forgets them.
// Input: an engine.  Output: the same engine with the device's winners, or with the bundle's own kernels.  device_record.js
// stores the winners and decides whether they still fit.

import { asEngineError } from '../../engine/errors.js';
import { guardOf } from '../exchange/guard.js';
import { changeOf, erase, keep, recall } from './device_record.js';
import { tunedOf } from './engine_state.js';

/**
 * Swaps the device's winners into an engine, ideally before its first run; resolves with their number.
 * `anew`: reads the record again, because another tab may have changed it.
 * @type {Tune.Restore}
 */
export async function restore(engine, anew = false) {
  const tuned = tunedOf(engine);
  const before = tuned.inUse;
  const record = await recall(engine, anew);
  if (before && !anew) return record.winners.length;
  const gone = before?.winners.filter(({ spec }) => !record.winners.some((winner) => winner.spec === spec)) ?? [];
  try {
    const changes = [...await Promise.all(record.winners.map((winner) => changeOf(engine, winner))), ...gone.map(({ spec }) => ({ spec, module: null }))];
    if (changes.length) await engine.swap(changes);
  } catch (thrown) {
    const error = asEngineError(thrown);
    if (error.code === 'disposed') throw error;
    // The swap failed, so the previous kernels are in use; the others may be tried again.
    const left = before?.winners ?? [];
    for (const { spec, candidate } of record.winners) {
      if (!left.some((winner) => winner.spec === spec && winner.candidate === candidate)) record.tried[spec] = record.tried[spec]?.filter((other) => other !== candidate);
    }
    record.winners = left;
    // `input`: the record does not fit the bundle.
    if (error.code === 'input') await (before ? keep(engine, record) : erase(engine));
  }
  tuned.inUse = record;
  guardOf(engine).install();
  return record.winners.length;
}

/** Deletes the record of the engine's bundle; the bundle's own kernels are in use again. @param {T.Engine} engine */
export async function forget(engine) {
  const { winners } = await recall(engine);
  await erase(engine);
  tunedOf(engine).inUse = null;
  if (winners.length) await engine.swap(winners.map(({ spec }) => ({ spec, module: null })));
}
