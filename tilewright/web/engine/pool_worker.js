// A pool worker: it takes part in runs inside the driver's `serve` until the STOP word is set.  While it serves it receives no messages;
// words in shared memory control it.

import { TRAP } from './abi.js';
import { instantiate, leaveRun, live, wordsOf } from './plan_runner.js';

onmessage = async ({ data: { port, number } }) => {
  await live();
  /** @type {T.Driver | null} */
  let driver;
  /** @type {Int32Array} */
  let words;
  let turn = Promise.resolve();

  /** Instantiates a setup; null: starts serving. @type {T.Take} */
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
        // A kernel trapped: this run ends with an error.
        leaveRun(words, number, TRAP);
      }
    }
  }

  port.onmessage = (/** @type {MessageEvent} */ { data }) => (turn = turn.then(() => take(data)));
  port.postMessage({});
};
