// What of a bundle is worth tuning: each kernel's share of the time, from profiles of its plans.
// Input: an engine, what is known of its kernels.  Output: kernels, hottest first, plan by plan.

import { MOST_BYTES } from './specs.js';

/** Kernels of less than this share of the time are left alone. */
const LEAST_SHARE = 0.002;
/** Profiles of each plan, and milliseconds after which one is enough.  Each is a job of its own, so that runs need not wait long. */
const PROFILES = 3;
const LONG = 60;
/** Operations or bytes of a millisecond, for steps that are too short for the clock. */
const GUESS = 1e7;

/**
 * Whether the tuner may run a plan: all of them work in the same memory, and would write over inputs that the page
 * fills in place for another.  Ask before each run, for the page may begin to do so at any time.
 * @type {Tune.MayRun}
 */
export const mayRun = ({ parts: { lent } }, plan) => [...lent].every((other) => other === plan);

/** @type {Tune.FindTargets} */
export async function findTargets(engine, pace, specs, ledger, asked) {
  const { manifest: { plans } } = engine.parts;
  const order = [...plans.keys()].filter((plan) => mayRun(engine, plan)).reverse();
  if (pace.latest >= 0) order.sort((a, b) => Number(b === pace.latest) - Number(a === pace.latest));
  const wanted = asked && new Set(asked);
  /** @type {Map<number, Tune.Target>} */
  const targets = new Map();
  for (const plan of order) {
    const bucket = plans[plan].dims;
    const steps = await profile(engine, pace, { plan, bucket });
    const total = steps.reduce((sum, { milliseconds }) => sum + milliseconds, 0);
    /** @type {Map<number, number>} */
    const shares = new Map();
    for (const { spec, milliseconds } of steps) shares.set(spec, (shares.get(spec) ?? 0) + milliseconds / total);
    for (const [spec, share] of [...shares].sort((a, b) => b[1] - a[1])) {
      const fits = specs.bytesOf(spec) <= MOST_BYTES;
      if (targets.has(spec) || !fits || !(wanted ? wanted.has(spec) : share >= LEAST_SHARE)) continue;
      const step = steps.findIndex((found) => found.spec === spec);
      const { kernel, node, flops, milliseconds } = steps[step];
      targets.set(spec, {
        spec, plan, bucket, step, kernel, node, flops, share: share / order.length,
        milliseconds: milliseconds * ledger.gain(spec), alone: !specs.gathers(spec),
      });
    }
  }
  return targets;
}

/** Steps of a plan with the shortest of some times; none if it may not run. @type {Tune.Profile} */
async function profile(engine, pace, { plan, bucket }) {
  /** @type {T.StepTime[][]} */
  const seen = [];
  for (let time = 0, from = pace.spent; time < PROFILES && (!time || pace.spent - from < LONG); time++) {
    const found = await pace.job(async () => (mayRun(engine, plan) ? engine.profile({ bucket, runs: 1 }) : null));
    if (!found) return [];
    seen.push(found.steps);
  }
  return seen[0].map((step, number) => ({ ...step, milliseconds: Math.min(...seen.map((steps) => steps[number].milliseconds)) || Math.max(step.flops, step.bytes) / GUESS }));
}
