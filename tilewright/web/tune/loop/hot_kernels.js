// Finds the kernels worth tuning by profiling the bundle's plans.
// Input: an engine, optionally the kernels asked for.  Output: targets, plan by plan, hottest first.

import { MOST_BYTES } from '../trial/specs.js';
import { median } from '../trial/statistics.js';

/** Kernels with a smaller share of a plan's time are not tuned. */
const LEAST_SHARE = 0.002;
/** Profiles per plan. */
const PROFILES = 3;
/** Milliseconds of a profile after which no further one is made. */
const LONG = 60;
/** Steps per job, so that runs of the page do not wait long. */
const PIECE = 8;
/** Milliseconds of profiling a plan after which each kernel is timed at one step only. */
const MUCH = 200;
/** Operations or bytes per millisecond, an estimate for steps too short for the clock. */
const GUESS = 1e7;

/**
 * Whether the tuner may run a plan.  Plans share memory, so a run would overwrite inputs that the page fills in place for
 * another plan (`Engine.input`).  Check before each run: the page may begin to do so at any time.
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
      const fits = specs.exchangeable(spec) && specs.bytesOf(spec) <= MOST_BYTES;
      if (targets.has(spec) || !fits || !(wanted ? wanted.has(spec) : part >= LEAST_SHARE)) continue;
      const step = steps.findIndex((found) => found.spec === spec);
      const { kernel, node, flops, milliseconds } = steps[step];
      targets.set(spec, {
        spec, plan, bucket, step, kernel, node, flops, part, share: part / order.length, whole: total,
        milliseconds, own: NaN, alone: !specs.gathers(spec), joined: specs.joined(spec),
      });
    }
  }
  return targets;
}

/**
 * Steps of a plan, each with the time of its kernel: the minimum over profiles per step, then the median over a kernel's
 * steps, against disturbances.  Empty if the plan may not run.
 * @type {Tune.Profile}
 */
async function profile(engine, pace, specs, { plan, bucket }) {
  const { steps } = engine.parts.manifest.plans[plan];
  const times = new Float64Array(steps.length).fill(Infinity);
  /** By kernel, its steps that were timed. @type {Map<number, Set<number>>} */
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
  /** For a slow plan only the kernels not timed yet.  A gather needs valid indices, so then all remaining steps must run. */
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
