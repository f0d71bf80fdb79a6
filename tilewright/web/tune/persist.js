// Winners that this device keeps, so that the next visit starts tuned without any server.
// Input: an engine, kernels that won.  Output: the same after a reload, checked by digest.  One record per
// bundle; another bundle at its address, another compiler or another class of device drop it.

import { EngineError } from '../engine/errors.js';
import { sha256 } from '../engine/files.js';
import { decode, encode } from './frames.js';

const CACHE = 'tilewright-tuned-1';

/** Of each engine, what `restore` or a tuning run put in. @type {WeakMap<T.Engine, Tune.Record_>} */
const known = new WeakMap();

/** @param {T.Engine} engine */
const keyOf = ({ info }) => `${new URL('/_tilewright/tuned', info.url).href}?${new URLSearchParams({ bundle: info.url })}`;

/** @param {T.Engine} engine @returns {Tune.Record_} */
const empty = ({ info }) => ({ digest: info.digest, variant: info.variant.name, tool: info.tool, device: '', winners: [], tried: {}, bad: {}, sound: {}, refuted: {}, unsent: [] });

/** What is kept for the engine's bundle, if it still fits. @type {Tune.Recall} */
export async function recall(engine) {
  const held = known.get(engine);
  if (held) return held;
  try {
    const cache = await caches.open(CACHE);
    const found = await cache.match(keyOf(engine));
    if (!found) return empty(engine);
    const { header, payload } = decode(await found.arrayBuffer());
    const { digest, variant, tool } = empty(engine);
    const winners = [];
    let at = 0;
    for (const { bytes, ...winner } of header.winners) {
      winners.push({ ...winner, module: payload.slice(at, at += bytes) });
    }
    const whole = await Promise.all(winners.map(async ({ module, digest: wanted }) => await sha256(module) === wanted));
    if (header.digest === digest && header.variant === variant && header.tool === tool && whole.every(Boolean)) return { ...header, winners };
  } catch {
    // No storage, or a damaged record: the device starts anew.
  }
  await forget(engine);
  return empty(engine);
}

/** Keeps the record; a device that keeps nothing is no error. @type {Tune.Keep} */
export async function keep(engine, record) {
  known.set(engine, record);
  try {
    const winners = record.winners.map(({ module, ...winner }) => ({ ...winner, bytes: module.length }));
    const frame = encode({ ...record, winners }, ...record.winners.map(({ module }) => module));
    await (await caches.open(CACHE)).put(keyOf(engine), new Response(frame));
  } catch {
    // Private mode, or no space left.
  }
}

/**
 * Puts the device's winners into an engine, best before its first run; gives how many there are.
 * `anew` looks again, for another tab may have found more.
 * @type {Tune.Restore}
 */
export async function restore(engine, anew = false) {
  if (anew) known.delete(engine);
  const done = known.get(engine);
  if (done) return done.winners.length;
  const record = await recall(engine);
  try {
    if (record.winners.length) await engine.swap(await Promise.all(record.winners.map(changeOf)));
    known.set(engine, record);
    return record.winners.length;
  } catch (error) {
    if (error instanceof EngineError && error.code === 'disposed') throw error;
    await forget(engine);
    return 0;
  }
}

/** Forgets what was kept for the engine's bundle. @param {T.Engine} engine */
export async function forget(engine) {
  known.delete(engine);
  await caches.open(CACHE).then((cache) => cache.delete(keyOf(engine)), () => {});
}

/** @type {Tune.ChangeOf} */
export const changeOf = async ({ spec, module, tiles, grains, scratch }) => ({ spec, module: await WebAssembly.compile(module), tiles, grains, scratch });
