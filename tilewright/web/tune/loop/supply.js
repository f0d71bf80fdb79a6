// What is tried next: asks the source until there is enough to choose from.
// Input: a line to the source, the forecast.  Output: candidates, kernels that are done, null at the end.  A source that
// takes long, or fails, keeps no candidate from its trial that is here already.

import { sleep, unless } from './pace.js';

/** Candidates, none of them expected to be slow, that are chosen from. */
const CHOICE = 8;
/** Milliseconds after which one of fewer is tried. */
const PATIENCE = 100;

/** @type {Tune.OpenSupply} */
export function openSupply({ line, forecast, pace, signal, isOver }) {
  /** What the source was asked for and has not sent yet. @type {Promise<{sent?: Awaited<ReturnType<Tune.Line['next']>>, error?: unknown}> | null} */
  let coming = null;
  /** The source has no more, or failed. */
  let dry = false;
  /** @type {unknown} */
  let failure = null;

  const ask = () => line.next().then((sent) => ({ sent }), (/** @type {unknown} */ error) => ({ error }));

  return {
    async next() {
      for (;;) {
        const chosen = forecast.next(dry ? 0 : CHOICE);
        if (chosen) return chosen;
        if (failure) throw failure;
        if (dry) return null;
        coming ??= ask();
        const late = forecast.peek() ? sleep(PATIENCE, signal).then(() => null) : null;
        const came = await unless(late ? Promise.race([coming, late]) : coming, signal);
        if (!came) return forecast.next(1);
        coming = null;
        const { sent, error } = came;
        if (sent && 'done' in sent) return sent;
        [dry, failure] = [!sent, error ?? null];
        if (!sent) continue;
        forecast.take(sent);
        if (!sent.milliseconds) continue;
        // It was compiled here, which took time of the session.
        pace.spend(sent.milliseconds);
        await pace.turn();
        if (isOver()) return forecast.next(0);
      }
    },
  };
}
