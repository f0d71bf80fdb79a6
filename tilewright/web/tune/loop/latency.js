// Latency of the whole model during tuning: from the page's own runs if there were enough, else from extra runs.
// Input: an engine, its pace.  Output: the latest median, and events.  Extra runs are warmed up.  It measures no gain.

import { settled, usual, warmUp } from '../exchange/runs.js';

/** The number of page runs that is enough. */
const RUNS = 8;
/** The least milliseconds of extra runs. */
const LOOK = 60;
/** The most of the tuning time, as a share, for extra runs. */
const SHARE = 0.1;
/** Milliseconds of a plan above which even the first latency must keep to that share. */
const ENDLESS = 1000;
/** Extra runs that a latency is expected to take. */
const FEWEST = 4;

/** @type {Tune.OpenLatency} */
export function openLatency({ engine, pace, target: { plan, whole }, story, onEvent }) {
  const { dims: bucket } = engine.parts.manifest.plans[plan];
  /** Milliseconds spent on extra runs. */
  let looked = 0;
  /** True if the latest latency is that of the kernels in use. */
  let known = false;

  const tell = (/** @type {number} */ round, /** @type {number} */ milliseconds) => {
    story.latency = milliseconds;
    onEvent({ type: 'latency', round, plan, milliseconds });
  };

  return {
    tell,

    /** Called when other kernels are in use: earlier runs no longer count. */
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
