// The line to a source of candidates, which may be lost: it is opened again with all that was tried.
// Input: a source, what to say hello with.  Output: classes, candidates; a typed error after many attempts in vain.

import { EngineError } from '../../engine/errors.js';
import { sleep, unless } from '../loop/pace.js';

/** Milliseconds before a lost source is tried again: doubled each time, up to the last. */
const [BACK_OFF, MOST_BACK_OFF] = [500, 60_000];
/** Attempts in vain, one after the other, before it is given up. */
const ATTEMPTS = 12;

/** @type {Tune.OpenLine} */
export function openLine({ source, hello, welcomed, signal, onEvent }) {
  let [open, lost, failures] = [false, false, 0];

  /** @type {Tune.Patiently} */
  async function patiently(work) {
    for (;;) {
      try {
        return await unless(work(), signal);
      } catch (error) {
        signal.throwIfAborted();
        open = false;
        if (!isLost(error) || ++failures >= ATTEMPTS) throw error;
        if (!lost) onEvent({ type: 'lost' });
        lost = true;
        await sleep(Math.min(BACK_OFF * 2 ** (failures - 1), MOST_BACK_OFF) * (0.5 + Math.random() / 2), signal);
      }
    }
  }

  async function connect() {
    for (let settled = open; !settled;) settled = await welcomed(await source.open(hello()));
    if (lost) onEvent({ type: 'resumed' });
    [open, lost] = [true, false];
  }

  return {
    async classes() {
      const { classes } = source;
      if (!classes) throw new EngineError('input', 'The source has no table of device classes', "Name the device's class: option `device`");
      return patiently(() => classes.call(source));
    },

    open: () => patiently(connect),

    async next() {
      const found = await patiently(async () => {
        await connect();
        return source.next();
      });
      // Only what came says that the line holds.
      failures = 0;
      return found;
    },
  };
}

/** @param {unknown} error */
const isLost = (error) => error instanceof EngineError && error.code === 'network';
