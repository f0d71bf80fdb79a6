// Detects features by validating and running tiny Wasm modules, never by the user agent. Output: host features, the code variant to use,
// and sentences about what this host lacks.

import { MOST_WORKERS } from './abi.js';
import { EngineError, requireCount } from './errors.js';

/** Code bytes: i32.const x, i8x16.splat. @param {number} x */
const splat = (x) => [0x41, x, 0xfd, 0x0f];
const ZERO = splat(0);
const V128 = 0x7b;
const I32 = 0x7f;

/** @type {T.ModuleOf} */
function moduleOf(result, expression) {
  const body = [0, ...expression, 0x0b];
  return new Uint8Array([
    0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
    1, 6, 1, 0x60, 1, 0x7d, 1, result, // type: (f32) -> result
    3, 2, 1, 0, // function
    7, 5, 1, 1, 0x66, 0, 0, // export
    10, body.length + 2, 1, body.length, ...body, // code
  ]);
}

/** @param {number[]} expression code bytes that leave a v128 */
const validates = (expression) => WebAssembly.validate(moduleOf(V128, expression));

/** @type {T.ResultOf} */
const result = (bytes, x) => /** @type {any} */ (new WebAssembly.Instance(compiled(bytes)).exports).f(x);

/** @param {Uint8Array<ArrayBuffer>} bytes */
function compiled(bytes) {
  try {
    return new WebAssembly.Module(bytes);
  } catch (error) {
    throw new EngineError('unsupported-host', `This page may not compile WebAssembly: ${error}`,
      "Add 'wasm-unsafe-eval' to script-src in the Content-Security-Policy");
  }
}

/** True on x86: only there inf - inf is a NaN with the sign bit set.  Infinity is an argument, so no compiler folds it. */
const nanIsNegative = () => result(moduleOf(I32, [0x20, 0, 0x20, 0, 0x93, 0xbc]), Infinity) < 0; // f32.sub, i32.reinterpret_f32

/** True if the relaxed dot product's second operand is unsigned: then 1 * 0xff + 1 * 0xff is 510.  0x7f encodes i32.const -1. */
function dotIsUnsigned() {
  const bytes = moduleOf(I32, [...splat(1), ...splat(0x7f), 0xfd, 0x92, 0x02, 0xfd, 0x18, 0]); // i16x8.relaxed_dot, i16x8.extract_lane_s 0
  return WebAssembly.validate(bytes) && result(bytes) === 510;
}

/** @type {T.ThreadsFor} */
export function threadsFor(host, asked = host.threads) {
  requireCount('threads', asked, 1, MOST_WORKERS);
  return host.isolated ? asked : 1;
}

/** @returns {T.HostFeatures} */
export function probeHost() {
  const missing = ['navigator', 'location', 'WebAssembly'].find((name) => !(/** @type {any} */ (globalThis)[name]));
  if (missing) throw new EngineError('unsupported-host', `There is no ${missing} here`, 'Use a browser from 2023 or later, or `tilewright run --host node`');
  const isolated = globalThis.crossOriginIsolated === true;
  const cores = navigator.hardwareConcurrency || 1;
  return {
    simd: validates([...ZERO, 0xfd, 0x62]), // i8x16.popcnt
    relaxed_simd: validates([...ZERO, ...ZERO, ...ZERO, 0xfd, 0x85, 0x02]), // f32x4.relaxed_madd
    dot_u8: dotIsUnsigned(),
    registers: nanIsNegative() ? 15 : 32,
    isolated,
    secure: globalThis.isSecureContext,
    cores,
    // Above two, logical cores are mostly hyperthreads, so half of them; above eight, memory bandwidth limits.
    threads: isolated ? Math.min(8, Math.max(Math.min(2, cores), cores >> 1)) : 1,
  };
}

/** Throws `unsupported-host` if no bundle can run here. @param {T.HostFeatures} host */
export function requireHost(host) {
  if (!host.secure) {
    throw new EngineError('unsupported-host', 'No secure context, so no SHA-256 to verify files',
      'Serve the page over https, or from localhost');
  }
  if (!host.simd) {
    throw new EngineError('unsupported-host', 'This browser has no WebAssembly SIMD', 'Use a browser from 2023 or later');
  }
}

/** @type {T.PickVariant} */
export function pickVariant(builds, host, { features, variant }) {
  /** Features that code variants may use here: SIMD, and more if detected and allowed. @type {string[]} */
  const usable = ['simd', .../** @type {const} */ (['relaxed_simd', 'dot_u8']).filter((feature) => host[feature] && (features?.includes(feature) ?? true))];
  const able = builds.filter((entry) => entry.features.every((feature) => usable.includes(feature)) && (variant ?? entry.variant) === entry.variant);
  if (!able.length) {
    throw new EngineError('unsupported-host',
      variant ? `The code variant '${variant}' is not in the bundle, or does not run here` : 'No code variant of the bundle fits this browser',
      'Build a baseline variant, or allow more features',
      { needed: Object.fromEntries(builds.map((entry) => [entry.variant, entry.features])), found: usable });
  }
  const chosen = able.find(({ facts }) => facts.registers === host.registers) ?? able[0];
  return { build: chosen, why: variant ? 'the caller named it' : `the browser has ${usable.join(' and ')}, and ${host.registers} registers` };
}

/** @type {T.WhatIsLost} */
export function whatIsLost(host, { features, facts: { registers } }, builds, { threads, asked = 1, problems, cacheProblem, codeProblem }) {
  const missing = (builds[0]?.features ?? []).filter((feature) => !features.includes(feature));
  return /** @type {any[]} */ ([
    !host.isolated && 'Not cross-origin isolated: one thread and coarse timers',
    missing.length && `The fastest kernels are not used: they need ${missing.join(', ')}`,
    registers !== host.registers && `The kernels are for ${registers} vector registers, this device has ${host.registers}`,
    cacheProblem && `Not all files are kept for the next visit: ${cacheProblem}`,
    ...problems.map((problem) => `One of ${threads} threads did not start: ${problem}`),
    host.isolated && threads < host.threads && `${threads} of ${host.threads} threads are used, as asked`,
    !host.isolated && asked > 1 && `${asked} threads were asked for: they need cross-origin isolation`,
    codeProblem && `The code was not compiled while it downloaded: ${codeProblem}`,
  ]).filter(Boolean).map((text) => `${text.replace(/\.$/, '')}.`);
}
