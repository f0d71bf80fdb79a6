// Checks kernels that other devices chose: the kernels of a relinked bundle are compared with the compiler's own in the page's first idle
// moments, and those that are wrong or slower here are removed.  This happens on every device, whether or not it tunes.
// Input: a loaded engine.  Output: the same engine; the tuner stores the result, so a device checks each build once.

import { hear, sleep } from './loop/pace.js';
import { recall } from './records/device_record.js';

/** Matches the URL of a relinked bundle; its first group is the class. */
const RELINKED = /\/tuned\/([^/]+)\/[^/]+\/[^/]+\/(?:bundle\.json)?$/;
/** Milliseconds that the page has to begin its first run; then the check begins in any case. */
const HEAD_START = 200;

/** Resolves with the summary once all kernels were compared; null if there is nothing to check. @type {Tune.CheckCrowd} */
export async function check(engine, { source, onSend, signal = new AbortController().signal, ...options } = {}) {
  const { url, digest } = engine.info;
  const device = RELINKED.exec(new URL(url).pathname)?.[1];
  if (!device) return null;
  const ran = firstRun(engine, signal);
  const { checked, objective } = await recall(engine);
  if (checked === digest) return null;
  // Loaded while the page starts, and only by pages that have something to check.
  const [{ tune }, { socketSource }, { signedSource }] = await Promise.all([import('./tuner.js'), import('./sources/socket.js'), import('./sources/signed.js'), ran]);
  const { key } = engine.parts.limits;
  const socket = () => socketSource(undefined, onSend);
  return tune(engine, { budget: 1, ...options, source: source ?? (key === undefined ? socket() : signedSource(socket(), key)), signal, device, objective, check: true });
}

/** Resolves after the page's first run, or soon if there is none. @param {T.Engine} engine @param {AbortSignal} signal */
async function firstRun(engine, signal) {
  const ran = new AbortController();
  const deaf = hear(engine, (_, plan) => plan !== undefined && ran.abort());
  await sleep(HEAD_START, AbortSignal.any([signal, ran.signal])).catch(() => {});
  deaf();
}
