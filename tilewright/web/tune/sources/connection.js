// The connection to a source of candidates: retries with exponential backoff, and reconnects with all that was tried.
// Input: a source, a function that makes the hello.  Output: classes, candidates; the last error after ATTEMPTS failures.

import { EngineError } from '../../engine/errors.js';
import { CLASSES, heard } from './answer_checks.js';
import { sleep, unless } from '../loop/pace.js';

/** Milliseconds of the first backoff, and the maximum; it doubles with each failure, with jitter. */
const [BACK_OFF, MOST_BACK_OFF] = [500, 60_000];
/** Failures in a row after which it gives up. */
const ATTEMPTS = 12;

/** @type {Tune.OpenConnection} */
export function openConnection({ source, hello, welcomed, signal, onEvent }) {
  let [open, lost, failures] = [false, false, 0];
  const over = new AbortController();
  const ends = AbortSignal.any([signal, over.signal]);

  /** @type {Tune.Patiently} */
  async function patiently(work) {
    for (;;) {
      try {
        return await unless(work(), ends);
      } catch (error) {
        ends.throwIfAborted();
        open = false;
        if (!isLost(error) || ++failures >= ATTEMPTS) throw error;
        if (!lost) onEvent({ type: 'lost' });
        lost = true;
        await sleep(Math.min(BACK_OFF * 2 ** (failures - 1), MOST_BACK_OFF) * (0.5 + Math.random() / 2), ends);
      }
    }
  }

  /** The welcome may come when nobody waits for it any more. @param {Tune.Welcome} welcome */
  function greet(welcome) {
    ends.throwIfAborted();
    return welcomed(welcome);
  }

  async function connect() {
    for (let settled = open; !settled;) settled = await greet(await source.open(hello()));
    if (lost) onEvent({ type: 'resumed' });
    [open, lost] = [true, false];
  }

  return {
    async classes() {
      const { classes } = source;
      if (!classes) throw new EngineError('input', 'The source has no table of device classes', "Name the device's class: option `device`");
      return heard(await patiently(() => classes.call(source)), CLASSES, 'classes');
    },

    open: () => patiently(connect),

    peek: () => source.peek?.() ?? null,

    close: () => over.abort(),

    async next() {
      const found = await patiently(async () => {
        await connect();
        return source.next();
      });
      // Only a received candidate proves that the connection works; a successful open does not.
      failures = 0;
      return found;
    },
  };
}

/** Whether the connection is lost, which may be mended. @param {unknown} error */
export const isLost = (error) => error instanceof EngineError && error.code === 'network';
