// What of a bundle is worth tuning: each kernel's share of the time, from profiles of its plans.
// Input: an engine, the kernels that were asked for.  Output: kernels, hottest first, plan by plan.

import { MOST_BYTES } from '../trial/specs.js';
import { median } from '../trial/statistics.js';

/** Kernels of less than this share of the time are left alone. */
const LEAST_SHARE = 0.002;
/** Profiles of each plan, and milliseconds after which one is enough. */
const PROFILES = 3;
const LONG = 60;
/** Steps of one job, so that runs need not wait long, and milliseconds after which a kernel that was seen is not timed again. */
const PIECE = 8;
const MUCH = 200;
/** Operations or bytes of a millisecond, for steps that are too short for the clock. */
const GUESS = 1e7;

/**
 * Whether the tuner may run a plan: all of them work in the same memory, and would write over inputs that the page
 * fills in place for another.  Ask before each run, for the page may begin to do so at any time.
 * @type {Tune.MayRun}
 */
export const mayRun = ({ parts: { lent } }, plan) => [...lent].every((other) => other === plan);

/** Plans that may run: the page's latest first, then the largest. @type {Tune.PlansInOrder} */
export function plansInOrder(engine, latest) {
  const order = [...engine.parts.manifest.plans.keys()].filter((plan) => mayRun(engine, plan)).reverse();
  return order.sort((a, b) => Number(b === latest) - Number(a === latest));
}

/** @type {Tune.FindTargets} */
export async function findTargets(engine, pace, specs, asked) {
  const { manifest: { plans } } = engine.parts;
  const order = plansInOrder(engine, pace.latest);
  const wanted = asked && new Set(asked);
  /** @type {Map<number, Tune.Target>} */
  const targets = new Map();
  for (const plan of order) {
    const bucket = plans[plan].dims;
    const steps = await profile(engine, pace, specs, { plan, bucket });
    const total = steps.reduce((sum, { milliseconds }) => sum + milliseconds, 0);
    /** @type {Map<number, number>} */
    const parts = new Map();
    for (const { spec, milliseconds } of steps) parts.set(spec, (parts.get(spec) ?? 0) + milliseconds / total);
    for (const [spec, part] of [...parts].sort((a, b) => b[1] - a[1])) {
      const fits = specs.bytesOf(spec) <= MOST_BYTES;
      if (targets.has(spec) || !fits || !(wanted ? wanted.has(spec) : part >= LEAST_SHARE)) continue;
      const step = steps.findIndex((found) => found.spec === spec);
      const { kernel, node, flops, milliseconds } = steps[step];
      targets.set(spec, {
        spec, plan, bucket, step, kernel, node, flops, part, share: part / order.length, whole: total,
        milliseconds, own: NaN, alone: !specs.gathers(spec),
      });
    }
  }
  return targets;
}

/**
 * Steps of a plan, each with its kernel's time: of each step the shortest, of the steps of one kernel the median, since
 * one of them may have run while the machine did something else.  None if the plan may not run.
 * @type {Tune.Profile}
 */
async function profile(engine, pace, specs, { plan, bucket }) {
  const { steps } = engine.parts.manifest.plans[plan];
  const times = new Float64Array(steps.length).fill(Infinity);
  /** Steps of each kernel that were timed. @type {Map<number, Set<number>>} */
  const seen = new Map(steps.map(({ spec }) => [spec, new Set()]));
  const look = (/** @type {number[]} */ only) => pace.job(async () => {
    if (!mayRun(engine, plan)) return false;
    const { steps: found } = await engine.profile({ bucket, runs: 1, only });
    for (const { step, spec, milliseconds } of found) {
      times[step] = Math.min(times[step], milliseconds);
      seen.get(spec)?.add(step);
    }
    return true;
  });
  /** Of a plan that takes very long only one step of each kernel; but what reads by index must have run with all before it. */
  function fewer(/** @type {number[]} */ rest) {
    const unseen = rest.filter((step) => !seen.get(steps[step].spec)?.size);
    return unseen.some((step) => specs.gathers(steps[step].spec)) ? rest : unseen;
  }
  const from = pace.spent;
  for (let time = 0; time < PROFILES && (!time || pace.spent - from < LONG); time++) {
    for (let rest = [...steps.keys()]; rest.length; rest = rest.slice(PIECE)) {
      if (pace.spent - from > MUCH) rest = fewer(rest);
      if (rest.length && !await look(rest.slice(0, PIECE))) return [];
    }
  }
  const middles = new Map([...seen].map(([spec, timed]) => [spec, median([...timed].map((step) => times[step]))]));
  return steps.map((step, number) => {
    const { spec, flops, bytes } = step;
    return { ...step, step: number, milliseconds: middles.get(spec) || Math.max(flops, bytes) / GUESS };
  });
}
