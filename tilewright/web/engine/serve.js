// A worker of the pool: inside the driver's `serve` it takes part in every run, until it is ended.
// Once it serves, no message reaches it any more; words in shared memory do.

import { instantiate, leaveRun, live, TRAP, wordsOf } from './driver.js';

/** @type {T.Serve} */
async function serve(setup, number, port) {
  try {
    const driver = await instantiate(setup, number);
    port.postMessage('');
    for (;;) {
      try {
        return driver.serve(number);
      } catch {
        // The kernel's fault, not the worker's: the run ends with an error, and the next one may come.
        leaveRun(wordsOf(setup.memory), number, TRAP);
      }
    }
  } catch (error) {
    port.postMessage(String(error));
  }
}

self.addEventListener('message', ({ data: { port, number } }) => {
  live().then(() => (port.onmessage = (/** @type {MessageEvent} */ { data }) => serve(data, number, port)));
});
