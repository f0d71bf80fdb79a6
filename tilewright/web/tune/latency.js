// Latency of the whole model while it is tuned: the page's own runs if there were any, or else some that nobody asked for.
// Input: an engine, its pace.  Output: the first and the last median, and events.

import { planTimes } from './adopt.js';
import { median } from './statistics.js';

/** Runs by which latency is measured, milliseconds after which fewer are enough, and the share of tuning time that they may take. */
const RUNS = 5;
const LONG = 60;
const SHARE = 0.1;
/** Milliseconds of a plan above which the sum of its steps stands for the first run. */
const ENDLESS = 1000;

/** @type {Tune.OpenLatency} */
export function openLatency({ engine, pace, target: { plan, whole }, story, onEvent }) {
  const { dims: bucket } = engine.parts.manifest.plans[plan];
  /** Milliseconds that went into it. */
  let looked = 0;

  async function runs() {
    /** @type {number[]} */
    const times = [];
    const from = pace.spent;
    try {
      while (times.length < RUNS && (!times.length || pace.spent - from < LONG)) {
        const found = await planTimes(engine, pace, { plan, bucket });
        if (!found.length) break;
        times.push(...found);
      }
    } catch (error) {
      // The inputs of the page's last run, perhaps: the page knows.
      if (/** @type {any} */ (error)?.code !== 'kernel-trap') throw error;
    }
    looked += pace.spent - from;
    return times;
  }

  return {
    async look(round, due = true) {
      let times = pace.recent(plan);
      if (times.length < RUNS) {
        if (story.after !== null && !due && looked + story.after > SHARE * pace.spent) return;
        // The steps of so long a plan, which were timed just now, are not run again to know their sum.
        times = story.after === null && whole > ENDLESS ? [whole] : await runs();
      }
      pace.forgetRuns();
      if (!times.length) return;
      story.after = median(times);
      story.before ??= story.after;
      onEvent({ type: 'latency', round, plan, milliseconds: story.after });
    },
  };
}
