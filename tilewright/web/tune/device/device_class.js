// Finds the class of this device from the engine's features and a probe of the L1 cache.
// Input: engine info, the table of classes (`GET /api/classes`).  Output: a class id; nothing else leaves the device.

import { resolution } from '../trial/clock.js';

/** KiB of the working sets that are walked. */
const SETS = [16, 28, 40, 56, 112, 400];
/** KiB of the smallest L1 that holds each set, with some room for other work on the core; 0: none does, or the set decides nothing. */
const CACHES = [0, 32, 48, 64, 128, 0];
/** Bytes of a cache line. */
const LINE = 64;
/** Dependent loads per walk. */
const HOPS = 1 << 15;
/** Milliseconds of a walk that hits L1. */
const BRISK = 0.06;
/** The least clock ticks per walk: with a coarse clock walks get longer. */
const TICKS = 10;
/** The factor by which walks get longer, at most. */
const LONGEST = 20;
/** Rounds over all sets; longer walks get fewer rounds, but at least LEAST_ROUNDS. */
const ROUNDS = 24;
const LEAST_ROUNDS = 8;
/** Rounds that are discarded, because their code is not optimised yet. */
const FIRST = 4;
/**
 * A set fits L1 if its walk takes less than MISS times the shortest, or lies in the lower half between that and the next
 * set's walk.  An L2 hit takes two to three times as long as an L1 hit, so the next walk counts at most BEYOND times the
 * shortest: beyond L2 it would be ten times.
 */
const MISS = 1.3;
const BEYOND = 2.5;
const KNOWN = ['relaxed_simd', 'dot_u8'];
/** Milliseconds after which the class is probed again: browsers gain features. */
export const MONTH = 30 * 86_400_000;

/** @type {Tune.FactsOf} */
export function factsOf({ features, variant }, l1) {
  // A page may restrict features, so the features of the code in use count.
  const usable = variant.features.includes('relaxed_simd') ? KNOWN.filter((name) => features[/** @type {'dot_u8'} */ (name)]) : [];
  return { kind: 'wasm', vendor: '', architecture: variant.registers === 15 ? 'x86' : 'arm', features: usable, l1 };
}

/** The id of the first class that admits the device (the table is sorted, most specific first); '' if none does. @type {Tune.Classify} */
export function classify(table, facts, variant) {
  const found = table.find((entry) => entry.kind === facts.kind
    && ['', facts.vendor].includes(entry.vendor) && ['', facts.architecture].includes(entry.architecture)
    && entry.features.every((feature) => facts.features.includes(feature))
    && entry.least_l1 <= facts.l1 && entry.variant === variant);
  return found?.id ?? '';
}

/** The browser's family.  Votes are counted per family, since JavaScript engines differ in which kernel is fastest. */
export function browserFamily() {
  const { userAgent } = navigator;
  if (/firefox/i.test(userAgent)) return 'firefox';
  if (/chrom/i.test(userAgent)) return 'chromium';
  return /safari/i.test(userAgent) ? 'safari' : 'other';
}

/**
 * Bytes of this core's L1 data cache; 0 if the result is unclear or the clock too coarse.  Takes about 30 ms, with a coarse
 * clock up to five times as long.  Other work on the core can only make the cache look smaller, so minimum times count.
 */
export function l1Bytes() {
  const times = Math.max(1, Math.ceil(TICKS * resolution() / BRISK));
  if (times > LONGEST) return 0;
  const rings = SETS.map(ring);
  const rounds = Array.from({ length: Math.max(LEAST_ROUNDS, Math.ceil(ROUNDS / times)) }, () => rings.map((next) => walk(next, times * HOPS))).slice(FIRST);
  return 1024 * cacheOf(SETS.map((_, set) => Math.min(...rounds.map((round) => round[set]))));
}

/** KiB of L1 derived from the shortest walk of each set; 0 if unclear. @param {number[]} times */
export function cacheOf(times) {
  const [least] = times;
  const fits = times.map((time, set) => time < Math.max(MISS * least, (least + Math.min(times[set + 1] ?? 0, BEYOND * least)) / 2));
  const last = fits.lastIndexOf(true);
  // All smaller sets must fit as well.
  return least > 0 && last >= 0 && fits.slice(0, last + 1).every(Boolean) ? CACHES[last] : 0;
}

/** A pointer chase through all cache lines of a working set, in random order. @param {number} kibibytes */
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

/** Milliseconds of one walk. @param {Int32Array} next @param {number} hops */
function walk(next, hops) {
  let at = 0;
  const start = performance.now();
  for (let hop = 0; hop < hops; hop++) at = next[at];
  const spent = performance.now() - start;
  // Uses `at`, so that the compiler cannot drop the loop.
  return at >= 0 ? spent : 0;
}
