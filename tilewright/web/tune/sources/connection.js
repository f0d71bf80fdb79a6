// The connection to a source of candidates, and the queue of candidates to try.  A lost connection is opened again, after longer and longer
// pauses, with the list of candidates that were tried.
// Input: a source, a function that makes the hello, the forecast.  Output: classes, candidates, kernels that are done; the last error after
// ATTEMPTS failures.  The queue asks the source until it has enough candidates to choose from.  A slow or lost source does not delay
// candidates that have arrived.

import { EngineError } from '../../engine/errors.js';
import { sleep, unless } from '../loop/pace.js';
import { CLASSES, heard } from './answer_checks.js';

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

  /** Handles a welcome, which may arrive after the caller stopped waiting for it. @param {Tune.Welcome} welcome */
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

/** True if an error means that the connection is lost, so that connecting again may help. @param {unknown} error */
export const isLost = (error) => error instanceof EngineError && error.code === 'network';

/** The number of candidates, not counting those expected to be slow, among which the next one is chosen. */
const CHOICE = 8;
/** Milliseconds to wait for this number of candidates; then one of those that have arrived is tried. */
const TIMEOUT = 100;
/** The number of candidates that may arrive without a pause in between: each arrival is compared with all held candidates, which takes time. */
const AT_ONCE = 8;

/** @type {Tune.OpenQueue} */
export function openQueue({ line, forecast, pace, signal, isOver }) {
  /** The request that the source has not answered yet. @type {Promise<{sent?: Awaited<ReturnType<Tune.Connection['next']>>, error?: unknown}> | null} */
  let coming = null;
  /** True once the source has no more candidates, or is lost. */
  let dry = false;
  /** @type {unknown} */
  let failure = null;

  const ask = () => line.next().then((sent) => ({ sent }), (/** @type {unknown} */ error) => ({ error }));

  return {
    async next() {
      /** @type {Promise<null> | null} */
      let late = null;
      for (let arrivals = 0; ;) {
        const chosen = forecast.next(dry ? 0 : CHOICE);
        if (chosen) return chosen;
        if (failure) throw failure;
        if (dry) return null;
        coming ??= ask();
        late ??= forecast.peek() ? sleep(TIMEOUT, signal).then(() => null) : null;
        const came = await unless(late ? Promise.race([coming, late]) : coming, signal);
        if (!came) {
          late = null;
          const one = forecast.next(1);
          if (one) return one;
          // A new welcome has dropped all held candidates.
          continue;
        }
        coming = null;
        const { sent, error } = came;
        if (error && !isLost(error)) throw error;
        if (sent && 'done' in sent) return sent;
        [dry, failure] = [!sent, error ?? null];
        if (!sent) continue;
        forecast.take(sent);
        const { milliseconds = 0 } = sent;
        // This device compiled it, and that time counts as tuning time.
        pace.spend(milliseconds);
        if (milliseconds || ++arrivals % AT_ONCE === 0) await pace.turn();
        if (milliseconds && isOver()) return forecast.next(1);
      }
    },
  };
}
