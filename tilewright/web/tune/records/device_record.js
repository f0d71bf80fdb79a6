// What this device stores about tuning a bundle: winners, and which candidates were tried.
// Input: an engine, a record.  Output: the record after a reload, verified by digest.  There is one record per bundle name and device, for
// the plain and relinked versions together.  A record of another compiler or code variant is dropped.  After another build, winners are
// kept for kernels that compute the same in the same plans.  This file changes no engine.

import { sha256 } from '../../engine/files.js';
import { backendOf } from '../backend/backend.js';
import { readKernels } from './kernels.js';
import { decode, encode } from '../sources/answer_checks.js';
import { LATENCY } from '../loop/objective.js';
import { tunedOf } from './engine_state.js';

const CACHE = 'tilewright-tuned-1';
/** The number of letters of the digest at the begin of a stored entry. */
const SUM = 64;

/** @param {T.Engine} engine */
const keyOf = ({ info: { url, device } }) => `${new URL('/_tilewright/tuned', url).href}?${new URLSearchParams({ bundle: bundleName(url), ...(device !== 'wasm' && { device }) })}`;

/** The last folder of a bundle's URL, which is its name on the server. @param {string} url */
export const bundleName = (url) => decodeURIComponent(new URL('.', url).pathname.split('/').at(-2) ?? '');

/** @param {T.Engine} engine @returns {Tune.TuningRecord} */
const empty = ({ info }) => ({ digest: info.digest, variant: info.variant.name, tool: info.tool, objective: LATENCY, device: '', deviceAt: 0, winners: [], about: [], checksums: {}, tried: {}, bad: {}, sound: {}, refuted: {}, unsent: [], checked: '', caught: 0 });

/** The record in memory; undefined if it belongs to another code variant, because the engine moved to another device. @param {T.Engine} engine */
function heldOf(engine) {
  const { record } = tunedOf(engine);
  return record?.variant === engine.info.variant.name ? record : undefined;
}

/** The stored record of the engine's bundle if it still fits, else an empty one.  `anew`: reads it again, because another tab may have changed it. @type {Tune.Recall} */
export async function recall(engine, anew = false) {
  const held = heldOf(engine);
  if (held && (!anew || tunedOf(engine).unstored)) return held;
  const record = await read(engine).catch(() => null);
  // No storage, a damaged record, or one that does not fit.
  if (!record) await erase(engine);
  // Two concurrent calls must get the same record.
  const found = (!anew && heldOf(engine)) || record || empty(engine);
  tunedOf(engine).record = found;
  return found;
}

/** The stored record, adapted to this build; null if it does not fit. @param {T.Engine} engine */
async function read(engine, key = keyOf(engine)) {
  const cache = await storage();
  const found = await cache.match(key);
  if (!found) return empty(engine);
  // A damaged entry is dropped as a whole.
  const bytes = new Uint8Array(await found.arrayBuffer());
  const frame = bytes.slice(SUM);
  if (new TextDecoder().decode(bytes.subarray(0, SUM)) !== await sha256(frame)) return null;
  const { header, payload } = decode(frame.buffer);
  const { digest, variant, tool } = empty(engine);
  const winners = [];
  let at = 0;
  for (const { bytes, ...winner } of header.winners) {
    winners.push({ ...winner, module: payload.slice(at, at += bytes) });
  }
  if (header.variant !== variant || header.tool !== tool) return null;
  const record = { ...empty(engine), ...header, winners };
  return header.digest === digest ? record : moved(engine, record);
}

/**
 * Adapts the record of another build.  Winners for the same kernels in the same plans are kept as `moved`: their gain over
 * this build's own kernels is unknown, so they are not reported.
 * @type {Tune.Moved}
 */
