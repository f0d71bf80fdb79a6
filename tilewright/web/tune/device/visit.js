// Which kernels a visit starts with: where a bundle lies for devices of this class and browsers of this kind.
// Input: the address of a bundle.  Output: the one at which a server with a kernel database gives the same bundle
// with the winners of that class.  Only the class's id leaves the device.

import { probeHost } from '../../engine/engine.js';
import { browserFamily, classify, factsOf, l1Bytes, MONTH } from './device.js';

const KEPT = 'tilewright-class';
const CLASSES = '/api/classes';

/**
 * Where this device loads the bundle from; the address itself if its class is not known.
 * @param {string} url of the bundle's folder, with a slash at the end
 */
export async function addressFor(url) {
  const device = await knownClass();
  const name = url.split('/').at(-2);
  return device && name ? `/tuned/${device}/${browserFamily()}/${name}/` : url;
}

/** What an earlier visit of this very browser found out, or else a probe of some 30 ms; '' where the server has no classes. */
export async function knownClass() {
  const kept = keptClass();
  if (kept) return kept;
  const response = await fetch(CLASSES).catch(() => null);
  if (!response?.ok) return '';
  const host = probeHost();
  const [registers, relaxed] = [host.registers, host.relaxed_simd];
  const name = (registers === 15 ? 'x86' : 'arm') + (relaxed ? '' : '-simd');
  const variant = { name, features: relaxed ? ['relaxed_simd'] : [], registers, why: '' };
  const found = classify(await response.json(), factsOf({ features: host, variant }, l1Bytes()), name);
  rememberClass(found);
  return found;
}

/** The tuner's own finding counts more than a probe at a page's start. @param {string} device */
export function rememberClass(device) {
  if (!device) return;
  try {
    storage()?.setItem(KEPT, JSON.stringify({ device, at: Date.now(), agent: navigator.userAgent }));
  } catch {
    // No space left: the next visit looks again.
  }
}

/** '' if it is none, of another version of the browser, or old. */
function keptClass() {
  try {
    const { device, at, agent } = JSON.parse(storage()?.getItem(KEPT) ?? '');
    const age = Date.now() - at;
    return agent === navigator.userAgent && age >= 0 && age < MONTH ? String(device) : '';
  } catch {
    return '';
  }
}

/** Null where the browser forbids it. */
function storage() {
  try {
    return globalThis.localStorage;
  } catch {
    return null;
  }
}
