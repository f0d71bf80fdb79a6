// Lets an engine on WebGPU go on after its device was lost: on a new one, and it says so.  Loaded on demand, for the option `recover`.
// Input: an engine.  Output: the same; after a loss `info.lost` has a sentence, and `onlost` is called.  renew.js starts it again.

import { adding, bareOf, recovering } from './renew.js';

/** Devices that are replaced: whatever takes one after the other will take the next. */
const MOST_LOSSES = 3;

/** @type {T.Recovering} */
export const renewing = (engine) => recovering(telling(engine, []));

/** `losses`: of earlier devices. @type {T.TellingLosses} */
function telling(engine, losses) {
  /** @type {any} The getters that the engine has so far. */
  const { info, parts } = Object.getOwnPropertyDescriptors(engine);
  const { again: same } = engine.parts;
  const { bare, lost } = bareOf(engine);

  async function again() {
    const error = lost();
    if (!error) return telling(await same(), losses);
    if (losses.length === MOST_LOSSES) throw error;
    const states = engine.states.names.length ? ', its states are zero again' : '';
    return telling(await same(), [...losses, `${error.message}. The engine has a new device${states}.`]);
  }

  return Object.defineProperties(engine, {
    info: { get: () => adding(info.get(), losses) },
    parts: { get: () => ({ ...parts.get(), bare, again, losses: losses.length }) },
  });
}