async function moved(engine, record) {
  const about = await aboutKernels(engine);
  const same = (/** @type {number | string} */ spec) => about[Number(spec)] !== undefined && about[Number(spec)] === record.about[Number(spec)];
  const only = (/** @type {Record<string, any>} */ map) => Object.fromEntries(Object.entries(map).filter(([spec]) => same(spec)));
  const { scratch_bytes: most } = engine.parts.program.memory;
  return {
    ...record, digest: engine.info.digest, about, tried: only(record.tried), bad: only(record.bad), checksums: only(record.checksums),
    sound: only(record.sound), refuted: only(record.refuted),
    winners: record.winners.filter(({ spec, scratch }) => same(spec) && scratch <= most).map((winner) => ({ ...winner, ratio: 1, moved: true })),
  };
}

/** By index of the kernel specification, a digest of what it computes and in which steps, independent of its schedule. @type {Tune.AboutKernels} */
export async function aboutKernels({ parts: { manifest, file } }) {
  const listed = readKernels(await file(manifest.kernels));
  return Promise.all(listed.map(async (/** @type {any} */ { spec }, /** @type {number} */ number) => {
    const steps = manifest.plans.map(({ dims, steps }) => [dims, steps.flatMap((step, at) => (step.spec === number ? [at] : []))]);
    return sha256(new TextEncoder().encode(JSON.stringify([spec, steps])));
  }));
}

/**
 * Stores the record without the winners that other tabs found to be bad meanwhile; the next `restore` removes them from this engine, too.
 * It is not an error if the device has no storage.
 * @type {Tune.Keep}
 */
export async function keep(engine, record) {
  tunedOf(engine).record = record;
  await changed(engine, (stored) => {
    const next = { ...record, bad: { ...record.bad } };
    for (const [spec, candidates] of Object.entries(stored?.bad ?? {})) {
      if (record.checksums[spec] === stored?.checksums[spec]) forbid(next, Number(spec), candidates);
    }
    return next;
  });
}

/** Marks winners that must never run again, in this tab's record and in the stored one, which another tab may have changed. @type {Tune.Condemn} */
export async function condemn(engine, winners) {
  const record = await recall(engine);
  const forbidden = (/** @type {Tune.TuningRecord} */ where) => {
    for (const { spec, candidate } of winners) forbid(where, spec, [candidate]);
    return where;
  };
  forbidden(record);
  if (winners.length) await changed(engine, (stored) => (stored && !tunedOf(engine).unstored ? forbidden(stored) : record));
  return record;
}

/** Marks candidates of a kernel as bad and removes them from the winners. @type {Tune.Forbid} */
function forbid(record, spec, candidates) {
  record.bad[spec] = [...new Set([...record.bad[spec] ?? [], ...candidates])];
  record.winners = record.winners.filter((winner) => winner.spec !== spec || !candidates.includes(winner.candidate));
}

/** Replaces the stored record by `next` of it; no other tab can change it in between. @type {Tune.ChangeRecord} */
async function changed(engine, next) {
  // Computed first, since the engine may move to another device meanwhile.
  const key = keyOf(engine);
  const work = async () => {
    const record = next(await read(engine, key).catch(() => null));
    const winners = record.winners.map(({ module, ...winner }) => ({ ...winner, bytes: module.length }));
    const frame = encode({ ...record, winners }, ...record.winners.map(({ module }) => module));
    await (await storage()).put(key, new Response(new Blob([await sha256(frame), frame])));
  };
  try {
    await (globalThis.navigator?.locks?.request(`tilewright-record-${bundleName(engine.info.url)}`, work) ?? work());
    tunedOf(engine).unstored = false;
  } catch {
    // Private mode, or storage is full.
    tunedOf(engine).unstored = true;
  }
}

/** Rejects where there is no storage: outside secure contexts the browser has no `caches`. */
const storage = async () => caches.open(CACHE);

/** Deletes the record. @param {T.Engine} engine */
export async function erase(engine) {
  tunedOf(engine).record = null;
  await storage().then((cache) => cache.delete(keyOf(engine)), () => {});
}

/** The engine change that swaps a winner in; rejects with `input` if its code contains anything but a kernel. @type {Tune.ChangeOf} */
export async function changeOf(engine, winner) {
  const { spec, tiles, grains, scratch } = winner;
  const { codeOf } = await backendOf(engine);
  return { spec, module: await codeOf(winner), tiles, grains, scratch };
}
