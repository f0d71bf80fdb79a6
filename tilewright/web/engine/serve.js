// A worker of the pool: inside the driver's `serve` it takes part in runs until the stop word is set.
// While it serves, no message reaches it; words in shared memory do.

import { TRAP } from './abi.js';
import { instantiate, leaveRun, live, wordsOf } from './driver.js';

self.addEventListener('message', async ({ data: { port, number } }) => {
  await live();
  /** @type {T.Driver | null} */
  let driver;
  /** @type {Int32Array} */
  let words;
  let turn = Promise.resolve();

  /** A setup to take on, or null: serve. @type {T.Take} */
  async function take(setup) {
    if (!setup) return serve();
    driver = null;
    words = wordsOf(setup.memory);
    const problem = await instantiate(setup, number).then((made) => ((driver = made), ''), ({ message }) => message);
    port.postMessage({ version: setup.version, problem });
  }

  function serve() {
    for (;;) {
      try {
        return driver?.serve(number);
      } catch {
        // The kernel's fault: this run ends with an error.
        leaveRun(words, number, TRAP);
      }
    }
  }

  port.onmessage = (/** @type {MessageEvent} */ { data }) => (turn = turn.then(() => take(data)));
  port.postMessage({});
});
