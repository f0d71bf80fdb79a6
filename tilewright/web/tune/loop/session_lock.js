// One tuning session per bundle at a time, across tabs and within a page (a Web Lock, or a queue without locks).
// Input: an engine, work. Output: the work's result.  The work starts when no other session runs, and is told whether it had to wait,
// because then another session may have found winners.

import { unless } from './pace.js';
import { bundleName } from '../records/device_record.js';

/** For browsers without locks: for each bundle, the last session queued in this page. @type {Map<string, Promise<unknown>>} */
const last = new Map();

/** @type {Tune.Alone} */
export async function withSessionLock(engine, signal, onEvent, work) {
  const name = `tilewright-tune-${bundleName(engine.info.url)}`;
  const late = () => {
    onEvent({ type: 'resumed' });
    return work(true);
  };
  const wait = () => onEvent({ type: 'paused', why: 'another tab' });
  if (!navigator.locks) {
    const before = last.get(name);
    if (before) wait();
    const mine = before ? unless(before, signal).then(late) : work(false);
    // An aborted waiter must not let the next one start too early.
    const ended = Promise.allSettled([before, mine]).then(() => void (last.get(name) === ended && last.delete(name)));
    last.set(name, ended);
    return mine;
  }
  const first = await navigator.locks.request(name, { ifAvailable: true }, async (lock) => lock && { value: await work(false) });
  if (first) return first.value;
  wait();
  return navigator.locks.request(name, { signal }, late);
}
