// What is tried next: asks the source until there is enough to choose from.
// Input: a line to the source, the forecast.  Output: candidates, kernels that are done, null at the end.  A source that
// takes long, or is lost, keeps no candidate from its trial that is here and need not wait.

import { isLost } from '../sources/connection.js';
import { sleep, unless } from './pace.js';

/** Candidates, none of them expected to be slow, that are chosen from. */
const CHOICE = 8;
/** Milliseconds to wait for so many; then one of fewer is tried. */
const TIMEOUT = 100;
/** So many may come without a rest: all that come are compared with all in hand. */
const AT_ONCE = 8;

/** @type {Tune.OpenQueue} */
export function openQueue({ line, forecast, pace, signal, isOver }) {
  /** What the source was asked for and has not sent yet. @type {Promise<{sent?: Awaited<ReturnType<Tune.Connection['next']>>, error?: unknown}> | null} */
  let coming = null;
  /** The source has no more, or is lost. */
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
          // A new welcome has emptied the hand.
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
        // It was compiled here, which took time of the session.
        pace.spend(milliseconds);
        if (milliseconds || ++arrivals % AT_ONCE === 0) await pace.turn();
        if (milliseconds && isOver()) return forecast.next(1);
      }
    },
  };
}
