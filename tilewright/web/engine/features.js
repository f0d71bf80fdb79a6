// What this browser can do, found by asking it: tiny modules go through WebAssembly.validate.
// Input: nothing, or the features a caller allows.  Output: host features, the code variant to take,
// and in plain words what is lost.  User agents are never looked at.

import { MOST_THREADS } from './control.js';
import { EngineError } from './errors.js';

/** @typedef {import('./bundle.js').Code} Code */
/**
 * @typedef {{simd: boolean, relaxed_simd: boolean, isolated: boolean, secure: boolean,
 *   sharedMemory: boolean, cores: number, threads: number}} HostFeatures
 */

const I32_CONST_0 = [0x41, 0];
const I8X16_SPLAT = [0xfd, 0x0f];
const VECTOR = [...I32_CONST_0, ...I8X16_SPLAT];
const I8X16_POPCNT = [0xfd, 0x62];
const F32X4_RELAXED_MADD = [0xfd, 0x85, 0x02];

/**
 * Does a module validate whose only function is this expression of type v128?
 * @param {number[]} expression
 */
function validates(expression) {
  const body = [0, ...expression, 0x0b];
  return WebAssembly.validate(
    new Uint8Array([
      0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
      1, 5, 1, 0x60, 0, 1, 0x7b, // types: () -> v128
      3, 2, 1, 0, // functions
      10, body.length + 2, 1, body.length, ...body, // code
    ]),
  );
}

/**
 * Two logical cores may be two cores; more are mostly twice the cores that there are, and a tile
 * keeps a core's arithmetic busy alone.  Beyond eight, memory is the limit.
 */
function usualThreads() {
  const cores = navigator.hardwareConcurrency || 1;
  return Math.min(8, Math.max(Math.min(2, cores), cores >> 1));
}

/**
 * @param {HostFeatures} host
 * @param {number} [asked] more than there are cores is allowed, and slower
 */
export function threadsFor(host, asked = host.threads) {
  if (!Number.isInteger(asked) || asked < 1 || asked > MOST_THREADS) {
    throw new EngineError('input', `threads must be an integer from 1 to ${MOST_THREADS}, found ${asked}`,
      'Leave threads out, or give the number of cores', { threads: asked });
  }
  return host.isolated ? asked : 1;
}

/** @returns {HostFeatures} */
export function probeHost() {
  return {
    simd: validates([...VECTOR, ...I8X16_POPCNT]),
    relaxed_simd: validates([...VECTOR, ...VECTOR, ...VECTOR, ...F32X4_RELAXED_MADD]),
    isolated: globalThis.crossOriginIsolated === true,
    secure: globalThis.isSecureContext === true,
    sharedMemory: typeof SharedArrayBuffer === 'function',
    cores: navigator.hardwareConcurrency || 1,
    threads: globalThis.crossOriginIsolated === true ? usualThreads() : 1,
  };
}

/**
 * Refuses a host that can run no bundle at all.
 * @param {HostFeatures} host
 */
export function requireHost(host) {
  if (!host.secure) {
    throw new EngineError(
      'unsupported-host',
      'The page is no secure context: the browser offers no digests, so no file can be verified',
      'Serve the page over https, or from localhost',
    );
  }
  if (!host.simd) {
    throw new EngineError(
      'unsupported-host',
      'This browser has no WebAssembly SIMD, which every kernel uses',
      'Use a browser of 2023 or later',
    );
  }
}

/**
 * The first variant, best first, whose features the host has and the caller allows.
 * @param {Code[]} code
 * @param {HostFeatures} host
 * @param {string[] | undefined} allowed
 */
export function pickVariant(code, host, allowed) {
  const usable = new Set(['simd']);
  if (host.relaxed_simd && (allowed?.includes('relaxed_simd') ?? true)) usable.add('relaxed_simd');
  const variant = code.find((entry) => entry.features.every((feature) => usable.has(feature)));
  if (variant) return variant;
  throw new EngineError(
    'unsupported-host',
    'No code variant of the bundle fits this browser',
    'Build the bundle with a baseline variant, or allow more features',
    { needed: code.map((entry) => entry.features.join('+')), found: [...usable] },
  );
}

/**
 * @param {HostFeatures} host
 * @param {Code} variant
 * @param {Code[]} code
 * @param {string} cacheProblem
 */
export function whatIsLost(host, variant, code, cacheProblem) {
  const lost = [];
  if (!host.isolated) lost.push('The page is not cross-origin isolated: one thread and coarse timers.');
  if (variant !== code[0]) {
    const missing = (code[0]?.features ?? []).filter((feature) => !variant.features.includes(feature));
    lost.push(`The fastest kernels are not used: they need ${missing.join(', ')}.`);
  }
  if (cacheProblem) lost.push(`Not all files are kept for the next visit: ${cacheProblem.replace(/\.$/, '')}.`);
  return lost;
}

/**
 * @param {HostFeatures} host
 * @param {number} threads
 * @param {number | undefined} asked
 * @param {string[]} problems of workers that did not start
 */
export function whatThreadsAreLost(host, threads, asked, problems) {
  const lost = problems.map((problem) => `One of ${threads} threads did not start: ${problem.replace(/\.$/, '')}.`);
  if (host.isolated && threads < host.threads) lost.push(`${threads} of ${host.threads} threads are used, as asked.`);
  if (!host.isolated && (asked ?? 1) > 1) lost.push(`${asked} threads were asked for: they need cross-origin isolation.`);
  return lost;
}
