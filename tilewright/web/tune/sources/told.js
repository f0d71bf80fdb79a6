// What of a hello goes to a server: nothing finer than it needs, and of what lasts longer than a visit a power of two.
// Input: all that the tuner knows, what came in this visit.  Output: the message, within the server's limits.
// What earlier visits tried stays on the device, which passes over it when it comes: a server that knew it
// could tell visits of one device from those of others, though it has no id.

/** What the server takes (tuning/messages.py), and so many numbers that the rest always has room beside them. */
const MOST_SPECS = 1024;
const MOST_TRIED = 32_768;
/** Shares are powers of this, down to the last: devices of one class measure nearly the same, and should say the same. */
const STEP = 4;
const LAST = -5;
/** Fewer tries than this are not worth a word. */
const LEAST_SKIP = 16;
const MOST_SKIP = 8192;

/** @param {number} share */
const coarse = (share) => STEP ** Math.min(0, Math.max(LAST, Math.round(Math.log(share) / Math.log(STEP))));

/** So many of the first may come last; a power of two, so that it says little of who asks. @param {number} tries */
const skipOf = (tries) => (tries < LEAST_SKIP ? 0 : 2 ** Math.floor(Math.log2(Math.min(tries, MOST_SKIP))));

/** @type {Tune.ToldOf} */
export function toldOf({ tried, share: _, ...hello }, came) {
  const ranked = hello.specs.slice(0, MOST_SPECS)
    .map((spec, at) => ({ spec, share: coarse(hello.shares[at]) }))
    // Of two that are nearly as hot it would tell devices apart which comes first.
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

/** Whether all that a space has was tried: then nothing of this kernel need come. @type {Tune.Whole} */
export function whole({ spec, count, default: own }, tried) {
  const known = new Set(tried[spec]);
  for (let candidate = 0; candidate < count; candidate++) if (candidate !== own && !known.has(candidate)) return false;
  return true;
}
