// What the engine's worker for WebGPU imports before anything else when its JavaScript is timed (js_time.py puts it there).
// Output: after each run's answer a message `spied`: milliseconds from the request to the last submission, from the device's
// answer to the outputs' way to the page, of finish() and submit() among them, and of the device between the two; and `dispatches`
// of a run.

import { begin, seen, spy, uncount } from './js_spy.mjs';

spy();
let start = 0;
self.addEventListener('message', () => {
  start = performance.now();
  begin();
});
const post = self.postMessage.bind(self);
self.postMessage = (/** @type {any} */ message, /** @type {any} */ options) => {
  post(message, options);
  if (!message.value?.outputs) return;
  const { dawn, waits, goes, dispatches } = seen;
  post({ spied: { before: waits - start, after: performance.now() - goes, dawn, device: goes - waits }, dispatches });
  uncount();
};
