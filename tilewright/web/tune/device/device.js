// The class of this device, from what the engine found out and one probe.  Only its id leaves the device.
// Input: the engine's facts, the table of classes (`GET /api/classes`).  Output: one of its ids.

import { resolution } from '../trial/clock.js';

/** KiB: working sets that are walked, and the L1 caches that would just hold them, with ways to spare for whatever else runs on the
 * core; none holds the last. */
const SETS = [16, 28, 40, 56, 112, 400];
const CACHES = [0, 32, 48, 64, 128, 0];
const LINE = 64;
/** Loads of one walk, and milliseconds that they take if nothing is missed; ticks of the clock that a walk must take, or else it is
 * longer, up to so many times. */
const HOPS = 1 << 15;
const BRISK = 0.06;
const TICKS = 10;
const LONGEST = 20;
/** Rounds over all sets, and fewer of longer walks; the first ones run code that is not optimised yet. */
const ROUNDS = 24;
const LEAST_ROUNDS = 8;
const FIRST = 4;
/** Beyond L1 a load takes two to three times as long.  What takes less than half of that more fits, but for what others do on this core;
 * 2.5 times are enough for that: beyond L2 it takes ten times as long. */
const MISS = 1.3;
const BEYOND = 2.5;
const KNOWN = ['relaxed_simd', 'dot_u8'];
/** Milliseconds after which a class is found out anew: devices stay, browsers learn. */
export const MONTH = 30 * 86_400_000;

/** @type {Tune.FactsOf} */
export function factsOf({ features, variant }, l1) {
  // A page may use less than the device has: what counts is the code that runs.
  const usable = variant.features.includes('relaxed_simd') ? KNOWN.filter((name) => features[/** @type {'dot_u8'} */ (name)]) : [];
  return { kind: 'wasm', vendor: '', architecture: variant.registers === 15 ? 'x86' : 'arm', features: usable, l1 };
}

/** The first class of the table that admits the device, the most exact one; '' if none does. @type {Tune.Classify} */
export function classify(table, facts, variant) {
  const found = table.find((entry) => entry.kind === facts.kind
    && ['', facts.vendor].includes(entry.vendor) && ['', facts.architecture].includes(entry.architecture)
    && entry.features.every((feature) => facts.features.includes(feature))
    && entry.least_l1 <= facts.l1 && entry.variant === variant);
  return found?.id ?? '';
}

/** The family, by which votes are counted: engines differ in what is fast. */
export function browserFamily() {
  const { userAgent } = navigator;
  if (/firefox/i.test(userAgent)) return 'firefox';
  if (/chrom/i.test(userAgent)) return 'chromium';
  return /safari/i.test(userAgent) ? 'safari' : 'other';
}

/**
 * Bytes of this core's L1 data cache, or 0 if walks do not say so clearly, or the clock is too coarse.  Takes some 30 ms, with a coarse clock up to five times as long.
 * Whatever else runs on the core makes its cache look smaller, never larger: the shortest times count.
 */
export function l1Bytes() {
  const times = Math.max(1, Math.ceil(TICKS * resolution() / BRISK));
  if (times > LONGEST) return 0;
  const rings = SETS.map(ring);
  const rounds = Array.from({ length: Math.max(LEAST_ROUNDS, Math.ceil(ROUNDS / times)) }, () => rings.map((next) => walk(next, times * HOPS))).slice(FIRST);
  return 1024 * cacheOf(SETS.map((_, set) => Math.min(...rounds.map((round) => round[set]))));
}

/** KiB of the cache that the shortest times of the walks show; 0 if they do not. @param {number[]} times */
export function cacheOf(times) {
  const [least] = times;
  const fits = times.map((time, set) => time < Math.max(MISS * least, (least + Math.min(times[set + 1] ?? 0, BEYOND * least)) / 2));
  const last = fits.lastIndexOf(true);
  // It must fit up to there, and not beyond.
  return least > 0 && last >= 0 && fits.slice(0, last + 1).every(Boolean) ? CACHES[last] : 0;
}

/** One way through all lines of so many KiB, in random order. @param {number} kibibytes */
function ring(kibibytes) {
  const lines = Array.from({ length: kibibytes * 1024 / LINE }, (_, at) => at);
  for (let at = lines.length - 1; at > 0; at--) {
    const other = Math.floor(Math.random() * (at + 1));
    [lines[at], lines[other]] = [lines[other], lines[at]];
  }
  const next = new Int32Array(kibibytes * 256);
  lines.forEach((line, at) => (next[line * LINE / 4] = lines[(at + 1) % lines.length] * LINE / 4));
  return next;
}

/** Milliseconds for a walk. @param {Int32Array} next @param {number} hops */
function walk(next, hops) {
  let at = 0;
  const start = performance.now();
  for (let hop = 0; hop < hops; hop++) at = next[at];
  const spent = performance.now() - start;
  // Nobody may leave out the walk.
  return at >= 0 ? spent : 0;
}
