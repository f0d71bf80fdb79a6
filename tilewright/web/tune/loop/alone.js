// One tuning run of a bundle at a time: in all tabs, and in one page.
// Input: an engine, work.  Output: what the work gives, once it was its turn.  It is told whether it had to wait:
// then others may have found something.

import { unless } from './pace.js';
import { bundleName } from '../records/record.js';

/** Where the browser has no locks: the last run of each bundle in this page. @type {Map<string, Promise<unknown>>} */
const last = new Map();

/** @type {Tune.Alone} */
export async function alone(engine, signal, onEvent, work) {
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
    // Who gives up waiting does not let the next one overtake.
    const ended = Promise.allSettled([before, mine]).then(() => void (last.get(name) === ended && last.delete(name)));
    last.set(name, ended);
    return mine;
  }
  const first = await navigator.locks.request(name, { ifAvailable: true }, async (lock) => lock && { value: await work(false) });
  if (first) return first.value;
  wait();
  return navigator.locks.request(name, { signal }, late);
}
