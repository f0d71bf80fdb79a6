// Stands in for tune/trial/timing.js and gpu_timing.js, on a machine whose speed has no part in a verdict: what is in use takes
// GAIN times as long as a candidate, give or take half a percent.  The candidate with the digest SLOW takes 100 times as long.

/** Put here by steady.py. */
const GAIN = 1;
const SLOW = '';

/** Digest of the candidate under trial. */
let tried = '';
self.addEventListener('message', ({ data }) => {
  if (data.kind === 'attempt') tried = data.params.candidate.digest;
});

export const finest = 0.001;
export const readClock = () => {};
export const warm = async () => 1;
export const warmEstimate = async () => 1;
/** Of candidates alone. */
export const coldEstimate = async () => (tried === SLOW ? { whole: 100, spent: 100 } : { whole: 1, spent: 1 });

export function pairsOf() {
  let calls = 0;
  const side = () => 1 + 0.01 * (calls++ * 5 % 7) / 7;
  return {
    parts: 1,
    long: false,
    async measure(/** @type {number} */ _, /** @type {number} */ order) {
      const [early, late] = [side(), side()];
      return order ? { first: GAIN * late, second: early } : { first: GAIN * early, second: late };
    },
  };
}
