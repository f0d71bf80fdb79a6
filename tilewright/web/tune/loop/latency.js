// Latency of the whole model while it is tuned: the page's own runs if there were enough, or else some that nobody asked for.
// Input: an engine, its pace.  Output: the latest median, and events.  Runs are warmed up first; a gain is none of its business.

import { settled, usual, warmUp } from '../exchange/runs.js';

/** Runs of the page that are enough, milliseconds of runs of our own, and the share of tuning time that they may take. */
const RUNS = 8;
const LOOK = 60;
const SHARE = 0.1;
/** Milliseconds of a plan above which even the first latency waits until that share allows it, and runs that it takes. */
const ENDLESS = 1000;
const FEWEST = 4;

/** @type {Tune.OpenLatency} */
export function openLatency({ engine, pace, target: { plan, whole }, story, onEvent }) {
  const { dims: bucket } = engine.parts.manifest.plans[plan];
  /** Milliseconds that went into it. */
  let looked = 0;
  /** Whether the latest one, if there can be any, is of the kernels in use. */
  let known = false;

  const tell = (/** @type {number} */ round, /** @type {number} */ milliseconds) => {
    story.latency = milliseconds;
    onEvent({ type: 'latency', round, plan, milliseconds });
  };

  return {
    tell,

    /** Other kernels are in use: runs of before do not count. */
    changed() {
      known = false;
      pace.forgetRuns();
    },

    async look(round, due = true) {
      if (known && !due) return;
      let times = pace.recent(plan);
      if (times.length < RUNS || !settled(times)) {
        const first = story.latency === null;
        const cost = Math.max(LOOK, FEWEST * (story.latency ?? whole));
        if ((!due || (first && whole > ENDLESS)) && looked + cost > SHARE * pace.spent) return;
        const from = pace.spent;
        times = await warmUp(engine, pace, { plan, bucket }, first ? undefined : LOOK);
        looked += pace.spent - from;
      }
      pace.forgetRuns();
      known = true;
      if (times.length) tell(round, usual(times));
    },
  };
}
