// The class of this device, from what the engine found out and one probe.  Only its id leaves the device.
// Input: the engine's facts, the table of classes (`GET /api/classes`).  Output: one of its ids.

/** KiB: working sets that are walked, and the L1 caches that would just hold them. */
const SETS = [16, 28, 44, 60, 120];
const CACHES = [0, 32, 48, 64, 128];
const LINE = 64;
const HOPS = 1 << 16;
const REPEATS = 7;
/** Beyond L1 a load takes two to three times as long. */
const MISS = 1.3;
const KNOWN = ['relaxed_simd', 'dot_u8'];

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

/** Bytes of this core's L1 data cache, or 0 if the walk does not say so clearly.  Takes some 20 ms. */
export function l1Bytes() {
  const times = SETS.map(walk);
  const fits = times.map((time) => time < MISS * times[0]);
  const last = fits.lastIndexOf(true);
  // It must fit up to there, and not beyond.
  if (!(times[0] > 0) || !fits.slice(0, last + 1).every(Boolean)) return 0;
  return CACHES[last] * 1024;
}

/** Milliseconds for a walk through so many KiB, line after line in random order. @param {number} kibibytes */
function walk(kibibytes) {
  const count = kibibytes * 1024 / LINE;
  const next = new Int32Array(kibibytes * 256);
  const order = Array.from({ length: count }, (_, at) => at);
  for (let at = count - 1; at > 0; at--) {
    const other = (at * 7919 + 104729 * (at >> 3)) % (at + 1);
    [order[at], order[other]] = [order[other], order[at]];
  }
  order.forEach((line, at) => (next[line * LINE / 4] = order[(at + 1) % count] * LINE / 4));
  let best = Infinity;
  let at = 0;
  for (let repeat = 0; repeat < REPEATS; repeat++) {
    const start = performance.now();
    for (let hop = 0; hop < HOPS; hop++) at = next[at];
    const spent = performance.now() - start;
    if (spent > 0) best = Math.min(best, spent);
  }
  // Nobody may leave out the walk.
  return at >= 0 && Number.isFinite(best) ? best : 0;
}
