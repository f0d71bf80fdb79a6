// Loads the tuned version of a bundle: on a server with a kernel database, the bundle with the winning kernels of this device's class and
// browser family.
// Input: a bundle's URL.  Output: the URL of its tuned version, or an engine with it.  Only the class id leaves the device.

import { load, probeHost } from '../../engine/engine.js';
import { folderOf } from '../../engine/bundle.js';
import { CLASSES as ROWS, heard, jsonOf } from '../sources/answer_checks.js';
import { browserFamily, classify, factsOf, l1Bytes, MONTH } from './device_class.js';

const KEPT = 'tilewright-class';
const CLASSES = '/api/classes';

/**
 * The URL of the bundle as tuned for this device's class; `url` itself if the class is unknown.
 * @param {string} url of the bundle's folder
 */
export async function addressFor(url) {
  const device = await knownClass();
  const { pathname, search } = new URL(folderOf(url));
  const name = pathname.split('/').at(-2);
  return device && name ? `/tuned/${device}/${browserFamily()}/${name}/${search}` : url;
}

/**
 * Loads the bundle as tuned for this device's class.  Kernels that other devices chose are compared with the compiler's own as soon as the
 * page is idle (check.js); `report`: whether the results are sent.
 * @param {string} url of the bundle's folder
 * @param {T.LoadOptions & { report?: boolean }} [options]
 */
export async function visit(url, { report = false, ...options } = {}) {
  const address = await addressFor(url);
  const engine = await load(address, options).catch((error) => {
    if (address === url || options.signal?.aborted) throw error;
    // This server may have classes, but no tuned version of the bundle.
    return load(url, options);
  });
  // A page works without the check, too, and the next visit tries again.
  import('../check.js').then(({ check }) => check(engine, { report, signal: options.signal })).catch(() => {});
  return engine;
}

/** The class stored by an earlier visit, otherwise found by a probe of about 30 ms; '' if the server has no classes. */
export async function knownClass() {
  const kept = keptClass();
  if (kept) return kept;
  const response = await fetch(CLASSES).catch(() => null);
  if (!response?.ok) return '';
  const host = probeHost();
  const [registers, relaxed] = [host.registers, host.relaxed_simd];
  const name = (registers === 15 ? 'x86' : 'arm') + (relaxed ? '' : '-simd');
  const variant = { name, features: relaxed ? ['relaxed_simd'] : [], registers, why: '' };
  // A server without this address may answer with an HTML page.
  const table = await jsonOf(response, 'classes').then((found) => heard(found, ROWS, 'classes')).catch(() => []);
  const found = classify(table, factsOf({ features: host, variant }, l1Bytes()), name);
  rememberClass(found);
  return found;
}

/** Stores the class.  The tuner's class comes from several probes and replaces one found when a page started. @param {string} device */
export function rememberClass(device) {
  if (!device) return;
  try {
    storage()?.setItem(KEPT, JSON.stringify({ device, at: Date.now(), agent: navigator.userAgent }));
  } catch {
    // Storage is full: the next visit probes again.
  }
}

/** The stored class; '' if there is none, it is older than a month, or it is from another browser version. */
function keptClass() {
  try {
    const { device, at, agent } = JSON.parse(storage()?.getItem(KEPT) ?? '');
    const age = Date.now() - at;
    return agent === navigator.userAgent && age >= 0 && age < MONTH ? String(device) : '';
  } catch {
    return '';
  }
}

/** localStorage, or null where the browser forbids it. */
function storage() {
  try {
    return globalThis.localStorage;
  } catch {
    return null;
  }
}
