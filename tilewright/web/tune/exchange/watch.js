// Notices that a job of an engine does not end.  A kernel that waits for its trial to be over before it loops would hold
// the model for ever; guard.js ends it.
// Input: an engine.  Output: one call.

import { hear } from '../loop/pace.js';

/** Milliseconds between two looks; looks are counted, not time, since the device may sleep. */
const LOOK = 500;
/** Minimum milliseconds that a job may take. */
const PATIENCE = 5000;
/** How many times as long as the slowest run so far it may take: the tuner times runs by the dozen in one job. */
const TIMES = 50;
/** Operations per millisecond that every device manages, for models that did not run yet. */
const SLOW = 1e5;

/** Calls `act`, once, when a job took too long. @type {Tune.Watch} */
export function watch(engine, act) {
  const flops = Math.max(...engine.info.plans.map((plan) => plan.flops));
  let [silent, most] = [0, Math.max(PATIENCE, flops / SLOW)];
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let timer;
  const deaf = hear(engine, (open, _, milliseconds = 0) => {
    silent = 0;
    most = Math.max(most, TIMES * milliseconds);
    if (open > 0) timer ??= setInterval(look, LOOK);
    else rest();
  });
  function rest() {
    clearInterval(timer);
    timer = undefined;
  }
  function look() {
    if (++silent * LOOK < most) return;
    rest();
    deaf();
    act();
  }
}
