// Reduces a hello to what the server needs, so that it cannot recognise a device across visits.
// Input: the tuner's hello, the candidates that arrived in this visit.  Output: the message, within the server's limits.
// Candidates that earlier visits tried stay on the device, which skips them on arrival.  Of data that outlasts a visit,
// only a power of two is sent.

/** The server's limit (tuning/messages.py). */
const MOST_SPECS = 1024;
/** Maximum candidate numbers in a hello, so that the message stays below the server's size limit. */
const MOST_TRIED = 32_768;
/** Shares are rounded to powers of this base, since devices of one class measure nearly the same and should send the same. */
const STEP = 4;
/** The smallest exponent. */
const LAST = -5;
/** Fewer tries than this are sent as 0. */
const LEAST_SKIP = 16;
const MOST_SKIP = 8192;

/** @param {number} share */
const coarse = (share) => STEP ** Math.min(0, Math.max(LAST, Math.round(Math.log(share) / Math.log(STEP))));

/** How many of the first candidates the server may send last: the number of tries, rounded down to a power of two. @param {number} tries */
const skipOf = (tries) => (tries < LEAST_SKIP ? 0 : 2 ** Math.floor(Math.log2(Math.min(tries, MOST_SKIP))));

/** @type {Tune.MinimalHello} */
export function minimalHello({ tried, share: _, ...hello }, came) {
  const ranked = hello.specs.slice(0, MOST_SPECS)
    .map((spec, at) => ({ spec, share: coarse(hello.shares[at]) }))
    // Sorted by the rounded shares: the order of two nearly equal kernels would tell devices apart.
    .sort((a, b) => b.share - a.share || a.spec - b.spec);
  const specs = ranked.map(({ spec }) => spec);
  let room = MOST_TRIED;
  const lately = specs.flatMap((spec) => {
    const found = (tried[spec] ?? []).filter((candidate) => came.get(spec)?.has(candidate)).slice(0, room);
    room -= found.length;
    return found.length ? [[spec, found]] : [];
  });
  const tries = specs.reduce((sum, spec) => sum + (tried[spec]?.length ?? 0), 0);
  return { ...hello, specs, shares: ranked.map(({ share }) => share), tried: Object.fromEntries(lately), skip: skipOf(tries) };
}

/** Whether all candidates of a space were tried, so that the server need not send any. @type {Tune.Whole} */
export function whole({ spec, count, default: own }, tried) {
  const known = new Set(tried[spec]);
  for (let candidate = 0; candidate < count; candidate++) if (candidate !== own && !known.has(candidate)) return false;
  return true;
}
