// Lets an engine on WebGPU go on after its device was lost: on a new one, and it says so.  Loaded on demand, for the option `recover`.
// Input: an engine.  Output: the same; after a loss `info.lost` has a sentence, and `onlost` is called.  renew.js starts it again.

import { adding, prepared, recovering, WENT_ON } from './renew.js';

/** Devices that are replaced: whatever takes one after the other will take the next. */
const MOST_LOSSES = 3;

/** @type {T.Recovering} */
export const renewing = (engine) => recovering(prepared(engine, onNewDevices(engine.states.names.length ? ', its states are zero again' : '', [])));

/** `losses`: of earlier devices, in sentences. @type {T.OnNewDevices} */
const onNewDevices = (states, losses) => ({
  losses: losses.length,
  tell: (info) => adding(info, losses),
  places: ({ message }, same) => (losses.length === MOST_LOSSES ? [] : [
    { start: same, then: (fresh) => prepared(fresh, onNewDevices(states, [...losses, `${message}. ${WENT_ON.device}${states}.`])) },
  ]),
});
