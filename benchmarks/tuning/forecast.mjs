// Sessions without an engine: the tuner's own choice of candidates (web/tune/loop), over times that a sweep measured.
// Input (standard input): {loop, sessions}: the folder's URL; per session its kernels, candidates in the source's order, and after how many trials to look.
// Output: per session and look, the time of each kernel's fastest candidate so far over that of the bundle's own.

import { text } from 'node:stream/consumers';

/** Standard deviation of the logarithm of what a trial measures. */
const NOISE = 0.02;
/** Numbers that a generator drops: the first ones of small seeds are small. */
const DROPPED = 10;

const { loop, sessions } = JSON.parse(await text(process.stdin));
const { openForecast } = await import(`${loop}/forecast.js`);
const { openQueue } = await import(`${loop}/../sources/connection.js`);

/** Time is no part of what is simulated. */
const pace = { spend() {}, async turn() {} };

/** Standard normal numbers, the same in every run. @param {number} seed */
function normal(seed) {
  let state = seed;
  const next = () => ((state = (state * 48271) % 2147483647) / 2147483647);
  for (let n = 0; n < DROPPED; n++) next();
  return () => Math.sqrt(-2 * Math.log(next())) * Math.cos(2 * Math.PI * next());
}

/**
 * @typedef {{share: number, times: number[], schedules: string[]}} Kernel
 * @param {{kernels: Kernel[], picks: [number, number][], looks: number[], learning: boolean, seed: number}} asked
 */
async function session({ kernels, picks, looks, learning, seed }) {
  const random = normal(seed);
  const offers = new Map(kernels.map(({ schedules }, spec) => [spec, { count: schedules.length, schedule: schedules[0] }]));
  const ledger = { offers, winner: () => undefined, unknown: () => false, inQuestion: () => false };
  const forecast = openForecast({ ledger, objective: 'latency', effects: new Map(), shareOf: (/** @type {number} */ spec) => kernels[spec].share });
  const line = {
    async next() {
      const pick = picks.shift();
      if (!pick) return null;
      const [spec, candidate] = pick;
      return { header: { spec, candidate, schedule: kernels[spec].schedules[candidate] } };
    },
  };
  const supply = learning ? openQueue({ line, forecast, pace, signal: new AbortController().signal, isOver: () => false }) : line;
  const best = kernels.map(() => 1);
  const seen = [];
  for (let trials = 1; seen.length < looks.length; trials++) {
    const sent = await supply.next();
    if (sent) {
      const { spec, candidate } = sent.header;
      const { times } = kernels[spec];
      best[spec] = Math.min(best[spec], times[candidate] / times[0]);
      forecast.learn(sent.header, times[0] / times[candidate] * Math.exp(NOISE * random()));
    }
    if (trials === looks[seen.length]) seen.push([...best]);
  }
  return seen;
}

const found = [];
for (const one of sessions) found.push(await session(one));
console.log(JSON.stringify(found));
